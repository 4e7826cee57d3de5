"""What moves from the host to a GPU beside a captured graph: batches and learning rates.

Batches go over a copy stream into device slots, one ahead of the step; a slot is filled again only
when the graph that read it has run. Events order all of it on the device; the host waits only for
room, never for a result.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
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


class Event(Mark, Protocol):
    """A mark that can be asked."""

    def query(self) -> bool:
        """Whether everything queued before it has run."""


def queued() -> torch.cuda.Event:
    """An event behind everything queued so far."""
    event = torch.cuda.Event()
    event.record()
    return event


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


class RateFeed:
    """Learning rates on their way to the device, those of many steps in one copy.

    A copy between two graphs holds up the second one, so it should be rare. Host memory is a ring
    of pinned slots; a slot is not rewritten before its copy has run.

    Args:
        table: (2 + n) int64 on the device: next, count, and n float64 (``Updater.rates``).
        pin: Whether host memory is pinned; only pages that are can be copied beside the host.
        mark: Gives an event behind everything queued so far.
    """

    SLOTS = 8

    def __init__(
        self, table: Tensor, *, pin: bool = True, mark: Callable[[], Mark] | None = None
    ) -> None:
        self.room = len(table) - 2  #: rates that one copy takes
        self._table, self._mark = table, mark or queued
        slots = torch.zeros(self.SLOTS, len(table), dtype=table.dtype, pin_memory=pin, device="cpu")
        self._slots = list(slots.unbind())
        self._words = slots.numpy()
        self._rates = self._words.view(np.float64)
        self._copied: list[Mark | None] = [None] * self.SLOTS
        self._place = 0
        self._constant: float | None = None

    def write(self, rates: Sequence[float]) -> None:
        """The rates of the steps to come, in place of those written before; at least one.

        The last one holds until others are written, so a rate that stays is written once.
        """
        is_constant = rates.count(rates[0]) == len(rates)
        if is_constant and rates[0] == self._constant:
            return
        self._constant = rates[0] if is_constant else None
        place = self._place
        copied = self._copied[place]
        if copied is not None:
            copied.synchronize()  # a whole round ago
        self._words[place, :2] = 0, len(rates)
        self._rates[place, 2 : 2 + len(rates)] = rates
        self._table.copy_(self._slots[place], non_blocking=True)
        self._copied[place] = self._mark()
        self._place = (place + 1) % self.SLOTS

    def forget(self) -> None:
        """Region S was written meanwhile: what is on the device is not known."""
        self._constant = None


class LateNumber:
    """A number on the device as it was some time ago: looking at it waits for nothing.

    Args:
        source: One element on the device.
        pin: Whether host memory is pinned; only pages that are can be copied beside the host.
        mark: Gives an event behind everything queued so far.
    """

    def __init__(
        self, source: Tensor, *, pin: bool = True, mark: Callable[[], Event] | None = None
    ) -> None:
        self._source, self._mark = source, mark or queued
        self._host = torch.zeros_like(source, device="cpu", pin_memory=pin)
        self._copied: Event | None = None
        self._known = 0.0

    def look(self) -> float:
        """What is known of it; the copy that tells more the next time is queued."""
        if self._copied is None or self._copied.query():
            if self._copied is not None:
                self._known = float(self._host)
            self._host.copy_(self._source, non_blocking=True)
            self._copied = self._mark()
        return self._known


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
        """Whether x and y of a batch are tensors of the shapes and types that its graph reads."""
        pairs = ((self.x[: len(batch.ids)], batch.x), (self.y[: len(batch.ids)], batch.y))
        return all(
            isinstance(given, Tensor) and (given.shape, given.dtype) == (own.shape, own.dtype)
            for own, given in pairs
        )

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
