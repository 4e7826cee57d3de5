"""The whole step as one CUDA graph.

Variants are {full, partial batch} x {first, last micro-batch of a window}; they are captured up
front, on one private stream with one private pool, and destroyed together. A graph holds raw
addresses: regions, inputs, tables and the module live as long as the executor does.

Per step the host copies the next batch to a device slot on a copy stream and replays a graph, whose
first kernel finds its slot by the micro-step counter in region S. Learning rates are written ahead,
those of many steps in one copy, since a copy between two graphs holds up the second one. Where the
data live on the device a graph makes the next step's batch beside its own update, once its backward
has read the input.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from renaissance import kernels
from renaissance.data.batch import Batch, own
from renaissance.data.given import is_by_hand
from renaissance.data.loader import Loader
from renaissance.data.stream import BatchStream
from renaissance.memory.plan import Memory
from renaissance.nn.ahead import compiled_ahead
from renaissance.step.executor import StepExecutor
from renaissance.step.inputs import SLOTS, STREAMS, InputSlots, LateNumber, RateFeed, Staged
from renaissance.step.passes import Passes
from renaissance.step.residence import Place, Residence
from renaissance.update.updater import Updater

logger = logging.getLogger("renaissance")

OTHER_DATA = (
    "the graphs were captured for other data, so this runs eagerly; give the loader to "
    "task.data(...) and compile again"
)

WARM_UPS = 3  # passes before a capture: cuDNN and cuBLAS choose, inductor compiles


class Variant(NamedTuple):
    """One graph: how many samples, and where in the window."""

    samples: int
    first: bool
    last: bool


def variants_of(samples: int, batch_size: int, accumulate: int, drop_last: bool) -> list[Variant]:
    """The variants that the epochs of a loader need, most frequent first."""
    full, rest = divmod(samples, batch_size)
    total = full + (1 if rest and not drop_last else 0)
    near = 2 * accumulate
    found: dict[Variant, None] = {}
    for place in [*range(min(total, near)), *range(max(0, total - near), total)]:
        last = place % accumulate == accumulate - 1 or place == total - 1
        size = batch_size if place < full else rest
        found[Variant(size, place % accumulate == 0, last)] = None
    return list(found)


class CapturedExecutor(StepExecutor):
    """Runs each step as one graph; see the module's text."""

    is_captured = True

    def __init__(
        self, passes: Passes, memory: Memory, updater: Updater, parameters: Sequence[nn.Parameter]
    ) -> None:
        super().__init__(passes, memory, updater, parameters)
        self.stream, self._side = (STREAMS.take(memory.device) for _ in range(2))
        self._pool = torch.cuda.graph_pool_handle()
        self._graphs: dict[Variant, torch.cuda.CUDAGraph] = {}
        self._test_graphs: dict[int, torch.cuda.CUDAGraph] = {}
        self._inputs: InputSlots | None = None
        self._test_inputs: InputSlots | None = None
        self._train: Loader | None = None
        self._valid: Loader | None = None
        self._residences: list[Residence] = []
        self._home_ahead: Residence | None = None
        assert updater.rates is not None, "the regions are on a GPU"
        self._rates = RateFeed(updater.rates)
        self.rates_ahead = self._rates.room
        self._stop = LateNumber(updater.scalars.view("stop")[0])
        self._is_closed = False

    def describe(self) -> str:
        count = len(self._graphs) + len(self._test_graphs)
        is_resident = self._train is not None and self._home(self._train) is not None
        data = "data on the GPU" if is_resident else "data from workers"
        return f"one CUDA graph a step ({count} variants, {self.how} passes, {data})"

    def prepare(self, train: Loader | None, valid: Loader | None, accumulate: int) -> None:
        """Capture every variant that these loaders' epochs need."""
        if train is None:
            return
        try:
            self._prepare(train, valid, accumulate)
        except Exception as error:
            if self.how == "plain":
                raise
            logger.warning("%s passes did not work here, plain ones do: %.300s", self.how, error)
            self.be_plain()
            self._graphs.clear()
            self._test_graphs.clear()
            self._prepare(train, valid, accumulate)

    def _prepare(self, train: Loader, valid: Loader | None, accumulate: int) -> None:
        device, self._train = self.memory.device, train
        self._residences = [
            found
            for loader in (train, valid)
            if loader is not None and (found := Residence.find(loader, device)) is not None
        ]
        self._inputs = InputSlots(self._host_batch(train), device)
        self.updater.scalars.write(inputs=self._inputs.addresses())
        for variant in variants_of(
            train.num_samples, train.batch_size, accumulate, train.drop_last
        ):
            self._graphs[variant] = self._capture(self._inputs, variant, self._home(train))
        if valid is not None:
            self._valid = valid
            self._test_inputs = InputSlots(self._host_batch(valid), device)
            for variant in variants_of(valid.num_samples, valid.batch_size, 1, valid.drop_last):
                home = self._home(valid)
                graph = self._capture_test(self._test_inputs, variant.samples, home)
                self._test_graphs[variant.samples] = graph

    def _host_batch(self, loader: Loader) -> Batch:
        stream = self.stream_of(loader, 0)
        return own(next(stream.rewind(0, 0, 1)))

    def _home(self, loader: Loader) -> Residence | None:
        """Where the data of a loader lives on the device, if it does."""
        return next((home for home in self._residences if home.loader is loader), None)

    def _capture(
        self, inputs: InputSlots, variant: Variant, home: Residence | None
    ) -> torch.cuda.CUDAGraph:
        x, y = inputs.x[: variant.samples], inputs.y[: variant.samples]
        scratch = torch.zeros_like(self.tally.window)
        self.mode(True)

        def warm() -> None:
            self.aim(variant.first)
            loss, _ = self.train_pass(x, y, scratch)
            self.backward(loss, self.parameters)

        def body() -> None:
            if home is None:
                self._load_input(inputs, variant.samples)
            self.record(x, y, first=variant.first, last=variant.last)

        self.updater.begin_capture()
        self._home_ahead = home
        graph = self._graph(warm, body)
        self._home_ahead = None
        self.updater.end_capture()
        self.memory.region("G").zero_()  # warming up may have left something there
        return graph

    def end_micro_step(self, last: bool) -> None:
        """With data on the device the graph makes the next batch beside this.

        It has the size of a full one; past the end of the data its samples are any.
        """
        home, inputs = self._home_ahead, self._inputs
        if home is None or inputs is None:
            super().end_micro_step(last)
            return
        stream = torch.cuda.current_stream()
        self._side.wait_stream(stream)
        with torch.cuda.stream(self._side):
            home.take(inputs.x, inputs.y)
        super().end_micro_step(last)
        stream.wait_stream(self._side)

    def _capture_test(
        self, inputs: InputSlots, samples: int, home: Residence | None
    ) -> torch.cuda.CUDAGraph:
        x, y = inputs.x[:samples], inputs.y[:samples]
        scratch = torch.zeros_like(self.tally.window)
        self.mode(False)

        def warm() -> None:
            with torch.no_grad():
                self.test_pass(x, y, scratch)

        def body() -> None:
            if home is not None:
                home.take(x, y)
            with torch.no_grad():
                self.test_pass(x, y, self.tally.test)

        return self._graph(warm, body)

    def _graph(self, warm: Callable[[], None], body: Callable[[], None]) -> torch.cuda.CUDAGraph:
        """Warm up without a trace, then capture."""
        buffers = self.memory.region("B").clone() if self.memory.plan.has("B") else None
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # inductor's own remarks are no concern of the user's
            if self.passes.forward is not None and self.passes.takes_any_numbers:
                with compiled_ahead():
                    warm()
            for _ in range(WARM_UPS):
                warm()
            if buffers is not None:
                self.memory.region("B").copy_(buffers)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(
            graph, pool=self._pool, stream=self.stream, capture_error_mode="thread_local"
        ):
            body()
        torch.cuda.synchronize()
        return graph

    def _load_input(self, inputs: InputSlots, samples: int) -> None:
        """The graph's first kernel: the slot that the micro-step counter names, to the input."""
        x_bytes, y_bytes = inputs.x[:samples].nbytes, inputs.y[:samples].nbytes
        x_blocks = kernels.blocks(-(-x_bytes // 16))
        kernels.launch(
            "load_input",
            x_blocks + kernels.blocks(-(-y_bytes // 16)),
            kernels.BLOCK,
            self.memory.address("S"),
            np.int32(SLOTS),
            inputs.x.data_ptr(),
            np.int64(x_bytes),
            inputs.y.data_ptr(),
            np.int64(y_bytes),
            np.int32(x_blocks),
        )

    @contextlib.contextmanager
    def batches(
        self,
        loader: Loader,
        *,
        seed: int,
        epoch: int,
        start_step: int = 0,
        steps: int | None = None,
    ) -> Iterator[Iterator[Any]]:
        self.stream.wait_stream(torch.cuda.current_stream())
        home = self._home(loader)
        if home is not None:
            with torch.cuda.stream(self.stream):
                places = home.epoch(seed=seed, epoch=epoch, start_step=start_step, steps=steps)
                if loader is self._train and self._inputs is not None:
                    home.take(self._inputs.x, self._inputs.y)  # each step makes that of the next
                yield places
            torch.cuda.current_stream().wait_stream(self.stream)
            return
        with torch.cuda.stream(self.stream):
            stream = self.stream_of(loader, seed).rewind(epoch, start_step, steps)
            try:
                yield self._staged(loader, stream)
            finally:
                for inputs in (self._inputs, self._test_inputs):
                    if inputs is not None:
                        inputs.drain()
        torch.cuda.current_stream().wait_stream(self.stream)

    @contextlib.contextmanager
    def test_batches(self, loader: Loader, *, seed: int) -> Iterator[Iterator[Any]]:
        is_own = loader is self._valid and loader is not self._train
        if is_own and self._home(loader) is not None:
            with self.batches(loader, seed=seed, epoch=0) as places:
                yield places
            return
        if loader is not self._valid and not is_by_hand(loader):
            logger.warning(OTHER_DATA)
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            # Not in the slots of the training graphs, even where it is their data.
            yield self.fed_batches(loader, seed=seed)
        torch.cuda.current_stream().wait_stream(self.stream)

    def _staged(self, loader: Loader, stream: BatchStream) -> Iterator[Any]:
        """Batches in device slots, one copied ahead of the one handed out.

        What the data raises waits until those before it have been taken, as without a graph.
        """
        if loader is not self._train or self._inputs is None:
            logger.warning(OTHER_DATA)
            yield from self._fed(stream)
            return
        first = int(self.updater.scalars["micro"])
        ahead: collections.deque[Staged] = collections.deque()
        try:
            for place, batch in enumerate(_unreleased(stream)):
                ahead.append(self._inputs.stage(stream, batch, (first + place) % SLOTS))
                if len(ahead) == SLOTS - 1:
                    yield ahead.popleft()
        except Exception:
            yield from ahead
            raise
        yield from ahead

    def set_rates(self, rates: Sequence[float]) -> None:
        self._rates.write(rates)

    def may_have_stopped(self) -> bool:
        """As of an earlier call: a stopped run changes nothing, so it may be noticed late."""
        return bool(self._stop.look())

    def micro_step(self, batch: Any, *, first: bool, last: bool) -> None:
        if isinstance(batch, Place):
            self._graphs[Variant(batch.samples, first, last)].replay()
            return
        if not isinstance(batch, Staged):
            super().micro_step(batch, first=first, last=last)
            return
        assert self._inputs is not None
        self.stream.wait_event(batch.ready)
        self._graphs[Variant(batch.samples, first, last)].replay()
        self._inputs.used(batch.slot, self.stream)

    def test_step(self, batch: Any) -> None:
        if isinstance(batch, Place):
            self._test_graphs[batch.samples].replay()
            return
        count = len(batch.ids)
        graph = self._test_graphs.get(count)
        inputs = None if self._residences else self._test_inputs
        if graph is None or inputs is None or not inputs.fits(batch):
            super().test_step(batch)
            return
        inputs.x[:count].copy_(batch.x, non_blocking=True)
        inputs.y[:count].copy_(batch.y, non_blocking=True)
        graph.replay()

    def forget_mode(self) -> None:
        super().forget_mode()
        self._rates.forget()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        torch.cuda.synchronize()
        super().close()
        STREAMS.give_back(self._side)
        STREAMS.give_back(self.stream)  # taken first again, with cuBLAS's workspace
        for graph in (*self._graphs.values(), *self._test_graphs.values()):
            graph.reset()
        self._graphs.clear()
        self._test_graphs.clear()
        self._inputs = self._test_inputs = None
        self._residences = []
        self.train_pass, self.test_pass = self.passes.train, self.passes.test


def _unreleased(stream: BatchStream) -> Iterator[Batch]:
    """Batches of a stream that stay valid until they are released."""
    while (batch := stream.next()) is not None:
        yield batch
