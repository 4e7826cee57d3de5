"""What a loader knows of its data, whatever form it came in: pictures, rows, files or Python."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from renaissance import _native
from renaissance.data.arrays import Labels, as_inputs, as_numpy, as_targets
from renaissance.data.dataset import (
    IGNORED,
    check_labels,
    ignored_by,
    optional,
    read_sample,
    sample_name,
)
from renaissance.data.images import is_picture, picture_of
from renaissance.data.parts import SEVERAL


@dataclass(frozen=True)
class LabelSpec:
    """What y of one sample is.

    ``shape`` is () for class numbers; ``low`` and ``high`` are the smallest and largest integer
    label where all labels are known without reading samples. ``ignored`` is that of samples that do
    not count: below 0 it is one of them, from 0 on it is not, as long as there are others.
    ``values`` are all class numbers (N,), where they are known.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    num_classes: int | None
    low: int | None = None
    high: int | None = None
    ignored: int = IGNORED
    values: Labels | None = field(default=None, repr=False, compare=False)


class SampleSpec(NamedTuple):
    """What one sample of a batch is: x's shape (C, H, W) and dtype, and y's `LabelSpec` or None.

    Where x is a dict or a tuple of several tensors, so are shape and dtype.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    label: LabelSpec | None


@dataclass(frozen=True, eq=False)
class Supply:
    """Samples of one form.

    ``form`` is "pictures" (uint8 in memory), "rows" (other arrays in memory), "files" (paths) or
    "python" (``read`` of the data set). ``shape`` is that of one sample: (H, W, C) of a picture,
    with H = W = 0 when pictures may differ in size. ``all_count``: no label may be the one of
    samples that do not count.
    """

    dataset: Any
    form: str
    num_samples: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    x: npt.NDArray[Any] | None
    labels: Labels | None
    paths: Sequence[str] | None
    label: LabelSpec | None
    classes: tuple[str, ...] | None
    is_torch: bool = False
    all_count: bool = False

    @property
    def is_picture(self) -> bool:
        return self.form in ("pictures", "files") or (
            self.form == "python" and self.dtype == np.uint8
        )

    @property
    def channels(self) -> int:
        return self.shape[2]

    def name(self, index: int) -> str:
        return sample_name(self.dataset, index) if self.paths is None else self.paths[index]

    def first_size(self) -> tuple[int, int]:
        """(height, width) of the first picture, for programs that need one size."""
        if self.paths is not None:
            with open(self.paths[0], "rb") as file:
                x: Any = file.read()
        else:
            x, _ = read_sample(self.dataset, 0)
        try:
            height, width, _ = picture_of(x, self.channels).shape
        except ValueError as error:
            raise ValueError(f"{self.name(0)} {error}") from None
        return height, width

    def native_source(self) -> _native.Source:
        """The C++ side; the arrays must outlive it."""
        if self.form == "pictures":
            assert self.x is not None
            height, width, channels = self.shape
            x = self.x if self.x.ndim == 4 else self.x[..., None]
            sample, row, pixel, channel = x.strides
            strides = (sample, row, pixel, channel)
            return _native.PictureSource(x.ctypes.data, height, width, channels, strides)
        if self.form == "rows":
            assert self.x is not None
            return _native.RowSource(self.x.ctypes.data, self.x[:1].nbytes)
        if self.form == "files":
            assert self.paths is not None
            return file_source(self.paths, self.channels)
        return _native.ForeignSource()

    def read(self, index: int) -> tuple[Any, npt.NDArray[Any] | None]:
        """One sample of the "python" form: picture (H, W, C) or row, and the label's array.

        Raises:
            ValueError: it does not look as the first one did.
        """
        x, y = read_sample(self.dataset, index)
        if self.is_picture:
            if not is_picture(x):
                raise ValueError(f"is {describe(x)}; the first sample was a uint8 picture")
            encoded = isinstance(x, (bytes, bytearray, memoryview))
            x = bytes(x) if encoded else picture_of(x, self.channels)
        else:
            x = self._row_of(x)
        return x, None if self.label is None else self._label_of(y)

    def _row_of(self, x: Any) -> npt.NDArray[Any]:
        row = np.asarray(as_inputs(row_array(x)[None], say=False)[0])  # a number as an array too
        if row.shape != self.shape or row.dtype != self.dtype:
            raise ValueError(
                f"is {row.dtype} {row.shape}; the first sample was {self.dtype} {self.shape}, "
                "and a batch needs equal shapes: pad them in the data set, or give a torch "
                "DataLoader with a collate_fn that pads"
            )
        return row

    def _label_of(self, y: Any) -> npt.NDArray[Any]:
        assert self.label is not None
        if y is None:
            raise ValueError("has no label; the first sample had one")
        label = as_targets(row_array(y)[None], say=False)
        if label.shape[1:] != self.label.shape:
            raise ValueError(
                f"has a label of shape {label.shape[1:]}; the first one was {self.label.shape}"
            )
        if self.label.dtype == torch.float32:
            return np.asarray(label, np.float32)  # a whole number among others
        if label.dtype != np.int64:
            raise ValueError(
                f"has the label {y!r:.60}; the first one was a whole number: make all of them "
                "floats"
            )
        if self.label.num_classes is not None:
            self._check_class(int(label[0]), self.label.num_classes, self.label.ignored)
        return label

    def _check_class(self, value: int, num_classes: int, ignored: int) -> None:
        if value == ignored and self.all_count:
            raise ValueError(
                f"has label {value}, which is the number for samples that do not count "
                "(ignore_index); Mixup and CutMix need a class: leave it out, with rn.Subset"
            )
        if not 0 <= value < num_classes and value != ignored:
            raise ValueError(
                f"has label {value}; with {num_classes} classes it takes 0 to {num_classes - 1}, "
                f"or {ignored} for one that does not count (another number: the data set's "
                "attribute ignore_index)"
            )


def file_source(paths: Sequence[str], channels: int) -> _native.FileSource:
    """Files that C++ reads, and decodes where they are JPEG and the build can."""
    encoded = [os.fsencode(path) for path in paths]
    offsets = np.cumsum([0, *map(len, encoded)])
    return _native.FileSource(b"".join(encoded), offsets.tolist(), channels, _native.has_jpeg())


def supply_of(dataset: Any) -> Supply:
    """Looks at a data set and takes the fastest way to its samples.

    Raises:
        TypeError: it is no data set.
        ValueError: it is empty, or labels do not fit.
    """
    count = _length(dataset)
    arrays = optional(dataset, "as_arrays")
    if arrays is not None:
        return _from_arrays(dataset, *arrays)
    listed = optional(dataset, "files")
    if listed is not None:
        return _from_files(dataset, *listed)
    return _from_python(dataset, count)


def _length(dataset: Any) -> int:
    has_reader = callable(getattr(dataset, "read", None)) or hasattr(dataset, "__getitem__")
    advice = _no_data_set(dataset)
    if advice or not has_reader or not hasattr(dataset, "__len__"):
        raise TypeError(
            f"{type(dataset).__name__} is no data set: it takes an object with len() and "
            "read(index) -> (picture, label), a torch map-style data set, or "
            f"Loader.from_arrays(x, y){advice}"
        )
    count = len(dataset)
    if count == 0:
        raise ValueError(f"{type(dataset).__name__} is empty: 0 samples; it takes at least 1")
    return count


def _no_data_set(given: Any) -> str:
    """What to write for things that have a length and items, which are no samples; "" for others.

    A tuple of arrays is x and y, whatever a list of samples may look like.
    """
    is_array = isinstance(given, (np.ndarray, torch.Tensor))
    if isinstance(given, (str, bytes, os.PathLike)):
        return ". Of a folder: renaissance.datasets.ImageFolder(path)"
    if isinstance(given, tuple) and given and isinstance(given[0], (np.ndarray, torch.Tensor)):
        return ", here Loader.from_arrays(*data)"
    if isinstance(given, Mapping):
        return f"; of the arrays under {', '.join(map(repr, given))}, say which are x and y"
    if hasattr(given, "__array__") and not is_array:  # a table, whose items are its columns
        return ", with x and y as arrays, such as table[names].to_numpy()"
    if isinstance(given, torch.utils.data.IterableDataset):
        return ". One without samples by index goes into a torch DataLoader, which a task takes"
    if isinstance(given, torch.utils.data.DataLoader) or hasattr(given, "steps_per_epoch"):
        return ". A task takes this loader as it is"
    return ""


def _from_arrays(dataset: Any, x: Any, y: Any) -> Supply:
    x = as_inputs(x)
    if len(x) != len(dataset):
        raise ValueError(f"as_arrays gave {len(x)} samples, len() says {len(dataset)}")
    labels = None if y is None else as_targets(y)
    is_picture_array = x.dtype == np.uint8
    shape = x.shape[1:]
    if is_picture_array and len(shape) == 2:
        shape = (*shape, 1)
    form = "pictures" if is_picture_array else "rows"
    return Supply(
        dataset, form, len(x), shape, x.dtype, x, labels, None,
        _label_spec(dataset, labels, len(x)), _classes(dataset),
    )  # fmt: skip


def _from_files(dataset: Any, paths: Sequence[str], y: Any) -> Supply:
    labels = None if y is None else as_targets(y)
    shape = (0, 0, int(getattr(dataset, "channels", 3)))
    return Supply(
        dataset, "files", len(paths), shape, np.dtype(np.uint8), None, labels, paths,
        _label_spec(dataset, labels, len(paths)), _classes(dataset),
    )  # fmt: skip


def _from_python(dataset: Any, count: int) -> Supply:
    x, y = read_sample(dataset, 0)
    if is_picture(x):
        channels = getattr(dataset, "channels", None)
        if channels is None:
            channels = 3 if isinstance(x, (bytes, bytearray)) else _channels_of(x)
        shape: tuple[int, ...] = (0, 0, int(channels))
        dtype: np.dtype[Any] = np.dtype(np.uint8)
    else:
        row = np.asarray(as_inputs(row_array(x)[None])[0])
        shape, dtype = row.shape, row.dtype
    known = optional(dataset, "labels")
    labels = None if known is None else as_targets(known)
    label = _label_spec(dataset, labels, count)
    if label is None and y is not None:
        first = as_targets(row_array(y)[None])
        label = _label_spec(dataset, first, 1, all_known=False)
    return Supply(
        dataset, "python", count, shape, dtype, None, labels, None, label, _classes(dataset),
        is_torch=not callable(getattr(dataset, "read", None)),
    )  # fmt: skip


def _label_spec(
    dataset: Any, labels: Labels | None, count: int, *, all_known: bool = True
) -> LabelSpec | None:
    if labels is None:
        return None
    if len(labels) != count:
        raise ValueError(f"the data set has {count} samples and {len(labels)} labels")
    if labels.dtype != np.int64:
        return LabelSpec(labels.shape[1:], torch.float32, None)
    ignored = ignored_by(dataset)
    num_classes = getattr(dataset, "num_classes", None) if labels.ndim == 1 else None
    if num_classes is not None:
        check_labels(labels, num_classes, lambda i: sample_name(dataset, i), ignored)
    low, high = _range_of(labels, ignored) if all_known else (None, None)
    values = labels if all_known and labels.ndim == 1 else None
    return LabelSpec(labels.shape[1:], torch.int64, num_classes, low, high, ignored, values)


def _range_of(labels: Labels, ignored: int) -> tuple[int, int]:
    counted = labels[labels != ignored] if ignored >= 0 else labels
    some = counted if counted.size else labels
    return int(some.min()), int(some.max())


def _classes(dataset: Any) -> tuple[str, ...] | None:
    classes = getattr(dataset, "classes", None)
    return None if classes is None else tuple(str(name) for name in classes)


def _channels_of(picture: Any) -> int:
    """Channels of a picture as the model will see it: alpha is dropped."""
    if hasattr(picture, "getbands"):  # PIL
        return 1 if picture.mode in ("1", "L", "LA", "I", "I;16") else 3
    shape = tuple(picture.shape)
    if len(shape) == 2:
        return 1
    found = shape[0] if isinstance(picture, torch.Tensor) else shape[2]
    return int({2: 1, 4: 3}.get(found, found))


def row_array(x: Any) -> npt.NDArray[Any]:
    """One sample that is no picture, or its label, as an array.

    Raises:
        TypeError: It is a tuple of tensors or arrays, which would be stacked where shapes allow it.
    """
    if isinstance(x, tuple) and any(isinstance(part, (torch.Tensor, np.ndarray)) for part in x):
        raise TypeError(f"a sample has a tuple of {len(x)} arrays in the place of one{SEVERAL}")
    try:
        return as_numpy(x, "a sample")
    except ValueError as error:
        if isinstance(x, (list, tuple)):
            raise ValueError(str(error).removesuffix(SEVERAL) + SEVERAL) from None
        raise


def describe(x: Any) -> str:
    dtype, shape = getattr(x, "dtype", None), getattr(x, "shape", None)
    return type(x).__name__ if dtype is None else f"{dtype} {tuple(shape or ())}"
