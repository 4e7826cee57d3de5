"""A running loader: workers that fill the ring, and batches in the order of the epoch."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass

from typing_extensions import Self

from renaissance import _native
from renaissance.data.batch import Batch as Batch
from renaissance.data.batch import DamagedSample, Judge, judged
from renaissance.data.errands import Errands
from renaissance.data.ledger import Ledger, per_image
from renaissance.data.mix import MixPlan
from renaissance.data.order import Ids, Order
from renaissance.data.ring import Ring, SlotShape
from renaissance.data.supply import Supply
from renaissance.random import AUGMENT, REPLACE, derive

SLICE_SECONDS = 0.05  # how long C++ may wait or work before Python looks for Ctrl-C

CLASS_BYTES = 8  # of a class number, int64

KEPT = 2  # batches that an iterator leaves valid: the latest and the one before


@dataclass(frozen=True)
class StreamPlan:
    """What a stream has to know besides the data: all plain values."""

    order: Order
    seed: int
    shape: SlotShape
    output: tuple[int, int, int]  # dtype, layout, channels: OutputSpec of program.h
    workers: int
    prefetch: int
    on_error: str
    damage_limit: int
    mix: MixPlan | None = None
    rank: int = 0
    world: int = 1


@dataclass
class Position:
    """The batch that a stream hands out next; outlives the stream."""

    epoch: int = 0
    step: int = 0


class BatchStream:
    """Batches of one epoch, made ahead of the consumer by workers.

    As an iterator it hands out batches whose x and y lie in the ring: each stays valid until the
    second next call. With `next` and `release` the consumer decides itself when a slot is free
    again (after an asynchronous copy, say). Closed on exit of a ``with`` block, and on error.
    """

    def __init__(
        self,
        supply: Supply,
        program: _native.Program | None,
        plan: StreamPlan,
        ledger: Ledger,
        order_of: Callable[[int], _native.EpochOrder],
    ) -> None:
        self._supply, self._plan, self._ledger = supply, plan, ledger
        self._order_of = order_of  # by epoch
        self._ring = Ring(plan.prefetch + KEPT, plan.shape)
        labels, mix = supply.labels, plan.mix
        self._feed = _native.Feed(
            source=supply.native_source(),
            program=program,
            ring=self._ring,
            slots=self._ring.addresses,
            workers=plan.workers,
            on_error=plan.on_error,
            batches=plan.order.batches(plan.rank, plan.world),
            batch=plan.shape.batch,
            sample_bytes=plan.shape.sample_bytes,
            label_bytes=plan.shape.label_bytes if mix is None else CLASS_BYTES,
            labels=0 if labels is None else labels.ctypes.data,
            augment_key=derive(plan.seed, AUGMENT),
            replace_key=derive(plan.seed, REPLACE),
            output=plan.output,
            mix=None if mix is None else mix.native(plan.seed),
        )
        self._errands = Errands(self._feed, supply)
        self._bench = _native.Workbench()
        self.position = Position()
        self.judge: Judge | None = None
        self._end = 0
        # Threads must be gone before the interpreter goes, and with a stream that is forgotten.
        ledger.opened(self._feed)
        self._shut = weakref.finalize(self, _shut, self._feed, self._errands, self._ring, ledger)
        if supply.form == "python" and plan.workers:
            self._errands.start(plan.workers)

    def rewind(self, epoch: int, start_step: int = 0, steps: int | None = None) -> Self:
        """Goes to another place, with the same ring and threads; batches handed out stay held.

        Args:
            epoch: 0 or more.
            start_step: First batch, 0 to the number of batches in the epoch.
            steps: Length of the epoch in batches (the first ones of it), default all.
        """
        total = self._plan.order.steps
        end = total if steps is None else min(steps, total)
        if epoch < 0 or not 0 <= start_step <= total:
            raise ValueError(
                f"epoch {epoch}, step {start_step} does not exist; an epoch has {total} batches"
            )
        self._take_back()
        order, following = self._order_of(epoch), self._order_of(epoch + 1)
        self.position.epoch, self.position.step, self._end = epoch, start_step, end
        self._feed.begin(order, following, epoch, start_step, end)
        return self

    def state(self) -> tuple[int, int]:
        """(epoch, step) of the batch that comes next: prefetched ones do not count."""
        return self.position.epoch, self.position.step

    def next(self) -> Batch | None:
        """The next batch, None at the end of the epoch. It is the caller's until `release`.

        Raises:
            RuntimeError: every slot is held, or the stream is closed.
            DamagedSample: a sample cannot be read and ``on_error="raise"``, or too many of them.
        """
        return self._next(len(self._ring))

    def release(self, batch: Batch) -> None:
        """Gives a batch's slot back; its x and y will be overwritten."""
        self._feed.release(batch.slot)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        batch = self._next(KEPT - 1)
        if batch is None:
            raise StopIteration
        return batch

    def __len__(self) -> int:
        """Batches still to come in this epoch."""
        return max(0, self._end - self.position.step)

    def stats(self) -> dict[str, float]:
        """Counters of this stream, see `Loader.stats`."""
        return per_image(self._feed.stats())

    @property
    def closed(self) -> bool:
        """Whether it was closed, by `close` or by an error: it makes no more batches."""
        return not self._shut.alive

    def close(self) -> None:
        """Stops the workers. Tensors handed out keep their memory and are no longer written."""
        self._shut()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _next(self, most_held: int) -> Batch | None:
        if self.position.step >= self._end:
            return None
        slot, ids, is_clean = self._take(self.position.step, most_held)
        if not is_clean:
            self._check(slot)
        x, y = self._ring.tensors[slot]
        if len(ids) < self._plan.shape.batch:
            x, y = x[: len(ids)], None if y is None else y[: len(ids)]
        batch = Batch(x, y, ids, slot)
        if self.judge is not None:
            batch = judged(batch, self.judge, *self.state())
        self.position.step += 1  # last: what is interrupted before gets this batch again
        return batch

    def _take_back(self) -> None:
        """Empties the ring of all that was ordered, and of what an interrupt kept from arriving."""
        lost = self._feed.unclaimed(self.position.step)
        if lost >= 0:
            self._feed.release(lost)
        if not self._ring.filling:
            return
        self._feed.cancel()
        while self._ring.filling:
            slot, _, _ = self._take(-1, len(self._ring))
            self._feed.release(slot)

    def _take(self, step: int, most_held: int) -> tuple[int, Ids, bool]:
        """(slot, ids, whether nothing was damaged) of a step's batch, whenever it is there."""
        while True:
            taken = self._feed.take(step, most_held, SLICE_SECONDS, self._bench)
            if isinstance(taken, tuple):
                return taken
            if taken == _native.Feed.Status.FOREIGN:
                self._run_errands()

    def _run_errands(self) -> None:
        """Starts helpers, or does one errand where there are no workers."""
        if self._plan.workers:
            self._errands.start(self._plan.workers)
            return
        errand = self._feed.take_errand(0.0)
        if errand is not None:
            self._errands.run(errand, self._bench)

    def _check(self, slot: int) -> None:
        """Enters damage into the ledger; an error ends the stream."""
        damages = self._feed.damages(slot)
        self._ledger.enter(damages)
        error = self._feed.error(slot)
        limit = self._plan.damage_limit
        if error is None and len(self._ledger.damaged) <= limit:
            return
        self.close()
        if error is not None:
            index, text = error
            advice = 'on_error="replace" draws another sample in its place'
        else:
            index, _, text = damages[-1]
            advice = (
                f"{len(self._ledger.damaged)} samples are damaged, more than the limit of {limit}"
            )
        name = self._supply.name(index)
        where = name if name == f"sample {index}" else f"sample {index} ({name})"
        raise DamagedSample(
            f"{where}: {text}; {advice}", index, name
        ) from self._errands.causes.get(index)


def _shut(feed: _native.Feed, errands: Errands, ring: Ring, ledger: Ledger) -> None:
    """Stops all threads; until then `ring` keeps what they write to alive."""
    feed.close()
    errands.join()
    ledger.closed(feed)
