"""How high a learning rate may be: train a few steps at rising rates, look at the loss, undo it.

The sweep follows Smith (2017, arXiv:1506.01186). Every region is copied first and put back after,
and the position is never moved, so that a task trains afterwards as if there had been no sweep.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from renaissance.busy import FIT, LOOKING
from renaissance.data.loader import Loader
from renaissance.figures import COLOURS, Line, Panel, draw_panels
from renaissance.fit import snapshot
from renaissance.switches import check_gradients
from renaissance.task import Task

#: Weight of the past in the smoothed loss, and how far it may rise above its lowest.
SMOOTHING, WORST = 0.9, 4.0


@dataclass(frozen=True)
class Sweep:
    """Learning rates tried, in order, and the smoothed loss after each."""

    rates: tuple[float, ...]
    losses: tuple[float, ...]

    @property
    def suggestion(self) -> float | None:
        """Where the loss fell steepest over the logarithm of the rate; None if it never fell."""
        reach = max(1, len(self.losses) // 10)  # over a fifth of the sweep: one step is noise
        falls = [
            (self.losses[k + reach] - self.losses[k - reach], self.rates[k])
            for k in range(reach, len(self.losses) - reach)
        ]
        best = min(falls, default=(0.0, 0.0))
        return best[1] if best[0] < 0 else None

    def plot(self, path: str | os.PathLike[str]) -> Path:
        """Draw the loss over the logarithm of the rate as a PNG."""
        places = [math.log10(rate) for rate in self.rates]
        lines = [Line("smoothed loss", places, list(self.losses), ends_in_label=False)]
        if self.suggestion is not None:
            mark = math.log10(self.suggestion)
            span = [min(self.losses), max(self.losses)]
            label = f"suggested {self.suggestion:.2g}"
            lines.append(Line(label, [mark, mark], span, COLOURS[1], ends_in_label=False))
        panels = [Panel("loss", lines)]
        return draw_panels(panels, path, title="learning rate sweep", x_label="log10 of the rate")


def sweep(task: Task, *, low: float = 1e-7, high: float = 1.0, steps: int = 100) -> Sweep:
    """Train `steps` steps from rate `low` to rate `high`, in equal factors, and undo them.

    Args:
        task: Compiled, with data.
        low, high: The range, 0 < low < high.
        steps: At least 10.

    The sweep ends early when the loss is four times its lowest, or not finite.
    """
    if not 0 < low < high < math.inf:
        raise ValueError(f"low = {low!r}, high = {high!r} is not allowed; it takes 0 < low < high")
    if steps < 10:
        raise ValueError(f"steps = {steps!r} is not allowed; it takes 10 or more")
    task.busy.check("sweep", FIT, *LOOKING)
    train = task.settings.train
    if train is None:
        raise RuntimeError("the task has no data yet: task.data(train)")
    built = task.require("optimizer")
    check_gradients("sweep")
    before = snapshot.keep(task)
    with task.switches():
        built.verify()
        built.clear_stop()
        try:
            return _sweep(
                task, train, [low * (high / low) ** (k / (steps - 1)) for k in range(steps)]
            )
        finally:
            snapshot.put_back(task, before)


def _sweep(task: Task, train: Loader, rates: list[float]) -> Sweep:
    executor = task.require().executor
    tried: list[float] = []
    losses: list[float] = []
    past, lowest = 0.0, math.inf
    for k, (rate, _) in enumerate(zip(rates, _steps(task, train, rates))):
        loss = executor.tally.means("last")["loss"]
        past = SMOOTHING * past + (1 - SMOOTHING) * loss
        smooth = past / (1 - SMOOTHING ** (k + 1))
        if not math.isfinite(smooth) or smooth > WORST * lowest:
            break
        lowest = min(lowest, smooth)
        tried.append(rate)
        losses.append(smooth)
    if not tried:
        raise RuntimeError(f"the loss is not finite at the lowest rate, {rates[0]:g}: start lower")
    return Sweep(tuple(tried), tuple(losses))


def _steps(task: Task, train: Loader, rates: list[float]) -> Iterator[None]:
    """Take one step for each rate, in the windows that fit would take, epoch after epoch."""
    executor, k = task.require().executor, task.settings.accumulate
    left = iter(rates)
    for epoch in itertools.count():
        with executor.batches(train, seed=task.seed, epoch=epoch) as batches:
            for begin in range(0, train.steps_per_epoch, k):
                rate = next(left, None)
                if rate is None:
                    return
                executor.set_rates([rate])
                count = min(k, train.steps_per_epoch - begin)
                executor.step(batches, count)
                yield
