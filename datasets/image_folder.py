"""Pictures in folders, one folder for each class."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from renaissance.data.folder import arrays_of
from renaissance.data.images import decode
from renaissance.data.index import index_folder


class ImageFolder:
    """``root/<class>/.../<picture>``: classes are the folders, sorted by bytes.

    Dot-files are skipped, folders within a class folder belong to it, pictures beside the class
    folders are left out, which is said. Files are read by C++ workers; what a file is, its first
    bytes say.

    Args:
        root: The folder.
        split: A folder within root ("train", "test", ...); classes then come from ``root/train``
            when it is there, so that all splits number them alike.
        classes: Class names in order, or a data set whose classes they are; a folder that is none
            of them is an error. Without it (or another split's) every class must have pictures.
        channels: 3 (RGB) or 1 (grey); other pictures are converted.
        in_memory: True decodes everything once; "auto" does for pictures of one size up to 512 MiB;
            False reads files every epoch.
        index_cache: Where the list of files is kept: "auto" (the user's cache folder, for 5,000
            files and more), "off", or a folder. A folder whose time changed is scanned anew.

    Raises:
        FileNotFoundError, ValueError: no folder, no classes, no pictures, a class without any,
            class folders one level deeper, unknown class folders.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: str | None = None,
        *,
        classes: Sequence[str] | Any = None,
        channels: int = 3,
        in_memory: bool | str = "auto",
        index_cache: Literal["auto", "off"] | str | os.PathLike[str] = "auto",
    ) -> None:
        if channels not in (1, 3):
            raise ValueError(
                f"channels = {channels!r} is not allowed; it takes 3 (RGB) or 1 (grey)"
            )
        if in_memory not in (True, False, "auto"):
            raise ValueError(
                f"in_memory = {in_memory!r} is not allowed; it takes True, False or 'auto'"
            )
        self.root, self.split, self.channels = pathlib.Path(root), split, channels
        folder = self.root if split is None else self.root / split
        cache = os.fspath(index_cache)
        names = getattr(classes, "classes", classes)
        if names is None and split not in (None, "train") and (self.root / "train").is_dir():
            names = index_folder(self.root / "train", kept_in=cache).classes
        self._index = index_folder(folder, names, kept_in=cache)
        self.classes: tuple[str, ...] = self._index.classes
        self.num_classes = len(self.classes)
        self.paths = [os.path.join(folder, path) for path in self._index.paths]
        self._in_memory = in_memory
        self._pictures: npt.NDArray[np.uint8] | None = None
        self._digest: str | None = None

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, index: int, /) -> tuple[npt.NDArray[np.uint8], int]:
        """(picture (H, W, C), class number); ValueError when the file is damaged."""
        label = int(self._index.labels[index])
        if self._pictures is not None:
            return self._pictures[index], label
        return decode(pathlib.Path(self.paths[index]).read_bytes(), self.channels), label

    def files(self) -> tuple[list[str], npt.NDArray[np.int64]]:
        return self.paths, self._index.labels

    def labels(self) -> npt.NDArray[np.int64]:
        return self._index.labels

    def as_arrays(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]] | None:
        """Everything decoded, (N, H, W, C) uint8, or None as ``in_memory`` says."""
        if self._pictures is None and self._in_memory:
            self._pictures = arrays_of(self.paths, self.channels, self._in_memory)
            self._in_memory = self._in_memory if self._pictures is not None else False
        return None if self._pictures is None else (self._pictures, self._index.labels)

    def name(self, index: int) -> str:
        return self.paths[index]

    def identity(self) -> dict[str, Any]:
        if self._digest is None:
            self._digest = self._index.digest()
        return {
            "type": "image_folder",
            "num_samples": len(self),
            "channels": self.channels,
            "files": self._digest,
        }

    def __repr__(self) -> str:
        return f"ImageFolder({str(self.root)!r}" + (f", {self.split!r})" if self.split else ")")
