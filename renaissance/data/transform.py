"""What every transform is: an immutable value that lowers itself to operations of a program."""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from typing import ClassVar

from renaissance import _native
from renaissance.settings import Value

#: Most planes a picture may have on its way through a program.
MAX_CHANNELS = 4

#: Flags of operations, as ``ext/include/renaissance/operation.h`` numbers them.
PAD_MODES = {"constant": 0, "edge": 1, "reflect": 2, "symmetric": 3}
FILTERS = {"bilinear": 0, "bicubic": 1, "nearest": 2}
NEAREST, JOINED, COUNTER_CLOCKWISE = 1, 2, 4
DRAWS_ANGLE, DRAWS_SHIFT, DRAWS_SCALE, DRAWS_SHEAR = 8, 16, 32, 64


@dataclass(frozen=True)
class Stage:
    """What is known of the picture between two transforms.

    Args:
        height: Pixels, or None while pictures differ in size.
        width: Pixels, or None.
        channels: 1 to 4.
        normalized: False: levels 0-255; True: after `Normalize`.
        exact: True while values are whole levels (uint8), False once they are float32.
    """

    height: int | None
    width: int | None
    channels: int
    normalized: bool = False
    exact: bool = True

    @property
    def known(self) -> bool:
        """Whether every picture has the same size here."""
        return self.height is not None and self.width is not None

    def resized(self, height: int | None, width: int | None) -> Stage:
        return replace(self, height=height, width=width)

    def __str__(self) -> str:
        size = f"{self.height}x{self.width}" if self.known else "any size"
        unit = "normalised" if self.normalized else "levels 0-255"
        return f"{size}x{self.channels} {'uint8' if self.exact else 'float32'} {unit}"


@dataclass(frozen=True)
class Operation:
    """One record of a program: ``struct Operation`` of ``operation.h``, 112 bytes."""

    kind: str
    flags: int = 0
    p: float = 1.0
    size: tuple[int, ...] = ()
    range: tuple[float, ...] = ()
    value: tuple[float, ...] = ()

    def pack(self, stream: int) -> bytes:
        size = self.size + (0,) * (4 - len(self.size))
        numbers = self.range + (0.0,) * (12 - len(self.range))
        value = self.value + (0.0,) * (8 - len(self.value))
        kind = _native.OPERATION_KINDS[self.kind]
        return struct.pack("<3If4i12f8f", kind, stream, self.flags, self.p, *size, *numbers, *value)


class Transform(Value):
    """A transform of pictures, keyed by (seed, epoch, sample id); see `compile_program`."""

    #: Number of the random stream, part of the format of a run: never reuse one. 0: draws nothing.
    stream: ClassVar[int] = 0

    def lower(self, stage: Stage) -> tuple[tuple[Operation, ...], Stage]:
        """The operations that do this to a picture as in `stage`, and the stage after them.

        Raises:
            ValueError: The picture cannot be transformed so; the text says what to change.
        """
        raise NotImplementedError

    def refuse_normalized(self, stage: Stage) -> None:
        """Raises where a transform of levels stands after `Normalize`."""
        if stage.normalized:
            raise ValueError(
                f"{self!r} works on levels 0-255 but stands after Normalize; put it before"
            )


def pair(size: int | tuple[int, int]) -> tuple[int, int]:
    """(height, width) of a size given as one number or two."""
    return (size, size) if isinstance(size, int) else size


def per_channel(
    value: float | tuple[float, ...], channels: int, owner: object, name: str
) -> tuple[float, ...]:
    """One number per channel, from one number or from as many as there are channels."""
    if isinstance(value, (int, float)):
        return (float(value),) * channels
    if len(value) not in (1, channels):
        raise ValueError(
            f"{owner!r}: {name} has {len(value)} numbers for pictures of {channels} channels; "
            f"it takes one number or {channels}"
        )
    return tuple(map(float, value)) * (channels // len(value))
