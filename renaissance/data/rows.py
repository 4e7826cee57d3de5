"""Rows of a whole data set in index order, out of batches in any order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from renaissance.data.loader import Loader


def in_order(
    parts: Sequence[npt.NDArray[Any]], ids: Sequence[npt.NDArray[np.int64]], giver: str
) -> npt.NDArray[Any]:
    """One array of all batches, row k that of sample k.

    Args:
        parts: Rows of each batch, (n, ...).
        ids: Which samples they are of, (n,) each; together every sample once.
        giver: "the data": what gives them, for the error.

    Raises:
        ValueError: Batches differ in more than their number of samples.
    """
    shapes = sorted({part.shape[1:] for part in parts})
    if len(shapes) > 1:
        raise ValueError(
            f"{giver} gives a sample {shapes[0]} in one batch and {shapes[-1]} in another, which "
            "make no one array; take parts of one shape, or pad the data"
        )
    rows = np.concatenate(parts)
    ordered = np.empty_like(rows)
    ordered[np.concatenate(ids)] = rows
    return ordered


def targets_of(loader: Loader, seed: int) -> npt.NDArray[Any]:
    """The targets of a loader's data in index order, as its first epoch has them.

    Raises:
        ValueError: It has none, or they differ in shape.
    """
    parts, ids = [], []
    for batch in loader.epoch(0, seed=seed):
        if batch.y is None:
            raise ValueError(
                "the data has no targets; give them, as in rn.Loader.from_arrays(x, y, "
                "batch_size=...) or a data set of (x, y)"
            )
        parts.append(np.asarray(batch.y))
        ids.append(np.asarray(batch.ids))
    return in_order(parts, ids, "the data")
