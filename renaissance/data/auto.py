"""Transforms that choose their operation: TrivialAugmentWide and RandAugment.

Both choose among identity, shear, translation, rotation, brightness, colour, contrast, sharpness,
posterize, solarize, autocontrast and equalize with torchvision's magnitudes. Values stay float32
between operations; posterize and equalize, which are defined on whole levels, round first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from renaissance.data.transform import NEAREST, Operation, Stage, Transform, per_channel
from renaissance.settings import Setting, setting, value


class _Automatic(Transform):
    """What both have in common."""

    num_magnitude_bins: Setting[int] = setting(default=31, ge=2, doc="Steps of a magnitude.")
    interpolation: Setting[Literal["nearest", "bilinear"]] = setting(
        default="nearest", doc="Of shear, translation and rotation."
    )
    fill: Setting[float | tuple[float, ...]] = setting(
        default=0.0, doc="Value outside the picture, levels 0-255."
    )

    def automatic(
        self, stage: Stage, kind: str, size: tuple[int, ...]
    ) -> tuple[tuple[Operation, ...], Stage]:
        self.refuse_normalized(stage)
        if stage.channels not in (1, 3):
            raise ValueError(
                f"{self!r} works on pictures of 1 or 3 channels; these have {stage.channels}"
            )
        flags = NEAREST if self.settings.interpolation == "nearest" else 0
        fill = per_channel(self.settings.fill, stage.channels, self, "fill")
        return (Operation(kind, flags, size=size, value=fill),), replace(stage, exact=False)


@value
class TrivialAugmentWide(_Automatic):
    """One operation of 14 at a uniformly random magnitude.

    References: Mueller and Hutter, "TrivialAugment: Tuning-free Yet State-of-the-Art Data
    Augmentation", 2021, arXiv 2103.10158.

    Args:
        num_magnitude_bins: Steps of a magnitude.
        interpolation: Of shear, translation and rotation.
        fill: Value outside the picture.
    """

    stream = 12

    def lower(self, stage: Stage) -> tuple[tuple[Operation, ...], Stage]:
        return self.automatic(stage, "trivial", (self.settings.num_magnitude_bins,))


@value
class RandAugment(_Automatic):
    """`num_ops` operations of 14, with replacement, all at one magnitude.

    References: Cubuk et al., "RandAugment: Practical automated data augmentation with a reduced
    search space", 2019, arXiv 1909.13719.

    Args:
        num_ops: Operations per picture.
        magnitude: Step of the magnitude, below `num_magnitude_bins`.
        num_magnitude_bins: Steps of a magnitude.
        interpolation: Of shear, translation and rotation.
        fill: Value outside the picture.
    """

    stream = 15
    num_ops: Setting[int] = setting(default=2, kw_only=False, ge=1, le=16, doc="Operations.")
    magnitude: Setting[int] = setting(default=9, kw_only=False, ge=0, doc="Step of the magnitude.")

    def check(self) -> None:
        s = self.settings
        if s.magnitude >= s.num_magnitude_bins:
            raise ValueError(
                f"{self!r}: magnitude = {s.magnitude} is not allowed; it takes a step below "
                f"num_magnitude_bins = {s.num_magnitude_bins}"
            )

    def lower(self, stage: Stage) -> tuple[tuple[Operation, ...], Stage]:
        s = self.settings
        return self.automatic(stage, "randaugment", (s.num_magnitude_bins, s.num_ops, s.magnitude))
