"""The callbacks that come with the library: stopping early, keeping the best, stopping on NaN."""

from __future__ import annotations

import logging
import math
import os
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from renaissance.hooks import Callback as Callback
from renaissance.hooks import CallbackList as CallbackList
from renaissance.hooks import Phase as Phase
from renaissance.hooks import check_hook_names
from renaissance.jsontext import number, optional, switch, whole
from renaissance.logs import LazyLogs as LazyLogs
from renaissance.logs import Logs
from renaissance.monitor import Monitor
from renaissance.saver import checked_name, remove_checkpoint, step_name, write_pointer
from renaissance.wording import telling_names

logger = logging.getLogger("renaissance")


class EarlyStopping(Callback):
    """Stop when a value has not improved for ``patience`` epochs in which it was measured.

    Args:
        monitor: The value watched, a name in the epoch's logs.
        patience: Epochs without improvement after which training stops, 1 or more.
        min_delta: Smallest change that counts as an improvement, in the monitor's unit.
        mode: "min", "max", or "auto" by the name.
        restore_best: Put the weights of the best epoch back when training ends after an epoch,
            by this callback or not. They are kept in memory, or in ``run_dir/best-<monitor>/``
            when the task has a run_dir, so that a resumed run has them too.

    Attributes:
        best, best_epoch: The best value and its epoch, None before the first.
        wait: Epochs since then.
        stopped_epoch: The epoch after which it stopped training, or None.
    """

    phase = Phase.DECISIONS

    @telling_names(
        restore_best_weights="write restore_best=True",
        verbose="fit says why it ended, unless fit(verbose=0)",
        check_on_train_epoch_end="it looks after each epoch that has the value",
    )
    def __init__(
        self,
        monitor: str = "val_loss",
        *,
        patience: int,
        min_delta: float = 0.0,
        mode: str = "auto",
        restore_best: bool = False,
    ) -> None:
        if isinstance(patience, bool) or not isinstance(patience, int):
            raise TypeError(
                f"EarlyStopping: patience = {patience!r} ({type(patience).__name__}) is not "
                "allowed; it must be a whole number of epochs, 1 or more"
            )
        if patience < 1:
            raise ValueError(
                f"EarlyStopping: patience = {patience} is not allowed; it must be 1 or more epochs"
            )
        self._watched = Monitor("EarlyStopping", monitor, mode, min_delta)
        self.patience, self.restore_best = patience, restore_best
        self.reset()

    def __repr__(self) -> str:
        return f"EarlyStopping({self.monitor!r}, patience={self.patience})"

    def reset(self) -> None:
        self._watched.reset()
        self.wait = 0
        self.stopped_epoch: int | None = None
        self._snapshot: Any = None
        self._is_stopping = False  # from the decision to the end of that fit
        self._seen_steps: int | None = None  # attempted steps at the last end of an epoch
        self._best_steps: int | None = None  # and at the end of the best one

    @property
    def monitor(self) -> str:
        return self._watched.name

    @property
    def best(self) -> float | None:
        return self._watched.best

    @property
    def best_epoch(self) -> int | None:
        return self._watched.best_epoch

    def on_train_begin(self, logs: Logs) -> None:
        self._watched.check(self.params)
        if self._is_stopping:
            logger.warning(
                "EarlyStopping: the resumed run had already stopped after epoch %d; to train on, "
                "resume without this callback",
                (self.stopped_epoch or 0) + 1,
            )
            self.task.stop_training = True
            return
        self.stopped_epoch = None
        if self.wait >= self.patience:  # fit was called once more after it had stopped
            self.wait = 0

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        self._seen_steps = self.task.attempted_steps
        value = self._watched.read(logs)
        if value is None:
            return
        if self._watched.observe(value, epoch):
            self.wait = 0
            self._keep_weights()
            return
        self.wait += 1
        if self.wait >= self.patience:
            self.stopped_epoch, self._is_stopping = epoch, True
            self.task.stop_training = True

    def on_train_end(self, logs: Logs) -> None:
        # Stopped within an epoch, the run is to be continued from its own weights.
        at_the_end = self._seen_steps == self.task.attempted_steps
        if self.restore_best and self.best_epoch is not None and at_the_end:
            self._restore_weights()
        self._is_stopping = False

    def reason(self) -> str:
        if self.stopped_epoch is None or self.best_epoch is None:
            return ""
        kept = ", whose weights are back" if self.restore_best else ""
        return (
            f"{self.monitor} has not improved for {self.patience} epochs; the best was "
            f"{self.best:.4g} at epoch {self.best_epoch + 1}{kept}"
        )

    def _folder(self, steps: int | None) -> pathlib.Path | None:
        """Where the weights of the best epoch, which ended after so many steps, are on disk."""
        if self.task.run_dir is None or steps is None:
            return None
        return pathlib.Path(self.task.run_dir) / f"best-{self._watched.name}" / step_name(steps)

    def _keep_weights(self) -> None:
        if not self.restore_best:
            return
        old, self._best_steps = self._best_steps, self.task.attempted_steps
        folder, replaced = self._folder(self._best_steps), self._folder(old)
        if folder is None:
            self._snapshot = self.task.snapshot_weights()
            return
        self.task.save(folder)
        if self.is_main and replaced is not None and replaced.is_dir() and replaced != folder:
            remove_checkpoint(replaced)

    def _restore_weights(self) -> None:
        folder = self._folder(self._best_steps)
        if self._snapshot is not None:
            self.task.restore_weights(self._snapshot)
        elif folder is not None and folder.is_dir():
            self.task.load(folder, weights_only=True)
        else:
            logger.warning(
                "EarlyStopping: the weights of the best epoch %d are gone (%s); the last weights "
                "stay",
                (self.best_epoch or 0) + 1,
                folder or "they were in memory only; Task(run_dir=...) keeps them on disk",
            )

    def state_dict(self) -> dict[str, Any]:
        return self._watched.state_dict() | {
            "wait": self.wait,
            "stopped_epoch": self.stopped_epoch,
            "is_stopping": self._is_stopping,
            "seen_steps": self._seen_steps,
            "best_steps": self._best_steps,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if dict(state) == self.state_dict():  # the same object goes on, with what it remembers
            return
        self.reset()
        if self._watched.load_state_dict(state):
            self.wait = whole(state["wait"])
            self.stopped_epoch = optional(whole, state["stopped_epoch"])
            self._is_stopping = switch(state["is_stopping"])
            self._seen_steps = optional(whole, state["seen_steps"])
            self._best_steps = optional(whole, state["best_steps"])


class ModelCheckpoint(Callback):
    """Save the whole state whenever a value improves, and keep the best ``keep`` of them.

    Each is a checkpoint ``step-...`` in the folder, and the file ``best`` there names the best one:
    ``task.load("run/checkpoints/best")``. With keep=3, ``best-2`` and ``best-3`` name the next.

    Args:
        monitor: The value watched, a name in the epoch's logs.
        mode: "min", "max", or "auto" by the name.
        keep: How many to keep, 1 or more.
        folder: Where; ``checkpoints`` in the task's run_dir by default.
    """

    phase = Phase.CHECKPOINTS

    @telling_names(
        save_best_only="it saves the best and nothing else; fit(checkpoint=...) saves the rest",
        save_weights_only="it saves all; task.load(folder, weights_only=True) takes the weights",
        save_freq='write fit(checkpoint=500), in steps, or fit(checkpoint="10min")',
        every_n_epochs='each epoch is saved by fit(checkpoint="epoch")',
        save_top_k="write keep",
        filepath="write folder, for checkpoints are folders of their own there",
        dirpath="write folder",
        verbose="it is silent; what it saved is in its attribute saved",
    )
    def __init__(
        self,
        monitor: str = "val_loss",
        *,
        mode: str = "auto",
        keep: int = 1,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        if isinstance(keep, bool) or not isinstance(keep, int) or keep < 1:
            raise ValueError(
                f"ModelCheckpoint: keep = {keep!r} is not allowed; it must be a whole number, "
                "1 or more"
            )
        self._watched = Monitor("ModelCheckpoint", monitor, mode)
        self.keep = keep
        self.folder = None if folder is None else pathlib.Path(folder)
        self.reset()

    def __repr__(self) -> str:
        return f"ModelCheckpoint({self._watched.name!r}, keep={self.keep})"

    def reset(self) -> None:
        self._watched.reset()
        #: (value, name of the checkpoint), best first
        self.saved: list[tuple[float, str]] = []

    @property
    def monitor(self) -> str:
        return self._watched.name

    def on_train_begin(self, logs: Logs) -> None:
        self._watched.check(self.params)
        self._root()

    def _root(self) -> pathlib.Path:
        if self.folder is not None:
            return self.folder
        if self.task.run_dir is None:
            raise RuntimeError(
                "ModelCheckpoint: there is no place to save to; give Task(run_dir=...) or "
                "ModelCheckpoint(folder=...)"
            )
        return pathlib.Path(self.task.run_dir) / "checkpoints"

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        value = self._watched.read(logs)
        if value is None or math.isnan(value) or not self._belongs(value):
            return
        self._watched.observe(value, epoch)
        root, name = self._root(), step_name(self.task.attempted_steps)
        ranked = sorted(
            [*((v, n) for v, n in self.saved if n != name), (float(value), name)],
            key=lambda pair: pair[0],
            reverse=self._watched.mode == "max",
        )
        dropped = [n for _, n in ranked[self.keep :]]
        self.saved = ranked[: self.keep]  # before saving: a checkpoint contains this state
        self.task.save(root / name)
        if self.is_main:
            self._point(root, dropped)

    def _belongs(self, value: float) -> bool:
        """Whether the value is among the best ``keep``; of equal ones the earlier stays."""
        if len(self.saved) < self.keep:
            return True
        worst = self.saved[-1][0]
        return value < worst if self._watched.mode == "min" else value > worst

    def _point(self, root: pathlib.Path, dropped: list[str]) -> None:
        """Name the best ones, worst first, so that each is named at every moment.

        What fell out is removed here, unless the task writes checkpoints of its own into this
        folder (``latest``): its rotation then decides how long they stay.
        """
        for rank, (_, name) in reversed(list(enumerate(self.saved, start=1))):
            pointer = "best" if rank == 1 else f"best-{rank}"
            write_pointer(root / pointer, root / name)
        for name in dropped:
            if not (root / "latest").exists() and (root / name).is_dir():
                remove_checkpoint(root / name)

    def state_dict(self) -> dict[str, Any]:
        return self._watched.state_dict() | {"saved": [list(pair) for pair in self.saved]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.reset()
        if self._watched.load_state_dict(state):
            # The names are folders that will be replaced and removed: none outside of ours.
            self.saved = [(number(value), checked_name(name)) for value, name in state["saved"]]


class TerminateOnNaN(Callback):
    """Stop when the loss is NaN or infinite.

    It looks at every ``log_every``-th step and at the end of an epoch, so that it costs no wait for
    the device at every step. A step with a non-finite gradient changes nothing in any case, and
    ``fit`` itself stops after 50 such steps in a row.
    """

    phase = Phase.DECISIONS

    def on_log(self, step: int, logs: Logs) -> None:
        self._look(f"at step {step}", logs)

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        self._look(f"in epoch {epoch + 1}", logs)

    def _look(self, where: str, logs: Logs) -> None:
        loss = logs.get("loss")
        if loss is not None and not math.isfinite(loss):
            logger.warning("TerminateOnNaN: loss = %r %s; training stops", float(loss), where)
            self.task.stop_training = True


class LambdaCallback(Callback):
    """A callback of functions: ``LambdaCallback(on_epoch_end=lambda epoch, logs: ...)``.

    Args:
        phase: When it runs; see `Phase`.
        **hooks: Functions by hook name, with that hook's arguments.
    """

    def __init__(self, *, phase: Phase = Phase.METRICS, **hooks: Callable[..., object]) -> None:
        check_hook_names(hooks, "LambdaCallback")
        for name, function in hooks.items():
            if not callable(function):
                raise TypeError(
                    f"LambdaCallback: {name} = {function!r:.60} ({type(function).__name__}) is "
                    "not allowed; it must be a function"
                )
            setattr(self, name, function)
        self.phase = Phase(phase)  # type: ignore[misc]
