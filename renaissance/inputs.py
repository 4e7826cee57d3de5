"""What moves from the host to a GPU beside a captured graph: batches and the learning rate.

Batches go over a copy stream into device slots, one ahead of the step; a slot is filled again only
when the graph that read it has run. Events order all of it on the device; the host waits only for
room, never for a result.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import torch
from torch import Tensor

from renaissance.data.batch import Batch
from renaissance.data.stream import BatchStream

SLOTS = 3  # one in use, one ready, one being filled


class StreamPool:
    """Streams of executors that were closed, for those that come.

    cuBLAS keeps a workspace of some 32 MiB for every stream it has ever run on, so streams are used
    again rather than made anew.
    """

    def __init__(self) -> None:
        self._free: dict[int, list[torch.cuda.Stream]] = {}

    def take(self, device: torch.device) -> torch.cuda.Stream:
        """A stream of this device that nobody else has."""
        free = self._free.setdefault(device.index or 0, [])
        return free.pop() if free else torch.cuda.Stream(device)

    def give_back(self, stream: torch.cuda.Stream) -> None:
        """The caller has done with it."""
        self._free.setdefault(stream.device.index or 0, []).append(stream)


STREAMS = StreamPool()


class Mark(Protocol):
    """What a copy that was queued leaves behind."""

    def synchronize(self) -> None:
        """Wait until everything queued before it has run."""


def copied_in_time(
    stream: BatchStream, place: Callable[[Batch], Batch], mark: Callable[[], Mark]
) -> Iterator[Batch]:
    """Batches brought to a device; host memory is released when its copy has run, not before.

    Args:
        stream: On the host; one of its batches is held beside the one that comes next.
        place: Queues the copy of a batch.
        mark: Called after it.
    """
    held: collections.deque[tuple[Batch, Mark]] = collections.deque()
    try:
        while (batch := stream.next()) is not None:
            placed = place(batch)
            held.append((batch, mark()))
            if len(held) > 1:
                _let_go(stream, *held.popleft())
            yield placed
    finally:
        while held:
            _let_go(stream, *held.popleft())


def _let_go(stream: BatchStream, batch: Batch, copied: Mark) -> None:
    copied.synchronize()
    stream.release(batch)


class PinnedRing:
    """Numbers on their way to one device scalar; a slot is not rewritten before its copy has run.

    Args:
        target: 0-d float64 tensor on the device.
        size: Slots, even.
    """

    def __init__(self, target: Tensor, size: int = 64) -> None:
        self._target, self._half = target, size // 2
        self._slots = torch.empty(size, dtype=target.dtype, device="cpu", pin_memory=True)
        self._numbers = self._slots.numpy()
        self._views = list(self._slots.unbind())
        self._copied = [torch.cuda.Event() for _ in range(2)]
        self._next = 0

    def write(self, value: float) -> None:
        """One copy of one scalar on the current stream."""
        place = self._next % (2 * self._half)
        half, within = divmod(place, self._half)
        if within == 0 and self._next >= 2 * self._half:
            self._copied[half].synchronize()  # a whole round ago
        self._numbers[place] = value
        self._target.copy_(self._views[place], non_blocking=True)
        if within == self._half - 1:
            self._copied[half].record()
        self._next += 1


@dataclasses.dataclass
class Staged:
    """A batch in a device slot, or on its way there."""

    ids: Any
    slot: int
    ready: torch.cuda.Event

    @property
    def samples(self) -> int:
        return len(self.ids)


class InputSlots:
    """Device slots, and the input that a graph reads.

    Args:
        like: A full batch on the host.
        device: The device.
    """

    def __init__(self, like: Batch, device: torch.device) -> None:
        self.x = torch.zeros_like(like.x, device=device)
        self.y = torch.zeros_like(like.y, device=device)
        self._slots = [(torch.zeros_like(self.x), torch.zeros_like(self.y)) for _ in range(SLOTS)]
        self._copy_stream = torch.cuda.Stream(device)
        self._free = [torch.cuda.Event() for _ in range(SLOTS)]
        self._held: collections.deque[tuple[BatchStream, Batch, torch.cuda.Event]]
        self._held = collections.deque()

    def addresses(self) -> list[int]:
        """x and y of every slot, as region S holds them (padded to its 16 places)."""
        found = [t.data_ptr() for pair in self._slots for t in pair]
        return found + [0] * (16 - len(found))

    def fits(self, batch: Batch) -> bool:
        """Whether x and y of a batch have the shapes that its graph reads."""
        count = len(batch.ids)
        return bool(self.x[:count].shape == batch.x.shape and self.y[:count].shape == batch.y.shape)

    def stage(self, stream: BatchStream, batch: Batch, slot: int) -> Staged:
        """Start copying a host batch into a slot; its host memory is released once copied."""
        samples, (x, y) = len(batch.ids), self._slots[slot]
        with torch.cuda.stream(self._copy_stream):
            self._copy_stream.wait_event(self._free[slot])
            x[:samples].copy_(batch.x, non_blocking=True)
            y[:samples].copy_(batch.y, non_blocking=True)
            ready = torch.cuda.Event()
            ready.record(self._copy_stream)
        self._held.append((stream, batch, ready))
        self._release(keep=1)
        return Staged(batch.ids, slot, ready)

    def used(self, slot: int, stream: torch.cuda.Stream) -> None:
        """What was queued on `stream` so far is the last to read this slot."""
        self._free[slot].record(stream)

    def drain(self) -> None:
        """Release all host memory, after its copies."""
        self._release(keep=0)

    def _release(self, keep: int) -> None:
        while self._held and (len(self._held) > keep or self._held[0][2].query()):
            stream, batch, ready = self._held.popleft()
            ready.synchronize()
            stream.release(batch)
