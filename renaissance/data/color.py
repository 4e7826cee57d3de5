"""Transforms of colour and sharpness, on levels 0-255 in float32.

The formulas are torchvision's for float tensors: results of one operation are cut to 0-255, never
rounded in between. Each stands before `Normalize`.
"""

from __future__ import annotations

from dataclasses import replace

from renaissance.data.transform import Operation, Stage, Transform, pair
from renaissance.settings import Setting, setting, value

Amount = float | tuple[float, float]
_MOST_BLUR = 63


class _Color(Transform):
    """What the colour transforms have in common: they come before `Normalize`."""

    def recolor(self, stage: Stage, operation: Operation) -> tuple[tuple[Operation, ...], Stage]:
        self.refuse_normalized(stage)
        return (operation,), replace(stage, exact=False)

    def three_channels(self, stage: Stage) -> None:
        if stage.channels not in (1, 3):
            raise ValueError(
                f"{self!r} works on pictures of 1 or 3 channels; these have {stage.channels}"
            )


@value
class ColorJitter(_Color):
    """Brightness, contrast, saturation and hue by random factors, in random order.

    A picture of one channel has no saturation or hue; they leave it as it is.

    Args:
        brightness: b for a factor of [max(0, 1 - b), 1 + b], or (low, high).
        contrast: The same, towards the picture's mean gray.
        saturation: The same, towards each pixel's gray.
        hue: h for a turn of [-h, h], at most 0.5 (half the circle), or (low, high).
    """

    stream = 8
    brightness: Setting[Amount] = setting(default=0.0, kw_only=False, doc="0 or more.")
    contrast: Setting[Amount] = setting(default=0.0, kw_only=False, doc="0 or more.")
    saturation: Setting[Amount] = setting(default=0.0, kw_only=False, doc="0 or more.")
    hue: Setting[Amount] = setting(default=0.0, kw_only=False, doc="0 to 0.5 of a turn.")

    def check(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            low, high = self._factors(name)
            if not 0 <= low <= high:
                raise ValueError(f"{self!r}: {name} takes 0 or more, or (low, high) of factors")
        low, high = self._turns()
        if not -0.5 <= low <= high <= 0.5:
            raise ValueError(f"{self!r}: hue takes 0 to 0.5, or (low, high) within -0.5 to 0.5")

    def _factors(self, name: str) -> tuple[float, float]:
        given = getattr(self.settings, name)
        if isinstance(given, tuple):
            return given
        if given < 0:
            return (given, given)
        return (max(0.0, 1.0 - given), 1.0 + given)

    def _turns(self) -> tuple[float, float]:
        given = self.settings.hue
        return given if isinstance(given, tuple) else (-given, given)

    def lower(self, stage: Stage) -> tuple[tuple[Operation, ...], Stage]:
        self.three_channels(stage)
        ranges = [self._factors(name) for name in ("brightness", "contrast", "saturation")]
        ranges.append(self._turns())
        neutral = ((1.0, 1.0),) * 3 + ((0.0, 0.0),)
        flags = sum(1 << k for k in range(4) if ranges[k] != neutral[k])
        numbers = tuple(number for pair_ in ranges for number in pair_)
        return self.recolor(stage, Operation("jitter", flags, range=numbers))


@value
class RandomGrayscale(_Color):
    """All channels become the gray level .2989 R + .587 G + .114 B with probability p."""

    stream = 9
    p: Setting[float] = setting(default=0.1, kw_only=False, ge=0, le=1, doc="Probability.")

    def lower(self, stage: Stage) -> tuple[tuple[Operation, ...], Stage]:
        self.three_channels(stage)
        return self.recolor(stage, Operation("grayscale", p=self.settings.p))


@value
class RandomAutocontrast(_Color):
    """Every channel stretched to the full range 0-255 with probability p."""

    stream = 10
    p: Setting[float] = setting(default=0.5, kw_only=False, ge=0, le=1, doc="Probability.")

    def lower(self, stage: Stage) -> tuple[tuple[Operation, ...], Stage]:
        return self.recolor(stage, Operation("autocontrast", p=self.settings.p))


@value
class GaussianBlur(_Color):
    """Convolution with a Gaussian of uniformly random deviation, mirrored at the border.

    Args:
        kernel_size: Odd number of pixels, at most 63: a square, or (width, height).
        sigma: Deviation in pixels, above 0: one number, or (low, high).
    """

    stream = 11
    kernel_size: Setting[int | tuple[int, int]] = setting(
        kw_only=False, doc="Odd, (width, height), pixels."
    )
    sigma: Setting[Amount] = setting(default=(0.1, 2.0), kw_only=False, doc="Pixels, above 0.")

    def check(self) -> None:
        for size in pair(self.settings.kernel_size):
            if size < 1 or size % 2 == 0 or size > _MOST_BLUR:
                raise ValueError(f"{self!r}: kernel_size takes odd numbers from 1 to {_MOST_BLUR}")
        low, high = self._sigma()
        if not 0 < low <= high:
            raise ValueError(f"{self!r}: sigma takes a number above 0, or (low, high)")

    def _sigma(self) -> tuple[float, float]:
        given = self.settings.sigma
        return given if isinstance(given, tuple) else (given, given)

    def lower(self, stage: Stage) -> tuple[tuple[Operation, ...], Stage]:
        width, height = pair(self.settings.kernel_size)
        for taps, extent in ((width, stage.width), (height, stage.height)):
            if extent is not None and taps // 2 >= extent:
                raise ValueError(f"{self!r}: the picture is {stage}, too small for the kernel")
        return self.recolor(stage, Operation("blur", size=(width, height), range=self._sigma()))
