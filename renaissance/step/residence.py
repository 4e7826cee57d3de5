"""Data sets that live on the GPU: a captured step takes its batch from there, not from the host.

At an epoch's start the host copies the keyed order and a few numbers (key, epoch, first sample) to
the device; one kernel transforms the batch that they name and moves on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from renaissance.data.loader import Loader
from renaissance.data.resident import ResidentData
from renaissance.random import AUGMENT, Permutation, derive
from renaissance.step.inputs import Mark, queued

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
        device, count = data.pictures.device, loader.num_samples
        self._is_pinned = device.type == "cuda"
        # A batch more than there are samples: a graph replayed past an epoch's end reads valid ids.
        size = count + loader.batch_size
        self._ids = torch.zeros(size, dtype=torch.int64, device=device)
        self._state = torch.zeros(4, dtype=torch.int64, device=device)
        self._order = np.arange(count)
        self._made: tuple[int, int] | None = None  # seed and epoch of that order
        self._host_ids = torch.from_numpy(self._order.copy())
        self._host_state = torch.zeros(4, dtype=torch.int64, device="cpu")
        if self._is_pinned:
            self._host_ids = self._host_ids.pin_memory()
            self._host_state = self._host_state.pin_memory()
        self._is_sent = False
        self._copied: Mark | None = None

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
        self._data.augment(self._ids, self._state, x, y, end=self.loader.num_samples)

    def epoch(
        self, *, seed: int, epoch: int, start_step: int, steps: int | None
    ) -> Iterator[Place]:
        """Send an epoch's order to the device; gives its batches from `start_step` on.

        Nothing waits for the copies. In the middle of the epoch, while the device is busy, the next
        one's order is made.
        """
        loader = self.loader
        seed = loader.resolve_seed(seed)
        self._make_order(seed, epoch)
        if not self._is_sent:
            self._ids[: len(self._order)].copy_(self._host_ids, non_blocking=True)
            self._is_sent = True
        self._wait()
        state = self._data.state(derive(seed, AUGMENT), epoch, start_step * loader.batch_size)
        self._state.copy_(self._host_state.copy_(state), non_blocking=True)
        self._copied = queued() if self._is_pinned else None
        end = loader.steps_per_epoch if steps is None else min(steps, loader.steps_per_epoch)
        return self._places(self._order, range(start_step, end), seed, epoch)

    def _make_order(self, seed: int, epoch: int) -> None:
        """An epoch's order in host memory, unless it is there."""
        if not self.loader.shuffle or self._made == (seed, epoch):
            return
        self._order = Permutation(self.loader.num_samples, seed, epoch)[:]
        self._wait()
        self._host_ids.copy_(torch.from_numpy(self._order))
        self._made, self._is_sent = (seed, epoch), False

    def _wait(self) -> None:
        """Until host memory may be rewritten: its last copies, mostly long ago, have run."""
        if self._copied is not None:
            self._copied.synchronize()

    def _places(
        self, ids: npt.NDArray[np.int64], steps: range, seed: int, epoch: int
    ) -> Iterator[Place]:
        size, middle = self.loader.batch_size, steps.start + len(steps) // 2
        for step in steps:
            yield Place(ids[step * size : (step + 1) * size])
            if step == middle:
                self._make_order(seed, epoch + 1)
