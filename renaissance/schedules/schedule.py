"""Learning-rate schedules: pure functions of the position in training.

``schedule.lr(step, total_steps, steps_per_epoch)`` is the learning rate of the update about to be
taken, ``step`` counting attempted updates from 0. There is no hidden counter, so a resumed run, a
plot and a test see the same numbers. With T = total_steps, s the step and W the warm-up in steps:

* warm-up (s < W): ``base*(s+1)/W``, never 0; with a start: ``start + (base-start)*s/W``;
* after it the curve of each class over ``p = min(1, (s-W)/(T-W))``, or over s;
* ``by("epoch")``: s is the first step of its epoch, and units of the curve are epochs;
* s >= T holds the value at T, or the last one taken where the curve would rise again.
"""

from __future__ import annotations

import operator
import os
import pathlib
from typing import Any, ClassVar, Literal, TypeVar, overload

from typing_extensions import Self

from renaissance.schedules.picture import draw_rates
from renaissance.settings import BoundSetting, Setting, Value, setting, value

Unit = Literal["step", "epoch"]
S = TypeVar("S", bound="WarmSchedule")
T = TypeVar("T")


def _count(given: object, name: str, least: int) -> int:
    if isinstance(given, bool) or not hasattr(type(given), "__index__"):
        raise TypeError(f"{name} = {given!r} ({type(given).__name__}) is no whole number")
    number = operator.index(given)  # type: ignore[arg-type]
    if number < least:
        raise ValueError(f"{name} = {number} is not allowed; it must be at least {least}")
    return number


@value
class Schedule(Value):
    """Base of all schedules."""

    #: Whether `start` gives something that has a state of its own.
    is_stateful: ClassVar[bool] = False

    @property
    def needs_length(self) -> bool:
        """Whether rates follow from how long the whole training is."""
        return any(self.lr(step, 100, 10) != self.lr(step, 10_000, 10) for step in range(100))

    def lr(self, step: int, total_steps: int, steps_per_epoch: int = 1) -> float:
        """The learning rate of one update.

        Args:
            step: Attempted updates before this one, from 0; any number beyond the end is allowed.
            total_steps: Updates of the whole training, at least 1.
            steps_per_epoch: Updates of one epoch, at least 1.

        Raises:
            ValueError: An argument is out of range or the schedule is not complete.
        """
        step, total = _count(step, "step", 0), _count(total_steps, "total_steps", 1)
        per_epoch = _count(steps_per_epoch, "steps_per_epoch", 1)
        self.ready()
        if step < total:
            return self._at(step, total, per_epoch)
        return min(self._at(total, total, per_epoch), self._at(total - 1, total, per_epoch))

    def _at(self, step: int, total: int, per_epoch: int) -> float:
        raise NotImplementedError

    def simulate(self, total_steps: int, steps_per_epoch: int = 1) -> list[float]:
        """The learning rate of every update of a training of `total_steps` updates."""
        total = _count(total_steps, "total_steps", 1)
        per_epoch = _count(steps_per_epoch, "steps_per_epoch", 1)
        self.ready()
        return [self._at(step, total, per_epoch) for step in range(total)]

    def then(self, other: Schedule, *, at: int, unit: Unit) -> ThenLR:
        """This schedule for `at` steps or epochs, then `other`, which starts at its own 0.

        Args:
            other: Its total is what remains after `at`; this one's total is `at`.
            at: Length of the first part, at least 0.
            unit: ``"step"`` or ``"epoch"``: what `at` counts.
        """
        return ThenLR(self, other, at=at, unit=unit)

    def start(self) -> ScheduleRun:
        """What a training holds: the learning rate by step, and a state to save."""
        return ScheduleRun(self.ready())

    def base_lrs(self) -> list[tuple[str, float | None]]:
        """(place, value) of every base learning rate in this schedule."""
        raise NotImplementedError

    def with_base_lr(self, lr: float) -> Schedule:
        """This schedule with `lr` where it has no base learning rate of its own."""
        raise NotImplementedError

    def notes(self, total_steps: int, steps_per_epoch: int = 1) -> list[str]:
        """What of this schedule a training of `total_steps` updates never reaches, in words."""
        return []

    def _span(self, per_epoch: int) -> int:
        """Steps that show the whole shape in a picture."""
        return 100 * per_epoch

    def plot(
        self,
        path: str | os.PathLike[str],
        total_steps: int | None = None,
        steps_per_epoch: int = 10,
    ) -> pathlib.Path:
        """Draw the learning rate over training into a PNG and return its path.

        Args:
            path: The file; folders above it are made.
            total_steps: Updates to draw; None: as many as show the schedule's shape.
            steps_per_epoch: Updates of an epoch, at least 1.

        Raises:
            ModuleNotFoundError: matplotlib is not installed.
        """
        total = self._span(steps_per_epoch) if total_steps is None else total_steps
        rates = self.simulate(total, steps_per_epoch)
        return draw_rates(path, rates, steps_per_epoch, title=repr(self))


class ScheduleRun:
    """A schedule in use. Only that of `ReduceLROnPlateau` has a state."""

    #: Name of the logged value that `observe` wants after each validation, or None.
    monitor: str | None = None

    def __init__(self, schedule: Schedule) -> None:
        self.schedule = schedule

    def lr(self, step: int, total_steps: int, steps_per_epoch: int = 1) -> float:
        """See `Schedule.lr`."""
        return self.schedule.lr(step, total_steps, steps_per_epoch)

    def observe(self, measured: float) -> bool:
        """Take in one value of `monitor`; True when it lowered the learning rate."""
        return False

    def state_dict(self) -> dict[str, Any]:
        """The state as JSON holds it; empty for a pure schedule."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state that `state_dict` gave."""
        if state:
            raise ValueError(
                f"{type(self.schedule).__name__} has no state, received {sorted(state)}; the run "
                "was saved with another schedule"
            )


class WarmupSetting(Setting[T]):
    """The setting ``warmup``, whose fluent method takes the unit as well."""

    @overload  # type: ignore[override]  # it gives another fluent method: the purpose of this class
    def __get__(self, instance: None, owner: type) -> Self: ...
    @overload
    def __get__(self, instance: S, owner: type[S]) -> Warmup[S]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        return self if instance is None else Warmup(instance, self.name, self.__doc__ or "")


class Warmup(BoundSetting[S]):
    """``schedule.warmup(5, unit="epoch")``."""

    def __call__(self, length: int, /, unit: Unit | None = None) -> S:
        """A new value that rises to base_lr over the first `length` steps or epochs.

        Args:
            length: At least 0; 0 is no warm-up.
            unit: ``"step"`` or ``"epoch"``; has no default.
        """
        given: dict[str, Any] = {"warmup": length}
        if unit is not None:
            given["warmup_unit"] = unit
        return self._owner.replace(**given)


@value
class WarmSchedule(Schedule):
    """Base of schedules with a base learning rate and a warm-up; see the module's text."""

    demanded: ClassVar[tuple[str, ...]] = ("base_lr", "by")
    _end: ClassVar[str | None] = None  # the setting that holds the lowest learning rate

    base_lr: Setting[float | None] = setting(
        default=None, ge=0, doc="Learning rate after the warm-up, at least 0."
    )
    warmup: WarmupSetting[int | None] = setting(
        default=None,
        ge=0,
        kind=WarmupSetting,
        doc="Length of the linear warm-up in warmup_unit, at least 0.",
    )
    warmup_unit: Setting[Unit | None] = setting(
        default=None, doc="What warmup counts: 'step' or 'epoch'; has no default."
    )
    warmup_start_lr: Setting[float | None] = setting(
        default=None,
        ge=0,
        doc="Learning rate of the first warm-up step, from 0 to base_lr; None: base_lr / W.",
    )
    warmup_start_factor: Setting[float | None] = setting(
        default=None,
        ge=0,
        le=1,
        doc="The same as a part of base_lr, from 0 to 1.",
    )
    by: Setting[Unit | None] = setting(
        default="step", doc="Move the learning rate at each 'step' or only at each 'epoch'."
    )

    def check(self) -> None:
        name, given = type(self).__name__, self.settings
        if given.warmup and given.warmup_unit is None:
            raise ValueError(
                f"{name}: warmup = {given.warmup} has no unit; write "
                f".warmup({given.warmup}, unit='step') or unit='epoch' "
                "(as keyword: warmup_unit='step')"
            )
        if given.warmup_start_lr is not None and given.warmup_start_factor is not None:
            raise ValueError(
                f"{name}: warmup_start_lr={given.warmup_start_lr!r} and "
                f"warmup_start_factor={given.warmup_start_factor!r} are both given; keep one"
            )
        for setting_name in ("warmup_start_lr", self._end):
            bound = getattr(given, setting_name) if setting_name else None
            if bound is not None and given.base_lr is not None and bound > given.base_lr:
                raise ValueError(
                    f"{name}: {setting_name} = {bound!r} is above base_lr = {given.base_lr!r}; it "
                    "must be at most base_lr"
                )

    def check_complete(self) -> None:
        for name in ("warmup_start_lr", "warmup_start_factor"):
            if getattr(self.settings, name) is not None and self.settings.warmup is None:
                raise ValueError(
                    f"{type(self).__name__}: {name} = {getattr(self.settings, name)!r} has no "
                    "effect without a warm-up; add .warmup(n, unit='step') or unit='epoch'"
                )

    def warmup_steps(self, steps_per_epoch: int) -> int:
        """W: length of the warm-up in steps."""
        length = int(self.settings.warmup or 0)
        return length * steps_per_epoch if self.settings.warmup_unit == "epoch" else length

    def _at(self, step: int, total: int, per_epoch: int) -> float:
        if self.settings.by == "epoch":
            step -= step % per_epoch
        warm = self.warmup_steps(per_epoch)
        if step >= warm:
            return self._curve(step, warm, total, per_epoch)
        base, start = self.settings.base_lr, self.settings.warmup_start_lr
        if self.settings.warmup_start_factor is not None:
            start = base * self.settings.warmup_start_factor
        if start is None:
            return float(base * (step + 1) / warm)
        return float(start + (base - start) * step / warm)

    def _curve(self, step: int, warm: int, total: int, per_epoch: int) -> float:
        """The learning rate at a step that is not warm-up."""
        raise NotImplementedError

    def base_lrs(self) -> list[tuple[str, float | None]]:
        return [(f"{type(self).__name__}.base_lr", self.settings.base_lr)]

    def with_base_lr(self, lr: float) -> Schedule:
        return self.replace(base_lr=lr) if self.settings.base_lr is None else self

    def notes(self, total_steps: int, steps_per_epoch: int = 1) -> list[str]:
        warm = self.warmup_steps(steps_per_epoch)
        if warm < total_steps:
            return []
        return [f"the warm-up of {warm} steps fills the whole training of {total_steps}"]

    def _unit_steps(self, per_epoch: int) -> int:
        """Steps in one unit of the curve."""
        return per_epoch if self.settings.by == "epoch" else 1

    def _span(self, per_epoch: int) -> int:
        return max(super()._span(per_epoch), 4 * self.warmup_steps(per_epoch))


@value
class ConstantLR(WarmSchedule):
    """``base_lr`` throughout, after the warm-up."""

    type_name: ClassVar[str] = "constant"

    def _curve(self, step: int, warm: int, total: int, per_epoch: int) -> float:
        return float(self.settings.base_lr)


@value
class ThenLR(Schedule):
    """One schedule for `at` steps or epochs, then another from its own 0: ``a.then(b, ...)``."""

    type_name: ClassVar[str] = "then"

    first: Setting[Schedule] = setting(
        kw_only=False, doc="The schedule up to `at`, which is its total."
    )
    second: Setting[Schedule] = setting(
        kw_only=False, doc="The schedule from `at` on, whose total is what remains."
    )
    at: Setting[int] = setting(ge=0, doc="Length of the first part in `unit`, at least 0.")
    unit: Setting[Unit] = setting(doc="What `at` counts: 'step' or 'epoch'.")

    def check(self) -> None:
        for part in (self.settings.first, self.settings.second):
            if part.is_stateful:
                raise ValueError(
                    f"then: {part!r} depends on measured values and cannot be part of a sequence"
                )

    def ready(self) -> Self:
        self.settings.first.ready()
        self.settings.second.ready()
        return super().ready()

    def _at(self, step: int, total: int, per_epoch: int) -> float:
        length = self._length(per_epoch)
        if step < length:
            return float(self.settings.first.lr(step, length, per_epoch))
        return float(self.settings.second.lr(step - length, max(1, total - length), per_epoch))

    def base_lrs(self) -> list[tuple[str, float | None]]:
        return [*self.settings.first.base_lrs(), *self.settings.second.base_lrs()]

    def with_base_lr(self, lr: float) -> Schedule:
        first, second = self.settings.first, self.settings.second
        return self.replace(first=first.with_base_lr(lr), second=second.with_base_lr(lr))

    def _span(self, per_epoch: int) -> int:
        return self._length(per_epoch) + int(self.settings.second._span(per_epoch))

    def _length(self, per_epoch: int) -> int:
        """Steps of the first part."""
        return int(self.settings.at * (per_epoch if self.settings.unit == "epoch" else 1))

    def notes(self, total_steps: int, steps_per_epoch: int = 1) -> list[str]:
        length = self._length(steps_per_epoch)
        found = list(self.settings.first.notes(length, steps_per_epoch)) if length else []
        if length >= total_steps:
            second = type(self.settings.second).__name__
            return [*found, f"{second} starts at step {length}, after the end at {total_steps}"]
        return [*found, *self.settings.second.notes(total_steps - length, steps_per_epoch)]

    def __repr__(self) -> str:
        first, second, at, unit = (getattr(self.settings, n) for n in self.Settings.model_fields)
        return f"{first!r}.then({second!r}, at={at!r}, unit={unit!r})"


def resolve_lr(optimizer: Value, schedule: Schedule | None) -> Schedule:
    """The complete schedule of an optimizer: exactly one of the two says the learning rate.

    Args:
        optimizer: Its ``settings.lr`` is a constant learning rate, the base of a schedule that has
            none, or None.
        schedule: None stands for a constant one.

    Raises:
        ValueError: Both or neither of the two places hold a learning rate, or the schedule is not
            complete.
    """
    lr, name = optimizer.settings.lr, type(optimizer).__name__
    if schedule is None:
        if lr is None:
            raise ValueError(
                f"no learning rate: {name}.lr is not set and there is no schedule; write "
                f"{name}(lr=...) for a constant one, or give a schedule with base_lr"
            )
        return ConstantLR(base_lr=lr)
    for place, given in schedule.base_lrs():
        if lr is not None and given is not None:
            raise ValueError(
                f"two learning rates: {name}.lr = {lr!r} and {place} = {given!r}; keep one"
            )
        if lr is None and given is None:
            raise ValueError(
                f"no learning rate: neither {name}.lr nor {place} is set; set {place} (or, for a "
                f"constant one, {name}.lr without a schedule)"
            )
    return (schedule if lr is None else schedule.with_base_lr(lr)).ready()
