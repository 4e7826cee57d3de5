"""What outlives a compile: where a reset goes back to, and what the next compile continues from."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from renaissance.fills import Fill, fill
from renaissance.init import Initializer
from renaissance.memory.plan import Memory

if TYPE_CHECKING:
    from renaissance.assembly.build import Built

#: Counters that a second compile keeps; that of applied updates belongs to the moments, that of
#: averaged ones to the average.
COUNTERS = ("attempted", "skipped", "micro", "batches", "loss_scale")


@dataclasses.dataclass
class Origin:
    """What the first compile found in the module: where `Task.reset` goes back to.

    Attributes:
        tensors: On the host, by (region, name): every buffer ("B"), and those parameters ("W")
            that no initializer fills, which are all of them after ``init("keep")``.
        counts: ``num_batches_tracked`` by name.
        has_weights: Whether all parameters are among the tensors.
        fills: The last initializer, and what it fills each parameter with.
        is_untold: The weights are the module's own, of a task without an optimizer that nobody
            has told to keep, load or draw any.
    """

    tensors: dict[tuple[str, str], Tensor] = dataclasses.field(default_factory=dict)
    counts: dict[str, int] = dataclasses.field(default_factory=dict)
    has_weights: bool = False
    fills: tuple[Initializer, dict[str, Fill]] | None = None
    is_untold: bool = False

    def note(self, memory: Memory, *, weights: bool) -> None:
        """Copy what is not known yet: buffers, and parameters if asked for.

        Parameters asked for later than buffers bring those of their own moment.
        """
        if weights and not self.has_weights:
            self.tensors, self.counts, self.has_weights = {}, {}, True
        for segment in memory.plan.segments:
            if segment.region == "B" or weights:
                self._note(memory, segment.region, segment.name)
        for name, count in memory.batches_tracked.items():
            self.counts.setdefault(name, count)

    def _note(self, memory: Memory, region: str, name: str) -> None:
        found, known = memory.view(region, name), self.tensors.get((region, name))
        if known is None or known.shape != found.shape:
            self.tensors[region, name] = found.detach().to("cpu", copy=True)

    @torch.no_grad()
    def put_back(self, memory: Memory) -> None:
        """Buffers, counters and kept parameters as they were found."""
        for segment in memory.plan.segments:
            found = self.tensors.get((segment.region, segment.name))
            if found is not None:
                memory.view(segment.region, segment.name).copy_(found)
        for name in memory.batches_tracked:
            memory.set_batches_tracked(name, self.counts[name])
        memory.refresh()

    def draw(self, memory: Memory, initializer: Initializer, seed: int, where: torch.device) -> int:
        """Fill every parameter from Philox, each with its rule; returns how many there are.

        Rules are settled once: a constant that training has moved could not be told from a start
        later. For another initializer the earlier start is put back first, and judged.
        """
        module = memory.module
        assert module is not None, "a compiled task's module is bound"
        names = {name for name, _ in module.named_parameters()}
        if self.fills is None or self.fills[0] != initializer or self.fills[1].keys() != names:
            if self.fills is not None:
                _fill(memory, {n: f for n, f in self.fills[1].items() if n in names}, seed, where)
            self.fills = (initializer, dict(initializer.resolve(module)))
            for name, rule in self.fills[1].items():
                if rule.kind == "keep":
                    self._note(memory, "W", name)
        _fill(memory, self.fills[1], seed, where)
        return len(self.fills[1])


def _fill(memory: Memory, fills: dict[str, Fill], seed: int, where: torch.device) -> None:
    for name, rule in fills.items():
        fill(memory.view("W", name), rule, seed, name, device=where)
    memory.refresh()


@dataclasses.dataclass(frozen=True)
class Carried:
    """What a compiled task leaves beside the module, which has its weights and buffers.

    Attributes:
        counters: All fields of `renaissance.update.scalars.STATE`.
        sums: (sum, count) of the running epoch by name, loss and metrics.
        average: Region E by name, on the host; empty without one.
        origin: See `Origin`.
        accumulate: Loader batches of a step.
    """

    counters: dict[str, int | float]
    sums: dict[str, tuple[float, float]]
    average: dict[str, Tensor]
    origin: Origin
    accumulate: int

    @classmethod
    def of(cls, built: Built) -> Carried:
        """Copies of what a task that is about to be closed holds."""
        average = {
            segment.name: built.memory.view("E", segment.name).to("cpu", copy=True)
            for segment in (built.plan.segments if built.has_ema else ())
            if segment.region == "W" or segment.averaged
        }
        tally = built.executor.tally
        flat = tally.values("epoch")
        sums = dict(zip(tally.names, zip(flat[0::2], flat[1::2])))
        accumulate = built.recipe.accumulate
        return cls(built.updater.scalars.state(), sums, average, built.origin, accumulate)

    @torch.no_grad()
    def give(self, built: Built) -> None:
        """Counters, sums, and the average where there still is one, of tensors as they were."""
        built.updater.scalars.write(**{name: self.counters[name] for name in COUNTERS})
        tally = built.executor.tally
        tally.load("epoch", [x for name in tally.names for x in self.sums.get(name, (0.0, 0.0))])
        if built.has_ema and self.average:
            built.updater.scalars.write(averaged=self.counters["averaged"])
        for segment in built.plan.segments if built.has_ema else ():
            found = self.average.get(segment.name)
            is_kept = segment.region == "W" or segment.averaged
            if is_kept and found is not None and found.shape == segment.shape:
                built.memory.view("E", segment.name).copy_(found)
