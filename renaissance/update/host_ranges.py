"""Range operations on the CPU: each is one native call with addresses and lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from renaissance import _native
from renaissance.update.range_tables import DTYPES, GatherTable, Tables, average_rows
from renaissance.update.scalars import Scalars

if TYPE_CHECKING:
    from renaissance.memory.plan import Memory
    from renaissance.update.operations import RangeOp


class HostRanges:
    """Runs range operations over regions in host memory.

    Args:
        memory: The allocated plan.
        tables: Its tables.
        scalars: Region S.
        threads: 0 for as many as the process may use.
    """

    def __init__(self, memory: Memory, tables: Tables, scalars: Scalars, threads: int) -> None:
        self._memory, self._tables, self._scalars, self._threads = memory, tables, scalars, threads
        self._has_nan = scalars.view("has_nan")[0]
        has = memory.plan.has
        self._at = {
            name: memory.address(name) if has(name) and memory.region(name).numel() else 0
            for name in ("W", "A", "G", "M", "V", "N", "B", "B'")
        }
        self._a_type = DTYPES[memory.region("A").dtype] if has("A") else 0
        self._averages = average_rows(memory) if has("E") else None
        none = torch.empty(0, dtype=torch.uint8, device="cpu")
        self._shadow = memory.region("B'") if has("B'") else none

    def snapshot(self) -> None:
        """B' = B."""
        if self._shadow.numel():
            self._shadow.copy_(self._memory.region("B")[: self._shadow.numel()])

    def gather(self, gradients: GatherTable, is_sum: bool, weight: torch.Tensor | None) -> None:
        """G = or += the gradients; partial sums; the micro-step is counted."""
        tables = self._tables
        _native.gather(
            gradients.rows.data_ptr(),
            tables.chunks.data_ptr(),
            tables.num_chunks,
            self._at["G"],
            is_sum,
            tables.partials.data_ptr(),
            self._threads,
        )
        address = 0 if weight is None else weight.data_ptr()
        _native.count_micro_step(self._scalars.address, not is_sum, address)

    def check(self) -> None:
        """Partial sums of G as it stands."""
        tables = self._tables
        _native.check_range(
            self._at["G"],
            tables.rows.data_ptr(),
            tables.chunks.data_ptr(),
            tables.num_chunks,
            tables.partials.data_ptr(),
            self._threads,
        )

    def decide(self, sums: torch.Tensor | None) -> None:
        """The window's decision; `sums` are closed by it (see ``Updater.finish``)."""
        tables = self._tables
        _native.step_scalars(self._scalars.address, tables.partials.data_ptr(), tables.num_chunks)
        if sums is not None:
            window, last, epoch = sums.unbind()
            last.copy_(window)
            epoch.add_(torch.where(self._has_nan != 0, 0.0, window))
            window.zero_()

    def run_in_order(self, ops: Sequence[RangeOp]) -> None:
        """Several operations, one after the other."""
        for op in ops:
            self.run(op)

    def run(self, op: RangeOp) -> None:
        """One operation of ``Updater.ops`` after the decision."""
        scalars = self._scalars.address
        if op.kernel == "norms":
            self._trust_ratios(op)
        elif op.kernel == "average":
            assert self._averages is not None
            rows = self._averages
            _native.average_ranges(rows.ctypes.data, rows.size, scalars, self._threads)
        elif op.kernel == "restore":
            _native.restore_buffers(self._at["B"], self._at["B'"], op.count, scalars)
        elif op.kernel.startswith("lars"):
            self._update_lars(op)
        else:
            self._update(op)

    def exchange(self) -> None:
        """Swaps E with W and B; A follows W."""
        assert self._averages is not None
        _native.exchange_ranges(self._averages.ctypes.data, self._averages.size, self._threads)
        if self._at["A"]:
            count = self._memory.region("W").numel()
            _native.round_range(self._at["W"], self._at["A"], self._a_type, count, self._threads)

    def _update(self, op: RangeOp) -> None:
        at = self._at
        _native.update_range(
            op.kernel,
            at["W"],
            at["G"],
            at["M"],
            at["V"],
            at["A"],
            self._a_type,
            op.begin,
            op.count,
            self._scalars.address,
            op.row,
            self._threads,
        )

    def _update_lars(self, op: RangeOp) -> None:
        at, tables = self._at, self._tables
        first, count = tables.chunk_range(op.begin, op.count)
        _native.update_lars(
            op.kernel,
            at["W"],
            at["G"],
            at["M"],
            at["A"],
            self._a_type,
            at["N"],
            tables.rows.data_ptr(),
            tables.chunks.data_ptr(),
            first,
            count,
            self._scalars.address,
            op.row,
            self._threads,
        )

    def _trust_ratios(self, op: RangeOp) -> None:
        at, tables = self._at, self._tables
        first, count = tables.chunk_range(op.begin, op.count)
        _native.trust_ratios(
            at["W"],
            at["G"],
            at["N"],
            tables.rows.data_ptr(),
            tables.chunks.data_ptr(),
            first,
            count,
            tables.w_partials.data_ptr(),
            tables.g_partials.data_ptr(),
            self._scalars.address,
            op.row,
            self._threads,
        )
