"""Transforms that move pixels: index maps (pad, crop, flip) and affine resampling.

Index maps cost nothing of their own: they only change where a later pass reads. Affine transforms
that follow each other with the same interpolation and fill become one resampling of the composed
map, so a rotation followed by a scaling blurs once, and what the first turns out of the frame may
come back in the second. Borders blend once: ``sum(w * pixel) + (1 - sum(w)) * fill``, where
torchvision blends a tensor's border twice (pytorch/vision issue 8083).
"""

from __future__ import annotations

from typing import Literal

from renaissance.data.transform import (
    COUNTER_CLOCKWISE,
    DRAWS_ANGLE,
    DRAWS_SCALE,
    DRAWS_SHEAR,
    DRAWS_SHIFT,
    NEAREST,
    PAD_MODES,
    Operation,
    Stage,
    Transform,
    pair,
    per_channel,
)
from renaissance.settings import Setting, setting, value

PadMode = Literal["constant", "edge", "reflect", "symmetric"]
Padding = int | tuple[int, int] | tuple[int, int, int, int]
Fill = float | tuple[float, ...]
Range = float | tuple[float, float]


def _sides(padding: Padding) -> tuple[int, int, int, int]:
    """(left, top, right, bottom), as torchvision reads one, two or four numbers."""
    if isinstance(padding, int):
        return (padding,) * 4
    if len(padding) == 2:
        return (padding[0], padding[1], padding[0], padding[1])
    return padding


def _check_sides(owner: object, name: str, padding: Padding) -> None:
    if min(_sides(padding)) < 0:
        raise ValueError(f"{owner!r}: {name} = {padding} is not allowed; it takes 0 or more")


def _check_size(owner: object, name: str, size: int | tuple[int, int]) -> None:
    if min(pair(size)) < 1:
        raise ValueError(f"{owner!r}: {name} = {size} is not allowed; it takes 1 or more")


def _check_order(owner: object, name: str, given: tuple[float, float] | None) -> None:
    if given is not None and given[0] > given[1]:
        raise ValueError(f"{owner!r}: {name} = {given} is not allowed; it takes (low, high)")


def _symmetric(given: Range) -> tuple[float, float]:
    return given if isinstance(given, tuple) else (-given, given)


def _check_mirror(
    owner: Transform, stage: Stage, sides: tuple[int, int, int, int], mode: str
) -> None:
    """A mirrored border may not be wider than the picture."""
    left, top, right, bottom = sides
    for border, extent, axis in (
        (max(left, right), stage.width, "width"),
        (max(top, bottom), stage.height, "height"),
    ):
        least = {"reflect": border + 1, "symmetric": border}.get(mode, 0)
        if extent is not None and extent < least:
            raise ValueError(
                f"{owner!r}: padding {border} by {mode!r} needs a {axis} of at least {least}; "
                f"the picture is {stage}"
            )


def _pad(
    owner: Transform, stage: Stage, sides: tuple[int, int, int, int], mode: str, fill: Fill
) -> tuple[tuple[Operation, ...], Stage]:
    _check_mirror(owner, stage, sides, mode)
    left, top, right, bottom = sides
    operation = Operation(
        "pad", PAD_MODES[mode], size=sides, value=per_channel(fill, stage.channels, owner, "fill")
    )
    height = None if stage.height is None else stage.height + top + bottom
    width = None if stage.width is None else stage.width + left + right
    return (operation,), stage.resized(height, width)


@value
class Pad(Transform):
    """A border around the picture.

    Args:
        padding: Pixels: all sides, (left and right, top and bottom) or (left, top, right, bottom).
        fill: Levels 0-255 (after `Normalize`: normalised units), one number or one per channel.
        mode: "constant", "edge", "reflect" (edge pixel not repeated) or "symmetric" (repeated).
    """

    padding: Setting[Padding] = setting(kw_only=False, doc="Pixels on each side.")
    fill: Setting[Fill] = setting(default=0.0, doc="Value of the border in mode 'constant'.")
    mode: Setting[PadMode] = setting(default="constant", doc="How the border is made.")

    def check(self) -> None:
        _check_sides(self, "padding", self.settings.padding)

    def lower(self, stage: Stage) -> tuple[tuple[Operation, ...], Stage]:
        s = self.settings
        return _pad(self, stage, _sides(s.padding), s.mode, s.fill)


@value
class RandomCrop(Transform):
    """A window of fixed size at a uniformly random place, after an optional padding.

    Args:
        size: Pixels: a square, or (height, width).
        padding: As in `Pad`; None for none.
        pad_if_needed: Pads a smaller picture on both sides by what it lacks.
        fill: As in `Pad`.
        padding_mode: As in `Pad`.
    """

    stream = 1
    size: Setting[int | tuple[int, int]] = setting(kw_only=False, doc="(height, width), pixels.")
    padding: Setting[Padding | None] = setting(default=None, kw_only=False, doc="Pixels, as Pad.")
    pad_if_needed: Setting[bool] = setting(default=False, doc="Pad pictures that are smaller.")
    fill: Setting[Fill] = setting(default=0.0, doc="Value of the border.")
    padding_mode: Setting[PadMode] = setting(default="constant", doc="How the border is made.")

    def check(self) -> None:
        _check_size(self, "size", self.settings.size)
        if self.settings.padding is not None:
            _check_sides(self, "padding", self.settings.padding)

    def lower(self, stage: Stage) -> tuple[tuple[Operation, ...], Stage]:
        s = self.settings
        height, width = pair(s.size)
        operations: tuple[Operation, ...] = ()
        if s.padding is not None:
            operations, stage = _pad(self, stage, _sides(s.padding), s.padding_mode, s.fill)
        if s.pad_if_needed:
            fill = per_channel(s.fill, stage.channels, self, "fill")
            mode = PAD_MODES[s.padding_mode]
            rows = max(0, height - (stage.height or height))
            columns = max(0, width - (stage.width or width))
            _check_mirror(self, stage, (columns, rows, columns, rows), s.padding_mode)
            operations += (Operation("pad_to", mode, size=(height, width), value=fill),)
        elif (stage.height or height) < height or (stage.width or width) < width:
            raise ValueError(
                f"{self!r}: the picture is {stage}, smaller than the crop; pad it "
                "(padding=, pad_if_needed=True) or resize it first"
            )
        operations += (Operation("random_crop", size=(height, width)),)
        return operations, stage.resized(height, width)


@value
class CenterCrop(Transform):
    """The middle of the picture; a smaller picture is padded with 0.

    Args:
        size: Pixels: a square, or (height, width).
    """

    size: Setting[int | tuple[int, int]] = setting(kw_only=False, doc="(height, width), pixels.")

    def check(self) -> None:
        _check_size(self, "size", self.settings.size)

    def lower(self, stage: Stage) -> tuple[tuple[Operation, ...], Stage]:
        height, width = pair(self.settings.size)
        return (Operation("center_crop", size=(height, width)),), stage.resized(height, width)


@value
class RandomHorizontalFlip(Transform):
    """Left and right exchanged with probability p."""

    stream = 2
    p: Setting[float] = setting(default=0.5, kw_only=False, ge=0, le=1, doc="Probability.")

    def lower(self, stage: Stage) -> tuple[tuple[Operation, ...], Stage]:
        return (Operation("flip_x", p=self.settings.p),), stage


@value
class RandomVerticalFlip(Transform):
    """Top and bottom exchanged with probability p."""

    stream = 3
    p: Setting[float] = setting(default=0.5, kw_only=False, ge=0, le=1, doc="Probability.")

    def lower(self, stage: Stage) -> tuple[tuple[Operation, ...], Stage]:
        return (Operation("flip_y", p=self.settings.p),), stage


class _Resampling(Transform):
    """What the affine transforms have in common."""

    interpolation: Setting[Literal["bilinear", "nearest"]] = setting(
        default="bilinear", doc="Between four pixels, or the nearest one."
    )
    fill: Setting[Fill] = setting(
        default=0.0, doc="Value outside the picture, levels 0-255, one number or one per channel."
    )

    def resampling(
        self, stage: Stage, flags: int, numbers: tuple[float, ...]
    ) -> tuple[tuple[Operation, ...], Stage]:
        s = self.settings
        flags |= NEAREST if s.interpolation == "nearest" else 0
        fill = per_channel(s.fill, stage.channels, self, "fill")
        operation = Operation("affine", flags, range=numbers, value=fill)
        return (operation,), Stage(
            stage.height, stage.width, stage.channels, stage.normalized, exact=False
        )


@value
class RandomRotation(_Resampling):
    """Turns the picture about its centre by a uniform angle, counter-clockwise when positive.

    Args:
        degrees: Largest angle (both ways), or (low, high), degrees.
        interpolation: "bilinear" or "nearest".
        fill: Value of what comes from outside.
    """

    stream = 4
    degrees: Setting[Range] = setting(kw_only=False, doc="Largest angle or (low, high), degrees.")

    def check(self) -> None:
        _check_order(self, "degrees", _symmetric(self.settings.degrees))

    def lower(self, stage: Stage) -> tuple[tuple[Operation, ...], Stage]:
        low, high = _symmetric(self.settings.degrees)
        return self.resampling(stage, COUNTER_CLOCKWISE | DRAWS_ANGLE, (low, high))


@value
class RandomScale(_Resampling):
    """Magnifies the picture about its centre by a uniform factor; the size of the frame stays.

    Args:
        low: Smallest factor, above 0.
        high: Largest factor.
        interpolation: "bilinear" or "nearest".
        fill: Value of what comes from outside.
    """

    stream = 5
    low: Setting[float] = setting(kw_only=False, gt=0, doc="Smallest factor.")
    high: Setting[float] = setting(kw_only=False, gt=0, doc="Largest factor.")

    def check(self) -> None:
        _check_order(self, "(low, high)", (self.settings.low, self.settings.high))

    def lower(self, stage: Stage) -> tuple[tuple[Operation, ...], Stage]:
        s = self.settings
        return self.resampling(stage, DRAWS_SCALE, (0.0, 0.0, 0.0, 0.0, s.low, s.high))


@value
class RandomAffine(_Resampling):
    """Rotation (clockwise when positive), shift, scale and shear about the centre.

    Args:
        degrees: Largest angle (both ways), or (low, high), degrees; 0 for none.
        translate: Largest shift as fractions of (width, height); whole pixels are drawn.
        scale: (low, high) factor.
        shear: Largest shear along x (both ways), (low, high) along x, or (x low, x high, y low,
            y high), degrees.
        interpolation: "bilinear" or "nearest".
        fill: Value of what comes from outside.
    """

    stream = 6
    degrees: Setting[Range] = setting(kw_only=False, doc="Largest angle or (low, high), degrees.")
    translate: Setting[tuple[float, float] | None] = setting(
        default=None, kw_only=False, doc="Largest shift as fractions of width and height, 0 to 1."
    )
    scale: Setting[tuple[float, float] | None] = setting(
        default=None, kw_only=False, doc="(low, high) factor, above 0."
    )
    shear: Setting[float | tuple[float, float] | tuple[float, float, float, float] | None] = (
        setting(default=None, kw_only=False, doc="Degrees, below 90.")
    )

    def check(self) -> None:
        s = self.settings
        _check_order(self, "degrees", _symmetric(s.degrees))
        _check_order(self, "scale", s.scale)
        if s.translate is not None and not all(0 <= t <= 1 for t in s.translate):
            raise ValueError(f"{self!r}: translate takes two fractions from 0 to 1")
        if s.scale is not None and s.scale[0] <= 0:
            raise ValueError(f"{self!r}: scale takes factors above 0")
        shear = self._shear()
        _check_order(self, "shear", shear[:2])
        _check_order(self, "shear", shear[2:])
        if max(map(abs, shear)) >= 90:
            raise ValueError(f"{self!r}: shear takes degrees below 90")

    def _shear(self) -> tuple[float, float, float, float]:
        given = self.settings.shear
        if given is None:
            return (0.0, 0.0, 0.0, 0.0)
        if not isinstance(given, tuple):
            return (-given, given, 0.0, 0.0)
        return given if len(given) == 4 else (*given, 0.0, 0.0)

    def lower(self, stage: Stage) -> tuple[tuple[Operation, ...], Stage]:
        s = self.settings
        flags = DRAWS_ANGLE
        flags |= DRAWS_SHIFT if s.translate is not None else 0
        flags |= DRAWS_SCALE if s.scale is not None else 0
        flags |= DRAWS_SHEAR if s.shear is not None else 0
        numbers = (
            *_symmetric(s.degrees),
            *(s.translate or (0.0, 0.0)),
            *(s.scale or (1.0, 1.0)),
            *self._shear(),
        )
        return self.resampling(stage, flags, numbers)
