"""The one schedule with a state: lower the learning rate when a measured value stops improving."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal

from renaissance.direction import direction
from renaissance.jsontext import number, optional, whole
from renaissance.schedules.schedule import ScheduleRun, WarmSchedule
from renaissance.settings import Setting, setting, value


@value
class ReduceLROnPlateau(WarmSchedule):
    """Multiply the learning rate by `factor` after more than `patience` values without progress.

    The value itself is immutable like every schedule, and its `lr` is the curve without any
    reduction; `start()` gives the `PlateauRun` that a training holds and saves. Counts as torch's
    ReduceLROnPlateau does with its relative threshold, except that NaN is an error.

    Example:
        >>> run = ReduceLROnPlateau(base_lr=0.1, patience=0).start()
        >>> run.observe(1.0), run.observe(1.0), run.lr(5, 100)
        (False, True, 0.010000000000000002)
    """

    type_name: ClassVar[str] = "plateau"
    is_stateful: ClassVar[bool] = True
    _end: ClassVar[str | None] = "min_lr"

    factor: Setting[float] = setting(
        default=0.1, gt=0, lt=1, doc="Factor of each reduction, between 0 and 1."
    )
    patience: Setting[int] = setting(
        default=10, ge=0, doc="Values without progress that are let pass, at least 0."
    )
    threshold: Setting[float] = setting(
        default=1e-4, ge=0, doc="Least progress, as a part of the best value, at least 0."
    )
    cooldown: Setting[int] = setting(
        default=0, ge=0, doc="Values that are not counted after a reduction, at least 0."
    )
    min_lr: Setting[float] = setting(
        default=0.0, ge=0, doc="Lowest learning rate, from 0 to base_lr."
    )
    monitor: Setting[str] = setting(
        default="val_loss", min_length=1, doc="Name of the logged value to watch."
    )
    mode: Setting[Literal["auto", "min", "max"]] = setting(
        default="auto",
        doc="Whether lower ('min') or higher ('max') is better; 'auto': by the name, such as "
        "val_loss, accuracy or val_auc; another one needs 'min' or 'max'.",
    )

    def check_complete(self) -> None:
        super().check_complete()
        direction(type(self).__name__, self.settings.monitor, self.settings.mode)

    @property
    def direction(self) -> str:
        """ "min" or "max": where the watched value is to go."""
        return direction(type(self).__name__, self.settings.monitor, self.settings.mode)

    def start(self) -> PlateauRun:
        return PlateauRun(self.ready())

    def _curve(self, step: int, warm: int, total: int, per_epoch: int) -> float:
        return float(self.settings.base_lr)


class PlateauRun(ScheduleRun):
    """A `ReduceLROnPlateau` in use: the best value so far, and counters of values."""

    def __init__(self, schedule: ReduceLROnPlateau) -> None:
        super().__init__(schedule)
        settings = schedule.settings
        self.monitor = settings.monitor
        self._higher = schedule.direction == "max"
        self.best: float | None = None
        self.bad = 0  # values without progress since the last one or the last reduction
        self.cooling = 0  # values that will not be counted
        self.reductions = 0

    def lr(self, step: int, total_steps: int, steps_per_epoch: int = 1) -> float:
        """The curve without reductions, times ``factor**reductions``, not below min_lr."""
        plain = super().lr(step, total_steps, steps_per_epoch)
        if not self.reductions:
            return plain
        settings = self.schedule.settings
        lowered = float(plain * settings.factor**self.reductions)
        return max(lowered, min(plain, float(settings.min_lr)))

    def observe(self, measured: float) -> bool:
        """Take in one value of `monitor`; True when it lowered the learning rate.

        Raises:
            ValueError: The value is NaN, or infinitely good, and nothing compares with it.
        """
        measured = float(measured)
        if math.isnan(measured) or measured == (math.inf if self._higher else -math.inf):
            raise ValueError(
                f"ReduceLROnPlateau: {self.monitor} is {measured}, which cannot be compared; find "
                "where the training diverged (rn.TerminateOnNaN stops there) or watch another one"
            )
        settings = self.schedule.settings
        if self._is_better(measured):
            self.best, self.bad = measured, 0
        else:
            self.bad += 1
        if self.cooling:
            self.cooling, self.bad = self.cooling - 1, 0
        if self.bad <= settings.patience:
            return False
        self.cooling, self.bad = settings.cooldown, 0
        before = max(settings.base_lr * settings.factor**self.reductions, settings.min_lr)
        if before <= settings.min_lr:
            return False
        self.reductions += 1
        return True

    def _is_better(self, measured: float) -> bool:
        if math.isinf(measured):
            return False  # the worst value there is
        if self.best is None:
            return True
        least = abs(self.best) * float(self.schedule.settings.threshold)
        return measured > self.best + least if self._higher else measured < self.best - least

    def state_dict(self) -> dict[str, Any]:
        """best (None before the first value), bad, cooling, reductions."""
        return {
            "best": self.best,
            "bad": self.bad,
            "cooling": self.cooling,
            "reductions": self.reductions,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state that `state_dict` gave."""
        if state.keys() != self.state_dict().keys():
            raise ValueError(
                f"a ReduceLROnPlateau's state has {sorted(self.state_dict())}, received "
                f"{sorted(state)}; the run was saved with another schedule"
            )
        self.best = optional(number, state["best"])
        self.bad, self.cooling = whole(state["bad"]), whole(state["cooling"])
        self.reductions = whole(state["reductions"])
