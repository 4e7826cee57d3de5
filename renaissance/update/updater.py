"""Range operations: what happens between the gradients and the next forward, as data.

`Updater` turns an optimizer value and a memory plan into an ordered list of `RangeOp`, a constant
number whatever the number of layers, and runs them on the regions: natively on the CPU, as NVRTC
kernels on torch's current stream on CUDA. Formulas stand in ``ext/include/renaissance/update.h``,
the decisions of a step in ``scalars.h``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import torch

from renaissance.update.device_ranges import DeviceRanges
from renaissance.update.host_ranges import HostRanges
from renaissance.update.operations import UP_TO_DECISION, operations, recipe, rows
from renaissance.update.range_tables import GatherTable, Tables
from renaissance.update.scalars import Scalars

if TYPE_CHECKING:
    from renaissance.ema import Clip, Ema
    from renaissance.memory.plan import Memory
    from renaissance.optim import Optimizer


class Landing(Protocol):
    """What a backward leaves that brings gradients to G itself.

    Attributes:
        is_sum: Whether it adds to G.
        partials: (n,) float32: sums of squares of pieces of G that together are all of it.
        names: The parameter that each piece is of.
    """

    is_sum: bool

    @property
    def partials(self) -> torch.Tensor: ...
    @property
    def names(self) -> Sequence[str]: ...


class Updater:
    """The operations of a plan under a recipe, and the tables they need.

    Args:
        memory: The allocated plan; its regions must fit the optimizer's moments.
        optimizer: An optimizer value.
        clip: A `Clip` value, or None.
        ema: An `Ema` value, or None; the plan must have region E (`Memory.restart_average`
            gives it its first value).
        loss_scaling: Whether the loss scale moves (16-mixed); else it is 1 for ever.
        nominal: Loss weight of a full window: batch size for unweighted means over samples.
        threads: CPU threads, 0 for all; results do not depend on it.
        max_skipped: Consecutive skipped steps after which the run stops; 0: never.

    A window is: `snapshot_buffers`, then per micro-batch forward, backward from
    ``scalars.view("seed_scale")`` and `gather`, then `finish`.
    """

    def __init__(  # noqa: PLR0913 - the parts of a recipe are separate values
        self,
        memory: Memory,
        optimizer: Optimizer,
        *,
        clip: Clip | None = None,
        ema: Ema | None = None,
        loss_scaling: bool = False,
        nominal: float = 1.0,
        threads: int = 0,
        max_skipped: int = 50,
    ) -> None:
        if not (nominal > 0 and nominal < float("inf")):
            raise ValueError(f"nominal = {nominal!r} is not allowed; it takes a number above 0")
        self.memory, self.optimizer = memory, optimizer
        self.has_ema = ema is not None
        self.scalars = Scalars(memory.region("S"))
        self.tables = Tables(memory)
        self.device = memory.region("W").device
        self.ops = operations(memory.plan, optimizer, self.has_ema)
        self._after_decision = [op for op in self.ops if op.name not in UP_TO_DECISION]
        self._ranges: HostRanges | DeviceRanges
        if self.device.type == "cpu":
            self._ranges = HostRanges(memory, self.tables, self.scalars, threads)
        else:
            self._ranges = DeviceRanges(memory, self.tables, self.scalars)
        self._gradients = GatherTable(self.tables.parameters, self.device)
        self._landing: Landing | None = None
        self._capturing: GatherTable | None = None
        self._captured: list[GatherTable] = []
        self.scalars.write(
            **recipe(optimizer, clip, ema, loss_scaling),
            **rows(memory.plan, optimizer),
            nominal=nominal,
            max_skipped=max_skipped,
        )

    @property
    def rates(self) -> torch.Tensor | None:
        """Learning rates of steps to come (`DeviceRanges.rates`); None on the CPU."""
        return self._ranges.rates if isinstance(self._ranges, DeviceRanges) else None

    def snapshot_buffers(self) -> None:
        """B to its shadow B', before the first forward of a window."""
        self._ranges.snapshot()

    def gather(
        self,
        grads: Sequence[torch.Tensor | None],
        accumulate: bool = False,
        weight: torch.Tensor | None = None,
    ) -> None:
        """Gradients into G: one micro-step.

        Args:
            grads: In the order of ``memory.plan.parameters``; float32, bfloat16 or float16 of any
                strides; None stands for zeros.
            accumulate: Add to G (a later micro-step of the window) instead of writing it.
            weight: Loss weight of the micro-batch, 0-d float32 on the device; None: the window
                counts as a full one.

        Raises:
            TypeError: The weight is no float32 number on the device.
        """
        if weight is not None:
            self._check_weight(weight)
        self._landing = None  # a chunk that is not finite is one of G again
        gradients = self._gradients if self._capturing is None else self._capturing
        if gradients.fill(grads) and self._capturing is None:
            gradients.upload()
        self._ranges.gather(gradients, accumulate, weight)

    def landed(
        self, landing: Landing, *, accumulate: bool, weight: torch.Tensor, last: bool
    ) -> None:
        """In the place of `gather`, on a GPU, after a backward that has filled G itself.

        Args:
            landing: What it left: sums of squares of all of G as it now stands.
            accumulate: It has added to G.
            weight: As in `gather`.
            last: `finish` comes next, and counts the micro-step with what else it does.
        """
        assert isinstance(self._ranges, DeviceRanges), "gradients land by themselves on GPUs alone"
        self._check_weight(weight)
        self._landing = landing
        self._ranges.landed(landing.partials, accumulate, weight, last)

    def _check_weight(self, weight: torch.Tensor) -> None:
        """Its bytes are read as one float32 number: anything else would be another number."""
        kind = (weight.dtype, weight.numel(), weight.device.type)
        if kind != (torch.float32, 1, self.device.type):
            raise TypeError(
                f"gather: the weight is {weight.dtype} {tuple(weight.shape)} on {weight.device}; "
                f"it takes one float32 number on {self.device}: weight.float()"
            )

    def begin_capture(self) -> None:
        """The gather that follows is recorded into a graph: it gets an address table of its own."""
        self._capturing = GatherTable(self.tables.parameters, self.device)

    def end_capture(self) -> None:
        """Fill the table that the graph reads; it lives as long as the updater does."""
        assert self._capturing is not None
        self._capturing.upload()
        self._captured.append(self._capturing)
        self._capturing = None

    def check(self) -> None:
        """Recompute the sums of squares from G, after something else has written it."""
        self._ranges.check()

    def finish(self, sums: torch.Tensor | None = None) -> None:
        """The window's decision, then updates, averages and buffers accordingly.

        Args:
            sums: (3, n) float64 on the device, rows window, last and epoch of a `Tally`: the window
                becomes `last`, joins the epoch unless it is skipped, and starts anew.
        """
        self._ranges.decide(sums)
        self._ranges.run_in_order(self._after_decision)

    def exchange_ema(self) -> None:
        """Swap E with W and B and round A anew; the same call again restores every bit."""
        self._ranges.exchange()

    def first_non_finite(self) -> str | None:
        """Name of the first parameter whose gradient was not finite in the last window."""
        chunk = self.scalars["bad_chunk"]
        if chunk < 0:
            return None
        landing = self._landing
        return self.tables.name_of_chunk(chunk) if landing is None else landing.names[chunk]
