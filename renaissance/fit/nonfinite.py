"""The end of a run whose updates meet infinities or NaN, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from renaissance.data.loader import Loader

if TYPE_CHECKING:
    from renaissance.task import Task


class NonFiniteError(RuntimeError):
    """Training stopped: too many updates in a row met infinities or NaN."""


def describe_non_finite(task: Task, train: Loader, steps_per_epoch: int) -> str:
    """Which parameter and which samples ended the run."""
    updater = task.require().updater
    skips, attempted = updater.scalars["bad"], updater.scalars["attempted"]
    name = updater.first_non_finite() or "the loss"
    epoch, step = task.position.epoch, task.position.step - 1 - (task.attempted_steps - attempted)
    if step < 0:  # it was noticed in the epoch after
        epoch, step = epoch - 1, step + steps_per_epoch
    k = task.require().recipe.accumulate
    window = range(step * k, min((step + 1) * k, train.steps_per_epoch))
    ids = [i for j in window for i in train.batch_at(epoch, j, seed=task.seed).ids.tolist()]
    shown = ", ".join(map(str, ids[:8])) + (" ..." if len(ids) > 8 else "")
    return (
        f"{skips} updates in a row met infinities or NaN and were skipped; the first bad gradient "
        f"of the last one is of {name}, its samples were {shown}. The weights are those before. "
        "Lower the learning rate, clip gradients, or look at these samples"
    )
