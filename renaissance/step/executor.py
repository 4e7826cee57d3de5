"""One training step: forward, backward, gather, then the range operations of `Updater`.

`StepExecutor` runs the functions of `renaissance.step.passes` eagerly. The captured executor
(`renaissance.step.capture`) records the very same calls into one CUDA graph.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from renaissance.data.batch import NO_TARGETS, Batch, Judge, as_given, own, to_device
from renaissance.data.loader import Loader
from renaissance.data.stream import BatchStream
from renaissance.memory.plan import Memory
from renaissance.nn.fusion import check_counted
from renaissance.nn.ordered import ordered_inductor
from renaissance.step.inputs import copied_in_time, queued
from renaissance.step.passes import Passes, with_own_code
from renaissance.step.tally import Tally
from renaissance.switches import tell_compiler
from renaissance.update.updater import Updater

#: What a training pass gives: loss sum and weight.
Pass = tuple[Tensor, Tensor]


def _look_at(has_head: bool, judge: Judge | None, batch: Batch) -> None:
    """Refuse labels that a step must not meet: for a fused head, and for the loss by its judge."""
    if has_head and isinstance(y := batch.y, Tensor) and not y.is_floating_point():
        check_counted(int(y.min()))
    if judge is not None:
        judge(batch)


class StepExecutor:
    """Runs steps eagerly, on any device; also what the captured executor records.

    Args:
        passes: The functions of a batch.
        memory: Allocated regions, bound to the module.
        updater: The range operations.
        parameters: Trainable parameters in the plan's order.

    Attributes:
        is_captured: Whether a step is a graph.
        frozen_norms: Batch-norms that stay in evaluation mode while the rest trains.
        judge: Looks at batches whose labels' range no data set has told.
    """

    is_captured = False
    frozen_norms: Sequence[nn.Module] = ()
    judge: Judge | None = None

    def __init__(
        self, passes: Passes, memory: Memory, updater: Updater, parameters: Sequence[nn.Parameter]
    ) -> None:
        self.passes, self.memory, self.updater = passes, memory, updater
        self.parameters = list(parameters)
        trained = {id(parameter) for parameter in parameters}
        self._idle = {
            name: parameter
            for name, parameter in passes.module.named_parameters()
            if parameter.requires_grad and id(parameter) not in trained
        }
        self.tally = Tally(
            memory.region("R").view(torch.float64), [metric.name for metric in passes.metrics]
        )
        self.be_plain()
        self._seed = updater.scalars.view("seed_scale")[0]
        self._lr = updater.scalars.view("lr")[0]
        self._is_channels_last = any(s.channels_last for s in memory.plan.segments)
        self.rates_ahead = 1  #: steps whose learning rates can be set at once
        self._streams: dict[tuple[int, bool], tuple[Loader, int, BatchStream]] = {}
        self._training: bool | None = None

    def prepare(self, train: Loader | None, valid: Loader | None, accumulate: int) -> None:
        """Get ready for these loaders' batches; eager execution has nothing to do."""

    def describe(self) -> str:
        """How steps run, in a few words."""
        return "eager" if self.how == "plain" else f"eager, {self.how} forward and backward"

    def compile_passes(self) -> None:
        """Send forward and backward through torch.compile (inductor's own graphs stay off)."""
        tell_compiler()
        options: dict[str, Any] = {"triton.cudagraphs": False}
        is_fixed = torch.are_deterministic_algorithms_enabled()
        backend: Any = ordered_inductor if is_fixed else "inductor"
        self.train_pass, self.test_pass = (
            torch.compile(with_own_code(one), dynamic=False, options=options, backend=backend)
            for one in (self.passes.train, self.passes.test)
        )
        self.how = "compiled"

    def be_plain(self) -> None:
        """Run the module itself, neither fused nor compiled."""
        passes = self.passes
        passes.forward = passes.head = passes.landing = None
        self.train_pass, self.test_pass = passes.train, passes.test
        self.how, self.fused = "plain", ""

    def look_at_first(self, look: Callable[[Callable[[], Pass]], Pass]) -> None:
        """Let `look` run the next training pass that is not captured, plain, in its place."""
        usual = self.train_pass

        def first(x: Any, y: Tensor, sums: Tensor) -> Pass:
            found = look(lambda: self.passes.train(x, y, sums))
            self.train_pass = usual
            return found

        self.train_pass = first

    @contextlib.contextmanager
    def batches(
        self,
        loader: Loader,
        *,
        seed: int,
        epoch: int,
        start_step: int = 0,
        steps: int | None = None,
    ) -> Iterator[Iterator[Batch]]:
        """The batches of an epoch from `start_step` up to `steps`, for `micro_step`."""
        stream = self.stream_of(loader, seed).rewind(epoch, start_step, steps)
        yield self._fed(stream)

    def test_batches(
        self, loader: Loader, *, seed: int
    ) -> contextlib.AbstractContextManager[Iterator[Any]]:
        """All batches of epoch 0, for `test_step`."""
        return contextlib.nullcontext(self.fed_batches(loader, seed=seed))

    def fed_batches(self, loader: Loader, *, seed: int) -> Iterator[Batch]:
        """All batches of epoch 0 as tensors on the device, to look at: training goes on beside."""
        return self._fed(self.stream_of(loader, seed, looking=True).rewind(0))

    def _fed(self, stream: BatchStream) -> Iterator[Batch]:
        if self.memory.device.type == "cpu":
            return stream
        return copied_in_time(stream, self._on_device, queued)

    def stream_of(self, loader: Loader, seed: int, *, looking: bool = False) -> BatchStream:
        """The stream of a loader; its threads and its ring serve one epoch after the other.

        What is only looked at has a stream of its own: an evaluation of the training data in the
        middle of an epoch must not move the place where training reads on.
        """
        known = self._streams.get((id(loader), looking))
        if known is not None and known[0] is loader and known[1] == seed and not known[2].closed:
            return known[2]
        if known is not None:
            known[2].close()
        # Of a DataLoader nothing is known before it is read, which takes workers of its own.
        label = loader.sample_spec().label if isinstance(loader, Loader) else None
        if self.passes.head is not None:
            check_counted(None if label is None else label.low)
        stream = loader.stream(
            seed=seed,
            layout="nhwc" if self._is_channels_last else "nchw",
            dtype=self.passes.precision.working_dtype or torch.float32,
            pin=self.memory.device.type == "cuda",
            steps=0,
        )
        if label is None or label.high is None:
            stream.judge = functools.partial(_look_at, self.passes.head is not None, self.judge)
        self._streams[id(loader), looking] = (loader, seed, stream)
        return stream

    def forget(self, loader: Loader, *, training: bool = True) -> None:
        """Close the streams of a loader; `training` False leaves the one that training reads."""
        for looking in (True, False) if training else (True,):
            known = self._streams.pop((id(loader), looking), None)
            if known is not None:
                known[2].close()

    def copies(self, loader: Loader, seed: int, epoch: int, steps: range) -> list[Batch]:
        """These batches of an epoch as the step sees them, in memory of their own."""
        stream = self.stream_of(loader, seed, looking=True).rewind(epoch, steps.start, steps.stop)
        return [own(batch) for batch in self._fed(stream)]

    def _on_device(self, batch: Batch) -> Batch:
        device = self.memory.device
        if device.type == "cpu":
            return batch
        return Batch(to_device(batch.x, device), to_device(batch.y, device), batch.ids)

    def place(self, x: Any, y: Any) -> Batch:
        """A user's arrays as a batch on the device."""
        x, y = as_given(x, y)
        batch = Batch(x, y, np.arange(len(y)))
        _look_at(
            self.passes.head is not None, self.judge if y.device.type == "cpu" else None, batch
        )
        return self._on_device(batch)

    def set_rates(self, rates: Sequence[float]) -> None:
        """Learning rates of the steps about to be taken, at most `rates_ahead`."""
        (rate,) = rates
        self._lr.fill_(rate)

    def may_have_stopped(self) -> bool:
        """False when skipped updates are not known to have stopped the run; asking costs little."""
        return True

    def step(self, batches: Iterator[Any], count: int) -> int:
        """One step, whose window is the next `count` loader batches; returns its samples.

        What fails in the middle, in the data or the module, leaves no trace but in G: buffers,
        sums and counters are those before the step, which can be taken again.
        """
        begun = gathered = samples = 0
        try:
            while gathered < count:
                batch = next(batches)
                begun += 1
                self.micro_step(batch, first=begun == 1, last=begun == count)
                gathered += 1
                samples += len(batch.ids)
        except BaseException:
            self._abandon(gathered, has_begun=begun > 0)
            raise
        return samples

    def _abandon(self, gathered: int, *, has_begun: bool) -> None:
        """Undo a window after so many whole micro-steps."""
        memory, scalars = self.memory, self.updater.scalars
        if has_begun and memory.plan.has("B'"):
            shadow = memory.region("B'").view(torch.uint8)
            memory.region("B").view(torch.uint8)[: shadow.numel()].copy_(shadow)
        self.tally.window.zero_()
        if gathered and not scalars["stop"]:  # a stopped run counts nothing
            scalars.write(micro=scalars["micro"] - gathered)

    def micro_step(self, batch: Batch, *, first: bool, last: bool) -> None:
        """One loader batch of a step's window; `last` brings the update."""
        if batch.y is None:
            raise ValueError(NO_TARGETS)
        self.mode(True)
        self.record(batch.x, batch.y, first=first, last=last)

    def record(self, x: Any, y: Tensor, *, first: bool, last: bool) -> None:
        """The device work of `micro_step`, nothing of it on the host: what a graph holds."""
        if first:
            self.updater.snapshot_buffers()
        self.aim(first)
        loss_sum, weight = self.train_pass(x, y, self.tally.window)
        gradients = self.backward(loss_sum, [*self.parameters, *self._idle.values()])
        if self._idle:
            gradients = self._without_idle(gradients)
        if (landing := self.passes.landing) is None:
            self.updater.gather(gradients, accumulate=not first, weight=weight)
        else:
            self.updater.landed(landing, accumulate=not first, weight=weight, last=last)
        self.end_micro_step(last)

    def backward(self, loss_sum: Tensor, parameters: Sequence[Tensor]) -> Sequence[Tensor | None]:
        """Gradients of the parameters; None for one that the loss does not reach."""
        return torch.autograd.grad(loss_sum, parameters, grad_outputs=self._seed, allow_unused=True)

    def end_micro_step(self, last: bool) -> None:
        """What follows when the gradients are in G and the input has been read."""
        if last:
            self.updater.finish(self.tally.step)

    def aim(self, first: bool) -> None:
        """Before a backward that fills G itself: whether it writes or adds."""
        if self.passes.landing is not None:
            self.passes.landing.is_sum = not first

    def _without_idle(self, gradients: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        count = len(self.parameters)
        reached = [name for name, g in zip(self._idle, gradients[count:]) if g is not None]
        if reached:
            raise RuntimeError(
                f"this batch reaches {', '.join(reached)}, which the first batch of the data at "
                "compile did not, so that they were taken as unused and have no place in the "
                "plan; add `0 * parameter.sum()` of each to the output, or compile with a first "
                "batch that reaches them"
            )
        return gradients[:count]

    def test_step(self, batch: Batch) -> None:
        """Add an evaluation batch to the tally's row "test"."""
        self.mode(False)
        with torch.no_grad():
            self.test_pass(batch.x, batch.y, self.tally.test)

    def predict_step(self, batch: Batch) -> Any:
        """Outputs of a batch, float32, as `Passes.predict` has them; the caller owns them."""
        self.mode(False)
        with torch.no_grad():
            return self.passes.predict(batch.x)

    def close(self) -> None:
        """Let go of threads, and of what the device holds for this executor."""
        for _, _, stream in self._streams.values():
            stream.close()
        self._streams.clear()

    def mode(self, training: bool) -> None:
        """Set the module's mode, when it is not known to be set; a callback may have changed it."""
        if self._training is not training or self.passes.module.training is not training:
            self.passes.module.train(training)
            for norm in self.frozen_norms:
                norm.eval()
            self._training = training

    def forget_mode(self) -> None:
        """The module's mode may have been changed from outside: set it again at the next step."""
        self._training = None
