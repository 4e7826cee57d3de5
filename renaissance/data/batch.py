"""One batch, and the error of a sample that cannot be part of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch


class DamagedSample(ValueError):
    """A sample that cannot be read; ``index`` and ``name`` (its file) say which."""

    def __init__(self, text: str, index: int, name: str) -> None:
        super().__init__(text)
        self.index, self.name = index, name


class Batch:
    """One batch; ``x, y, ids = batch`` works.

    Attributes:
        x: (N, C, H, W) pictures, or the data's own shape.
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
        return Batch(_numpy(self.x), None if self.y is None else _numpy(self.y), self.ids)


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
    return Batch(batch.x.clone(), y, batch.ids.copy())


def to_device(x: Any, device: torch.device) -> Any:
    """A tensor, or a container of tensors, on the device."""
    if isinstance(x, Mapping):
        return {key: to_device(value, device) for key, value in x.items()}
    if isinstance(x, (tuple, list)):
        return type(x)(to_device(value, device) for value in x)
    return x.to(device, non_blocking=True)


def as_tensor_tree(x: Any) -> Any:
    """Arrays as tensors, inside containers too; float64 becomes float32."""
    if isinstance(x, Mapping):
        return {key: as_tensor_tree(value) for key, value in x.items()}
    if isinstance(x, (tuple, list)) and x and not isinstance(x[0], (int, float)):
        return type(x)(as_tensor_tree(value) for value in x)
    tensor = on_host(x)
    return tensor.float() if tensor.dtype == torch.float64 else tensor
