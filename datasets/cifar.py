"""CIFAR-10 and CIFAR-100 from their binary or Python files."""

from __future__ import annotations

import os
import pathlib
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from renaissance.data.dataset import check_labels
from renaissance.datasets.pickled import read_pickled

_SIDE = 32
_PIXELS = 3 * _SIDE * _SIDE  # planes of red, green, blue

Arrays = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]


class CIFAR10:
    """50,000 train and 10,000 test pictures of 32 x 32, colour, 10 classes (Krizhevsky, 2009).

    Takes the binary version (``data_batch_1.bin``, folder ``cifar-10-batches-bin``) or the Python
    version (``data_batch_1``, folder ``cifar-10-batches-py``, which torchvision downloads), in
    `root` or in that folder of it. The Python files are pickles; they are read as data and never
    executed.

    Args:
        root: The folder.
        split: "train" or "test".
        download: Fetch the Python version through torchvision when nothing is there.

    Raises:
        FileNotFoundError: no files; the text says what was looked for.
        ValueError: a file is damaged.
    """

    num_classes = 10
    classes: tuple[str, ...] = (
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    )
    _folders = ("cifar-10-batches-bin", "cifar-10-batches-py")
    _files = {
        "train": tuple(f"data_batch_{k}" for k in range(1, 6)),
        "test": ("test_batch",),
    }
    _label_bytes = 1  # before the pixels of each binary record; the last of them is the label
    _label_key = "labels"

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: Literal["train", "test"] = "train",
        *,
        download: bool = False,
    ) -> None:
        if split not in self._files:
            raise ValueError(f"split = {split!r} is not allowed; it takes 'train' or 'test'")
        self.root, self.split = pathlib.Path(root), split
        paths = self._find()
        if paths is None and download:
            import torchvision.datasets

            getattr(torchvision.datasets, type(self).__name__)(str(self.root), download=True)
            paths = self._find()
        if paths is None:
            raise FileNotFoundError(self._not_found())
        parts = [self._read(path) for path in paths]
        planes = np.concatenate([x for x, _ in parts]).reshape(-1, 3, _SIDE, _SIDE)
        # (N, H, W, C) to look at, in planes as the files have it: programs read that fastest.
        self._x: npt.NDArray[np.uint8] = planes.transpose(0, 2, 3, 1)
        self._y: npt.NDArray[np.int64] = np.concatenate([y for _, y in parts])
        check_labels(self._y, self.num_classes, lambda i: f"{self.split} of {self.root}")

    def _candidates(self) -> list[list[pathlib.Path]]:
        folders = [self.root, *(self.root / name for name in self._folders)]
        names = self._files[self.split]
        return [[f / (name + end) for name in names] for f in folders for end in (".bin", "")]

    def _find(self) -> list[pathlib.Path] | None:
        complete = (paths for paths in self._candidates() if all(p.is_file() for p in paths))
        return next(complete, None)

    def _not_found(self) -> str:
        tried = []
        for paths in self._candidates():
            missing = [path.name for path in paths if not path.is_file()]
            some = f" ({', '.join(missing)} missing)" if len(missing) < len(paths) else ""
            more = f" ... {paths[-1].name}" if len(paths) > 1 else ""
            tried.append(f"{paths[0]}{more}{some}")
        lines = "\n  ".join(tried)
        return (
            f"{type(self).__name__} {self.split} is not in {self.root}; looked for\n  {lines}\n"
            "Pass the folder that holds them, or download=True"
        )

    def _read(self, path: pathlib.Path) -> Arrays:
        data = path.read_bytes()
        if path.suffix == ".bin":
            return self._binary(path, data)
        try:
            found = read_pickled(data)
        except ValueError as error:
            raise ValueError(f"{path} is no CIFAR file: {error}") from None
        return self._from_dict(path, found)

    def _binary(self, path: pathlib.Path, data: bytes) -> Arrays:
        record = self._label_bytes + _PIXELS
        if not data or len(data) % record:
            raise ValueError(
                f"{path} has {len(data)} bytes, which is no number of records of {record}"
            )
        rows = np.frombuffer(data, np.uint8).reshape(-1, record)
        labels = rows[:, self._label_bytes - 1].astype(np.int64)
        return rows[:, self._label_bytes :], labels

    def _from_dict(self, path: pathlib.Path, found: Any) -> Arrays:
        parts = {}
        for key, value in found.items() if isinstance(found, dict) else ():
            parts[key.decode("ascii") if isinstance(key, bytes) else key] = value
        x, y = parts.get("data"), parts.get(self._label_key)
        if not isinstance(x, np.ndarray) or x.dtype != np.uint8 or x.shape[1:] != (_PIXELS,):
            raise ValueError(f"{path} holds no 'data' of shape (N, {_PIXELS}) uint8")
        if not isinstance(y, list) or len(y) != len(x):
            raise ValueError(f"{path} holds no list {self._label_key!r} of {len(x)} labels")
        return x, np.asarray(y, np.int64)

    def __len__(self) -> int:
        return len(self._x)

    def read(self, index: int, /) -> tuple[npt.NDArray[np.uint8], int]:
        return self._x[index], int(self._y[index])

    def as_arrays(self) -> Arrays:
        return self._x, self._y

    def identity(self) -> dict[str, Any]:
        return {"type": type(self).__name__, "split": self.split, "num_samples": len(self)}

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.root)!r}, {self.split!r})"


class CIFAR100(CIFAR10):
    """As CIFAR-10, with 100 classes (the fine labels).

    ``classes`` are the names in ``meta`` or ``fine_label_names.txt`` beside the files, else numbers
    as texts.
    """

    num_classes = 100
    _folders = ("cifar-100-binary", "cifar-100-python")
    _files = {"train": ("train",), "test": ("test",)}
    _label_bytes = 2  # coarse, fine
    _label_key = "fine_labels"

    def __init__(
        self,
        root: str | os.PathLike[str],
        split: Literal["train", "test"] = "train",
        *,
        download: bool = False,
    ) -> None:
        super().__init__(root, split, download=download)
        paths = self._find()
        assert paths is not None
        self.classes = self._class_names(paths[0].parent)

    def _class_names(self, folder: pathlib.Path) -> tuple[str, ...]:
        if (folder / "fine_label_names.txt").is_file():
            names: list[Any] = (folder / "fine_label_names.txt").read_text().split()
        elif (folder / "meta").is_file():
            meta = read_pickled((folder / "meta").read_bytes())
            names = meta.get(b"fine_label_names") or meta.get("fine_label_names") or []
        else:
            names = list(range(self.num_classes))
        plain = tuple(n.decode("ascii") if isinstance(n, bytes) else str(n) for n in names)
        if len(plain) != self.num_classes:
            raise ValueError(f"{folder} names {len(plain)} classes; CIFAR-100 has 100")
        return plain
