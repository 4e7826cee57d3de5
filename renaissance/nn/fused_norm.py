"""Batch-norm fused with what follows it: the differentiable function over `fused_kernels`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import triton
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from renaissance.nn import fused_kernels as kernels
from renaissance.nn.fused_kernels import AGAIN, BITS, OPEN, PLAIN, POOLED, SECOND, SHORTCUT


@dataclasses.dataclass(frozen=True)
class Tiles:
    """Rows and channels of a thread block's tile, its warps, and thread blocks of a sum."""

    rows: int
    channels: int
    warps: int = 8
    programs: int = 1056


#: As measured on an H200 (benchmarks/bench_norm.py).
STATISTICS = Tiles(32, 64, warps=4)
SUMS = Tiles(64, 64, warps=4)
WHOLE = Tiles(64, 64, warps=4)
WINDOWS = Tiles(16, 64, warps=2)


@dataclasses.dataclass(frozen=True)
class Window:
    """A square max-pool: side, stride and padding."""

    side: int
    stride: int
    padding: int

    @classmethod
    def of(cls, pool: nn.MaxPool2d) -> Window:
        """A pool whose sizes are single numbers."""
        sizes = (pool.kernel_size, pool.stride, pool.padding)
        return cls(*(size for size in sizes if isinstance(size, int)))

    def after(self, length: int) -> int:
        """Windows along an axis."""
        return (length + 2 * self.padding - self.side) // self.stride + 1


@dataclasses.dataclass(frozen=True)
class Norm:
    """A batch-norm's tensors, (C,) each, and numbers; running statistics change in training.

    `offset` is what every value of the input lacks, a convolution's bias: the batch's mean would
    take it away again, the running mean is to know of it.
    """

    weight: Tensor
    bias: Tensor
    running_mean: Tensor
    running_var: Tensor
    momentum: float
    eps: float
    offset: Tensor | None = None

    @classmethod
    def of(cls, layer: nn.BatchNorm2d, offset: Tensor | None = None) -> Norm:
        """A layer with parameters and running statistics."""
        mean, var = layer.running_mean, layer.running_var
        assert mean is not None and var is not None and layer.momentum is not None
        return cls(layer.weight, layer.bias, mean, var, layer.momentum, layer.eps, offset)


@dataclasses.dataclass(frozen=True)
class Sizes:
    """How a channels-last tensor is cut into programs."""

    M: int
    C: int
    H: int
    W: int

    @classmethod
    def of(cls, x: Tensor) -> Sizes:
        n, c, h, w = x.shape
        return cls(n * h * w, c, h, w)

    def whole(self, tiles: Tiles) -> tuple[tuple[int], int]:
        """Grid of one tile a program, and blocks of channels."""
        across = triton.cdiv(self.C, tiles.channels)
        return (triton.cdiv(self.M, tiles.rows) * across,), across

    def sums(self, tiles: Tiles) -> tuple[tuple[int], int, int, int]:
        """Grid, blocks of channels, parts and tiles of each; follows from shapes alone."""
        across = triton.cdiv(self.C, tiles.channels)
        tall = triton.cdiv(self.M, tiles.rows)
        each = triton.cdiv(tall, max(1, tiles.programs // across))
        parts = triton.cdiv(tall, each)
        return (parts * across,), across, parts, each


def _finish(parts: int) -> dict[str, int]:
    """Tile of a last sum: all parts at once, so that no load waits for another."""
    return {"BP": min(2048, triton.next_power_of_2(max(parts, 64))), "BC": 4, "num_warps": 8}


def _statistics(x: Tensor, norm: Norm, sizes: Sizes) -> tuple[Tensor, Tensor]:
    """Mean and 1 / standard deviation of each channel; running statistics move."""
    grid, across, parts, each = sizes.sums(STATISTICS)
    partials = x.new_empty(2, parts, sizes.C, dtype=torch.float32)
    mean, rstd = x.new_empty(2, sizes.C, dtype=torch.float32).unbind()
    kernels.norm_statistics[grid](
        x, partials, sizes.M, sizes.C, parts, each, across,
        BM=STATISTICS.rows, BC=STATISTICS.channels, num_warps=STATISTICS.warps,
    )  # fmt: skip
    finish = _finish(parts)
    kernels.norm_finish[(triton.cdiv(sizes.C, finish["BC"]),)](
        x, partials, mean, rstd, norm.running_mean, norm.running_var,
        mean if norm.offset is None else norm.offset, sizes.M, sizes.C, parts,
        norm.momentum, norm.eps, SHIFTED=norm.offset is not None, **finish,
    )  # fmt: skip
    return mean, rstd


@dataclasses.dataclass(frozen=True)
class _Statistics:
    """What an apply kernel normalises by; in evaluation `spread` is the running variance."""

    mean: Tensor
    spread: Tensor


def _apply(
    x: Tensor, norm: Norm, found: _Statistics, other: Tensor | None,
    norm2: Norm | None, found2: _Statistics | None, *, relu: bool, keep: bool, evaluate: bool,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """The output, and the bits of its mask (M, C/8) where they are kept."""
    sizes = Sizes.of(x)
    grid, across = sizes.whole(WHOLE)
    y = torch.empty_like(x)
    bits = x.new_empty((sizes.M, sizes.C // 8) if keep else (1,), dtype=torch.uint8)
    form = PLAIN if other is None else SHORTCUT if norm2 is None else SECOND
    by, by2 = norm2 or norm, found2 or found
    kernels.norm_apply[grid](
        x, found.mean, found.spread, norm.weight, norm.bias, norm.eps,
        x if other is None else other, by2.mean, by2.spread, by.weight, by.bias, by.eps, y, bits,
        sizes.M, sizes.C, across, RELU=relu, FORM=form, KEEP=keep, EVALUATE=evaluate,
        BM=WHOLE.rows, BC=WHOLE.channels, num_warps=WHOLE.warps,
    )  # fmt: skip
    return y, bits


def _pool(
    x: Tensor, norm: Norm, found: _Statistics, window: Window, *, keep: bool, evaluate: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The pooled output, which place of its window each element comes from, and what x is there."""
    n, c, h, w = x.shape
    shape = (n, c, window.after(h), window.after(w))
    y = room(x, shape)
    sizes = Sizes.of(y)
    grid, across = sizes.whole(WINDOWS)
    chosen = torch.empty_like(y, dtype=torch.uint8) if keep else x.new_empty(1, dtype=torch.uint8)
    picked = torch.empty_like(y) if keep else y
    kernels.norm_pool[grid](
        x, found.mean, found.spread, norm.weight, norm.bias, norm.eps, y, chosen, picked,
        sizes.M, c, h, w, sizes.H, sizes.W, across,
        K=window.side, S=window.stride, PAD=window.padding, KEEP=keep, EVALUATE=evaluate,
        BM=WINDOWS.rows, BC=WINDOWS.channels, num_warps=WINDOWS.warps,
    )  # fmt: skip
    return y, chosen, picked


def channels_last(x: Tensor) -> Tensor:
    """The tensor in channels-last order; a copy where it is in another."""
    return x.contiguous(memory_format=torch.channels_last)


def room(x: Tensor, shape: Sequence[int]) -> Tensor:
    """A new channels-last tensor of another shape, of the dtype and on the device of `x`."""
    return torch.empty(
        tuple(shape), dtype=x.dtype, device=x.device, memory_format=torch.channels_last
    )


class _FusedNorm(torch.autograd.Function):
    """Two outputs of the same memory, so that two users' gradients are added in the kernels."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, other: Tensor | None,
        weight2: Tensor | None, bias2: Tensor | None,
        norm: Norm, norm2: Norm | None, relu: bool, window: Window | None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        x = channels_last(x)
        other = None if other is None else channels_last(other)
        found = _Statistics(*_statistics(x, norm, Sizes.of(x)))
        found2 = None
        if norm2 is not None:
            assert other is not None
            found2 = _Statistics(*_statistics(other, norm2, Sizes.of(other)))
        picked = None
        if window is not None:
            y, kept, picked = _pool(x, norm, found, window, keep=True, evaluate=False)
            ctx.mask = POOLED
        else:
            keep = relu and other is not None
            y, kept = _apply(
                x, norm, found, other, norm2, found2, relu=relu, keep=keep, evaluate=False
            )
            ctx.mask = BITS if keep else AGAIN if relu else OPEN
        ctx.form = PLAIN if other is None else SHORTCUT if norm2 is None else SECOND
        ctx.window = window
        second = (None, None, None, None)
        if norm2 is not None and found2 is not None:
            second = (other, weight2, found2.mean, found2.spread)  # type: ignore[assignment]
        ctx.save_for_backward(x, weight, bias, kept, found.mean, found.spread, *second, picked)
        ctx.set_materialize_grads(False)
        return y, y.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor | None, g2: Tensor | None) -> tuple[Tensor | None, ...]:
        g, g2 = (g2, None) if g is None else (g, g2)
        if g is None:
            return (None,) * 10
        users = [channels_last(one) for one in (g, g2) if one is not None]
        return _Backward(ctx, *ctx.saved_tensors).run(users)


@dataclasses.dataclass
class _Backward:
    """Sums, then the gradients."""

    ctx: Any
    x: Tensor
    weight: Tensor
    bias: Tensor
    kept: Tensor
    mean: Tensor
    rstd: Tensor
    other: Tensor | None
    weight2: Tensor | None
    mean2: Tensor | None
    rstd2: Tensor | None
    picked: Tensor | None

    def run(self, users: list[Tensor]) -> tuple[Tensor | None, ...]:
        """Gradients of `_FusedNorm.forward`'s arguments."""
        ctx, x = self.ctx, self.x
        sizes = Sizes.of(x)
        is_second = ctx.form == SECOND
        is_passed = ctx.form == SHORTCUT or (self.picked is not None and len(users) == 2)
        passed = torch.empty_like(users[0]) if is_passed else x
        partials, parts = self._reduce(users, passed if is_passed else None)
        gw, gb, factors = self._factors(partials, parts, sizes, self.rstd, self.weight, 1)
        gw2 = gb2 = factors2 = None
        if is_second:
            assert self.rstd2 is not None and self.weight2 is not None
            gw2, gb2, factors2 = self._factors(partials, parts, sizes, self.rstd2, self.weight2, 2)
        gx = torch.empty_like(x)
        gx2 = torch.empty_like(x) if is_second else gx
        users = [passed] if is_passed else users
        mask = OPEN if ctx.form == SHORTCUT else ctx.mask
        window, tiles = (ctx.window, WINDOWS) if ctx.window else (Window(1, 1, 0), WHOLE)
        grid, across = sizes.whole(tiles)
        kernels.norm_gradient[grid](
            users[0], users[-1], x, self.mean, self.rstd, self.weight, self.bias, self.kept,
            factors, gx, self.other if is_second else x, self.mean2 if is_second else self.mean,
            factors2 if is_second else factors, gx2, sizes.M, sizes.C, sizes.H, sizes.W,
            window.after(sizes.H), window.after(sizes.W), across,
            FORM=ctx.form, MASK=mask, TWO=len(users) == 2,
            K=window.side, S=window.stride, PAD=window.padding,
            BM=tiles.rows, BC=tiles.channels, num_warps=tiles.warps,
        )  # fmt: skip
        towards = gx2 if is_second else passed if ctx.form == SHORTCUT else None
        return gx, gw, gb, towards, gw2, gb2, None, None, None, None

    def _reduce(self, users: list[Tensor], passed: Tensor | None) -> tuple[Tensor, int]:
        """Partial sums, and how many of each; behind a pool, of what it has chosen.

        What the ReLU lets pass of the users' gradients goes to `passed`.
        """
        ctx = self.ctx
        is_second = ctx.form == SECOND
        x, mask = (self.x, ctx.mask) if self.picked is None else (self.picked, AGAIN)
        sizes = Sizes.of(x)
        grid, across, parts, each = sizes.sums(SUMS)
        partials = x.new_empty(3 if is_second else 2, parts, sizes.C, dtype=torch.float32)
        kernels.norm_reduce[grid](
            users[0], users[-1], x, self.mean, self.rstd, self.weight, self.bias, self.kept,
            x if passed is None else passed,
            self.other if is_second else x, self.mean2 if is_second else self.mean,
            partials, sizes.M, sizes.C, parts, each, across,
            FORM=ctx.form, MASK=mask, TWO=len(users) == 2, PASS=passed is not None,
            BM=SUMS.rows, BC=SUMS.channels, num_warps=SUMS.warps,
        )  # fmt: skip
        return partials, parts

    def _factors(
        self, partials: Tensor, parts: int, sizes: Sizes, rstd: Tensor, weight: Tensor, which: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Gradients of weight and bias, and the factors of the input's."""
        gw, gb = torch.empty_like(weight), torch.empty_like(weight)
        factors = self.x.new_empty(3, sizes.C, dtype=torch.float32)
        finish = _finish(parts)
        kernels.norm_finish_gradient[(triton.cdiv(sizes.C, finish["BC"]),)](
            partials, rstd, weight, gw, gb, factors, sizes.M, sizes.C, parts,
            WHICH=which, **finish,
        )  # fmt: skip
        return gw, gb, factors


def fused_norm(
    x: Tensor, norm: Norm, other: Tensor | None = None, norm2: Norm | None = None,
    *, relu: bool, window: Window | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Batch statistics, then ``pool(relu(bn(x) + other))``; differentiable.

    Args:
        x: (N, C, H, W) float32, bfloat16 or float16 on CUDA, C a multiple of 8; channels-last, or
            it is copied.
        norm: Of x. Its running statistics are updated, the variance with N*H*W - 1.
        other: Of x's shape and dtype, added before the ReLU; None adds nothing.
        norm2: A batch-norm of `other` before it is added.
        relu: Whether a ReLU follows.
        window: A max-pool behind the ReLU; not together with `other`.

    Returns:
        The output twice, in the same memory: gradients of the two are added in the kernels.
    """
    assert window is None or (relu and other is None)
    weight2, bias2 = (None, None) if norm2 is None else (norm2.weight, norm2.bias)
    found: tuple[Tensor, Tensor] = _FusedNorm.apply(
        x, norm.weight, norm.bias, other, weight2, bias2, norm, norm2, relu, window
    )
    return found


def _running(norm: Norm) -> _Statistics:
    """Running statistics of the input as it comes: without the offset that their mean knows of."""
    mean = norm.running_mean
    return _Statistics(mean if norm.offset is None else mean - norm.offset, norm.running_var)


def evaluated_norm(
    x: Tensor, norm: Norm, other: Tensor | None = None, norm2: Norm | None = None,
    *, relu: bool, window: Window | None = None,
) -> Tensor:  # fmt: skip
    """As `fused_norm`, by the running statistics; nothing is kept for backward."""
    x = channels_last(x)
    found = _running(norm)
    if window is not None:
        return _pool(x, norm, found, window, keep=False, evaluate=True)[0]
    other = None if other is None else channels_last(other)
    found2 = None if norm2 is None else _running(norm2)
    return _apply(x, norm, found, other, norm2, found2, relu=relu, keep=False, evaluate=True)[0]
