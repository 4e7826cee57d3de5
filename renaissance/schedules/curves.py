"""The closed curves of the learning rate; `schedule.py` says what they have in common.

Each class gives the learning rate at a step that is not warm-up, in double precision.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from numbers import Real
from typing import ClassVar

from renaissance.schedules.schedule import Schedule, Unit, WarmSchedule
from renaissance.settings import Setting, setting, value


def _progress(step: int, warm: int, total: int) -> float:
    """p of the module's text; 1 when the warm-up fills the whole training."""
    return min(1.0, (step - warm) / (total - warm)) if total > warm else 1.0


@value
class PolynomialLR(WarmSchedule):
    """``end_lr + (base_lr - end_lr) * (1-p)**power``."""

    type_name: ClassVar[str] = "polynomial"
    _end: ClassVar[str | None] = "end_lr"

    power: Setting[float] = setting(default=2.0, gt=0, doc="Exponent, above 0; 1 is linear.")
    end_lr: Setting[float] = setting(
        default=0.0, ge=0, doc="Learning rate at the end, from 0 to base_lr."
    )

    def _curve(self, step: int, warm: int, total: int, per_epoch: int) -> float:
        base, end = self.settings.base_lr, self.settings.end_lr
        left = 1.0 - _progress(step, warm, total)
        return float(end + (base - end) * left**self.settings.power)


@value
class CosineAnnealingLR(WarmSchedule):
    """Half a cosine, ``eta_min + (base_lr - eta_min) * (1 + cos(pi*p)) / 2``.

    Loshchilov and Hutter 2017, arXiv:1608.03983. Equals torch's CosineAnnealingLR with
    ``T_max = total_steps`` up to its end, and holds eta_min after it, where torch's rises again.

    Example:
        >>> CosineAnnealingLR().base_lr(1e-3).warmup(5, unit="epoch").lr(0, 100, 10)
        2e-05
    """

    type_name: ClassVar[str] = "cosine"
    _end: ClassVar[str | None] = "eta_min"

    eta_min: Setting[float] = setting(
        default=0.0, ge=0, doc="Learning rate at the end, from 0 to base_lr."
    )

    def _curve(self, step: int, warm: int, total: int, per_epoch: int) -> float:
        return _cosine(self, _progress(step, warm, total))


def _cosine(schedule: WarmSchedule, part: float) -> float:
    base, end = schedule.settings.base_lr, schedule.settings.eta_min
    return float(end + (base - end) * (1.0 + math.cos(math.pi * part)) / 2.0)


@value
class StepLR(WarmSchedule):
    """``base_lr * gamma**(s // step_size)``, s counted from 0, warm-up included."""

    type_name: ClassVar[str] = "step"
    demanded: ClassVar[tuple[str, ...]] = ("base_lr", "step_size", "by")

    step_size: Setting[int | None] = setting(
        default=None, ge=1, kw_only=False, doc="Length of a step of the stairs in `by`, at least 1."
    )
    gamma: Setting[float] = setting(
        default=0.1, gt=0, kw_only=False, doc="Factor at each step of the stairs, above 0."
    )
    by: Setting[Unit | None] = setting(
        default=None, doc="What step_size counts: 'step' or 'epoch'; has no default."
    )

    def _curve(self, step: int, warm: int, total: int, per_epoch: int) -> float:
        stairs = step // (self.settings.step_size * self._unit_steps(per_epoch))
        return float(self.settings.base_lr * self.settings.gamma**stairs)

    def notes(self, total_steps: int, steps_per_epoch: int = 1) -> list[str]:
        size = int(self.settings.step_size or 1) * self._unit_steps(steps_per_epoch)
        found = super().notes(total_steps, steps_per_epoch)
        if size >= total_steps:
            found.append(f"the first step of the stairs is {size} steps, training {total_steps}")
        return found

    def _span(self, per_epoch: int) -> int:
        size = int(self.settings.step_size or 1) * self._unit_steps(per_epoch)
        return max(super()._span(per_epoch), 4 * size)


@value
class MultiStepLR(WarmSchedule):
    """``base_lr * gamma**(number of milestones <= s)``, s counted from 0, warm-up included."""

    type_name: ClassVar[str] = "multistep"
    demanded: ClassVar[tuple[str, ...]] = ("base_lr", "milestones", "by")

    milestones: Setting[tuple[int, ...] | None] = setting(
        default=None,
        min_length=1,
        kw_only=False,
        doc="Positions in `by` at which the factor applies, at least 1 and rising.",
    )
    gamma: Setting[float] = setting(
        default=0.1, gt=0, kw_only=False, doc="Factor at each milestone, above 0."
    )
    by: Setting[Unit | None] = setting(
        default=None, doc="What milestones count: 'step' or 'epoch'; has no default."
    )

    def check(self) -> None:
        super().check()
        given = self.settings.milestones or (1,)
        if given[0] < 1 or any(a >= b for a, b in zip(given, given[1:])):
            raise ValueError(
                f"MultiStepLR: milestones = {given!r} is not allowed; they must be at least 1 and "
                f"rise, as in {tuple(sorted({m for m in given if m > 0} or {30, 60}))!r}"
            )

    def _curve(self, step: int, warm: int, total: int, per_epoch: int) -> float:
        passed = bisect_right(self.settings.milestones, step // self._unit_steps(per_epoch))
        return float(self.settings.base_lr * self.settings.gamma**passed)

    def notes(self, total_steps: int, steps_per_epoch: int = 1) -> list[str]:
        unit = self._unit_steps(steps_per_epoch)
        late = [m for m in self.settings.milestones or () if m * unit >= total_steps]
        found = super().notes(total_steps, steps_per_epoch)
        if late:
            found.append(f"milestones {late} lie after the end at step {total_steps}")
        return found

    def _span(self, per_epoch: int) -> int:
        last = (self.settings.milestones or (1,))[-1] * self._unit_steps(per_epoch)
        return max(super()._span(per_epoch), last * 5 // 4)


@value
class ExponentialLR(WarmSchedule):
    """``base_lr * gamma**n``, n the steps or epochs from 0, warm-up included."""

    type_name: ClassVar[str] = "exponential"
    demanded: ClassVar[tuple[str, ...]] = ("base_lr", "gamma", "by")

    gamma: Setting[float | None] = setting(
        default=None, gt=0, kw_only=False, doc="Factor of each step or epoch, above 0."
    )
    by: Setting[Unit | None] = setting(
        default=None, doc="What gamma is the factor of: 'step' or 'epoch'; has no default."
    )

    def _curve(self, step: int, warm: int, total: int, per_epoch: int) -> float:
        return float(
            self.settings.base_lr * self.settings.gamma ** (step // self._unit_steps(per_epoch))
        )


@value
class WSDLR(WarmSchedule):
    """Warm up, stay, decay: ``base_lr`` until ``p = decay_start``, then a line to ``end_lr``."""

    type_name: ClassVar[str] = "wsd"
    _end: ClassVar[str | None] = "end_lr"

    decay_start: Setting[float] = setting(
        default=0.8, ge=0, le=1, doc="Part p of the training at which the decay starts, 0 to 1."
    )
    end_lr: Setting[float] = setting(
        default=0.0, ge=0, doc="Learning rate at the end, from 0 to base_lr."
    )

    def _curve(self, step: int, warm: int, total: int, per_epoch: int) -> float:
        base, end, turn = self.settings.base_lr, self.settings.end_lr, self.settings.decay_start
        part = _progress(step, warm, total)
        if part <= turn:
            return float(base)
        return float(end + (base - end) * (1.0 - part) / (1.0 - turn))


@value
class CosineAnnealingWithWarmRestartsLR(WarmSchedule):
    """Cosines from base_lr to eta_min over cycles of t_0, t_0*t_mult, t_0*t_mult**2 ... of s - W.

    Loshchilov and Hutter 2017, arXiv:1608.03983.
    """

    type_name: ClassVar[str] = "cosine_restarts"
    demanded: ClassVar[tuple[str, ...]] = ("base_lr", "t_0", "by")
    _end: ClassVar[str | None] = "eta_min"

    t_0: Setting[int | None] = setting(
        default=None, ge=1, kw_only=False, doc="Length of the first cycle in `by`, at least 1."
    )
    t_mult: Setting[int] = setting(
        default=1, ge=1, kw_only=False, doc="Factor of each next cycle's length, at least 1."
    )
    eta_min: Setting[float] = setting(
        default=0.0, ge=0, doc="Learning rate at the end of a cycle, from 0 to base_lr."
    )
    by: Setting[Unit | None] = setting(
        default=None, doc="What t_0 counts: 'step' or 'epoch'; has no default."
    )

    def _curve(self, step: int, warm: int, total: int, per_epoch: int) -> float:
        cycle = self.settings.t_0 * self._unit_steps(per_epoch)
        place = step - warm
        if self.settings.t_mult == 1:
            place %= cycle
        else:
            while place >= cycle:
                place -= cycle
                cycle *= self.settings.t_mult
        return _cosine(self, place / cycle)

    def _span(self, per_epoch: int) -> int:
        lengths = int(1 + self.settings.t_mult + self.settings.t_mult**2)
        first = int(self.settings.t_0 or 1) * self._unit_steps(per_epoch)
        return self.warmup_steps(per_epoch) + first * lengths


@value
class OneCycleLR(Schedule):
    """Up from ``max_lr/div`` to max_lr and down to ``max_lr/div/final_div``, both half cosines.

    Smith and Topin 2018, arXiv:1708.07120. The turn is at step ``pct_start*T - 1`` and the end at
    T - 1, as in torch's OneCycleLR; beyond the end, where torch raises, the last value holds.
    """

    type_name: ClassVar[str] = "onecycle"
    demanded: ClassVar[tuple[str, ...]] = ("max_lr",)

    max_lr: Setting[float | None] = setting(
        default=None, ge=0, kw_only=False, doc="Highest learning rate, at least 0."
    )
    pct_start: Setting[float] = setting(
        default=0.3, ge=0, le=1, doc="Part of the training that rises, from 0 to 1."
    )
    div: Setting[float] = setting(
        default=25.0, ge=1, doc="max_lr over the first learning rate, at least 1."
    )
    final_div: Setting[float] = setting(
        default=1e4, ge=1, doc="First learning rate over the last one, at least 1."
    )
    by: Setting[Unit] = setting(
        default="step", doc="Move the learning rate at each 'step' or only at each 'epoch'."
    )

    def _at(self, step: int, total: int, per_epoch: int) -> float:
        if self.settings.by == "epoch":
            step -= step % per_epoch
        top = self.settings.max_lr
        first = top / self.settings.div
        turn, last = self.settings.pct_start * total - 1.0, total - 1.0
        if step <= turn:
            begin, end, part = first, top, step / turn if turn > 0 else 1.0
        else:
            begin, end = top, first / self.settings.final_div
            part = min(1.0, (step - turn) / (last - turn)) if last > turn else 1.0
        return float(end + (begin - end) * (1.0 + math.cos(math.pi * part)) / 2.0)

    def base_lrs(self) -> list[tuple[str, float | None]]:
        return [("OneCycleLR.max_lr", self.settings.max_lr)]

    def with_base_lr(self, lr: float) -> Schedule:
        return self.replace(max_lr=lr) if self.settings.max_lr is None else self


@value
class LambdaLR(WarmSchedule):
    """``base_lr * factor(s)``: a curve of one's own, as torch's LambdaLR.

    s is counted from 0 in `by`, warm-up included: ``by="epoch"`` gives the function the epoch. With
    ``base_lr=1.0`` it says the learning rate itself. It must depend on s alone, so that a resumed
    run finds the same rates; whether it still is the same function, only its name tells.

    Example:
        >>> LambdaLR(lambda epoch: 0.9**epoch, base_lr=0.1, by="epoch").simulate(4, 2)
        [0.1, 0.1, 0.09000000000000001, 0.09000000000000001]
    """

    demanded: ClassVar[tuple[str, ...]] = ("base_lr", "factor", "by")

    factor: Setting[Callable[[int], float] | None] = setting(
        default=None, kw_only=False, doc="Function of the position in `by`, at least 0."
    )
    by: Setting[Unit | None] = setting(
        default=None, doc="What the function is given: the 'step' or 'epoch'; has no default."
    )

    def _curve(self, step: int, warm: int, total: int, per_epoch: int) -> float:
        place = step // self._unit_steps(per_epoch)
        found = self.settings.factor(place)
        if not isinstance(found, Real) or not 0 <= float(found) < math.inf:
            raise ValueError(
                f"{self!r}: the factor at {self.settings.by} {place} is {found!r}; it must be a "
                "finite number, at least 0"
            )
        return float(self.settings.base_lr * float(found))

    def __repr__(self) -> str:
        factor = self.settings.factor
        name = getattr(factor, "__name__", type(factor).__name__)
        return super().__repr__().replace(repr(factor), name)
