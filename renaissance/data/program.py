"""Compiles a chain of transforms to the small program that workers and the GPU run."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from renaissance import _native
from renaissance.data.erasing import affine_of_levels
from renaissance.data.mix import Mix
from renaissance.data.transform import JOINED, MAX_CHANNELS, NEAREST, Operation, Stage, Transform

_MAGIC, _VERSION = 0x50414E52, 1
_MOST_OPERATIONS = 32


@dataclass(frozen=True)
class Program:
    """A compiled chain: its bytes, and what the picture is after every transform.

    Args:
        text: The bytes (``ext/include/renaissance/operation.h``), the same for CPU and GPU.
        stages: (transform or "picture", stage after it), from the source to the result.
        operations: The records of `text`, in order.
    """

    text: bytes
    stages: tuple[tuple[str, Stage], ...]
    operations: tuple[Operation, ...]
    native: _native.Program = field(compare=False, repr=False)

    @property
    def shape(self) -> tuple[int, int, int]:
        """(C, H, W) of every sample."""
        return self.native.channels, self.native.height, self.native.width

    @property
    def resident_reason(self) -> str | None:
        """Why a GPU cannot run this program on data that it holds, or None when it can.

        The kernel (``ext/cuda/pixels.cu``) makes one pass: index maps, at most one resampling by
        affine maps, flips and crops, `Normalize`, erasing.
        """
        return single_pass_reason(self.operations, self.stages)

    def to_text(self) -> str:
        """One line for each transform: the stage after it."""
        width = max(len(name) for name, _ in self.stages)
        return "\n".join(f"{name:<{width}}  {stage}" for name, stage in self.stages)


def compile_program(
    transforms: Iterable[Transform],
    *,
    channels: int,
    height: int | None = None,
    width: int | None = None,
) -> Program:
    """The program of a chain for pictures (H, W, channels) uint8.

    Args:
        transforms: In the order in which they are applied.
        channels: Of the decoded picture, 1 to 4.
        height: Pixels, or None when pictures differ in size (then a transform has to resize).
        width: Pixels, or None.

    Raises:
        TypeError: Something that is no transform.
        ValueError: A chain that cannot work: `Normalize` twice, a crop larger than the picture,
            numbers per channel that do not fit, pictures of any size and nothing that resizes ...
    """
    if not 1 <= channels <= MAX_CHANNELS:
        raise ValueError(f"channels = {channels} is not allowed; it takes 1 to {MAX_CHANNELS}")
    stage = Stage(height, width, channels)
    stages = [("picture", stage)]
    operations: list[Operation] = []
    streams: list[int] = []
    seen: Counter[int] = Counter()
    for transform in transforms:
        if isinstance(transform, Mix):
            raise ValueError(
                f"{transform!r} mixes finished batches and is no part of a picture's program; "
                f"give it to the loader as mix={transform!r}"
            )
        if not isinstance(transform, Transform):
            raise TypeError(
                f"transforms holds {transform!r} ({type(transform).__name__}); it takes "
                "renaissance's transforms, such as rn.RandomCrop(28)"
            )
        lowered, stage = transform.lower(stage)
        operations += lowered
        streams += [stream_of(transform, seen[transform.stream])] * len(lowered)
        seen[transform.stream] += 1 if transform.stream else 0
        stages.append((repr(transform), stage))
    if not stage.known:
        raise ValueError(
            "pictures differ in size and no transform makes them equal; add rn.Resize((height, "
            "width)), rn.RandomResizedCrop(size) or a crop"
        )
    if not stage.normalized:
        operations.append(affine_of_levels((0.0,) * channels, (1.0,) * channels))
        streams.append(0)
    return _program(stages, join_affine(operations), streams, (height or 0, width or 0))


_INDEX_MAPS = ("pad", "pad_to", "random_crop", "center_crop", "flip_x", "flip_y")
_LONGEST_SIDE = 1024  # MAX_SIDE of pixels.cu


def single_pass_reason(
    operations: tuple[Operation, ...], stages: tuple[tuple[str, Stage], ...]
) -> str | None:
    """What keeps a program from being one pass over its output, or None."""
    if not stages[0][1].known:
        return "pictures differ in size"
    sides = [side or 0 for _, stage in stages for side in (stage.height, stage.width)]
    if max(sides) > _LONGEST_SIDE:
        return f"a side of {max(sides)} pixels is above {_LONGEST_SIDE}"
    seen: list[Operation] = []
    for operation in operations:
        reason = _pass_reason(operation, seen)
        if reason:
            return reason
        seen.append(operation)
    return None


def _pass_reason(operation: Operation, before: list[Operation]) -> str | None:
    """Why this operation cannot join the pass of those before it, or None."""
    kind = operation.kind
    settled = [other.kind for other in before if other.kind not in _INDEX_MAPS]
    if kind in ("pad", "pad_to", "center_crop"):
        return f"{kind} after {settled[-1]}" if settled else None
    if kind == "affine":
        joins = bool(operation.flags & JOINED) and settled[-1:] == ["affine"]
        return None if joins or not settled else f"affine after {settled[-1]}"
    if kind in ("flip_x", "flip_y"):
        noise = any(other.kind == "erase" and other.flags for other in before)
        return f"{kind} after erasing with noise" if noise else None
    if kind in ("random_crop", "normalize", "erase", "cutout"):
        return None
    return f"the GPU kernel has no {kind}"


def stream_of(transform: Transform, occurrence: int) -> int:
    """Counter word of a transform's first draw: its type and how many of its type came before."""
    if occurrence > 31:
        raise ValueError(f"{type(transform).__name__} occurs more than 32 times in one chain")
    return transform.stream << 27 | occurrence << 22


def join_affine(operations: list[Operation]) -> list[Operation]:
    """Marks affine operations that are resampled together with the one before."""
    found = list(operations)
    for k in range(1, len(found)):
        before, this = operations[k - 1], operations[k]
        if before.kind == this.kind == "affine" and before.value == this.value:
            if before.flags & NEAREST == this.flags & NEAREST:
                found[k] = replace(this, flags=this.flags | JOINED)
    return found


def _program(
    stages: list[tuple[str, Stage]],
    operations: list[Operation],
    streams: list[int],
    source: tuple[int, int],
) -> Program:
    if len(operations) > _MOST_OPERATIONS:
        raise ValueError(
            f"the chain has {len(operations)} operations; a program takes {_MOST_OPERATIONS}"
        )
    end = stages[-1][1]
    header = struct.pack(
        "<4I4i", _MAGIC, _VERSION, len(operations), end.channels, *source, end.height, end.width
    )
    text = header + b"".join(op.pack(stream) for op, stream in zip(operations, streams))
    return Program(text, tuple(stages), tuple(operations), _native.Program(text))
