"""One call of fit: what to go on from, the schedule's horizon, the run's folder, then the loop."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from renaissance.assembly.misfit import check_data
from renaissance.busy import FIT
from renaissance.data.loader import Loader
from renaissance.fit import rundir
from renaissance.fit.evaluation import forget_guests
from renaissance.fit.loop import FitLoop
from renaissance.fit.options import FitOptions, Fitted, Horizon, horizon_for
from renaissance.fit.resume import Checkpoints, resume
from renaissance.hooks import Callback, CallbackList

if TYPE_CHECKING:
    from renaissance.task import Task


logger = logging.getLogger("renaissance")


def _is_resumed(
    task: Task, train: Loader, valid: Loader | None, arguments: Mapping[str, Any]
) -> bool:
    """Take a fit's data for the task's, and go on from a checkpoint if asked for.

    A refusal leaves the task with the data that it had.
    """
    before, recipe = task.fitted, task.require().recipe
    task.fitted = Fitted(train, valid, recipe.train, recipe.valid)
    try:
        return resume(task, arguments["resume"], arguments["allow"]) is not None
    except BaseException:
        task.fitted = before
        raise


def run_fit(
    task: Task,
    train: Loader,
    options: FitOptions,
    arguments: Mapping[str, Any],
    callbacks: Sequence[Callback],
    verbose: int,
) -> None:
    """Resume if asked for, settle the schedule's horizon, and train."""
    built = task.require()
    for loader in (train, options.validation):
        check_data(built, loader, "fit")
    names = ["loss", *built.executor.tally.names[1:], "learning_rate"]
    if options.validation is not None:
        names += [f"val_{name}" for name in built.executor.tally.names]
    params = {"epochs": options.epochs, "steps": options.steps_per_epoch, "metrics": names}
    ours = [callbacks] if isinstance(callbacks, Callback) else callbacks
    given = rundir.with_loggers([*task.settings.callbacks, *ours], task)
    everyone = CallbackList(given, task, params=params)
    with task.busy.doing(FIT), task.switches(), rundir.alone(task):
        built.verify()
        is_resumed = _is_resumed(task, train, options.validation, arguments)
        built.clear_stop()
        everyone.load_state_dict(task.callback_states)
        end = options.last_step(task.position)
        wanted = Horizon(end, options.steps_per_epoch)
        task.horizon = horizon_for(wanted, task.horizon, arguments["horizon"], task.rates.schedule)
        earlier = task.history.params.get("steps", options.steps_per_epoch)
        if is_resumed and earlier != options.steps_per_epoch:
            logger.warning(
                "resume: epochs have %d steps now, they had %s; lost: equality with the unbroken "
                "run",
                *(options.steps_per_epoch, earlier),
            )
        task.history.params = {"epochs": options.epochs, "steps": options.steps_per_epoch}
        if task.position.attempted >= end and task.position.step == 0:
            logger.warning(
                "fit: nothing is left to do: %d steps are taken, the end is at %d",
                task.position.attempted,
                end,
            )
        rundir.begin(task)
        checkpoints = Checkpoints(task, everyone, arguments["keep"])
        task.running_callbacks, task.running_checkpoints = everyone, checkpoints
        try:
            loop = FitLoop(task, train, options, everyone, end, verbose, checkpoints)
            loop.progress.say(*([f"resumed at {task.position}"] if is_resumed else []))
            loop.run()
        finally:
            task.callback_states = everyone.state_dict()
            task.running_callbacks = task.running_checkpoints = None
            forget_guests(task, built, train, options.validation, training=True)
        rundir.end(task)
