"""Checkpoints of a task: writing them during fit, finding one, and continuing from it."""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from renaissance.callbacks import CallbackList, ModelCheckpoint
from renaissance.checkpoint import Checkpoint, write_checkpoint
from renaissance.fit import snapshot
from renaissance.fit.hoststate import state_of
from renaissance.fit.identity import awaited_by, check_awaited, identity_of, is_other_data
from renaissance.fit.options import Fitted
from renaissance.saver import Saver, checkpoint_folders, open_checkpoint, remove_leftovers
from renaissance.tensorfile import CheckpointError

if TYPE_CHECKING:
    from renaissance.task import Task

logger = logging.getLogger("renaissance")

CHECKPOINTS = "checkpoints"  # folder of a run's checkpoints
TWO_COPIES_BYTES = 1 << 30  # of state up to which the host holds two copies
LONG_SECONDS = 0.1  # of waiting for the disk that are worth a line


class Checkpoints:
    """The checkpoints that one fit writes; silent when the task has no run folder.

    Args:
        task: The task.
        callbacks: Whose state goes along.
        keep: How many of the last ones stay.

    Training waits for the copy to the host only. A disk that is slow for once makes no difference
    either, up to `TWO_COPIES_BYTES` of state: a second copy is taken while the first is written.
    """

    def __init__(self, task: Task, callbacks: CallbackList, keep: int | None) -> None:
        self._task, self._callbacks = task, callbacks
        self._has_own_best = any(isinstance(callback, ModelCheckpoint) for callback in callbacks)
        run_dir = task.run_dir
        self._saver: Saver | None = None
        if run_dir is not None:
            files = snapshot.files_of(task.require())
            ahead = 1 if snapshot.bytes_of(files) <= TWO_COPIES_BYTES else 0
            self._saver = Saver(run_dir / CHECKPOINTS, keep=keep, ahead=ahead)
            self._copies = deque(snapshot.HostCopy(files) for _ in range(1 + ahead))
            self._has_waited = False
            # Each checkpoint names its data. Arrays are digested for that, a second for 1.5 GB:
            # now, and not in the step that saves first.
            identity_of(task)

    def save(
        self,
        *,
        best: bool = False,
        wait: bool = False,
        callbacks: list[dict[str, Any]] | None = None,
    ) -> Path | None:
        """Start writing the task's state as it is now; with `wait` return after the commit.

        States of callbacks are theirs of this moment, unless others are given.

        The pointer ``best`` names it when it is the best, unless a `ModelCheckpoint` decides that.
        """
        if self._saver is None:
            return None
        built = self._task.require()
        states = self._callbacks.state_dict() if callbacks is None else callbacks
        state = state_of(self._task, states)
        step = self._task.position.attempted
        is_named = best and not self._has_own_best
        self._wait_for_room(self._saver)
        copies = self._copies[0].take(snapshot.files_of(built))
        place = self._saver.save(step, copies, state, best=is_named)
        self._copies.rotate()  # the one used longest ago comes next
        if wait:
            self.wait()
        return place

    def wait(self) -> None:
        """Return when nothing is being written; raise what went wrong."""
        if self._saver is not None:
            self._saver.wait()

    def _wait_for_room(self, saver: Saver) -> None:
        """Return when the oldest copy is on the disk; a long wait is said once."""
        begin = time.perf_counter()
        saver.make_room()
        seconds = time.perf_counter() - begin
        if seconds > LONG_SECONDS and not self._has_waited:
            self._has_waited = True
            logger.warning(
                "checkpoints: training waited %.1f s at step %d for an earlier one to be written; "
                "save less often, or on a faster disk",
                seconds,
                self._task.position.attempted,
            )

    def close(self) -> None:
        """Finish what is being written; raise what went wrong."""
        if self._saver is not None:
            self._saver.close()


def save(task: Task, folder: str | os.PathLike[str]) -> Path:
    """Write one checkpoint and return after its commit."""
    if task.running_checkpoints is not None:  # which may be writing to the same folder
        task.running_checkpoints.wait()
    files = snapshot.files_of(task.require("optimizer"))
    remove_leftovers(Path(folder).parent)
    copies = snapshot.HostCopy(files).take(files)
    running = task.running_callbacks
    states = task.callback_states if running is None else running.state_dict()
    return write_checkpoint(folder, copies(), state_of(task, states))


def load(
    task: Task, place: str | os.PathLike[str], *, weights_only: bool, allow: Collection[str]
) -> Path:
    """Load a checkpoint, a pointer's or a run's newest intact one; returns its folder."""
    built, checkpoint = task.require(), _open(place)
    if not built.recipe.trains:
        weights_only = True  # there is no run that could go on
    _load(task, checkpoint, weights_only=weights_only, allow=allow)
    if not built.recipe.trains and "ema" in checkpoint.files and not built.has_ema:
        logger.warning(
            "load: the checkpoint has averages, which its run is evaluated with; these are its "
            "raw weights. task.ema(decay) before compile takes the averages too"
        )
    if not weights_only:
        if is_other_data(task, checkpoint):
            task.fitted = Fitted()  # what the fit before this was given is another run's
        task.awaited = awaited_by(task, checkpoint, allow)
    return checkpoint.path


def resume(task: Task, place: object, allow: Collection[str]) -> Path | None:
    """What ``fit(resume=...)`` asks for; None for a fresh start, which is said.

    Raises:
        CheckpointError: There are checkpoints and none is intact.
        ValueError: `place` is none of False, "auto" and a path; or the run differs.
    """
    if place is False:
        _tell_of_earlier(task)
        check_awaited(task, allow)
        return None
    if place == "auto":
        if task.run_dir is None:
            raise ValueError("resume='auto' looks into the run folder: give Task(run_dir=...)")
        if not checkpoint_folders(task.run_dir / CHECKPOINTS):  # killed before the first, perhaps
            logger.warning("resume: no checkpoint in %s yet; a fresh start", task.run_dir)
            check_awaited(task, allow)
            return None
        place = task.run_dir
    if not isinstance(place, (str, os.PathLike)):
        raise ValueError(f"resume = {place!r} is not allowed; it takes False, 'auto' or a path")
    checkpoint = _open(place)
    _load(task, checkpoint, weights_only=False, allow=allow)
    task.awaited = None
    position = task.position
    logger.info(
        "resumed from %s: epoch %d, step %d, %d steps in all",
        checkpoint.path,
        position.epoch,
        position.step,
        position.attempted,
    )
    return checkpoint.path


def _tell_of_earlier(task: Task) -> None:
    """A fresh start into the folder of an earlier run is seldom meant."""
    if task.run_dir is None or task.position.attempted:
        return
    if checkpoint_folders(task.run_dir / CHECKPOINTS):
        logger.warning(
            "fit: %s has checkpoints of an earlier run; this one starts afresh and writes among "
            "them. resume='auto' goes on from there, another run_dir keeps them apart",
            task.run_dir,
        )


def _open(place: str | os.PathLike[str]) -> Checkpoint:
    checkpoint, rejected = open_checkpoint(place)
    for path, reason in rejected:
        logger.warning("checkpoint %s was passed over: %s", path, reason)
    if checkpoint is None:
        reasons = "; ".join(reason for _, reason in rejected)
        reasons = reasons or "none is there; resume='auto' starts such a run afresh"
        raise CheckpointError(f"no intact checkpoint in {place}: {reasons}")
    return checkpoint


def _load(
    task: Task, checkpoint: Checkpoint, *, weights_only: bool, allow: Collection[str]
) -> None:
    built = task.require()
    if weights_only:
        snapshot.load_weights(built, checkpoint)
        states: list[dict[str, Any]] = []
    else:
        states = snapshot.restore(task, checkpoint, allow)
    task.callback_states = states
    built.executor.forget_mode()
