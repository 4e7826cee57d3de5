"""Which samples make batch k of epoch e: a function of (data set size, seed, epoch) alone."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from renaissance import _native
from renaissance.random import Permutation

Ids = npt.NDArray[np.int64]
EpochIds = Ids | Permutation | None


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

    def batch_of(self, step: int) -> slice:
        """Positions of batch `step` in the permutation."""
        first = step * self.batch_size
        return slice(first, min(first + self.batch_size, self.num_samples))

    def epoch(self, seed: int, epoch: int) -> EpochIds:
        """The permutation of an epoch; None: as the data set has them."""
        if not self.shuffle:
            return None
        permutation = Permutation(self.num_samples, seed, epoch)
        # A table is sliced faster than the permutation that made it.
        return permutation[:] if self.num_samples <= _native.SHUFFLE_LIMIT else permutation

    def ids(self, permutation: EpochIds, step: int, rank: int = 0, world: int = 1) -> Ids:
        """Data-set indices of this rank's part of batch `step`, int64.

        A batch of m units (the last may be short) is cut at units rank * m // world.
        """
        batch = self.batch_of(step)
        units = -(-(batch.stop - batch.start) // self.unit)
        first, end = (batch.start + r * units // world * self.unit for r in (rank, rank + 1))
        part = slice(min(first, batch.stop), min(end, batch.stop))
        if permutation is None:
            return np.arange(part.start, part.stop, dtype=np.int64)
        return permutation[part]
