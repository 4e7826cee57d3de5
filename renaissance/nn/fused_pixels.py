"""Pixels put where a convolution's product wants them: what each output reads, or every other one.

Both are copies whose sums, if any, run in a fixed order. A convolution over pictures of few
channels reads them as `patches`; a strided 1x1 convolution reads `every` so many-th pixel.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from renaissance.nn.fused_kernels import kernel, tile
from renaissance.nn.fused_norm import Sizes, Tiles, Window, channels_last, room

PIXELS = Tiles(64, 64, warps=4)


@kernel
def _framed(x, y, H, W, PAD: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr):
    """Pictures (H, W, CHANNELS) with PAD zeros around, a program for each of their lines."""
    wide = W + 2 * PAD
    line = tl.program_id(0)
    picture, h = line // (H + 2 * PAD), line % (H + 2 * PAD) - PAD
    place = tl.arange(0, BLOCK)
    source = place - PAD * CHANNELS
    inside = (source >= 0) & (source < W * CHANNELS) & (h >= 0) & (h < H)
    value = tl.load(
        x + (picture * H + h).to(tl.int64) * W * CHANNELS + source, mask=inside, other=0.0
    )
    tl.store(y + line.to(tl.int64) * wide * CHANNELS + place, value, mask=place < wide * CHANNELS)


@kernel
def _patches(
    x, y, M, H, W, OH, OW,
    K: tl.constexpr, S: tl.constexpr, CHANNELS: tl.constexpr,
    WIDE: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """What each output of a convolution reads: y (M, WIDE) of framed pictures (H, W, CHANNELS).

    Column (i * K + j) * CHANNELS + k of a row is channel k of pixel (i, j) of its window; zeros in
    further columns.
    """
    blocks: tl.constexpr = tl.cdiv(WIDE, BC)
    rows = tl.program_id(0) // blocks * BM + tl.arange(0, BM)
    c = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    picture, place = rows // (OH * OW), rows % (OH * OW)
    first = ((picture * H + place // OW * S).to(tl.int64) * W + place % OW * S) * CHANNELS
    tap = c // CHANNELS
    reach = (tap // K * W + tap % K) * CHANNELS + c % CHANNELS
    exists = (rows < M)[:, None] & (tap < K * K)[None, :]
    value = tl.load(x + first[:, None] + reach[None, :], mask=exists, other=0.0)
    at = rows[:, None].to(tl.int64) * WIDE + c[None, :]
    tl.store(y + at, value, mask=(rows < M)[:, None] & (c < WIDE)[None, :])


@kernel
def _every(
    x, y, M, C, H, W, OH, OW, channel_blocks, S: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr
):  # fmt: skip
    """Pixel (S * i, S * j) of x (H, W) as pixel (i, j) of y (OH, OW); M rows of y, C channels."""
    row = tl.program_id(0) // channel_blocks * BM
    rows, c, at, inside = tile(M, C, row, channel_blocks, BM, BC)
    picture, place = rows // (OH * OW), rows % (OH * OW)
    source = (picture * H + place // OW * S).to(tl.int64) * W + place % OW * S
    value = tl.load(x + source[:, None] * C + c[None, :], mask=inside, other=0.0)
    tl.store(y + at, value, mask=inside)


@kernel
def _apart(
    g, gx, M, C, H, W, OH, OW, channel_blocks, S: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr
):  # fmt: skip
    """Pixel (i, j) of g (OH, OW) at (S * i, S * j) of gx (H, W), zeros between; M rows of gx."""
    row = tl.program_id(0) // channel_blocks * BM
    rows, c, at, inside = tile(M, C, row, channel_blocks, BM, BC)
    picture, place = rows // (H * W), rows % (H * W)
    h, w = place // W, place % W
    source = (picture * OH + h // S).to(tl.int64) * OW + w // S
    is_read = inside & ((h % S == 0) & (w % S == 0))[:, None]
    value = tl.load(g + source[:, None] * C + c[None, :], mask=is_read, other=0.0)
    tl.store(gx + at, value, mask=inside)


def patches(x: Tensor, window: Window) -> Tensor:
    """What each output of a convolution reads: (N, C, H, W) -> (N, side * side * C + ..., OH, OW).

    Channel (i * side + j) * C + k is channel k of pixel (i, j) of the window; zeros outside of the
    picture, and up to a number of channels that tensor cores read at full width. Channels-last, not
    differentiable.
    """
    x = channels_last(x)
    n, c, h, w = x.shape
    frame = (n, c, h + 2 * window.padding, w + 2 * window.padding)
    wide = -(-(window.side**2) * c // 8) * 8
    shape = (n, wide, window.after(h), window.after(w))
    inner, y = room(x, frame), room(x, shape)
    _framed[(n * frame[2],)](
        x, inner, h, w, PAD=window.padding, CHANNELS=c,
        BLOCK=triton.next_power_of_2(frame[3] * c), num_warps=4,
    )  # fmt: skip
    sizes = Sizes.of(y)
    _patches[(triton.cdiv(sizes.M, 64) * triton.cdiv(wide, 32),)](
        inner, y, sizes.M, frame[2], frame[3], sizes.H, sizes.W, K=window.side,
        S=window.stride, CHANNELS=c, WIDE=wide, BM=64, BC=32, num_warps=4,
    )  # fmt: skip
    return y


class _Every(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, stride: int) -> Tensor:
        x = channels_last(x)
        n, c, h, w = ctx.shape = x.shape
        ctx.stride = stride
        shape = (n, c, -(-h // stride), -(-w // stride))
        y = room(x, shape)
        _launch(_every, x, y, Sizes.of(y), Sizes.of(x), Sizes.of(y), stride)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        g = channels_last(g)
        gx = room(g, ctx.shape)
        _launch(_apart, g, gx, Sizes.of(gx), Sizes.of(gx), Sizes.of(g), ctx.stride)
        return gx, None


def _launch(
    kernel: Any,
    source: Tensor,
    target: Tensor,
    rows: Sizes,
    large: Sizes,
    small: Sizes,
    stride: int,
) -> None:
    """A thread block for each tile of the target."""
    grid, across = rows.whole(PIXELS)
    kernel[grid](
        source, target, rows.M, rows.C, large.H, large.W, small.H, small.W, across,
        S=stride, BM=PIXELS.rows, BC=PIXELS.channels, num_warps=PIXELS.warps,
    )  # fmt: skip


def every(x: Tensor, stride: int) -> Tensor:
    """Every `stride`-th pixel: (N, C, H, W) -> (N, C, ceil(H / stride), ceil(W / stride)).

    Channels-last, differentiable.
    """
    found: Tensor = _Every.apply(x, stride)
    return found
