"""MNIST and Fashion-MNIST from their IDX files."""

from __future__ import annotations

import os
import pathlib
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from renaissance.data.dataset import check_labels
from renaissance.datasets.idx import read_idx

_PREFIX = {"train": "train", "test": "t10k"}


class MNIST:
    """Handwritten digits, 60,000 train and 10,000 test pictures of 28 x 28, grey.

    Files are looked for in `root`, ``root/raw`` and ``root/MNIST/raw`` (torchvision's layout),
    plain or ``.gz``.

    Args:
        root: The folder.
        split: "train" or "test".
        download: Fetch the files through torchvision when they are missing.

    Raises:
        FileNotFoundError: no files; the text says what was looked for.
        ValueError: a file is damaged.
    """

    num_classes = 10
    classes: tuple[str, ...] = tuple("0123456789")
    folder = "MNIST"

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: Literal["train", "test"] = "train",
        *,
        download: bool = False,
    ) -> None:
        if split not in _PREFIX:
            raise ValueError(f"split = {split!r} is not allowed; it takes 'train' or 'test'")
        self.root, self.split = pathlib.Path(root), split
        pictures, labels = self._find(download)
        x, y = read_idx(pictures), read_idx(labels)
        if x.ndim != 3 or y.ndim != 1 or len(x) != len(y):
            raise ValueError(
                f"{pictures} has shape {x.shape} and {labels} has shape {y.shape}; expected "
                "(N, H, W) and (N,)"
            )
        self._x: npt.NDArray[np.uint8] = x  # (N, 28, 28)
        self._y: npt.NDArray[np.int64] = y.astype(np.int64)
        check_labels(self._y, self.num_classes, lambda _: str(labels))

    def _find(self, download: bool) -> tuple[pathlib.Path, pathlib.Path]:
        found = [self._file(kind) for kind in ("images-idx3", "labels-idx1")]
        if None in found and download:
            self._download()
            found = [self._file(kind) for kind in ("images-idx3", "labels-idx1")]
        pictures, labels = found
        if pictures is None or labels is None:
            missing = "images-idx3" if pictures is None else "labels-idx1"
            tried = "\n  ".join(str(path) for path in self._candidates(missing))
            raise FileNotFoundError(
                f"{type(self).__name__} {self.split} is not in {self.root}; looked for\n  {tried}\n"
                "Pass the folder that holds one of them, or download=True"
            )
        return pictures, labels

    def _candidates(self, kind: str) -> list[pathlib.Path]:
        prefix = _PREFIX[self.split]
        names = (f"{prefix}-{kind}-ubyte", f"{prefix}-{kind.replace('-idx', '.idx')}-ubyte")
        folders = (self.root, self.root / "raw", self.root / self.folder / "raw")
        return [f / (name + end) for f in folders for name in names for end in ("", ".gz")]

    def _file(self, kind: str) -> pathlib.Path | None:
        return next((path for path in self._candidates(kind) if path.is_file()), None)

    def _download(self) -> None:
        import torchvision.datasets

        getattr(torchvision.datasets, type(self).__name__)(str(self.root), download=True)

    def __len__(self) -> int:
        return len(self._x)

    def read(self, index: int, /) -> tuple[npt.NDArray[np.uint8], int]:
        return self._x[index], int(self._y[index])

    def as_arrays(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        return self._x, self._y

    def identity(self) -> dict[str, Any]:
        return {"type": type(self).__name__, "split": self.split, "num_samples": len(self)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.root)!r}, {self.split!r})"


class FashionMNIST(MNIST):
    """Articles of clothing in MNIST's format (Xiao, Rasul, Vollgraf, arXiv 1708.07747)."""

    classes = (
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
        "Ankle boot",
    )
    folder = "FashionMNIST"
