"""Range operations on CUDA: each one launch on torch's current stream, which capture records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from renaissance import kernels
from renaissance.update.range_tables import DTYPES, GatherTable, Tables, average_rows, on_device
from renaissance.update.scalars import Scalars

if TYPE_CHECKING:
    from renaissance.memory.plan import Memory
    from renaissance.update.operations import RangeOp

LANES = 256  # threads of a block that folds (norms.h)
UPDATE_BLOCK = 128  # threads of a block that updates: 97.1 % of a copy; 256 give 96.8, 512 94.9
DECISION = LANES + 96  # threads of the kernel that decides
MAX_SUMS = LANES  # columns of the sums that it closes

RATES = 62  # learning rates that can be written ahead


class DeviceRanges:
    """Runs range operations over regions in a GPU's memory.

    Args:
        memory: The allocated plan.
        tables: Its tables, on the device.
        scalars: Region S.
    """

    def __init__(self, memory: Memory, tables: Tables, scalars: Scalars) -> None:
        self._tables, self._scalars = tables, scalars
        has = memory.plan.has
        self._at = {
            name: memory.address(name) if has(name) and memory.region(name).numel() else 0
            for name in ("W", "A", "G", "M", "V", "N", "B", "B'")
        }
        self._a_type = np.int32(DTYPES[memory.region("A").dtype] if has("A") else 0)
        self._averages = _average_arguments(memory) if has("E") else None
        self._num_shadow_bytes = memory.region("B'").nbytes if has("B'") else 0
        self._first_chunk = on_device(tables.first_chunk, memory.device)
        self._side = torch.cuda.Stream(memory.device)
        self._landed: tuple[torch.Tensor, int, torch.Tensor | None] | None = None
        #: Learning rates of the steps to come: (next, count) int64, then float64 ones. Steps take
        #: from it while it has any left, then S.lr as it stands.
        self.rates = torch.zeros(2 + RATES, dtype=torch.int64, device=memory.device)

    def snapshot(self) -> None:
        """B' = B."""
        count = self._num_shadow_bytes
        if count:
            grid = kernels.blocks(-(-count // 16))
            at = self._at
            kernels.launch("copy_range", grid, LANES, at["B"], at["B'"], np.int64(count))

    def gather(self, gradients: GatherTable, is_sum: bool, weight: torch.Tensor | None) -> None:
        """G = or += the gradients; partial sums; the micro-step is counted."""
        tables = self._tables
        kernels.launch(
            "gather",
            tables.num_chunks,
            LANES,
            gradients.rows.data_ptr(),
            tables.chunks.data_ptr(),
            self._at["G"],
            np.int32(is_sum),
            tables.partials.data_ptr(),
            self._scalars.address,
            0 if weight is None else weight.data_ptr(),
        )

    def landed(
        self, partials: torch.Tensor, is_sum: bool, weight: torch.Tensor, is_last: bool
    ) -> None:
        """`partials` are the sums of G, which is filled; here or `decide` counts the micro-step."""
        if is_last:
            self._landed = (partials, 2 if is_sum else 1, weight)
            return
        kernels.launch(
            "count_micro", 1, 1, self._scalars.address, np.int32(not is_sum), weight.data_ptr()
        )

    def check(self) -> None:
        """Partial sums of G as it stands."""
        tables = self._tables
        kernels.launch(
            "check_range",
            tables.num_chunks,
            LANES,
            self._at["G"],
            tables.rows.data_ptr(),
            tables.chunks.data_ptr(),
            tables.partials.data_ptr(),
        )

    def decide(self, sums: torch.Tensor | None) -> None:
        """The window's decision; `sums` are closed by it (see ``Updater.finish``)."""
        width = 0 if sums is None else sums.shape[1]
        if width > MAX_SUMS:
            raise ValueError(f"{width} sums of loss and metrics; at most {MAX_SUMS} are allowed")
        partials, gathered, weight = self._landed or (self._tables.partials, 0, None)
        self._landed = None
        kernels.launch(
            "scalars",
            1,
            DECISION,
            self._scalars.address,
            partials.data_ptr(),
            np.int64(len(partials)),
            self.rates.data_ptr(),
            np.int32(gathered),
            0 if weight is None else weight.data_ptr(),
            0 if sums is None else sums.data_ptr(),
            np.int32(width),
        )

    def run_in_order(self, ops: Sequence[RangeOp]) -> None:
        """Several operations; updates of bias-like ranges run beside those of weights."""
        stream, is_forked = torch.cuda.current_stream(), False
        for op in ops:
            if op.name.startswith("RANGE_UPDATE_BIASES"):
                self._side.wait_stream(stream)
                with torch.cuda.stream(self._side):
                    self.run(op)
                is_forked = True
                continue
            if is_forked and not op.name.startswith("RANGE_UPDATE"):
                stream.wait_stream(self._side)
                is_forked = False
            self.run(op)
        if is_forked:
            stream.wait_stream(self._side)

    def run(self, op: RangeOp) -> None:
        """One operation of ``Updater.ops`` after the decision."""
        scalars = self._scalars.address
        if op.kernel == "norms":
            self._trust_ratios(op)
        elif op.kernel == "average":
            self._launch_average("average_ranges", scalars)
        elif op.kernel == "restore":
            grid = kernels.blocks(-(-op.count // 16))
            at = self._at
            kernels.launch(
                "restore_buffers", grid, LANES, at["B"], at["B'"], np.int64(op.count), scalars
            )
        elif op.kernel.startswith("lars"):
            self._update_lars(op)
        else:
            self._update(op)

    def exchange(self) -> None:
        """Swaps E with W and B; A follows W."""
        self._launch_average("exchange_ranges", self._at["A"], self._a_type)

    def _launch_average(self, kernel: str, *more: Any) -> None:
        assert self._averages is not None
        grid, arguments = self._averages
        kernels.launch(kernel, grid, LANES, *arguments, *more)

    def _update(self, op: RangeOp) -> None:
        at = self._at
        kernels.launch(
            f"update_{op.kernel}",
            kernels.blocks(-(-op.count // 4), UPDATE_BLOCK) if op.count else 0,
            UPDATE_BLOCK,
            *(at[name] for name in ("W", "G", "M", "V", "A")),
            self._a_type,
            np.int64(op.begin),
            np.int64(op.count),
            self._scalars.address,
            np.int32(op.row),
        )

    def _update_lars(self, op: RangeOp) -> None:
        at, tables = self._at, self._tables
        first, count = tables.chunk_range(op.begin, op.count)
        kernels.launch(
            f"update_{op.kernel}",
            count,
            LANES,
            *(at[name] for name in ("W", "G", "M", "A")),
            self._a_type,
            at["N"],
            tables.rows.data_ptr(),
            tables.chunks[8 * first :].data_ptr(),
            self._scalars.address,
            np.int32(op.row),
        )

    def _trust_ratios(self, op: RangeOp) -> None:
        at, tables = self._at, self._tables
        first, count = tables.chunk_range(op.begin, op.count)
        w_partials, g_partials = tables.w_partials.data_ptr(), tables.g_partials.data_ptr()
        scalars, row = self._scalars.address, np.int32(op.row)
        kernels.launch(
            "squares_of_range",
            count,
            LANES,
            at["W"],
            at["G"],
            tables.rows.data_ptr(),
            tables.chunks.data_ptr(),
            np.int64(first),
            w_partials,
            g_partials,
            scalars,
            row,
        )
        inside = [i for i, at_chunk in enumerate(tables.first_chunk[:-1]) if at_chunk >= first]
        tensors = [i for i in inside if tables.first_chunk[i] < first + count]
        kernels.launch(
            "trust_ratios",
            len(tensors),
            LANES,
            at["N"],
            tables.rows.data_ptr(),
            np.int32(tensors[0] if tensors else 0),
            self._first_chunk.data_ptr(),
            w_partials,
            g_partials,
            scalars,
            row,
        )


def _average_arguments(memory: Memory) -> tuple[int, tuple[Any, ...]]:
    """Blocks, and (W, E, count, B, E of B, count) as the kernels take them."""
    rows = average_rows(memory)
    counts = [int(row["count"]) for row in rows] + [0]
    assert all(count % 4 == 0 for count in counts), "regions are padded to 128 elements"
    other = rows[1] if len(rows) > 1 else rows[0]
    arguments = (
        int(rows[0]["source"]),
        int(rows[0]["target"]),
        np.int64(counts[0]),
        int(other["source"]),
        int(other["target"]),
        np.int64(counts[1]),
    )
    return kernels.blocks((counts[0] + counts[1]) // 4), arguments
