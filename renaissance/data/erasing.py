"""The end of a chain: `Normalize`, and what overwrites rectangles."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from renaissance.data.transform import (
    MAX_CHANNELS,
    Operation,
    Stage,
    Transform,
    pair,
    per_channel,
)
from renaissance.settings import Setting, nearest, setting, value

#: Mean and standard deviation of the training pictures, per channel, of values 0-1.
PRESETS: Mapping[str, tuple[tuple[float, ...], tuple[float, ...]]] = {
    "mnist": ((0.1307,), (0.3081,)),
    "fashion_mnist": ((0.2860,), (0.3530,)),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
    "svhn": ((0.4377, 0.4438, 0.4728), (0.1980, 0.2010, 0.1970)),
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}


@value
class Normalize(Transform):
    """x = (level / 255 - mean) / std, per channel.

    Computed in float32 as ``level * (1 / (255 std)) - mean / std``. A chain without it ends with
    levels / 255.

    Args:
        preset: Name of a data set (`PRESETS`): "mnist", "fashion_mnist", "cifar10", "cifar100",
            "svhn", "imagenet"; or give `mean` and `std`.
        mean: Per channel, of values 0-1; one number serves all channels.
        std: Per channel, above 0.
    """

    preset: Setting[str | None] = setting(default=None, kw_only=False, doc="A data set's name.")
    mean: Setting[float | tuple[float, ...] | None] = setting(default=None, doc="Of values 0-1.")
    std: Setting[float | tuple[float, ...] | None] = setting(default=None, doc="Of values 0-1.")

    def check(self) -> None:
        s = self.settings
        if (s.preset is None) == (s.mean is None) or (s.mean is None) != (s.std is None):
            raise ValueError(
                f"{self!r} takes either a preset, Normalize('cifar10'), or both mean= and std="
            )
        if s.preset is not None and s.preset not in PRESETS:
            guess = nearest(s.preset, PRESETS)
            hint = f"; did you mean {guess!r}?" if guess else "."
            raise ValueError(
                f"Normalize has no preset {s.preset!r}{hint} Allowed: {', '.join(PRESETS)}"
            )
        if s.std is not None and min(s.std if isinstance(s.std, tuple) else (s.std,)) <= 0:
            raise ValueError(f"{self!r}: std takes numbers above 0")

    def lower(self, stage: Stage) -> tuple[tuple[Operation, ...], Stage]:
        if stage.normalized:
            raise ValueError(f"{self!r}: the picture is normalised already; Normalize goes once")
        s = self.settings
        mean, std = PRESETS[s.preset] if s.preset is not None else (s.mean, s.std)
        if s.preset is not None and len(mean) != stage.channels:
            raise ValueError(
                f"{self!r} is for pictures of {len(mean)} channels, these have {stage.channels}; "
                "give mean= and std="
            )
        means = per_channel(mean, stage.channels, self, "mean")
        stds = per_channel(std, stage.channels, self, "std")
        return (affine_of_levels(means, stds),), replace(stage, normalized=True, exact=False)


def affine_of_levels(mean: tuple[float, ...], std: tuple[float, ...]) -> Operation:
    """The operation x * scale + shift that normalises levels 0-255."""
    padding = (0.0,) * (MAX_CHANNELS - len(mean))
    scale = tuple(1.0 / (255.0 * s) for s in std)
    shift = tuple(-m / s for m, s in zip(mean, std))
    return Operation("normalize", value=scale + padding + shift + padding)


@value
class RandomErasing(Transform):
    """Overwrites a random rectangle (Zhong et al., "Random Erasing Data Augmentation", 2017).

    Area and log-uniform aspect ratio are drawn up to ten times until the rectangle is smaller than
    the picture both ways.

    Args:
        p: Probability.
        scale: (low, high) area of the rectangle, as a fraction of the picture.
        ratio: (low, high) height over width.
        value: Number or one per channel: normalised units after `Normalize`, levels before; or
            "random": a standard normal for every element, only after `Normalize`.
    """

    stream = 13
    p: Setting[float] = setting(default=0.5, kw_only=False, ge=0, le=1, doc="Probability.")
    scale: Setting[tuple[float, float]] = setting(
        default=(0.02, 0.33), kw_only=False, doc="Area as a fraction, 0 to 1."
    )
    ratio: Setting[tuple[float, float]] = setting(
        default=(0.3, 3.3), kw_only=False, doc="Height over width, above 0."
    )
    value: Setting[float | tuple[float, ...] | Literal["random"]] = setting(
        default=0.0, kw_only=False, doc="What is written."
    )

    def check(self) -> None:
        s = self.settings
        if not 0 <= s.scale[0] <= s.scale[1] <= 1:
            raise ValueError(f"{self!r}: scale = {s.scale} takes 0 <= low <= high <= 1")
        if not 0 < s.ratio[0] <= s.ratio[1]:
            raise ValueError(f"{self!r}: ratio = {s.ratio} takes 0 < low <= high")

    def lower(self, stage: Stage) -> tuple[tuple[Operation, ...], Stage]:
        s = self.settings
        numbers = (*s.scale, math.log(s.ratio[0]), math.log(s.ratio[1]))
        if s.value == "random":
            if not stage.normalized:
                raise ValueError(
                    f"{self!r}: value='random' draws standard normals and goes after Normalize"
                )
            return (Operation("erase", 1, p=s.p, range=numbers),), stage
        fill = per_channel(s.value, stage.channels, self, "value")
        return (Operation("erase", 0, p=s.p, range=numbers, value=fill),), stage


@value
class Cutout(Transform):
    """Overwrites a box around a uniformly random centre, cut off at the borders.

    References: DeVries and Taylor, "Improved Regularization of Convolutional Neural Networks with
    Cutout", 2017, arXiv 1708.04552.

    Args:
        size: Pixels: a square, or (height, width).
        p: Probability.
        value: Number or one per channel: normalised units after `Normalize`, levels before.
    """

    stream = 14
    size: Setting[int | tuple[int, int]] = setting(kw_only=False, doc="(height, width), pixels.")
    p: Setting[float] = setting(default=1.0, ge=0, le=1, doc="Probability.")
    value: Setting[float | tuple[float, ...]] = setting(default=0.0, doc="What is written.")

    def check(self) -> None:
        if min(pair(self.settings.size)) < 1:
            raise ValueError(f"{self!r}: size takes 1 or more")

    def lower(self, stage: Stage) -> tuple[tuple[Operation, ...], Stage]:
        s = self.settings
        fill = per_channel(s.value, stage.channels, self, "value")
        return (Operation("cutout", p=s.p, size=pair(s.size), value=fill),), stage
