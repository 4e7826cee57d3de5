"""Pictures that are computed: for tests, demonstrations and benchmarks without any file."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

#: Standard deviation of the sum of four random bytes, which stands for a normal number here.
_SUM_DEVIATION = 147.8


class Synthetic:
    """Noisy pictures of `num_classes` patterns that a small network can learn.

    A class is a fixed random picture; a sample is its class's picture with noise. Everything is a
    function of the arguments.

    Args:
        num_samples: 1 or more.
        size: Height and width in pixels, or (height, width).
        channels: 1 to 4.
        num_classes: 1 or more; sample i is of class i % num_classes.
        noise: Standard deviation of the noise in levels (0-255).
        seed: 0 to 2**64 - 1.
        split: "train" or "test": the same patterns with other noise.
    """

    def __init__(
        self,
        num_samples: int = 1000,
        *,
        size: int | tuple[int, int] = 32,
        channels: int = 3,
        num_classes: int = 10,
        noise: float = 32.0,
        seed: int = 0,
        split: Literal["train", "test"] = "train",
    ) -> None:
        for name, given, most in (
            ("num_samples", num_samples, None),
            ("channels", channels, 4),
            ("num_classes", num_classes, None),
        ):
            if given < 1 or (most is not None and given > most):
                raise ValueError(
                    f"{name} = {given} is not allowed; it takes 1 "
                    + ("or more" if most is None else f"to {most}")
                )
        if split not in ("train", "test"):
            raise ValueError(f"split = {split!r} is not allowed; it takes 'train' or 'test'")
        height, width = (size, size) if isinstance(size, int) else size
        shape = (height, width, channels)
        self.num_classes = num_classes
        self.classes = tuple(f"pattern {k}" for k in range(num_classes))
        self._about = {
            "type": "synthetic",
            "num_samples": num_samples,
            "shape": list(shape),
            "num_classes": num_classes,
            "noise": noise,
            "seed": seed,
            "split": split,
        }
        patterns = _random_bytes(seed, 0, num_classes * math.prod(shape)).reshape(-1, *shape)
        self._y = np.arange(num_samples, dtype=np.int64) % num_classes
        drawn = _random_bytes(seed, 1 + (split == "test"), 4 * num_samples * math.prod(shape))
        sums = drawn.reshape(num_samples, *shape, 4).sum(axis=-1, dtype=np.float32) - 510
        noisy = patterns[self._y] + sums * np.float32(noise / _SUM_DEVIATION)
        self._x: npt.NDArray[np.uint8] = np.clip(np.rint(noisy), 0, 255).astype(np.uint8)

    def __len__(self) -> int:
        return len(self._x)

    def read(self, index: int, /) -> tuple[npt.NDArray[np.uint8], int]:
        return self._x[index], int(self._y[index])

    def as_arrays(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        return self._x, self._y

    def identity(self) -> dict[str, Any]:
        return dict(self._about)

    def __repr__(self) -> str:
        about = self._about
        return f"Synthetic({about['num_samples']}, split={about['split']!r}, seed={about['seed']})"


def _random_bytes(seed: int, stream: int, count: int) -> npt.NDArray[np.uint8]:
    """The first bytes of a Philox stream, which NumPy promises never to change."""
    words = np.random.Philox(key=[seed, stream]).random_raw(-(-count // 8))
    return np.asarray(words, "<u8").view(np.uint8)[:count]
