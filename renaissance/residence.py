"""Data sets that live on the GPU: a captured step takes its batch from there, not from the host.

At an epoch's start the host copies the keyed order and three numbers (key, epoch, first sample) to
the device; the graph's first kernel transforms the batch that they name, its second moves on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from renaissance import kernels
from renaissance.data.loader import Loader
from renaissance.data.resident import ResidentData
from renaissance.random import AUGMENT, Permutation, derive

#: A data set takes at most this part of the device memory that is free when it is brought there.
SHARE = 0.25


@dataclasses.dataclass(frozen=True)
class Place:
    """A batch of a data set that is on the device: its ids are all the host knows of it."""

    ids: npt.NDArray[np.int64]

    @property
    def samples(self) -> int:
        return len(self.ids)


class Residence:
    """A loader's data on a device.

    Args:
        loader: Its description.
        data: Pictures, labels and program, on the device.
    """

    def __init__(self, loader: Loader, data: ResidentData) -> None:
        self.loader, self._data = loader, data
        device = data.pictures.device
        # A batch more than there are samples: a graph replayed past an epoch's end reads valid ids.
        size = loader.num_samples + loader.batch_size
        self._ids = torch.zeros(size, dtype=torch.int64, device=device)
        self._state = torch.zeros(3, dtype=torch.int64, device=device)

    @classmethod
    def find(cls, loader: Loader, device: torch.device) -> Residence | None:
        """The loader's data brought to the device, or None when it cannot or shall not live there.

        Raises:
            ValueError: ``device_cache="on"`` was asked for, and it cannot; the text says why.
        """
        wanted = loader.device_cache
        resident = None if wanted == "off" else loader.resident()
        if resident is None or resident.y is None:
            if wanted == "on":
                raise ValueError(
                    "device_cache='on' needs uint8 pictures of one size with class numbers, all in "
                    "memory; use 'auto' for what the data allows"
                )
            return None
        reason = resident.program.resident_reason
        free, _ = torch.cuda.mem_get_info(device)
        if wanted == "auto" and (reason is not None or resident.x.nbytes > SHARE * free):
            return None
        pictures = torch.tensor(resident.x, device="cpu")  # never views
        labels = torch.tensor(resident.y, device="cpu")
        return cls(
            loader, ResidentData.load(resident.program, pictures.to(device), labels.to(device))
        )

    def take(self, x: Tensor, y: Tensor) -> None:
        """Make the next batch of len(x) samples and move on: device work alone."""
        self._data.augment(self._ids, self._state, x, y)
        kernels.launch(
            "advance",
            1,
            1,
            self._state[2:].data_ptr(),
            np.int64(len(x)),
            np.int64(self.loader.num_samples),
        )

    def epoch(
        self, *, seed: int, epoch: int, start_step: int, steps: int | None
    ) -> Iterator[Place]:
        """Send an epoch's order to the device; gives its batches from `start_step` on."""
        loader = self.loader
        seed, count = loader.resolve_seed(seed), loader.num_samples
        ids = np.arange(count) if not loader.shuffle else Permutation(count, seed, epoch)[:]
        first = start_step * loader.batch_size
        self._ids[:count].copy_(torch.from_numpy(ids.copy()))
        self._state.copy_(self._data.state(derive(seed, AUGMENT), epoch, first))
        end = loader.steps_per_epoch if steps is None else min(steps, loader.steps_per_epoch)
        return self._places(ids, range(start_step, end))

    def _places(self, ids: npt.NDArray[np.int64], steps: range) -> Iterator[Place]:
        size = self.loader.batch_size
        for step in steps:
            yield Place(ids[step * size : (step + 1) * size])
