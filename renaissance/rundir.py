"""What a fit writes into its run's folder beside checkpoints: plan, facts, metrics, curves."""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from renaissance.facts import run_facts, write_facts
from renaissance.hooks import Callback
from renaissance.loggers import CSVLogger, JSONLogger

if TYPE_CHECKING:
    from renaissance.task import Task

logger = logging.getLogger("renaissance")


def with_loggers(callbacks: Sequence[Callback], task: Task) -> list[Callback]:
    """The callbacks, with metrics.csv and steps.jsonl for a task that has a run folder."""
    found = list(callbacks)
    if task.run_dir is not None:
        for kind in (CSVLogger, JSONLogger):
            if not any(isinstance(callback, kind) for callback in found):
                found.append(kind())
    return found


def begin(task: Task) -> None:
    """plan.txt and run.json; a resumed run adds what differs this time."""
    if task.run_dir is None:
        return
    built = task.require()
    task.run_dir.mkdir(parents=True, exist_ok=True)
    (task.run_dir / "plan.txt").write_text(built.plan.to_text() + "\n", encoding="utf-8")
    facts = run_facts(
        seed=task.seed,
        device=task.device,
        name=task.name,
        precision=task.precision.name,
        deterministic=task.deterministic,
        switches=task.switches().record(),
        plan=built.plan.hash(),
        command=sys.argv,
    )
    write_facts(task.run_dir / "run.json", facts | task.noted)


def end(task: Task) -> None:
    """curves.png, where matplotlib is installed and an epoch has ended."""
    has_pictures = importlib.util.find_spec("matplotlib") is not None
    if task.run_dir is not None and len(task.history) and has_pictures:
        try:
            task.history.plot(task.run_dir / "curves.png", title=task.name)
        except OSError as error:  # the training is done, and its checkpoint safe
            logger.warning("curves.png could not be drawn in %s: %s", task.run_dir, error)
