"""Evaluation and prediction: whole data sets, each sample counted once, in index order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from renaissance.data.loader import Loader

if TYPE_CHECKING:
    from renaissance.build import Built


@contextmanager
def weights_of(built: Built, weights: str | None) -> Iterator[None]:
    """EMA weights in place of the raw ones, when there are any and "raw" was not asked for.

    One range pass exchanges E with W and B; the same pass afterwards restores every bit.
    """
    if weights not in (None, "raw", "ema"):
        raise ValueError(f"weights = {weights!r} is not allowed; it takes 'raw', 'ema' or None")
    if weights == "ema" and not built.has_ema:
        raise ValueError("weights = 'ema', but the task keeps no average: task.ema(0.999)")
    if weights == "raw" or not built.has_ema:
        yield
        return
    built.updater.exchange_ema()
    try:
        yield
    finally:
        built.updater.exchange_ema()


def evaluate(
    built: Built,
    loader: Loader,
    *,
    seed: int,
    weights: str | None = None,
    each: Callable[[int, int], None] = lambda batch, samples: None,
) -> dict[str, float]:
    """Means of loss and metrics over the samples of a data set.

    Args:
        built: The compiled task.
        loader: The data; a partial batch counts by its samples.
        seed: Keys random transforms, if the loader has any.
        weights: "raw", "ema", or None for EMA weights where there are any.
        each: Called after every batch with its index and number of samples.
    """
    executor = built.executor
    executor.tally.test.zero_()
    with weights_of(built, weights), executor.test_batches(loader, seed=seed) as batches:
        for index, batch in enumerate(batches):
            executor.test_step(batch)
            each(index, len(batch.ids))
    return executor.tally.means("test")


def test_on_batch(built: Built, x: Any, y: Any) -> dict[str, float]:
    """Loss and metrics of one batch with raw weights."""
    executor = built.executor
    executor.tally.test.zero_()
    executor.test_step(executor.place(x, y))
    return executor.tally.means("test")


def predict(
    built: Built, loader: Loader, *, seed: int, weights: str | None = None
) -> npt.NDArray[np.float32]:
    """Raw outputs of every sample in index order, float32."""
    executor = built.executor
    parts = []
    with weights_of(built, weights):
        for batch in executor.fed_batches(loader, seed=seed, epoch=0):
            parts.append((np.asarray(batch.ids), executor.predict_step(batch).cpu().numpy()))
    ids = np.concatenate([i for i, _ in parts])
    outputs = np.concatenate([o for _, o in parts])
    ordered = np.empty_like(outputs)
    ordered[ids] = outputs
    return ordered
