"""Picture files at once: decoded into memory, or verified."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from renaissance import _native
from renaissance.bars import open_bar
from renaissance.data.images import decode
from renaissance.data.index import index_folder
from renaissance.data.supply import file_source
from renaissance.data.workers import available_cpus

_CHUNK = 512  # files between two looks at Ctrl-C and two moves of the progress line
_DAMAGED, _FOREIGN, _OTHER_SIZE = 0, 1, 2

MOST_BYTES = 1 << 29  # decoded pictures that in_memory="auto" keeps


@dataclass(frozen=True)
class Finding:
    """A file that is no sound picture."""

    path: str
    problem: str


@dataclass(frozen=True)
class VerifyReport:
    """What `verify` found."""

    root: str
    num_files: int
    num_classes: int
    damaged: tuple[Finding, ...]
    skipped: tuple[str, ...]

    @property
    def is_sound(self) -> bool:
        return not self.damaged

    def to_text(self) -> str:
        lines = [
            f"{self.root}: {self.num_files} pictures in {self.num_classes} classes, "
            f"{len(self.damaged)} damaged"
        ]
        lines += [f"  {found.path}: {found.problem}" for found in self.damaged]
        if self.skipped:
            lines.append(
                f"  {len(self.skipped)} files are no pictures by name and were skipped, such as "
                f"{self.skipped[0]}"
            )
        return "\n".join(lines)


def verify(root: str | os.PathLike[str]) -> VerifyReport:
    """Decodes every picture below a folder of class folders, whole.

    Bytes overwritten in the middle of a JPEG are found when the build has libjpeg-turbo;
    torchvision and Pillow decode such files silently.
    """
    index = index_folder(pathlib.Path(root), kept_in="off")
    paths = [str(index.root / path) for path in index.paths]
    damaged = [
        Finding(paths[id], text)
        for id, kind, text in _survey(paths, 3, None, f"verifying {index.root}")
        if kind == _DAMAGED
    ]
    return VerifyReport(
        str(index.root), len(paths), len(index.classes), tuple(damaged), index.skipped
    )


def decode_files(
    paths: Sequence[str], channels: int, most_bytes: int | None
) -> npt.NDArray[np.uint8] | None:
    """All pictures as (N, H, W, channels), in planes; None if they differ in size or are too large.

    Args:
        paths: Picture files.
        channels: 1 or 3.
        most_bytes: No more than this is decoded; None: whatever it takes.

    Raises:
        ValueError: a file is damaged; the text names the first one.
    """
    with open(paths[0], "rb") as file:
        first = _decoded(paths[0], file.read(), channels)
    if most_bytes is not None and first.nbytes * len(paths) > most_bytes:
        return None
    height, width, _ = first.shape
    planes = np.empty((len(paths), channels, height, width), np.uint8)
    out = planes.transpose(0, 2, 3, 1)
    for id, kind, text in _survey(paths, channels, out, "decoding"):
        if kind == _OTHER_SIZE:
            return None
        if kind == _DAMAGED:
            raise ValueError(f"{paths[id]}: {text}")
    return out


def _decoded(path: str, data: bytes, channels: int) -> npt.NDArray[np.uint8]:
    try:
        return decode(data, channels)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def _survey(
    paths: Sequence[str], channels: int, out: npt.NDArray[np.uint8] | None, what: str
) -> Iterator[tuple[int, int, str]]:
    """Decodes all files; what does not fit or is damaged, in order: (id, kind, text)."""
    source = file_source(paths, channels)
    height, width = (0, 0) if out is None else out.shape[1:3]
    address = 0 if out is None else out.ctypes.data
    threads = available_cpus()
    with open_bar(len(paths), what) as bar:
        for begin in range(0, len(paths), _CHUNK):
            end = min(begin + _CHUNK, len(paths))
            for id, kind, text in _native.survey(
                source, begin, end, address, height, width, threads
            ):
                if kind != _FOREIGN:
                    yield id, kind, text
                else:
                    yield from _foreign(paths[id], id, channels, out)
            bar.update(end - begin)


def _foreign(
    path: str, id: int, channels: int, out: npt.NDArray[np.uint8] | None
) -> Iterator[tuple[int, int, str]]:
    """A file that C++ does not decode."""
    try:
        with open(path, "rb") as file:
            picture = decode(file.read(), channels)
    except (ValueError, OSError) as error:
        yield id, _DAMAGED, str(error)
        return
    if out is None:
        return
    if picture.shape != out.shape[1:]:
        yield id, _OTHER_SIZE, f"{picture.shape[0]}x{picture.shape[1]}"
    else:
        out[id] = picture


def arrays_of(
    paths: Sequence[str], channels: int, in_memory: bool | str
) -> npt.NDArray[np.uint8] | None:
    """The pictures in memory as an `ImageFolder` asks for them.

    Raises:
        ValueError: ``in_memory=True`` and they differ in size, or one is damaged.
    """
    if in_memory == "auto":
        try:
            return decode_files(paths, channels, MOST_BYTES)
        except ValueError:
            return None  # read one by one, where the loader's on_error decides
    if not in_memory:
        return None
    pictures = decode_files(paths, channels, None)
    if pictures is None:
        raise ValueError("in_memory=True needs pictures of one size; these differ")
    return pictures
