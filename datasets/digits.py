"""The handwritten digits that scikit-learn ships: 1,797 pictures of 8 x 8, no download."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

CLASSES = tuple("0123456789")


class Digits:
    """Optical recognition of handwritten digits (Alpaydin and Kaynak, UCI, 1998).

    Every fifth picture is test (359), the others train (1,438). Pixels counted 0 to 16 in the
    original become 0 to 255, rounded: 16 is white.

    Args:
        split: "train" or "test".

    Raises:
        ImportError: scikit-learn is not installed.
    """

    num_classes = 10
    classes = CLASSES

    def __init__(self, split: Literal["train", "test"] = "train") -> None:
        if split not in ("train", "test"):
            raise ValueError(f"split = {split!r} is not allowed; it takes 'train' or 'test'")
        self.split = split
        try:
            from sklearn.datasets import load_digits
        except ImportError:
            raise ImportError(
                "the digits come with scikit-learn: pip install 'renaissance[demo]'"
            ) from None
        source = load_digits()
        is_test = np.arange(len(source.images)) % 5 == 4
        chosen = is_test if split == "test" else ~is_test
        levels = np.rint(source.images[chosen] * (255 / 16))
        self._x: npt.NDArray[np.uint8] = levels.astype(np.uint8)  # (N, 8, 8)
        self._y: npt.NDArray[np.int64] = source.target[chosen].astype(np.int64)

    def __len__(self) -> int:
        return len(self._x)

    def read(self, index: int, /) -> tuple[npt.NDArray[np.uint8], int]:
        return self._x[index], int(self._y[index])

    def as_arrays(self) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
        return self._x, self._y

    def identity(self) -> dict[str, Any]:
        return {"type": "digits", "split": self.split, "num_samples": len(self)}

    def __repr__(self) -> str:
        return f"Digits({self.split!r})"
