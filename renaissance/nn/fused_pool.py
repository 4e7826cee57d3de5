"""Max-pool of channels-last pictures, with a backward that adds in a fixed order, on CUDA.

Forward keeps which place of its window each output comes from; backward lets every input look at
the windows over it, so that nothing is added by several threads.
"""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from renaissance.nn.fused_kernels import extreme, kernel, tile, unpooled
from renaissance.nn.fused_norm import WINDOWS, Sizes, Window, channels_last, room


@kernel
def _forward(
    x, y, chosen, M, C, H, W, OH, OW, channel_blocks,
    K: tl.constexpr, S: tl.constexpr, PAD: tl.constexpr, KEEP: tl.constexpr,
    BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Largest x of each window: y (M, C), and its place in the window."""
    row = tl.program_id(0) // channel_blocks * BM
    rows, c, at, inside = tile(M, C, row, channel_blocks, BM, BC)
    sign = tl.full((1, BC), 1.0, tl.float32)
    value, where = extreme(x, rows, c, sign, M, C, H, W, OH, OW, K, S, PAD, BM, BC)
    tl.store(y + at, value.to(y.dtype.element_ty), mask=inside)
    if KEEP:
        tl.store(chosen + at, where.to(tl.uint8), mask=inside)


@kernel
def _backward(
    g, chosen, gx, M, C, H, W, OH, OW, channel_blocks,
    K: tl.constexpr, S: tl.constexpr, PAD: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Gradient of the input (M, C): of every window over it that has chosen it."""
    row = tl.program_id(0) // channel_blocks * BM
    rows, c, at, inside = tile(M, C, row, channel_blocks, BM, BC)
    found = unpooled(g, g, chosen, rows, c, M, C, H, W, OH, OW, False, K, S, PAD, BM, BC)
    tl.store(gx + at, found.to(gx.dtype.element_ty), mask=inside)


class _MaxPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, window: Window, keep: bool) -> Tensor:
        x = channels_last(x)
        n, c, h, w = ctx.shape = x.shape
        shape = (n, c, window.after(h), window.after(w))
        y = room(x, shape)
        chosen = torch.empty_like(y, dtype=torch.uint8) if keep else y
        sizes = Sizes.of(y)
        grid, across = sizes.whole(WINDOWS)
        _forward[grid](
            x, y, chosen, sizes.M, c, h, w, sizes.H, sizes.W, across,
            K=window.side, S=window.stride, PAD=window.padding, KEEP=keep,
            BM=WINDOWS.rows, BC=WINDOWS.channels, num_warps=WINDOWS.warps,
        )  # fmt: skip
        ctx.window = window
        ctx.save_for_backward(chosen)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None, None]:
        (chosen,) = ctx.saved_tensors
        g, window = channels_last(g), ctx.window
        gx = room(g, ctx.shape)
        sizes, small = Sizes.of(gx), Sizes.of(g)
        grid, across = sizes.whole(WINDOWS)
        _backward[grid](
            g, chosen, gx, sizes.M, sizes.C, sizes.H, sizes.W, small.H, small.W, across,
            K=window.side, S=window.stride, PAD=window.padding,
            BM=WINDOWS.rows, BC=WINDOWS.channels, num_warps=WINDOWS.warps,
        )  # fmt: skip
        return gx, None, None


def max_pool(x: Tensor, window: Window) -> Tensor:
    """Max-pool: (N, C, H, W) -> (N, C, OH, OW), channels-last, differentiable.

    Args:
        x: float32, bfloat16 or float16 on CUDA; copied if it is not channels-last.
        window: Of at most 3 x 3.
    """
    found: Tensor = _MaxPool.apply(x, window, torch.is_grad_enabled() and x.requires_grad)
    return found
