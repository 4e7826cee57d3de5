"""The small tables that range operations read: tensors, chunks, gradient addresses, averages.

Their layouts are those of ``norms.h`` (TensorRow, Chunk), ``gather.h`` (GatherRow) and
``ext/cpu/ranges.h`` (AverageRow). All but the gradient addresses follow from the plan alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from renaissance import _native

if TYPE_CHECKING:
    from renaissance.memory.plan import Memory
    from renaissance.memory.segments import Segment

TENSOR_ROW = np.dtype([("offset", "i8"), ("count", "i8"), ("slot", "i8")])
CHUNK_ROW = np.dtype([("row", "i4"), ("number", "i4")])
AVERAGE_ROW = np.dtype([("source", "u8"), ("target", "u8"), ("count", "i8")])
GATHER_ROW = np.dtype(
    [
        ("source", "u8"),
        ("offset", "i8"),
        ("count", "i8"),
        ("dtype", "i4"),
        ("ndim", "i4"),
        ("size", "i8", _native.MAX_DIMS),
        ("stride", "i8", _native.MAX_DIMS),
    ]
)

#: Codes of ``convert.h``.
DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


def on_device(table: npt.NDArray[Any], device: torch.device) -> torch.Tensor:
    """The bytes of a table as a tensor there, (nbytes,) uint8."""
    return torch.from_numpy(table.view(np.uint8).reshape(-1).copy()).to(device)


class Tables:
    """What the plan alone decides: which chunk of which tensor is where.

    Attributes:
        rows: One per trained tensor, in memory order.
        chunks: Pieces of 4,096 elements of all of them, in memory order.
        partials: One float per chunk: squares of G (and of W and G for LARS).
    """

    def __init__(self, memory: Memory) -> None:
        plan = memory.plan
        self.parameters: tuple[Segment, ...] = tuple(plan.parameters)
        rows = np.zeros(len(self.parameters), TENSOR_ROW)
        slots = {segment.name: slot for slot, segment in enumerate(plan.trust_segments)}
        for row, segment in zip(rows, self.parameters):
            row["offset"], row["count"] = segment.offset, segment.count
            row["slot"] = slots.get(segment.name, -1)
        counts = [-(-segment.count // _native.CHUNK) for segment in self.parameters]
        self.first_chunk = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self.num_chunks = int(self.first_chunk[-1])
        chunks = np.zeros(self.num_chunks, CHUNK_ROW)
        chunks["row"] = np.repeat(np.arange(len(counts)), counts)
        chunks["number"] = np.arange(self.num_chunks) - self.first_chunk[chunks["row"]]
        device = memory.region("W").device
        self.rows, self.chunks = on_device(rows, device), on_device(chunks, device)
        self.partials, self.w_partials, self.g_partials = torch.zeros(
            3, self.num_chunks, dtype=torch.float32, device=device
        )

    def chunk_range(self, begin: int, count: int) -> tuple[int, int]:
        """(first, number) of the chunks of the tensors that stand in [begin, begin + count)."""
        inside = [
            i for i, s in enumerate(self.parameters) if begin <= s.offset < begin + max(count, 1)
        ]
        if not inside:
            return 0, 0
        first = int(self.first_chunk[inside[0]])
        return first, int(self.first_chunk[inside[-1] + 1]) - first

    def name_of_chunk(self, chunk: int) -> str:
        """The parameter that a chunk belongs to."""
        row = int(np.searchsorted(self.first_chunk, chunk, side="right")) - 1
        return self.parameters[row].name


def average_rows(memory: Memory) -> npt.NDArray[Any]:
    """What has a moving average: all of W, and the part of B that the plan says; `AVERAGE_ROW`."""
    average, weights = memory.region("E"), memory.region("W")
    rows = [(weights.data_ptr(), average.data_ptr(), weights.numel())]
    target, count = memory.plan.range("E", "buffers")
    if count:
        source, _ = memory.plan.range("B", "buffers")
        buffers = memory.region("B")[source:]
        rows.append((buffers.data_ptr(), average[target:].data_ptr(), count))
    return np.array(rows, AVERAGE_ROW)


class GatherTable:
    """Where the gradients of one forward and backward lie, and how to walk them.

    Args:
        parameters: The trained segments in memory order.
        device: Of the gradients.
    """

    def __init__(self, parameters: Sequence[Segment], device: torch.device) -> None:
        self._parameters, self._device = tuple(parameters), device
        self.host = np.zeros(len(self._parameters), GATHER_ROW)
        for row, segment in zip(self.host, self._parameters):
            row["offset"], row["count"] = segment.offset, segment.count
        self._known: list[tuple[Any, ...] | None] = [None] * len(self._parameters)
        self.rows = on_device(self.host, device)  # on the CPU replaced by the host's own bytes
        if device.type == "cpu":
            self.rows = torch.from_numpy(self.host.view(np.uint8))

    def fill(self, grads: Sequence[torch.Tensor | None]) -> bool:
        """Writes the host's rows; returns whether anything moved since the last fill.

        Raises:
            ValueError: Number, shape, type or device of the gradients do not fit the plan.
        """
        if len(grads) != len(self._parameters):
            raise ValueError(
                f"received {len(grads)} gradients; the plan trains {len(self._parameters)} tensors"
            )
        sources = np.fromiter(
            (0 if g is None else g.data_ptr() for g in grads), np.uint64, len(grads)
        )
        is_moved = bool((self.host["source"] != sources).any())
        self.host["source"] = sources
        for i, grad in enumerate(grads):
            found = None if grad is None else (grad.dtype, grad.shape, grad.stride())
            if found is not None and found != self._known[i]:
                self._describe(i, grad)
                self._known[i] = found
                is_moved = True
        return is_moved

    def upload(self) -> None:
        """Copies the rows to the device; returns when the host's may change again."""
        if self._device.type != "cpu":
            self.rows.copy_(torch.from_numpy(self.host.view(np.uint8)))

    def _describe(self, i: int, grad: torch.Tensor | None) -> None:
        assert grad is not None
        segment, row = self._parameters[i], self.host[i]
        if tuple(grad.shape) != tuple(segment.shape) or grad.device.type != self._device.type:
            raise ValueError(
                f"the gradient of {segment.name!r} is {tuple(grad.shape)} on {grad.device}; "
                f"the plan has {tuple(segment.shape)} on {self._device}"
            )
        if grad.dtype not in DTYPES:
            raise ValueError(
                f"the gradient of {segment.name!r} is {grad.dtype}; "
                f"it may be {', '.join(map(str, DTYPES))}"
            )
        sizes, strides = walk(segment.shape, segment.strides, grad.stride())
        if len(sizes) > _native.MAX_DIMS:
            raise ValueError(
                f"the gradient of {segment.name!r} has {len(sizes)} dimensions with strides "
                f"{tuple(grad.stride())} that do not merge; at most {_native.MAX_DIMS} are allowed"
            )
        row["dtype"], row["ndim"] = DTYPES[grad.dtype], len(sizes)
        row["size"][: len(sizes)], row["stride"][: len(sizes)] = sizes, strides


def walk(
    shape: Sequence[int], stored: Sequence[int], source: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Sizes and source strides in the stored order, merged where one stride continues the other.

    Args:
        shape: Of the tensor.
        stored: Element strides of the dense layout that is written.
        source: Element strides of the tensor that is read.

    Example:
        >>> walk((4, 3, 2, 2), (12, 1, 6, 3), (12, 4, 2, 1))  # channels-last out of contiguous
        ([4, 4, 3], [12, 1, 4])
    """
    axes = sorted((d for d in range(len(shape)) if shape[d] != 1), key=lambda d: -stored[d])
    sizes: list[int] = []
    strides: list[int] = []
    for axis in axes:
        if sizes and strides[-1] == source[axis] * shape[axis]:
            sizes[-1] *= shape[axis]
            strides[-1] = source[axis]
        else:
            sizes.append(shape[axis])
            strides.append(source[axis])
    return sizes or [1], strides or [1]
