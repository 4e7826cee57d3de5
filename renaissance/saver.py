"""The checkpoints of one run: which is newest and intact, pointers, rotation, writing behind.

A run's ``checkpoints`` folder holds ``step-00011730`` folders and two small pointer files,
``latest`` and ``best``, each one line with the name of a checkpoint. The `Saver` writes from a host
snapshot in a thread, so that training waits for the snapshot only.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import os
import re
import shutil
import socket
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from typing_extensions import Self

from renaissance.checkpoint import (
    MANIFEST,
    SMALL_FILE_BYTES,
    STATE,
    Checkpoint,
    encode_state,
    read_checkpoint,
    read_manifest,
    replaced_beside,
    sync_folder,
    temporary_beside,
    write_encoded,
)
from renaissance.tensorfile import CheckpointError, write_bytes

LATEST, BEST = "latest", "best"

_STEP_NAME = re.compile(r"step-(\d{8,20})")

Files = Mapping[str, Mapping[str, torch.Tensor]]


def step_name(step: int) -> str:
    """``step-00011730``: sorts by step, and has no character a shell or logger minds."""
    return f"step-{step:08d}"


def checked_name(name: object) -> str:
    """A checkpoint's name that was read; ValueError for what is none, such as a path."""
    if not isinstance(name, str) or not _STEP_NAME.fullmatch(name):
        raise ValueError(f"{name!r:.60} names no checkpoint; such a name is {step_name(1)}")
    return name


def step_of(place: Path) -> int:
    """The step in a checkpoint's name, also while it is being replaced."""
    match = _STEP_NAME.search(place.name)
    if match is None:
        raise ValueError(f"{place} is named after no step; such a name is {step_name(1)}")
    return int(match[1])


class Saver:
    """Writes the checkpoints of one run, one at a time, in the background.

    Args:
        root: The run's ``checkpoints`` folder; made at the first save.
        keep: How many of the last checkpoints stay (the best one stays beside them); None: all.
        ahead: How many saves may wait in line behind the one that is being written, so that a disk
            that is slow for once does not hold up training.

    What goes wrong in the background is raised, as the `CheckpointError` it is, by the next call of
    `save`, `wait` or `close`. A killed process, a full disk or an error leaves every earlier
    checkpoint as it was.
    """

    def __init__(
        self, root: str | os.PathLike[str], *, keep: int | None = 3, ahead: int = 0
    ) -> None:
        if keep is not None and (isinstance(keep, bool) or not isinstance(keep, int) or keep < 1):
            raise ValueError(f"keep = {keep!r} is not allowed; it takes 1 or more, or None for all")
        self.root, self.keep, self.ahead = Path(root), keep, ahead
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="saver")
        self._pending: deque[Future[None]] = deque()  # the oldest first
        remove_leftovers(self.root)

    @property
    def is_writing(self) -> bool:
        """Whether a save is still under way, and its snapshot therefore in use."""
        return any(not pending.done() for pending in self._pending)

    def save(
        self,
        step: int,
        files: Files | Callable[[], Files],
        state: Mapping[str, Any],
        *,
        best: bool = False,
    ) -> Path:
        """Start writing the checkpoint of `step`; returns its folder-to-be.

        All but `ahead` earlier saves are finished first: two never overlap. A caller that reuses
        its snapshot memory calls `make_room` before it fills it again.

        Args:
            step: Attempted updates so far; names the folder. A checkpoint of this step is replaced.
            files: Host tensors by name, by file, left alone until the write is done; or a function
                that gives them, called in the thread (it may wait for a copy from the device).
            state: See `write_checkpoint`; turned into text before this returns.
            best: Let the pointer ``best`` name this checkpoint.
        """
        self.make_room()
        place, text = self.root / step_name(step), encode_state(state)
        self._pending.append(self._executor.submit(self._write, place, files, text, best))
        return place

    def _write(
        self, place: Path, files: Files | Callable[[], Files], state: bytes, best: bool
    ) -> None:
        write_encoded(place, files() if callable(files) else files, state)
        try:
            write_pointer(self.root / LATEST, place)
            if best:
                write_pointer(self.root / BEST, place)
            self._rotate()
        except OSError as error:
            raise CheckpointError(
                f"checkpoint {place}: is written, but pointers or older ones are not ({error})"
            ) from error

    def mark_best(self, step: int) -> None:
        """Let ``best`` name the checkpoint of an earlier step, which must still be there."""
        self.wait()
        place = self.root / step_name(step)
        read_manifest(place)
        write_pointer(self.root / BEST, place)

    def _rotate(self) -> None:
        """Remove what is neither among the last `keep` nor named; damaged ones are not counted.

        Named are those that ``latest``, ``best`` and the next ones, ``best-2`` ..., point to.
        """
        if self.keep is None:
            return
        written = sorted((serial, place) for place, serial in _readable(self.root)[0])
        named = [self.root / LATEST, *self.root.glob(f"{BEST}*")]
        stays = {_target(pointer) for pointer in named}
        for _, place in written[: -self.keep]:
            if place not in stays:
                remove_checkpoint(place)

    def make_room(self) -> None:
        """Return when at most `ahead` saves are under way; raise what went wrong in the others."""
        self._finish(self.ahead)

    def wait(self) -> None:
        """Return when nothing is being written; raise what went wrong since the last call."""
        self._finish(0)

    def _finish(self, left: int) -> None:
        """Wait until so many are left, or fewer; raise the first error of those that have ended."""
        ended = []
        while self._pending and (len(self._pending) > left or self._pending[0].done()):
            concurrent.futures.wait([self._pending[0]])  # interrupted, it can be called again
            ended.append(self._pending.popleft())
        for one in ended:
            one.result()

    def close(self) -> None:
        """Finish the last save and end the thread; raise what went wrong."""
        try:
            self.wait()
        finally:
            self._executor.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def newest_intact(
    root: str | os.PathLike[str],
) -> tuple[Checkpoint | None, list[tuple[Path, str]]]:
    """The checkpoint of `root` written last that is whole, and which were rejected and why.

    "Last" is the order of writing, not of steps: after a resume from an older checkpoint the newer
    branch counts.

    Args:
        root: A folder of ``step-...`` checkpoints; one that does not exist holds none.

    Returns:
        (checkpoint, rejected): None when there is no intact one; rejected are those that cannot
        be read at all and those newer than the one returned.
    """
    while True:
        before = checkpoint_folders(Path(root))
        checkpoint, rejected = _newest_intact(Path(root))
        if checkpoint is not None or checkpoint_folders(Path(root)) == before:
            return checkpoint, [(place, why) for place, why in rejected if place.exists()]
        # A process that trains there has written a newer one and removed those that were looked at.


def _newest_intact(root: Path) -> tuple[Checkpoint | None, list[tuple[Path, str]]]:
    found, rejected = _readable(root)
    for place, _ in sorted(found, key=lambda pair: (pair[1], pair[0]), reverse=True):
        try:
            return read_checkpoint(place), rejected
        except CheckpointError as error:
            rejected.append((place, str(error)))
    return None, rejected


def _readable(root: Path) -> tuple[list[tuple[Path, int]], list[tuple[Path, str]]]:
    """(folder, serial) of each checkpoint with a sound manifest; (folder, reason) of the others."""
    found: list[tuple[Path, int]] = []
    rejected: list[tuple[Path, str]] = []
    for place in checkpoint_folders(root):
        try:
            found.append((place, read_manifest(place)[1]))
        except CheckpointError as error:
            rejected.append((place, str(error)))
    return found, rejected


def checkpoint_folders(root: Path) -> list[Path]:
    """The folders of `root` that hold a checkpoint, or claim to, by step.

    One whose replacement was cut short is listed under its temporary name.
    """
    names = set(os.listdir(root)) if root.is_dir() else set()
    steps = {name.removeprefix(".").removesuffix(".replaced") for name in names}
    places = (
        root / step if step in names else replaced_beside(root / step)
        for step in sorted(steps)
        if _STEP_NAME.fullmatch(step)
    )
    return [place for place in places if place.name in names and place.is_dir()]


def open_checkpoint(
    path: str | os.PathLike[str],
) -> tuple[Checkpoint | None, list[tuple[Path, str]]]:
    """What a user means by `path`: a checkpoint, a pointer file, or a run or folder of checkpoints.

    A checkpoint or a pointer names one, which must be intact (else `CheckpointError`); the folder
    of a run, or of its checkpoints, means the newest intact one, as `newest_intact` answers.
    """
    place = Path(path)
    if place.is_file():
        return read_checkpoint(read_pointer(place)), []
    if (place / "checkpoints").is_dir():
        return newest_intact(place / "checkpoints")
    is_one = os.path.lexists(place / MANIFEST) or os.path.lexists(place / STATE)
    if not is_one and checkpoint_folders(place):
        return newest_intact(place)
    return read_checkpoint(place), []


def read_pointer(path: Path) -> Path:
    """The checkpoint that a pointer file names, beside it."""
    try:
        with open(path, "rb") as file:
            name = file.read(SMALL_FILE_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError):
        name = ""
    if not _STEP_NAME.fullmatch(name):
        raise CheckpointError(
            f"checkpoint pointer {path}: is no pointer; it holds one line such as {step_name(1)}. "
            "A checkpoint is a folder; weights from a .safetensors file: task.pretrained(path)"
        )
    return path.with_name(name)


def _target(pointer: Path) -> Path | None:
    try:
        return read_pointer(pointer)
    except CheckpointError:
        return None


def write_pointer(path: Path, place: Path) -> None:
    """Let a pointer file name a checkpoint beside it; replaced in one rename."""
    temporary = temporary_beside(path, "new")
    try:
        write_bytes(temporary, f"{place.name}\n".encode())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def remove_checkpoint(place: Path) -> None:
    """Remove a checkpoint; it vanishes in one rename, so that no half of it is ever found."""
    gone = temporary_beside(place, "gone")
    os.rename(place, gone)
    shutil.rmtree(gone, ignore_errors=True)


def remove_leftovers(root: Path) -> None:
    """Remove the temporary files that killed processes of this machine left in `root`."""
    pattern = re.compile(rf"\..+\.(new|gone)-{re.escape(socket.gethostname())}-(\d+)-\d+")
    with contextlib.suppress(OSError):  # somebody else's, or gone by now
        for path in root.iterdir() if root.is_dir() else ():
            match = pattern.fullmatch(path.name)
            if match and not _is_alive(int(match[2])):
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
