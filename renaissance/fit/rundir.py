"""What a fit writes into its run's folder beside checkpoints: plan, facts, metrics, curves."""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import importlib.util
import logging
import os
import pathlib
import socket
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from renaissance.facts import run_facts, write_facts
from renaissance.hooks import Callback
from renaissance.loggers import CSVLogger, JSONLogger

if TYPE_CHECKING:
    from renaissance.task import Task

logger = logging.getLogger("renaissance")


LOCK = ".lock"


@dataclasses.dataclass(eq=False)
class _Held:
    """A folder that a task of this process trains in; the lock file's handle once it is open."""

    handle: int | None = None


_ours: dict[str, _Held] = {}  # by folder; names are text, for which setdefault is one operation


@contextlib.contextmanager
def alone(task: Task) -> Iterator[None]:
    """Keeps others, processes and tasks, from training in the same run folder at the same time.

    The system takes the lock back when the process ends, however it ends; a forked worker that
    outlives it does not hold it, and whoever opens and closes the file beside it, to copy the
    folder, does not give it back. Where a file system has no locks there is none.

    Raises:
        RuntimeError: Another process, or another task of this one, trains there.
    """
    if task.run_dir is None:
        yield
        return
    task.run_dir.mkdir(parents=True, exist_ok=True)
    folder = task.run_dir.resolve()
    held = _Held()
    if _ours.setdefault(str(folder), held) is not held:
        raise RuntimeError(
            f"another task of this process trains in {folder} now; give another run_dir"
        )
    try:
        _leave_to_parent()
        held.handle = _locked(folder)
        yield
    finally:
        if _ours.get(str(folder)) is held:  # not in a forked child
            try:
                _give_back(folder / LOCK, held)
            finally:
                del _ours[str(folder)]


def _give_back(place: pathlib.Path, held: _Held) -> None:
    """Remove the lock file and close it; in the place of a folder that was moved is another's."""
    handle = held.handle
    if handle is None:
        return
    try:
        if _is_at(place, handle):
            place.unlink(missing_ok=True)
    finally:
        held.handle = None
        os.close(handle)


def _is_at(place: pathlib.Path, handle: int) -> bool:
    """Whether an open file is the one at this place."""
    try:
        return os.path.samestat(os.stat(place), os.fstat(handle))
    except FileNotFoundError:
        return False


def _locked(folder: pathlib.Path) -> int:
    """An open handle of the folder's lock file, which this process holds from now on."""
    place = folder / LOCK
    while True:
        handle = os.open(place, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _lock(handle)
        except (BlockingIOError, PermissionError):
            owner = os.pread(handle, 200, 0).decode("utf-8", "replace").strip()
            os.close(handle)
            raise RuntimeError(
                f"another process ({owner or 'unknown'}) trains in {folder} now: their checkpoints "
                "and logs would be mixed. Wait for it, or give another run_dir"
            ) from None
        except OSError as error:
            logger.warning("%s cannot be locked (%s): let one process alone use it", place, error)
        if _is_at(place, handle):
            break
        os.close(handle)  # removed by its owner before we had the lock
    with contextlib.suppress(OSError):  # a full disk; the name is for people
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return handle


def _lock(handle: int) -> None:
    """Lock an open file, not for the process but for this opening of it where there is that.

    Raises:
        OSError: Somebody else holds it (BlockingIOError, PermissionError), or there are no locks.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a lock of the process, which any closing of the file gives back
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


@functools.cache
def _leave_to_parent() -> None:
    """From now on a forked child closes its copies of our handles, or it would hold the locks."""
    os.register_at_fork(after_in_child=_let_go)


def _let_go() -> None:
    for held in _ours.values():
        if held.handle is not None:
            os.close(held.handle)
    _ours.clear()


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
