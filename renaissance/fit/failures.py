"""Where it was that something failed: a note on the exception, whose type and text stay.

A model's own error, an index out of range say, does not tell which batch it met. The notes (PEP
678, below the traceback; Python 3.11 and newer show them) do, and how to get that batch again.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from renaissance.data.batch import Batch
from renaissance.data.loader import Loader

if TYPE_CHECKING:
    from renaissance.fit.options import FitOptions, Position
    from renaissance.task import Task

SHOWN = 8  # ids of a batch that are written out

#: An error of the device itself shows when the host next waits for it.
LATE = " (a GPU's own errors may be of an earlier one)"


def note_step(error: Exception, task: Task, train: Loader, options: FitOptions) -> None:
    """Note on an error of a step its epoch, its place there, and its samples.

    Args:
        error: What was raised.
        task: Its position is the step's.
        train: The data of the fit.
        options: Those of the fit.
    """
    position, k = task.position, options.accumulate
    epoch, step = position.epoch, position.step
    text = (
        f"in epoch {epoch + 1}, step {step + 1} of {options.steps_per_epoch} "
        f"(update {position.attempted + 1} of the run)"
    )
    window = range(step * k, min((step + 1) * k, options.micro_batches))
    text += samples_text(train, task.seed, epoch, window)
    if train is task.require().recipe.train:
        text += f"; task.batch_at({epoch}, {step}) gives what it met"
    _note(error, text + LATE * (task.device.type == "cuda"))


def note_epoch(error: Exception, position: Position) -> None:
    """Note on an error of a validation when it was."""
    _note(
        error,
        f"in the validation of epoch {position.epoch + 1}, after {position.attempted} steps of fit",
    )


class Located:
    """What fails in a batch of an evaluation or prediction has a note of which one: `read` them
    through this, and be inside of it while working on one. A hook's own errors are of no batch.

    Of a single batch there is nothing to say.

    Args:
        loader: The data.
        seed: Of its transforms and order.
        what: "evaluate" or "predict".
    """

    def __init__(self, loader: Loader, seed: int, what: str) -> None:
        self._loader, self._seed, self._what = loader, seed, what
        self._done = 0

    def read(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """The batches; what the data raises in making one is of that one."""
        try:
            for batch in batches:
                yield batch
                self._done += 1
        except Exception as error:
            self._locate(error)
            raise

    def __enter__(self) -> Located:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            self._locate(error)

    def _locate(self, error: Exception) -> None:
        steps, done = self._loader.steps_per_epoch, self._done
        if done < steps > 1:
            samples = samples_text(self._loader, self._seed, 0, range(done, done + 1))
            _note(error, f"in {self._what}, batch {done + 1} of {steps}{samples}")


def samples_text(loader: Any, seed: int, epoch: int, batches: range) -> str:
    """ ", of samples 3, 1, 2", if the loader knows which ones its batches have, else ""."""
    if not isinstance(loader, Loader) or not batches:
        return ""
    ids = np.concatenate([loader.ids_at(epoch, step, seed=seed) for step in batches])
    return f", of samples {_listed(ids)}"


def _listed(ids: npt.NDArray[np.int64]) -> str:
    """``3, 1, 2``, ``32 to 63``, or the first few and how many more."""
    if len(ids) > 2 and (np.diff(ids) == 1).all():
        return f"{ids[0]} to {ids[-1]}"
    more = len(ids) - SHOWN
    return ", ".join(map(str, ids[:SHOWN].tolist())) + (f" and {more} more" if more > 0 else "")


def _note(error: Exception, text: str) -> None:
    """Add a line that it does not have: an exception may be kept, and raised again."""
    line, known = f"renaissance: {text}", getattr(error, "__notes__", [])
    if sys.version_info >= (3, 11) and isinstance(known, list) and line not in known:
        error.add_note(line)
