"""Batch-norm with what follows it, as few passes over memory as it takes, on CUDA.

A picture batch (N, C, H, W) in channels-last order is a matrix of M = N*H*W rows and C columns.
Forward reads it once for the statistics and once more to normalise; backward reads input and
gradient once for the sums and once more for the input's gradient. ReLU, the addition of a shortcut,
a second batch-norm on the shortcut and a max-pool ride along. The mask of a ReLU is computed again
where the input tells it, and kept as one bit an element where it does not.

Sums run over fixed blocks in a fixed order, so that the bits depend on the shapes alone. Values are
shifted by the first row before they are squared: a large mean costs no digits.

References:
    S. Ioffe, C. Szegedy, "Batch Normalization", 2015, arXiv:1502.03167.
    T. F. Chan, G. H. Golub, R. J. LeVeque, "Algorithms for computing the sample variance", 1983
    (shifted sums).
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from renaissance.nn.ahead import Kernel

#: Forms of the addend: none, a tensor, a tensor with a batch-norm of its own.
PLAIN, SHORTCUT, SECOND = 0, 1, 2
#: How backward knows where the ReLU let pass: no ReLU, from the input, from kept bits, or from the
#: input behind a pool, which has kept what it chose.
OPEN, AGAIN, BITS, POOLED = 0, 1, 2, 3

#: Sizes whose values must not lead to kernels of their own; C's may, for the width of loads.
_SIZES = ["M", "H", "W", "OH", "OW", "parts", "tiles", "channel_blocks"]


def kernel(function: Any) -> Kernel:
    """Compile a function with Triton; sizes that change from batch to batch are not baked in."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    sizes = [name for name in _SIZES if name in names]
    return Kernel(triton.jit(function, do_not_specialize=sizes), sizes)


@triton.jit  # type: ignore[untyped-decorator]
def tile(M, C, row, channel_blocks, BM: tl.constexpr, BC: tl.constexpr):
    """Rows from `row` on, this program's channels, elements' places and which are inside."""
    rows = row + tl.arange(0, BM)
    c = (tl.program_id(0) % channel_blocks) * BC + tl.arange(0, BC)
    at = rows[:, None].to(tl.int64) * C + c[None, :]
    inside = (rows[:, None] < M) & (c[None, :] < C)
    return rows, c, at, inside


@triton.jit  # type: ignore[untyped-decorator]
def _channel(pointer, c, C):
    """A number of each channel, float32."""
    return tl.load(pointer + c, mask=c < C, other=0.0).to(tl.float32)[None, :]


@triton.jit  # type: ignore[untyped-decorator]
def _scale(spread, weight, c, C, eps, EVALUATE: tl.constexpr):
    """weight / standard deviation; `spread` is the running variance in evaluation."""
    rstd = _channel(spread, c, C)
    if EVALUATE:
        rstd = 1.0 / tl.sqrt_rn(rstd + eps)
    return rstd * _channel(weight, c, C)


@kernel
def norm_statistics(
    x, partials, M, C, parts, tiles, channel_blocks, BM: tl.constexpr, BC: tl.constexpr
):  # fmt: skip
    """Sums of (x - x[0]) and of its square over parts of so many tiles: partials (2, parts, C)."""
    part = tl.program_id(0) // channel_blocks
    c = (tl.program_id(0) % channel_blocks) * BC + tl.arange(0, BC)
    pivot = _channel(x, c, C)
    first = tl.zeros((BM, BC), tl.float32)
    second = tl.zeros((BM, BC), tl.float32)
    for turn in range(0, tiles):
        row = (part * tiles + turn) * BM
        _, c, at, inside = tile(M, C, row, channel_blocks, BM, BC)
        value = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        shifted = tl.where(inside, value - pivot, 0.0)
        first += shifted
        second += shifted * shifted
    tl.store(partials + part * C + c, tl.sum(first, 0), mask=c < C)
    tl.store(partials + (parts + part) * C + c, tl.sum(second, 0), mask=c < C)


@triton.jit  # type: ignore[untyped-decorator]
def _totals(partials, other, parts, C, c, BP: tl.constexpr, BC: tl.constexpr):
    """Sums of two kinds of partials of each channel, in double."""
    total = tl.zeros((BP, BC), tl.float64)
    total2 = tl.zeros((BP, BC), tl.float64)
    for start in range(0, parts, BP):
        p = start + tl.arange(0, BP)
        inside = (p[:, None] < parts) & (c[None, :] < C)
        at = p[:, None] * C + c[None, :]
        total += tl.load(partials + at, mask=inside, other=0.0).to(tl.float64)
        total2 += tl.load(other + at, mask=inside, other=0.0).to(tl.float64)
    return tl.sum(total, 0), tl.sum(total2, 0)


@kernel
def norm_finish(
    x, partials, mean, rstd, running_mean, running_var, offset, M, C, parts, momentum, eps,
    SHIFTED: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Mean and 1 / standard deviation of each channel, and the running statistics."""
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    inside = c < C
    count = M.to(tl.float64)
    shift, square = _totals(partials, partials + parts * C, parts, C, c, BP, BC)
    shift, square = shift / count, square / count
    center = tl.load(x + c, mask=inside, other=0.0).to(tl.float64) + shift
    variance = square - shift * shift
    variance = tl.where(variance < 0.0, 0.0, variance)  # a NaN stays one
    tl.store(mean + c, center.to(tl.float32), mask=inside)
    tl.store(rstd + c, (1.0 / tl.sqrt(variance + eps)).to(tl.float32), mask=inside)
    if SHIFTED:
        center += tl.load(offset + c, mask=inside, other=0.0).to(tl.float64)
    old = tl.load(running_mean + c, mask=inside, other=0.0).to(tl.float64)
    new = (1.0 - momentum) * old + momentum * center
    tl.store(running_mean + c, new.to(tl.float32), mask=inside)
    old = tl.load(running_var + c, mask=inside, other=0.0).to(tl.float64)
    new = (1.0 - momentum) * old + momentum * (variance * count / (count - 1.0))
    tl.store(running_var + c, new.to(tl.float32), mask=inside)


@kernel
def norm_apply(
    x, mean, spread, weight, bias, eps, other, mean2, spread2, weight2, bias2, eps2, y, bits,
    M, C, channel_blocks,
    RELU: tl.constexpr, FORM: tl.constexpr, KEEP: tl.constexpr, EVALUATE: tl.constexpr,
    BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y = act((x - mean) * scale + bias [+ other, or its normalised values]); bits (M, C/8)."""
    row = tl.program_id(0) // channel_blocks * BM
    rows, c, at, inside = tile(M, C, row, channel_blocks, BM, BC)
    z = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - _channel(mean, c, C)
    z = z * _scale(spread, weight, c, C, eps, EVALUATE) + _channel(bias, c, C)
    if FORM != 0:
        added = tl.load(other + at, mask=inside, other=0.0).to(tl.float32)
        if FORM == 2:
            added = (added - _channel(mean2, c, C)) * _scale(spread2, weight2, c, C, eps2, EVALUATE)
            added += _channel(bias2, c, C)
        z += added
    if RELU:
        is_cut = z <= 0.0  # a NaN passes, as in torch
        if KEEP:
            octets = tl.reshape(tl.where(is_cut, 0, 1), (BM, BC // 8, 8))
            packed = tl.sum(octets << tl.arange(0, 8)[None, None, :], 2).to(tl.uint8)
            c8 = (tl.program_id(0) % channel_blocks) * (BC // 8) + tl.arange(0, BC // 8)
            place = rows[:, None].to(tl.int64) * (C // 8) + c8[None, :]
            tl.store(bits + place, packed, mask=(rows[:, None] < M) & (c8[None, :] < C // 8))
        z = tl.where(is_cut, 0.0, z)
    tl.store(y + at, z.to(y.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def extreme(
    x, rows, c, sign, M, C, H, W, OH, OW,
    K: tl.constexpr, S: tl.constexpr, PAD: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Largest `sign` * x of each window: x there, float32, and its place in the window, row-major.

    Of equal values the first, and a NaN before all, as torch chooses.
    """
    picture, place = rows // (OH * OW), rows % (OH * OW)
    top, left = place // OW * S - PAD, place % OW * S - PAD
    best = tl.full((BM, BC), float("-inf"), tl.float32)
    value = tl.zeros((BM, BC), tl.float32)
    where = tl.full((BM, BC), -1, tl.int32)
    for i in tl.static_range(K):
        for j in tl.static_range(K):
            h, w = top + i, left + j
            exists = (h >= 0) & (h < H) & (w >= 0) & (w < W) & (rows < M)
            source = ((picture * H + h) * W + w).to(tl.int64)[:, None] * C + c[None, :]
            valid = exists[:, None] & (c[None, :] < C)
            one = tl.load(x + source, mask=valid, other=0.0).to(tl.float32)
            turned = one * sign
            better = valid & ((turned > best) | (turned != turned) | (where < 0))
            best = tl.where(better, turned, best)
            value = tl.where(better, one, value)
            where = tl.where(better, i * K + j, where)
    return value, where


@kernel
def norm_pool(
    x, mean, spread, weight, bias, eps, y, chosen, picked, M, C, H, W, OH, OW, channel_blocks,
    K: tl.constexpr, S: tl.constexpr, PAD: tl.constexpr, KEEP: tl.constexpr,
    EVALUATE: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Largest relu(normalised) of each window: y (M, C), its place in the window, row-major, and x.

    Normalising keeps or turns the order of a channel's values: the extreme is sought in x.
    """
    row = tl.program_id(0) // channel_blocks * BM
    rows, c, at, inside = tile(M, C, row, channel_blocks, BM, BC)
    scale = _scale(spread, weight, c, C, eps, EVALUATE)
    sign = tl.where(scale > 0.0, 1.0, tl.where(scale < 0.0, -1.0, 0.0))
    value, where = extreme(x, rows, c, sign, M, C, H, W, OH, OW, K, S, PAD, BM, BC)
    z = (value - _channel(mean, c, C)) * scale + _channel(bias, c, C)
    tl.store(y + at, tl.where(z <= 0.0, 0.0, z).to(y.dtype.element_ty), mask=inside)
    if KEEP:
        tl.store(chosen + at, where.to(tl.uint8), mask=inside)
        tl.store(picked + at, value.to(picked.dtype.element_ty), mask=inside)


@triton.jit  # type: ignore[untyped-decorator]
def _arriving(g, g2, at, inside, TWO: tl.constexpr):
    """The gradient behind the block, from one or two users of its output, float32."""
    found = tl.load(g + at, mask=inside, other=0.0).to(tl.float32)
    if TWO:
        found += tl.load(g2 + at, mask=inside, other=0.0).to(tl.float32)
    return found


@triton.jit  # type: ignore[untyped-decorator]
def unpooled(
    g, g2, chosen, rows, c, M, C, H, W, OH, OW, TWO: tl.constexpr,
    K: tl.constexpr, S: tl.constexpr, PAD: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Gradient before the pool: of every window over this place that has chosen it."""
    picture, place = rows // (H * W), rows % (H * W)
    h, w = place // W + PAD, place % W + PAD
    total = tl.zeros((BM, BC), tl.float32)
    for i in tl.static_range((K + S - 1) // S):
        for j in tl.static_range((K + S - 1) // S):
            top, left = h // S - i, w // S - j
            down, right = h - top * S, w - left * S
            exists = (top >= 0) & (top < OH) & (left >= 0) & (left < OW) & (rows < M)
            exists = exists & (down < K) & (right < K)
            at = ((picture * OH + top) * OW + left).to(tl.int64)[:, None] * C + c[None, :]
            valid = exists[:, None] & (c[None, :] < C)
            mine = tl.load(chosen + at, mask=valid, other=255).to(tl.int32)
            is_mine = valid & (mine == (down * K + right)[:, None])
            total += _arriving(g, g2, at, is_mine, TWO)
    return total


@triton.jit  # type: ignore[untyped-decorator]
def _gradient(
    g, g2, x, mean, rstd, weight, bias, bits, rows, c, at, inside, M, C, H, W, OH, OW,
    MASK: tl.constexpr, TWO: tl.constexpr, K: tl.constexpr, S: tl.constexpr, PAD: tl.constexpr,
    channel_blocks, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Gradient of the normalised values, and the centred input."""
    centred = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - _channel(mean, c, C)
    if MASK == 3:
        found = unpooled(g, g2, bits, rows, c, M, C, H, W, OH, OW, TWO, K, S, PAD, BM, BC)
    else:
        found = _arriving(g, g2, at, inside, TWO)
    if MASK == 1 or MASK == 3:
        scale = _scale(rstd, weight, c, C, 0.0, False)
        found = tl.where(centred * scale + _channel(bias, c, C) <= 0.0, 0.0, found)
    if MASK == 2:
        c8 = (tl.program_id(0) % channel_blocks) * (BC // 8) + tl.arange(0, BC // 8)
        place = rows[:, None].to(tl.int64) * (C // 8) + c8[None, :]
        valid = (rows[:, None] < M) & (c8[None, :] < C // 8)
        packed = tl.load(bits + place, mask=valid, other=0).to(tl.int32)
        octets = (packed[:, :, None] >> tl.arange(0, 8)[None, None, :]) & 1
        found = tl.where(tl.reshape(octets, (BM, BC)) == 0, 0.0, found)
    return found, centred


@kernel
def norm_reduce(
    g, g2, x, mean, rstd, weight, bias, bits, passed, other, mean2, partials,
    M, C, parts, tiles, channel_blocks,
    FORM: tl.constexpr, MASK: tl.constexpr, TWO: tl.constexpr, PASS: tl.constexpr,
    BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Sums of g, g * (x - mean) and, with a second norm, g * (other - mean2): (2 or 3, parts, C).

    With `PASS` the masked gradient is stored too: it is a shortcut's. Behind a pool the sums run
    over what it has chosen, and what is passed on has both users' gradients in one.
    """
    part = tl.program_id(0) // channel_blocks
    total = tl.zeros((BM, BC), tl.float32)
    product = tl.zeros((BM, BC), tl.float32)
    product2 = tl.zeros((BM, BC), tl.float32)
    for turn in range(0, tiles):
        row = (part * tiles + turn) * BM
        rows, c, at, inside = tile(M, C, row, channel_blocks, BM, BC)
        found, centred = _gradient(
            g, g2, x, mean, rstd, weight, bias, bits, rows, c, at, inside, M, C, 1, 1, 1, 1,
            MASK, TWO, 1, 1, 0, channel_blocks, BM, BC,
        )  # fmt: skip
        if PASS:
            rounded = found.to(passed.dtype.element_ty)
            tl.store(passed + at, rounded, mask=inside)
            found = rounded.to(tl.float32)
        total += found
        product += found * centred  # outside found is 0
        if FORM == 2:
            second = tl.load(other + at, mask=inside, other=0.0).to(tl.float32)
            product2 += found * (second - _channel(mean2, c, C))
    c = (tl.program_id(0) % channel_blocks) * BC + tl.arange(0, BC)
    tl.store(partials + part * C + c, tl.sum(total, 0), mask=c < C)
    tl.store(partials + (parts + part) * C + c, tl.sum(product, 0), mask=c < C)
    if FORM == 2:
        tl.store(partials + (2 * parts + part) * C + c, tl.sum(product2, 0), mask=c < C)


@kernel
def norm_finish_gradient(
    partials, rstd, weight, gw, gb, factors, M, C, parts,
    WHICH: tl.constexpr, BP: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Gradients of weight and bias, and factors (3, C): gx = f0 * g + f1 * (x - mean) + f2.

    `WHICH` sum of products is this norm's: 1 or, for the second norm, 2.
    """
    c = tl.program_id(0) * BC + tl.arange(0, BC)
    inside = c < C
    products = partials + WHICH * parts * C
    total, product = _totals(partials, products, parts, C, c, BP, BC)
    spread = tl.load(rstd + c, mask=inside, other=0.0).to(tl.float64)
    scale = tl.load(weight + c, mask=inside, other=0.0).to(tl.float64) * spread
    count = M.to(tl.float64)
    tl.store(gb + c, total.to(gb.dtype.element_ty), mask=inside)
    tl.store(gw + c, (product * spread).to(gw.dtype.element_ty), mask=inside)
    tl.store(factors + c, scale.to(tl.float32), mask=inside)
    slope = -scale * spread * spread * product / count
    tl.store(factors + C + c, slope.to(tl.float32), mask=inside)
    tl.store(factors + 2 * C + c, (-scale * total / count).to(tl.float32), mask=inside)


@kernel
def norm_gradient(
    g, g2, x, mean, rstd, weight, bias, bits, factors, gx, other, mean2, factors2, gx2,
    M, C, H, W, OH, OW, channel_blocks,
    FORM: tl.constexpr, MASK: tl.constexpr, TWO: tl.constexpr,
    K: tl.constexpr, S: tl.constexpr, PAD: tl.constexpr, BM: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Gradient of the input, and of the second norm's input."""
    row = tl.program_id(0) // channel_blocks * BM
    rows, c, at, inside = tile(M, C, row, channel_blocks, BM, BC)
    found, centred = _gradient(
        g, g2, x, mean, rstd, weight, bias, bits, rows, c, at, inside, M, C, H, W, OH, OW,
        MASK, TWO, K, S, PAD, channel_blocks, BM, BC,
    )  # fmt: skip
    value = _channel(factors, c, C) * found + _channel(factors + C, c, C) * centred
    value += _channel(factors + 2 * C, c, C)
    tl.store(gx + at, value.to(gx.dtype.element_ty), mask=inside)
    if FORM == 2:
        second = tl.load(other + at, mask=inside, other=0.0).to(tl.float32)
        second = second - _channel(mean2, c, C)
        value = _channel(factors2, c, C) * found + _channel(factors2 + C, c, C) * second
        value += _channel(factors2 + 2 * C, c, C)
        tl.store(gx2 + at, value.to(gx2.dtype.element_ty), mask=inside)
