"""`Task.dry_run`: a few steps and a validation, and everything put back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from renaissance.data.loader import Loader
from renaissance.fit import snapshot
from renaissance.fit.evaluation import evaluate
from renaissance.switches import check_gradients

if TYPE_CHECKING:
    from renaissance.assembly.build import Built
    from renaissance.task import Task


def dry_run(task: Task, steps: int) -> dict[str, float]:
    """What `Task.dry_run` does."""
    built, train = task.require("optimizer"), task.settings.train
    if train is None:
        raise RuntimeError("the task has no data yet: task.data(train)")
    check_gradients("task.dry_run")
    before = snapshot.keep(task)
    try:
        return _dry_run(task, built, train, steps)
    finally:
        snapshot.put_back(task, before)


def _dry_run(task: Task, built: Built, train: Loader, steps: int) -> dict[str, float]:
    with task.switches():
        built.verify()
        built.clear_stop()
        for step in range(steps):
            with built.executor.batches(
                train, seed=task.seed, epoch=0, start_step=step % train.steps_per_epoch
            ) as batches:
                built.executor.set_rates([task.learning_rate_at(step)])
                built.executor.step(batches, 1)
        means = built.executor.tally.means("last")
        if task.settings.valid is not None:
            found = evaluate(built, task.settings.valid, seed=task.seed)
            means |= {f"val_{name}": mean for name, mean in found.items()}
    return means
