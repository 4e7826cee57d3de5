"""Which samples make batch k of epoch e: a function of (data set size, seed, epoch) alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from renaissance import _native
from renaissance.random import ORDER, derive

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Order:
    """The batches of every epoch.

    Batch k is positions [k * batch_size, (k + 1) * batch_size) of the epoch's permutation; the last
    one may be shorter. A rank takes its slice of the same global batch, so order and contents do
    not depend on how many ranks there are; `unit` neighbours stay on one rank.
    """

    num_samples: int
    batch_size: int
    shuffle: bool
    drop_last: bool
    unit: int = 1

    @property
    def steps(self) -> int:
        """Batches in one epoch."""
        whole, rest = divmod(self.num_samples, self.batch_size)
        return whole if self.drop_last or rest == 0 else whole + 1

    def epoch(self, seed: int, epoch: int) -> _native.EpochOrder:
        """The order of an epoch, `rn.Permutation` of it; costs nothing until it is used."""
        return _native.EpochOrder(self.num_samples, self.shuffle, derive(seed, ORDER, epoch))

    def batches(self, rank: int = 0, world: int = 1) -> tuple[int, int, int, int, int]:
        """How positions are cut into batches and a rank's parts of them, for C++."""
        return self.num_samples, self.batch_size, self.unit, rank, world

    def ids(self, order: _native.EpochOrder, step: int, rank: int = 0, world: int = 1) -> Ids:
        """Data-set indices of this rank's part of batch `step`, int64.

        A batch of m units (the last may be short) is cut at units rank * m // world.
        """
        return order.ids(*_native.batch_part(self.batches(rank, world), step))


class EpochOrders:
    """The orders of the epochs asked for last: two, because the next one is made ahead."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._kept: dict[tuple[int, int], _native.EpochOrder] = {}

    def __call__(self, seed: int, epoch: int) -> _native.EpochOrder:
        found = self._kept.get((seed, epoch))
        if found is None:
            found = self._order.epoch(seed, epoch)
            latest = list(self._kept.items())[-1:]
            # One assignment: other threads see the old or the new orders.
            self._kept = dict([*latest, ((seed, epoch), found)])
        return found
