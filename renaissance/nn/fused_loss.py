"""Cross-entropy, its weight and top-1 accuracy in one kernel forward and one backward, on CUDA.

What a step needs of the logits of a classifier: loss sum, loss weight, and the epoch's sums
in float64. Rows are folded inside a block and blocks in order, so the bits depend on shapes alone.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK_ELEMENTS = 4096  # logits of one block
SUMS = 4  # loss sum, weight, correct, counted


@triton.jit  # type: ignore[untyped-decorator]
def _forward(
    z, target, sums, loss_sum, weight, M, C, smoothing, is_last: tl.constexpr,
    BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Partial sums of BM rows; the only block writes loss and weight as float32 too.

    Classes lie along the first axis, so that one thread folds all classes of its row.
    """
    block = tl.program_id(0)
    rows = block * BM + tl.arange(0, BM)
    classes = tl.arange(0, BC)
    inside = (rows[None, :] < M) & (classes[:, None] < C)
    logits = tl.load(z + rows[None, :] * C + classes[:, None], mask=inside, other=0.0)
    logits = logits.to(tl.float32)
    wanted = tl.load(target + rows, mask=rows < M, other=0).to(tl.int32)
    is_wanted = classes[:, None] == wanted[None, :]
    top = tl.max(tl.where(inside, logits, float("-inf")), axis=0)
    top = tl.where(rows < M, top, 0.0)
    shifted = logits - top[None, :]
    log_total = tl.log(tl.sum(tl.where(inside, tl.exp(shifted), 0.0), axis=0))
    of_wanted = tl.sum(tl.where(is_wanted, shifted, 0.0), axis=0)
    mean = tl.sum(tl.where(inside, shifted, 0.0), axis=0) / C
    loss = log_total - (1.0 - smoothing) * of_wanted - smoothing * mean
    loss = tl.where(rows < M, loss, 0.0)
    # Rank 0: nothing larger, nothing equal before it. A row with a NaN is wrong.
    at = tl.sum(tl.where(is_wanted, logits, 0.0), axis=0)[None, :]
    above = (logits > at) | ((logits == at) & (classes[:, None] < wanted[None, :]))
    wrong = tl.sum(tl.where(inside & (above | (logits != logits)), 1, 0), axis=0)
    right = tl.where((rows < M) & (wrong == 0), 1, 0)
    total = tl.sum(loss, axis=0).to(tl.float64)
    correct = tl.sum(right, axis=0).to(tl.float64)
    count = tl.minimum(M - block * BM, BM).to(tl.float64)
    at_sums = sums + block * 4
    tl.store(at_sums, total)
    tl.store(at_sums + 1, count)
    tl.store(at_sums + 2, correct)
    tl.store(at_sums + 3, count)
    if is_last:
        tl.store(loss_sum, total.to(tl.float32))
        tl.store(weight, count.to(tl.float32))


@triton.jit  # type: ignore[untyped-decorator]
def _fold(partials, sums, loss_sum, weight, blocks, BLOCK: tl.constexpr):
    """Partial sums of all blocks, added in order."""
    lane = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float64)
    for block in range(0, blocks):
        total += tl.load(partials + block * 4 + lane)
    tl.store(sums + lane, total)
    tl.store(loss_sum + lane, total.to(tl.float32), mask=lane == 0)
    tl.store(weight + lane - 1, total.to(tl.float32), mask=lane == 1)


@triton.jit  # type: ignore[untyped-decorator]
def _backward(
    z, target, g, gz, M, C, smoothing, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """(softmax - smoothed target) * g."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    classes = tl.arange(0, BC)
    inside = (rows[None, :] < M) & (classes[:, None] < C)
    logits = tl.load(z + rows[None, :] * C + classes[:, None], mask=inside, other=0.0)
    logits = logits.to(tl.float32)
    wanted = tl.load(target + rows, mask=rows < M, other=0).to(tl.int32)
    top = tl.max(tl.where(inside, logits, float("-inf")), axis=0)
    shares = tl.where(inside, tl.exp(logits - top[None, :]), 0.0)
    shares = shares / tl.sum(shares, axis=0)[None, :]
    goal = tl.where(classes[:, None] == wanted[None, :], 1.0 - smoothing, 0.0) + smoothing / C
    result = (shares - goal) * tl.load(g)
    place = gz + rows[None, :] * C + classes[:, None]
    tl.store(place, result.to(gz.dtype.element_ty), mask=inside)


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, target: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        M, C = z.shape
        wide = triton.next_power_of_2(C)
        rows = max(1, min(triton.next_power_of_2(M), BLOCK_ELEMENTS // wide))
        blocks = triton.cdiv(M, rows)
        loss, weight = z.new_empty((), dtype=torch.float32), z.new_empty((), dtype=torch.float32)
        sums = z.new_empty(SUMS, dtype=torch.float64)
        partials = sums if blocks == 1 else z.new_empty(blocks * SUMS, dtype=torch.float64)
        _forward[(blocks,)](
            z, target, partials, loss, weight, M, C, smoothing, blocks == 1, rows, wide, num_warps=8
        )
        if blocks > 1:
            _fold[(1,)](partials, sums, loss, weight, blocks, SUMS)
        ctx.save_for_backward(z, target)
        ctx.smoothing, ctx.shape = smoothing, (rows, wide, blocks)
        ctx.mark_non_differentiable(weight, sums)
        ctx.set_materialize_grads(False)  # two fill kernels for gradients nobody reads
        return loss, weight, sums

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Tensor) -> tuple[Tensor, None, None]:
        z, target = ctx.saved_tensors
        rows, wide, blocks = ctx.shape
        gz = torch.empty_like(z)
        _backward[(blocks,)](
            z, target, g, gz, z.shape[0], z.shape[1], ctx.smoothing, rows, wide, num_warps=8
        )
        return gz, None, None


def cross_entropy_sums(
    z: Tensor, target: Tensor, smoothing: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss sum (differentiable), weight (0-d float32), and sums (4,) float64 of a batch.

    Args:
        z: Logits (M, C), contiguous, up to 8192 classes.
        target: Class numbers (M) int64.
        smoothing: Label smoothing, 0 to 1.
    """
    result: tuple[Tensor, Tensor, Tensor] = _CrossEntropy.apply(  # type: ignore[no-untyped-call]
        z.contiguous(), target, smoothing
    )
    return result
