"""Linear and ReLU in one kernel forward and one backward, for small 16-bit networks on CUDA.

A multi-layer perceptron's step is bound by the latency of its kernels, not by arithmetic: a product
of a few hundred rows takes some 4 microseconds whatever the library. So the kernels are few: bias
and ReLU belong to the product forward; backward computes the input's gradient, the weight's and the
bias's in one launch, whose thread blocks share the work, and applies the ReLU mask as it reads.

Sums run over fixed blocks in a fixed order: the bits depend on the shapes alone.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

#: Rows, columns and depth of a block, as measured on an H200 (benchmarks/bench_mlp.py).
ROWS, COLUMNS, DEPTH, WARPS, STAGES = 32, 32, 128, 4, 4
BACK_ROWS, BACK_COLUMNS, BACK_DEPTH = 32, 64, 64


@triton.jit  # type: ignore[untyped-decorator]
def _forward(
    x, w, b, y, M, N, K,
    has_bias: tl.constexpr, relu: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y (M, N) = act(x (M, K) w (N, K)^T + b): float32 sums, one rounding at the end."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + depth
        left = tl.load(
            x + rows[:, None] * K + k[None, :],
            mask=(rows[:, None] < M) & (k[None, :] < K),
            other=0.0,
        )
        right = tl.load(
            w + columns[None, :] * K + k[:, None],
            mask=(columns[None, :] < N) & (k[:, None] < K),
            other=0.0,
        )
        total = tl.dot(left, right, total)
    if has_bias:
        total += tl.load(b + columns, mask=columns < N, other=0.0).to(tl.float32)[None, :]
    if relu:
        total = tl.where(total > 0, total, 0.0)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(y + rows[:, None] * N + columns[None, :], total.to(y.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _masked(g, y, rows, columns, M, N, relu: tl.constexpr):
    """A block of the gradient behind the activation."""
    inside = (rows < M) & (columns < N)
    block = tl.load(g + rows * N + columns, mask=inside, other=0.0)
    if relu:
        out = tl.load(y + rows * N + columns, mask=inside, other=0.0)
        block = tl.where(out > 0, block, 0.0)
    return block


@triton.jit  # type: ignore[untyped-decorator]
def _backward(
    g, y, x, w, gx, gw, gb, M, N, K, input_blocks,
    has_bias: tl.constexpr, relu: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """The first `input_blocks` programs make gx (M, K), the others gw (N, K) and gb (N)."""
    place = tl.program_id(0)
    blocks_k = tl.cdiv(K, BK)
    if place < input_blocks:
        rows = (place // blocks_k) * BM + tl.arange(0, BM)
        columns = (place % blocks_k) * BK + tl.arange(0, BK)
        total = tl.zeros((BM, BK), tl.float32)
        for start in range(0, N, SUM):
            n = start + tl.arange(0, SUM)
            left = _masked(g, y, rows[:, None], n[None, :], M, N, relu)
            right = tl.load(
                w + n[:, None] * K + columns[None, :],
                mask=(n[:, None] < N) & (columns[None, :] < K),
                other=0.0,
            )
            total = tl.dot(left, right, total)
        inside = (rows[:, None] < M) & (columns[None, :] < K)
        tl.store(
            gx + rows[:, None] * K + columns[None, :], total.to(gx.dtype.element_ty), mask=inside
        )
    else:
        other = place - input_blocks
        rows = (other // blocks_k) * BN + tl.arange(0, BN)
        columns = (other % blocks_k) * BK + tl.arange(0, BK)
        total = tl.zeros((BN, BK), tl.float32)
        bias = tl.zeros((BN,), tl.float32)
        for start in range(0, M, SUM):
            m = start + tl.arange(0, SUM)
            left = _masked(g, y, m[None, :], rows[:, None], M, N, relu)
            right = tl.load(
                x + m[:, None] * K + columns[None, :],
                mask=(m[:, None] < M) & (columns[None, :] < K),
                other=0.0,
            )
            total = tl.dot(left, right, total)
            if has_bias:
                bias += tl.sum(left.to(tl.float32), axis=1)
        inside = (rows[:, None] < N) & (columns[None, :] < K)
        tl.store(
            gw + rows[:, None] * K + columns[None, :], total.to(gw.dtype.element_ty), mask=inside
        )
        if has_bias:
            if other % blocks_k == 0:
                tl.store(gb + rows, bias.to(gb.dtype.element_ty), mask=rows < N)


class _FusedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool) -> Tensor:
        M, K = x.shape
        N = weight.shape[0]
        y = x.new_empty(M, N)
        grid = (triton.cdiv(M, ROWS), triton.cdiv(N, COLUMNS))
        _forward[grid](
            x, weight, bias if bias is not None else weight, y, M, N, K,
            bias is not None, relu, ROWS, COLUMNS, DEPTH, num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip
        ctx.save_for_backward(x, weight, y)
        ctx.relu, ctx.has_bias = relu, bias is not None
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None, None]:
        x, weight, y = ctx.saved_tensors
        g = g.contiguous()
        M, K = x.shape
        N = weight.shape[0]
        needs_input = ctx.needs_input_grad[0]
        gx = torch.empty_like(x) if needs_input else None
        gw = torch.empty_like(weight)
        gb = weight.new_empty(N) if ctx.has_bias else None
        blocks_k = triton.cdiv(K, BACK_COLUMNS)
        input_blocks = triton.cdiv(M, BACK_ROWS) * blocks_k if needs_input else 0
        weight_blocks = triton.cdiv(N, BACK_ROWS) * blocks_k
        _backward[(input_blocks + weight_blocks,)](
            g, y, x, weight, gx if gx is not None else gw, gw, gb if gb is not None else gw,
            M, N, K, input_blocks,
            ctx.has_bias, ctx.relu, BACK_ROWS, BACK_ROWS, BACK_COLUMNS, BACK_DEPTH,
            num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip
        return gx, gw, gb, None


def fused_linear(x: Tensor, weight: Tensor, bias: Tensor | None, *, relu: bool) -> Tensor:
    """``relu(x @ weight.T + bias)`` or without the ReLU; differentiable.

    Args:
        x: (M, K) float16 or bfloat16, contiguous.
        weight: (N, K) of the same dtype, contiguous.
        bias: (N) of the same dtype, or None.
        relu: Whether the ReLU belongs to it.

    Returns:
        (M, N) of the same dtype: sums in float32, rounded once.
    """
    result: Tensor = _FusedLinear.apply(x, weight, bias, relu)  # type: ignore[no-untyped-call]
    return result
