"""The values a memory plan is made of, and the arithmetic that places them.

A `Segment` is one tensor of the module, a `Region` one flat array, an `UpdateRange` what one kernel
updates. Nothing here touches a tensor.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

BIAS_LIKE, WEIGHTS, BUFFERS = "bias-like", "weights", "buffers"

#: Kinds in the order they have inside their group; the last four are buffers.
KINDS = (
    *("norm_scale", "norm_shift", "bias", "linear", "first_conv", "conv", "embedding", "other"),
    *("running_mean", "running_var", "buffer", "constant"),
)

#: Elements to which offsets are rounded: 512 bytes of float32, 256 of 16-bit numbers.
ALIGNMENT = 128

#: Bytes to which the begin and the size of regions, and of the tensors of B, are rounded.
REGION_ALIGNMENT = 512

#: Regions that share the element offsets of W.
SHARED = ("W", "A", "G", "M", "V", "E")

#: Every region in memory order, with its meaning.
MEANINGS: Mapping[str, str] = {
    "B": "buffers",
    "B'": "buffers before the step",
    "W": "float32 parameters",
    "A": "16-bit working copy",
    "G": "gradients",
    "M": "first moments",
    "V": "second moments",
    "E": "moving average",
    "N": "trust ratios",
    "S": "scalars and counters",
    "I": "input slots",
    "R": "results",
    "C": "checkpoint snapshot",
}

#: What a checkpoint snapshot copies, in the order it has in C.
SNAPSHOT = ("B", "W", "M", "V", "E", "S")


@dataclass(frozen=True, kw_only=True, slots=True)
class Segment:
    """One tensor of the module and its place in the regions.

    Attributes:
        name: The first of its names, as ``state_dict`` writes it.
        region: "W" for a parameter (the same offset holds in A, G, M, V, E), "B" for a buffer.
        group: "bias-like", "weights" or "buffers".
        kind: One of `KINDS`.
        shape, strides: Of the stored tensor, in elements; 4-d convolution weights channels-last.
        dtype: Of the tensor in `region`; always float32 in W.
        offset: From the start of the region, in elements of `dtype`.
        count: Elements without padding.
        trainable: It gets gradients and updates; false for frozen and unused ones and for buffers.
        unused: It requires gradients but no loss depends on it.
        working: In mixed precision, the module's parameter is the 16-bit copy in A.
        lr_factor: Factor on the learning rate, 1 unless a pattern set another.
        tied: Its other names.
    """

    name: str
    region: str
    group: str
    kind: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    offset: int = 0
    trainable: bool = False
    unused: bool = False
    working: bool = False
    lr_factor: float = 1.0
    tied: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name, *self.tied)

    @property
    def nbytes(self) -> int:
        """Bytes in `region`, without padding."""
        return self.count * self.dtype.itemsize

    @property
    def offset_bytes(self) -> int:
        """From the start of `region`, in bytes."""
        return self.offset * self.dtype.itemsize

    @property
    def averaged(self) -> bool:
        """Whether it is a buffer that E averages: float32, and changed by forward."""
        return self.region == "B" and self.kind != "constant" and self.dtype == torch.float32

    @property
    def channels_last(self) -> bool:
        """Whether the layout is (O, H, W, I) in memory."""
        return len(self.shape) == 4 and self.strides != contiguous_strides(self.shape)

    @property
    def state(self) -> str:
        """ "trained", "frozen", "unused", or the kind of a buffer."""
        if self.region == "B":
            return self.kind
        return "trained" if self.trainable else "unused" if self.unused else "frozen"


@dataclass(frozen=True, kw_only=True, slots=True)
class Region:
    """One flat array.

    Attributes:
        name: A key of `MEANINGS`.
        dtype: Of its elements; of B too, whose other buffers lie behind the float32 ones.
        count: Elements.
        offset_bytes: In the arena (in C: from its own begin).
    """

    name: str
    dtype: torch.dtype
    count: int
    offset_bytes: int

    @property
    def nbytes(self) -> int:
        return self.count * self.dtype.itemsize

    @property
    def on_host(self) -> bool:
        """Whether it is host memory even on a GPU."""
        return self.name == "C"


@dataclass(frozen=True, kw_only=True, slots=True)
class UpdateRange:
    """What one kernel updates: the trained tensors of one group and one learning-rate factor.

    Attributes:
        group: "bias-like" or "weights".
        lr_factor: Factor on the learning rate.
        begin, count: In elements of W, A, G, M, V and E, padding included.
        decay: Whether weight decay and trust ratios apply.
    """

    group: str
    lr_factor: float
    begin: int
    count: int
    decay: bool

    @property
    def end(self) -> int:
        return self.begin + self.count


def contiguous_strides(shape: tuple[int, ...], channels_last: bool = False) -> tuple[int, ...]:
    """Element strides of a dense tensor; channels-last is (O, H, W, I) for a shape (O, I, H, W)."""
    order = (0, 2, 3, 1) if channels_last else range(len(shape))
    strides, step = [0] * len(shape), 1
    for axis in reversed(order):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return tuple(strides)


def aligned(count: int, to: int = ALIGNMENT) -> int:
    """`count` rounded up."""
    return -(-count // to) * to


def arena_bytes(regions: Sequence[Region]) -> int:
    """Bytes of the allocation that holds all regions of the device."""
    return sum(aligned(region.nbytes, REGION_ALIGNMENT) for region in regions if not region.on_host)


def place(segments: Sequence[Segment]) -> tuple[Segment, ...]:
    """The segments, which come in memory order, with offsets."""
    ends = {"W": 0, "B": 0}  # bytes
    placed = []
    for segment in segments:
        begin = ends[segment.region]
        placed.append(replace(segment, offset=begin // segment.dtype.itemsize))
        ends[segment.region] = begin + aligned(segment.nbytes, REGION_ALIGNMENT)
    return tuple(placed)


def update_ranges(segments: Sequence[Segment]) -> tuple[UpdateRange, ...]:
    """One range for each run of trained segments of one group and factor."""
    trained = [segment for segment in segments if segment.trainable]
    ranges = []
    for (group, factor), run in itertools.groupby(trained, lambda s: (s.group, s.lr_factor)):
        items = list(run)
        begin, last = items[0].offset, items[-1]
        ranges.append(
            UpdateRange(
                group=group,
                lr_factor=factor,
                begin=begin,
                count=last.offset + aligned(last.count) - begin,
                decay=group == WEIGHTS,
            )
        )
    return tuple(r for r in ranges if r.count)


def lay_out(
    sizes: Mapping[str, int], working_dtype: torch.dtype | None
) -> tuple[tuple[Region, ...], tuple[Region, ...]]:
    """The regions one after the other, and the parts of C (none when its size is 0).

    Args:
        sizes: Bytes by region; those of 0 are left out. C counts as wanted when it is not 0.
        working_dtype: Of A.
    """
    dtypes = {"S": torch.uint8, "I": torch.uint8, "R": torch.uint8, "C": torch.uint8}
    if working_dtype is not None:
        dtypes["A"] = working_dtype
    regions = _stack([name for name in MEANINGS if name != "C"], sizes, dtypes)
    if not sizes.get("C"):
        return regions, ()
    parts = _stack(SNAPSHOT, sizes, dtypes)
    nbytes = parts[-1].offset_bytes + aligned(parts[-1].nbytes, REGION_ALIGNMENT)
    return (*regions, Region(name="C", dtype=torch.uint8, count=nbytes, offset_bytes=0)), parts


def _stack(
    names: Sequence[str], sizes: Mapping[str, int], dtypes: Mapping[str, torch.dtype]
) -> tuple[Region, ...]:
    regions, end = [], 0
    for name in names:
        dtype = dtypes.get(name, torch.float32)
        count = sizes.get(name, 0) // dtype.itemsize
        if count:
            regions.append(Region(name=name, dtype=dtype, count=count, offset_bytes=end))
            end += aligned(regions[-1].nbytes, REGION_ALIGNMENT)
    return tuple(regions)
