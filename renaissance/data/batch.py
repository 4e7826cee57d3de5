"""One batch, and the error of a sample that cannot be part of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

#: Data without targets where a loss needs them.
NO_TARGETS = (
    "the data has no targets, which the loss needs; give them, as in "
    "rn.Loader.from_arrays(x, y, batch_size=...) or a data set of (x, y). "
    "task.predict takes data without"
)


class DamagedSample(ValueError):
    """A sample that cannot be read; ``index`` and ``name`` (its file) say which."""

    def __init__(self, text: str, index: int, name: str) -> None:
        super().__init__(text)
        self.index, self.name = index, name


class Batch:
    """One batch; ``x, y, ids = batch`` works.

    Attributes:
        x: (N, C, H, W) pictures, or the data's own shape; a dict, tuple or list of them where a
            torch DataLoader gives several.
        y: (N,) int64 class numbers, or float targets; None when the data has no labels.
        ids: (N,) int64 data-set indices of the samples in x.
        slot: Where in the ring it lies; -1 for a copy of its own.
    """

    __slots__ = ("ids", "slot", "x", "y")

    def __init__(self, x: Any, y: Any, ids: npt.NDArray[np.int64], slot: int = -1) -> None:
        self.x, self.y, self.ids, self.slot = x, y, ids, slot

    def __repr__(self) -> str:
        return f"Batch(x={self.x!r}, y={self.y!r}, ids={self.ids!r})"

    def __iter__(self) -> Iterator[Any]:
        return iter((self.x, self.y, self.ids))

    def __len__(self) -> int:
        return len(self.ids)

    def as_numpy(self) -> Batch:
        """A copy in NumPy arrays of its own; bfloat16 and float16 as float32."""
        return Batch(mapped(_numpy, self.x), None if self.y is None else _numpy(self.y), self.ids)


#: Looks at a batch before anybody gets it; ValueError when something in it must not be used.
Judge = Callable[[Batch], None]


def judged(batch: Batch, judge: Judge | None, epoch: int, step: int) -> Batch:
    """The batch, unless the judge refuses it: ValueError with its place."""
    if judge is not None:
        try:
            judge(batch)
        except ValueError as error:
            raise ValueError(f"batch {step} of epoch {epoch}, from 0 on: {error}") from None
    return batch


def on_host(x: Any) -> torch.Tensor:
    """A tensor as it is, anything else in host memory, whatever torch's default device is."""
    return x if isinstance(x, torch.Tensor) else torch.as_tensor(x, device="cpu")


def _numpy(tensor: torch.Tensor) -> npt.NDArray[Any]:
    if tensor.dtype in (torch.bfloat16, torch.float16):
        tensor = tensor.float()
    return np.array(tensor.contiguous().numpy())


def own(batch: Batch) -> Batch:
    """A batch in memory of its own."""
    y = None if batch.y is None else batch.y.clone()
    return Batch(mapped(torch.Tensor.clone, batch.x), y, batch.ids.copy())


def mapped(function: Callable[[Any], Any], x: Any) -> Any:
    """The function's value for x, or a container of those for all that is in it; None stays."""
    if x is None:
        return None
    if isinstance(x, Mapping):
        return {key: mapped(function, value) for key, value in x.items()}
    if isinstance(x, (tuple, list)):
        parts = [mapped(function, value) for value in x]
        return type(x)(*parts) if hasattr(x, "_fields") else type(x)(parts)
    return function(x)


def to_device(x: Any, device: torch.device) -> Any:
    """A tensor, or a container of tensors, on the device; None, for no targets, as it is."""
    return mapped(lambda t: t.to(device, non_blocking=True), x)


def as_given(x: Any, y: Any) -> tuple[Any, torch.Tensor]:
    """A batch that a user gives by hand, as tensors; float64 becomes float32.

    Args:
        x: An array, a tensor or a list of numbers; several in a tuple, a list or a dict.
        y: An array, a tensor or a list of numbers, a target for each sample.

    Raises:
        TypeError, ValueError: They are anything else.
    """
    if y is None:
        raise ValueError(
            "y is None, but a loss compares outputs with targets; give an array or a tensor with "
            "one target for each sample. task.predict takes samples without targets"
        )
    inputs, targets = _as_tensor_tree(x, "x"), _as_tensor_tree(y, "y")
    if not isinstance(targets, torch.Tensor) or targets.ndim == 0:
        came = "one number" if isinstance(targets, torch.Tensor) else f"a {type(y).__name__}"
        raise TypeError(
            f"y is {came}; it takes one array or tensor with a target for each sample (several "
            "targets of a sample go into one array, which a loss of your own takes apart)"
        )
    return inputs, targets


def _as_tensor_tree(given: Any, name: str) -> Any:
    """Arrays as tensors, inside containers too."""
    if isinstance(given, Mapping):
        return {key: _as_tensor_tree(value, f"{name}[{key!r}]") for key, value in given.items()}
    if isinstance(given, (tuple, list)) and given and not isinstance(given[0], (int, float)):
        parts = [_as_tensor_tree(value, f"{name}[{place}]") for place, value in enumerate(given)]
        return type(given)(*parts) if hasattr(given, "_fields") else type(given)(parts)
    try:
        tensor = on_host(given)
    except (TypeError, ValueError, RuntimeError) as error:
        what = "" if given is None or isinstance(given, str) else f" ({error})"
        raise TypeError(
            f"{name} is {_kind(given)}; it takes an array, a tensor or a list of numbers{what}"
        ) from error
    return tensor.float() if tensor.dtype == torch.float64 else tensor


def _kind(given: Any) -> str:
    if isinstance(given, np.ndarray):
        return f"an array of {given.dtype}"
    return "None" if given is None else f"a {type(given).__name__}"
