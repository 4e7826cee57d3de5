"""What a data set is: the `Dataset` protocol, arrays as a data set, and `split`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch

from renaissance.data.arrays import Labels, as_inputs, as_numpy, as_targets
from renaissance.data.parts import parts_of
from renaissance.random import SPLIT, Permutation, check_seed, derive

#: The class number of a sample that does not count: `CrossEntropyLoss` ignores it by default.
IGNORED = -100


@runtime_checkable
class Dataset(Protocol):
    """Samples by index. Duck typing suffices: no need to inherit.

    Required are ``len(dataset)`` and ``read``. The loader also looks for

    * ``num_classes``, ``classes``: number and names of the classes;
    * ``ignore_index``: the class number of samples that do not count, where it is not -100;
    * ``as_arrays() -> (x, y) | None``: everything in memory, uint8 (N, H, W[, C]) pictures or other
      arrays, and labels: read by C++ workers without Python;
    * ``files() -> (paths, labels)``: one picture file a sample: read by C++ workers too;
    * ``labels() -> array``: the labels without reading pictures;
    * ``name(index) -> str``: what an error message calls a sample (its file);
    * ``identity() -> dict``: what makes this data set this one (JSON), kept in checkpoints.
    """

    def __len__(self) -> int: ...

    def read(self, index: int, /) -> tuple[Any, Any]:
        """(picture, label): uint8 (H, W[, C]) or the encoded bytes of a picture file; a label.

        Called from several reader threads at once, under the GIL.
        """


class ArrayDataset:
    """Arrays in memory as a data set.

    Args:
        x: NumPy array or torch tensor. uint8 (N, H, W) or (N, H, W, C) are pictures, transforms
            apply. Any other type passes to the model untouched, bit for bit; float64 and
            float16 become float32, said once (by the logger "renaissance").
        y: Labels: integers become int64, floating-point targets float32. None: no labels.
        num_classes: For integer labels; default: the largest label + 1.
        classes: Names of the classes.
        names: What an error message calls each sample.
        ignore_index: A label that is of no class and does not count; the loss's.

    Raises:
        ValueError: empty data, lengths that differ, labels outside [0, num_classes) but for
            `ignore_index`.
    """

    def __init__(
        self,
        x: Any,
        y: Any = None,
        *,
        num_classes: int | None = None,
        classes: Sequence[str] | None = None,
        names: Sequence[str] | None = None,
        ignore_index: int = IGNORED,
    ) -> None:
        self._x = as_inputs(x)
        self._y = None if y is None else as_targets(y)
        self._names = names
        if self._y is not None and len(self._y) != len(self._x):
            raise ValueError(
                f"x has {len(self._x)} samples and y has {len(self._y)} labels; "
                "they must be equally many"
            )
        if classes is not None:
            classes = tuple(str(name) for name in classes)
            if num_classes not in (None, len(classes)):
                raise ValueError(f"num_classes = {num_classes}, but classes has {len(classes)}")
            num_classes = len(classes)
        is_classes = self._y is not None and self._y.dtype == np.int64 and self._y.ndim == 1
        if self._y is not None and is_classes:
            if num_classes is None:
                counted = self._y[self._y != ignore_index]
                num_classes = max(0, int(counted.max(initial=-1)) + 1)
            check_labels(self._y, num_classes, self.name, ignore_index)
        self.num_classes, self.ignore_index = num_classes, ignore_index
        self.classes = classes

    def __len__(self) -> int:
        return len(self._x)

    def __repr__(self) -> str:
        y = "" if self._y is None else f", {self._y.dtype} {self._y.shape}"
        return f"{type(self).__name__}({self._x.dtype} {self._x.shape}{y})"

    def read(self, index: int, /) -> tuple[Any, Any]:
        return self._x[index], None if self._y is None else self._y[index]

    def as_arrays(self) -> tuple[npt.NDArray[Any], Labels | None]:
        return self._x, self._y

    def name(self, index: int) -> str:
        return self._names[index] if self._names is not None else f"sample {index}"

    def identity(self) -> dict[str, Any]:
        return {"type": "arrays", "x": array_digest(self._x), "y": array_digest(self._y)}


class Subset:
    """Chosen samples of a data set, in the order given, as a data set.

    Args:
        dataset: Any data set.
        indices: Whole numbers below len(dataset), one at least: a fold, a class, a part. Those
            below 0 count from the end, as in a list.

    Raises:
        TypeError: Indices are no whole numbers; or an array or a loader came as the data set.
        ValueError: There are none, or one is outside.

    Example:
        >>> for rest, part in sklearn.model_selection.KFold(5).split(range(len(dataset))):
        ...     train = Loader(Subset(dataset, rest), batch_size=64, shuffle=True)
    """

    def __init__(self, dataset: Any, indices: Any) -> None:
        if isinstance(dataset, (np.ndarray, torch.Tensor)):
            raise TypeError(
                "Subset: received an array; write x[indices], which rn.Loader.from_arrays"
                "(x[indices], y[indices], batch_size=...) takes"
            )
        if not hasattr(dataset, "read") and not hasattr(dataset, "__getitem__"):
            raise TypeError(
                f"Subset: received {type(dataset).__name__}, which gives no samples by index: "
                "write rn.Loader(rn.Subset(dataset, indices), batch_size=...) with its data set"
            )
        self.dataset, self.indices = dataset, _checked(indices, len(dataset))
        self.num_classes = getattr(dataset, "num_classes", None)
        self.ignore_index = ignored_by(dataset)
        self.classes = getattr(dataset, "classes", None)

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return f"Subset({self.dataset!r}, {len(self)} of {len(self.dataset)} samples)"

    def read(self, index: int, /) -> tuple[Any, Any]:
        return read_sample(self.dataset, int(self.indices[index]))

    def as_arrays(self) -> tuple[npt.NDArray[Any], Labels | None] | None:
        whole = optional(self.dataset, "as_arrays")
        if whole is None:
            return None
        x, y = whole
        return x[self.indices], None if y is None else y[self.indices]

    def files(self) -> tuple[Sequence[str], Labels | None] | None:
        whole = optional(self.dataset, "files")
        if whole is None:
            return None
        paths, y = whole
        return [paths[i] for i in self.indices], None if y is None else y[self.indices]

    def labels(self) -> Labels | None:
        whole = optional(self.dataset, "labels")
        return None if whole is None else np.asarray(whole)[self.indices]

    def name(self, index: int) -> str:
        return sample_name(self.dataset, int(self.indices[index]))

    def identity(self) -> dict[str, Any]:
        whole = optional(self.dataset, "identity")
        return {"type": "subset", "of": whole, "indices": array_digest(self.indices)}


def _checked(indices: Any, count: int) -> npt.NDArray[np.int64]:
    """Indices into a data set of so many samples."""
    found = as_numpy(indices if hasattr(indices, "dtype") else list(indices), "indices")
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise TypeError(
            f"Subset: indices of type {found.dtype} and shape {found.shape} are not allowed; it "
            "takes whole numbers, (n,); of a mask np.flatnonzero(mask)"
        )
    if found.size == 0:
        raise ValueError("Subset: there are no indices; it takes at least 1")
    if found.min() < -count or found.max() >= count:
        raise ValueError(
            f"Subset: indices from {found.min()} to {found.max()} are not allowed; the data set "
            f"has {count} samples, 0 to {count - 1}, or from the end -1 to -{count}"
        )
    found = found.astype(np.int64)
    return np.where(found < 0, found + count, found)


def own_subset(dataset: Any) -> Any:
    """torch's Subset of a data set with `read`, which it would index, as a `Subset` of ours."""
    is_torchs = type(dataset) is torch.utils.data.Subset
    if is_torchs and callable(getattr(dataset.dataset, "read", None)):
        return Subset(dataset.dataset, dataset.indices)
    return dataset


def split(dataset: Any, fraction: float, *, seed: int = 0) -> tuple[Subset, Subset]:
    """(rest, part): `part` holds round(fraction * n) samples drawn without replacement.

    Which ones depends on (number of samples, seed) alone; both keep the order of the data set.

    Args:
        dataset: Any data set.
        fraction: Share of `part`, between 0 and 1; both must end up with a sample at least.
        seed: 0 to 2**64 - 1.

    Example:
        >>> train, valid = split(dataset, 0.2, seed=1)  # doctest: +SKIP
    """
    if isinstance(fraction, bool) or not isinstance(fraction, (int, float)):
        raise TypeError(
            f"fraction = {fraction!r} is not allowed; it takes a number between 0 and 1"
        )
    if not 0 < fraction < 1:
        raise ValueError(
            f"fraction = {fraction!r} is not allowed; it takes a number between 0 and 1"
        )
    n = len(dataset)
    count = round(n * fraction)
    if not 0 < count < n:
        raise ValueError(
            f"split of {n} samples by {fraction} gives parts of {n - count} and {count}; "
            "both need at least 1"
        )
    order = Permutation(n, derive(check_seed(seed), SPLIT), 0)[:]
    return Subset(dataset, np.sort(order[count:])), Subset(dataset, np.sort(order[:count]))


def read_sample(dataset: Any, index: int) -> tuple[Any, Any]:
    """(x, y) through `read` or, of a torch map-style data set, ``[index]``; y may be None."""
    if callable(getattr(dataset, "read", None)):
        x, y = dataset.read(index)
        return x, y
    return parts_of(dataset[index])


def optional(dataset: Any, method: str) -> Any:
    """The result of a data set's optional method, None where it has none."""
    found = getattr(dataset, method, None)
    return found() if callable(found) else None


def sample_name(dataset: Any, index: int) -> str:
    """What an error message calls a sample."""
    found = getattr(dataset, "name", None)
    return str(found(index)) if callable(found) else f"sample {index}"


def array_digest(array: npt.NDArray[Any] | None) -> dict[str, Any] | None:
    """Shape, dtype and a SHA-256 over the bytes."""
    if array is None:
        return None
    digest = hashlib.sha256(np.ascontiguousarray(array).view(np.uint8).data)
    return {
        "shape": list(array.shape),
        "dtype": str(array.dtype),
        "sha256": digest.hexdigest(),
    }


def ignored_by(dataset: Any) -> int:
    """The class number of samples that do not count."""
    return int(getattr(dataset, "ignore_index", IGNORED))


def check_labels(labels: Labels, num_classes: int, name: Any, ignored: int = IGNORED) -> None:
    """ValueError that names the first label outside [0, num_classes), the ignored one excepted."""
    bad = np.flatnonzero(((labels < 0) | (labels >= num_classes)) & (labels != ignored))
    if bad.size:
        first = int(bad[0])
        known = f"sample {first}"
        known += f" ({name(first)})" * (name(first) != known)
        raise ValueError(
            f"label {int(labels[first])} of {known} is not allowed; with "
            f"{num_classes} classes it takes 0 to {num_classes - 1}. {bad.size} of {len(labels)} "
            f"labels are outside ({ignored} is for samples that do not count; another number for "
            "them is said to the data and to the loss: ignore_index=255)"
        )


def len_of(dataset: Any) -> int:
    """len(), or 0 for what has none."""
    return len(dataset) if hasattr(dataset, "__len__") else 0
