"""The staging ring: a fixed number of slots, each one batch of x and y, allocated once.

A slot goes round: free -> filling (ordered from the workers) -> held (handed to the consumer) ->
free. Nothing else is ever allocated while batches flow; who fills waits for a free slot, so a slow
consumer costs time of the workers and no memory.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from renaissance import _native

#: Types of pictures, as ``Dtype`` of convert.h numbers them.
DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


@dataclass(frozen=True)
class SlotShape:
    """What a slot holds: x (batch, *x_shape), y (batch, *y_shape) or no y.

    `channels_last` keeps a picture's channels together in memory; its shape stays (C, H, W).
    """

    batch: int
    x_shape: tuple[int, ...]
    x_dtype: torch.dtype
    y_shape: tuple[int, ...] | None
    y_dtype: torch.dtype = torch.int64
    channels_last: bool = False
    pin: bool = False

    def allocate(self) -> tuple[torch.Tensor, torch.Tensor | None]:
        if self.channels_last:
            channels, height, width = self.x_shape
            x = self._empty((height, width, channels), self.x_dtype).permute(0, 3, 1, 2)
        else:
            x = self._empty(self.x_shape, self.x_dtype)
        return x, None if self.y_shape is None else self._empty(self.y_shape, self.y_dtype)

    def _empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Memory of the host for a batch, whatever torch's default device is."""
        size = (self.batch, *shape)
        memory = torch.empty(size, dtype=dtype, device="cpu", pin_memory=self.pin)
        if not self.pin:  # pinned pages are there already
            _native.advise_huge_pages(memory.data_ptr(), memory.nbytes)
        return memory

    @property
    def sample_bytes(self) -> int:
        return _bytes(self.x_shape, self.x_dtype)

    @property
    def label_bytes(self) -> int:
        return 0 if self.y_shape is None else _bytes(self.y_shape, self.y_dtype)


def picture_form(
    layout: str, dtype: torch.dtype, channels: int | None, own: int
) -> tuple[int, int, int]:
    """(dtype, layout, channels) of pictures in a slot: ``OutputSpec`` of program.h.

    Args:
        layout, dtype, channels: See `Loader.stream`.
        own: Channels of the pictures themselves.
    """
    if layout not in ("nchw", "nhwc"):
        raise ValueError(f"layout = {layout!r} is not allowed; it takes 'nchw' or 'nhwc'")
    if dtype not in DTYPES:
        raise ValueError(
            f"dtype = {dtype} is not allowed; it takes torch.float32, bfloat16 or float16"
        )
    wide = own if channels is None else channels
    if wide < own:
        raise ValueError(f"channels = {wide} is below the pictures' {own}")
    return DTYPES[dtype], int(layout == "nhwc"), wide


def _bytes(shape: tuple[int, ...], dtype: torch.dtype) -> int:
    count = 1
    for size in shape:
        count *= size
    return count * dtype.itemsize


class Ring(_native.Slots):
    """The slots' tensors; where each slot is, C++ knows.

    Raises:
        RuntimeError: a step that the order free -> filling -> held -> free does not allow.
    """

    def __init__(self, slots: int, shape: SlotShape) -> None:
        super().__init__(slots)
        self.shape = shape
        self.tensors = [shape.allocate() for _ in range(slots)]

    @property
    def addresses(self) -> list[tuple[int, int]]:
        """(address of x, address of y or 0) by slot."""
        return [(x.data_ptr(), 0 if y is None else y.data_ptr()) for x, y in self.tensors]
