"""Resize and RandomResizedCrop: antialiased, in float32 from one end to the other.

The filter is PIL's and torchvision's (``antialias=True``): stretched by in/out when the picture
shrinks, cut at the border of the crop, normalised. Values stay float32 between the two axes, where
PIL and torchvision's uint8 path round; results differ from theirs by at most one level.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from renaissance.data.transform import FILTERS, Operation, Stage, Transform, pair
from renaissance.settings import Setting, setting, value

Interpolation = Literal["bilinear", "bicubic", "nearest"]
_INTERPOLATION = "Triangle ('bilinear') or cubic filter, both antialiased, or the nearest pixel."


def _check_size(owner: object, size: int | tuple[int, int]) -> None:
    if min(pair(size)) < 1:
        raise ValueError(f"{owner!r}: size = {size} is not allowed; it takes 1 or more")


@value
class Resize(Transform):
    """The whole picture at another size.

    Args:
        size: Pixels: (height, width), or one number for the shorter side, the longer one keeping
            the aspect ratio (cut to a whole number, as torchvision does).
        interpolation: "bilinear" or "bicubic", both antialiased, or "nearest".
    """

    size: Setting[int | tuple[int, int]] = setting(
        kw_only=False, doc="(height, width), or the shorter side, pixels."
    )
    interpolation: Setting[Interpolation] = setting(default="bilinear", doc=_INTERPOLATION)

    def check(self) -> None:
        _check_size(self, self.settings.size)

    def lower(self, stage: Stage) -> tuple[tuple[Operation, ...], Stage]:
        size, flags = self.settings.size, FILTERS[self.settings.interpolation]
        after = replace(stage, exact=False)
        if isinstance(size, tuple):
            return (Operation("resize", flags, size=size),), after.resized(*size)
        operation = Operation("resize", flags, size=(size, 0))
        if stage.height is None or stage.width is None:
            return (operation,), after.resized(None, None)
        if stage.height <= stage.width:
            return (operation,), after.resized(size, size * stage.width // stage.height)
        return (operation,), after.resized(size * stage.height // stage.width, size)


@value
class RandomResizedCrop(Transform):
    """A window of random area and aspect ratio, resized (Szegedy et al. 2015, "Inception" crop).

    Up to ten tries of (area, log-uniform ratio), then the largest window in the middle whose ratio
    is allowed. The filter sees pixels of the window only.

    Args:
        size: Pixels: a square, or (height, width).
        scale: (low, high) area of the window as a fraction of the picture's.
        ratio: (low, high) width over height.
        interpolation: "bilinear" or "bicubic", both antialiased, or "nearest".
    """

    stream = 7
    size: Setting[int | tuple[int, int]] = setting(kw_only=False, doc="(height, width), pixels.")
    scale: Setting[tuple[float, float]] = setting(
        default=(0.08, 1.0), kw_only=False, doc="Area as a fraction, above 0 to 1."
    )
    ratio: Setting[tuple[float, float]] = setting(
        default=(3 / 4, 4 / 3), kw_only=False, doc="Width over height, above 0."
    )
    interpolation: Setting[Interpolation] = setting(default="bilinear", doc=_INTERPOLATION)

    def check(self) -> None:
        s = self.settings
        _check_size(self, s.size)
        if not 0 < s.scale[0] <= s.scale[1]:
            raise ValueError(f"{self!r}: scale = {s.scale} takes 0 < low <= high")
        if not 0 < s.ratio[0] <= s.ratio[1]:
            raise ValueError(f"{self!r}: ratio = {s.ratio} takes 0 < low <= high")

    def lower(self, stage: Stage) -> tuple[tuple[Operation, ...], Stage]:
        s = self.settings
        numbers = (*s.scale, math.log(s.ratio[0]), math.log(s.ratio[1]), *s.ratio)
        size = pair(s.size)
        operation = Operation("resized_crop", FILTERS[s.interpolation], size=size, range=numbers)
        return (operation,), replace(stage, exact=False).resized(*size)
