"""Sums of loss and metrics on the device, from which means are read."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class Tally:
    """Sums of loss and metrics in region R, as (sum, count) pairs in float64; loss comes first.

    Rows: "window" collects the micro-batches of the step that is running, "last" holds the step
    before, "epoch" every step of the epoch that was not skipped, "test" an evaluation. Counts are
    exact up to 2^53. A mean over nothing is NaN.
    """

    ROWS = ("window", "last", "epoch", "test")

    def __init__(self, region: Tensor, names: Sequence[str]) -> None:
        self.names = ("loss", *names)
        width = 2 * len(self.names)
        rows = region[: len(self.ROWS) * width].view(len(self.ROWS), width)
        self.window, self.last, self.epoch, self.test = rows.unbind()
        self.step = rows[:3]  # what ``Updater.finish`` closes

    @staticmethod
    def size(num_metrics: int) -> int:
        """float64 elements of region R for so many metrics beside the loss."""
        return len(Tally.ROWS) * 2 * (1 + num_metrics)

    def values(self, row: str) -> list[float]:
        """The sums of a row, read from the device: loss sum, loss weight, metric sum, count ..."""
        return [float(x) for x in getattr(self, row).tolist()]

    def load(self, row: str, values: Sequence[float]) -> None:
        """Put sums back (resume)."""
        getattr(self, row).copy_(torch.tensor(values, dtype=torch.float64, device="cpu"))

    def means(self, row: str) -> dict[str, float]:
        """Means over samples by name, read from the device."""
        flat = self.values(row)
        pairs = zip(self.names, flat[0::2], flat[1::2])
        return {name: total / count if count else float("nan") for name, total, count in pairs}
