"""What a transform draws, as numbers: the distributions that users can look at and tests do."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from renaissance import _native
from renaissance.data.program import stream_of
from renaissance.data.transform import Stage, Transform
from renaissance.random import AUGMENT, check_seed, derive

_BOX = ("top", "left", "height", "width")
_NAMES: Mapping[str, tuple[str, ...]] = {
    "random_crop": _BOX,
    "resized_crop": _BOX,
    "erase": _BOX,
    "cutout": _BOX,
    "flip_x": ("applied",),
    "flip_y": ("applied",),
    "grayscale": ("applied",),
    "autocontrast": ("applied",),
    "affine": ("angle", "shift_x", "shift_y", "scale", "shear_x", "shear_y"),
    "jitter": (
        *("first", "second", "third", "fourth"),
        *("brightness", "contrast", "saturation", "hue"),
    ),
    "blur": ("sigma",),
    "trivial": ("kind", "magnitude"),
}

#: What TrivialAugmentWide and RandAugment choose from, by the number drawn.
AUTO_KINDS = (
    *("identity", "shear_x", "shear_y", "translate_x", "translate_y", "rotate", "brightness"),
    *("color", "contrast", "sharpness", "posterize", "solarize", "autocontrast", "equalize"),
)


def sample_parameters(
    transform: Transform,
    n: int,
    *,
    size: tuple[int, int],
    channels: int = 3,
    seed: int = 0,
    epoch: int = 0,
) -> dict[str, npt.NDArray[np.float32]]:
    """The parameters that samples 0 ... n-1 get, by name, each (n,) float32.

    Args:
        transform: One that draws.
        n: Number of samples.
        size: (height, width) of the picture that the transform meets, pixels.
        channels: Of that picture.
        seed: Of the run.
        epoch: Epoch.

    Raises:
        ValueError: The transform draws nothing.

    Example:
        >>> import renaissance as rn
        >>> sample_parameters(rn.RandomCrop(28), 3, size=(32, 32))["top"].shape
        (3,)
    """
    # Noise is demanded after Normalize, colour before it: each gets the stage it wants.
    normalized = getattr(transform.settings, "value", None) == "random"
    operations, _ = transform.lower(Stage(*size, channels, normalized=normalized))
    drawing = operations[-1] if operations else None
    if transform.stream == 0 or drawing is None:
        raise ValueError(f"{transform!r} draws nothing")
    names = _NAMES.get(drawing.kind)
    if names is None:
        names = tuple(f"{n}_{k}" for k in range(drawing.size[1]) for n in _NAMES["trivial"])
    before = operations[0] if len(operations) > 1 else None
    height, width = size
    if before is not None and before.kind == "pad":
        left, top, right, bottom = before.size
        height, width = height + top + bottom, width + left + right
    rows = _native.draw_parameters(
        drawing.pack(stream_of(transform, 0)),
        derive(check_seed(seed), AUGMENT),
        epoch,
        0,
        n,
        height,
        width,
    )
    table = np.array(rows, np.float32).reshape(n, len(names))
    return {name: table[:, k] for k, name in enumerate(names)}
