"""Masks of attention on CUDA, a bit for each weight, drawn in place in tiles of queries and keys.

They are those of `renaissance.nn.draws.dropout` on the weights (N, H, L, S), place
``(h L + i) S + j`` of sample n, so a step has the same on a CPU, where the weights are computed in
full. Where they are stored, eight keys share a byte, (N, H, L, S / 8): 1/16 of what 16-bit weights
would take.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from renaissance.nn.ahead import Kernel

#: Where masks come from: there are none; drawn wherever one is wanted; stored by `draw`.
NONE, DRAWN, STORED = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)
_SIZES = ["H", "L", "S", "bias_n", "bias_h", "bias_l", "layer", "threshold", "rows"]


def launched(function: Any) -> Kernel:
    """A kernel whose sizes do not lead to kernels of their own."""
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    sizes = [name for name in _SIZES if name in names]
    return Kernel(triton.jit(function, do_not_specialize=sizes), sizes)


@triton.jit  # type: ignore[untyped-decorator]
def _mix(z):
    """SplitMix64's finalizer, as ``philox.h`` has it."""
    z += 0x9E3779B97F4A7C15
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB
    return z ^ (z >> 31)


@triton.jit  # type: ignore[untyped-decorator]
def _derive(key, word):
    return _mix(_mix(key) ^ (word + 0x632BE59BD9B4E019))


@triton.jit  # type: ignore[untyped-decorator]
def key_of(
    scalars, layer, n, MASK: tl.constexpr, SEED: tl.constexpr, MICRO: tl.constexpr,
    ROW: tl.constexpr, PURPOSE: tl.constexpr,
):  # fmt: skip
    """Key of a layer in this step, and number of the batch's sample `n`.

    `scalars` is region S as int64, its fields by their places.
    """
    key, sample = tl.full((), 0, tl.uint64), tl.full((), 0, tl.uint64)
    if MASK != NONE:
        seed, micro = tl.load(scalars + SEED).to(tl.uint64), tl.load(scalars + MICRO).to(tl.uint64)
        purpose = tl.full((), PURPOSE, tl.uint64)
        key = _derive(_derive(_derive(seed, purpose), layer.to(tl.uint64)), micro)
        sample = tl.load(scalars + ROW).to(tl.uint64) + n.to(tl.uint64)
    return key, sample


@triton.jit  # type: ignore[untyped-decorator]
def _product(a, factor: tl.constexpr):
    """Upper and lower word of a product, which is one instruction."""
    whole = a.to(tl.uint64) * tl.full((), factor, tl.uint64)
    return (whole >> 32).to(tl.uint32), whole.to(tl.uint32)


@triton.jit  # type: ignore[untyped-decorator]
def _philox(a, b, c, d, low, high):
    """Four words of Philox4x32-10, as ``philox.h`` has it."""
    for _ in tl.static_range(10):
        p, q = _product(a, 0xD2511F53)
        r, s = _product(c, 0xCD9E8D57)
        a, b, c, d = r ^ b ^ low, s, p ^ d ^ high, q
        low += 0x9E3779B9
        high += 0xBB67AE85
    return a, b, c, d


@triton.jit  # type: ignore[untyped-decorator]
def _four(quads, sample, key, threshold, NARROW: tl.constexpr):
    """Which places of a block of Philox stay, as four bits."""
    upper = tl.full((), 0, tl.uint32)
    if not NARROW:
        upper = (quads >> 32).to(tl.uint32)
    a, b, c, d = _philox(
        quads.to(tl.uint32), upper, sample.to(tl.uint32), (sample >> 32).to(tl.uint32),
        key.to(tl.uint32), (key >> 32).to(tl.uint32),
    )  # fmt: skip
    least = threshold.to(tl.uint32)
    low = (a >= least).to(tl.uint32) | ((b >= least).to(tl.uint32) << 1)
    return low | ((c >= least).to(tl.uint32) << 2) | ((d >= least).to(tl.uint32) << 3)


@triton.jit  # type: ignore[untyped-decorator]
def _drawn(
    key, sample, row, j, S, threshold, ALIGNED: tl.constexpr, NARROW: tl.constexpr,
    BN: tl.constexpr,
):  # fmt: skip
    """Which weights of a tile stay, a bit each, (BM, BN / 8): `row` (BM) are h L + i, `j` the first
    key, a multiple of eight.

    Where S is a multiple of four two blocks of Philox serve eight neighbouring keys, else three;
    where all places of a sample fit, their counter needs no upper word.
    """
    places = row.to(tl.int64) * S + j
    first = places >> 2
    if NARROW:
        first = first.to(tl.uint32)
    quads = first[:, None] + 2 * tl.arange(0, BN // 8)[None, :]
    bits = _four(quads, sample, key, threshold, NARROW)
    bits = bits | (_four(quads + 1, sample, key, threshold, NARROW) << 4)
    if not ALIGNED:
        bits = bits | (_four(quads + 2, sample, key, threshold, NARROW) << 8)
        bits = bits >> (places & 3).to(tl.uint32)[:, None]
    return bits


@triton.jit  # type: ignore[untyped-decorator]
def _apart(bits, BM: tl.constexpr, BN: tl.constexpr):
    """The bits (BM, BN / 8) each by itself, (BM, BN)."""
    every = (bits[:, :, None] >> tl.arange(0, 8).to(tl.uint32)[None, None, :]) & 1
    return every.reshape(BM, BN) != 0


@triton.jit  # type: ignore[untyped-decorator]
def _bytes(kept, i, start, L, S, BN: tl.constexpr):
    """Where the bits of a tile are, (BM, BN / 8), and which of them."""
    width = (S + 7) // 8
    at = start // 8 + tl.arange(0, BN // 8)
    inside = (i < L)[:, None] & (at < width)[None, :]
    return kept + i[:, None].to(tl.int64) * width + at[None, :], inside


@triton.jit  # type: ignore[untyped-decorator]
def kept_of(
    kept, key, sample, row, i, j, L, S, threshold, MASK: tl.constexpr, ALIGNED: tl.constexpr,
    NARROW: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Which weights of a tile stay, (BM, BN): drawn, or as `draw` has left them."""
    if MASK == STORED:
        place, inside = _bytes(kept, i, j, L, S, BN)
        bits = tl.load(place, mask=inside, other=0).to(tl.uint32)
    else:
        bits = _drawn(key, sample, row, j, S, threshold, ALIGNED, NARROW, BN)
    return _apart(bits, BM, BN)


@launched
def draw(
    kept, scalars, layer, threshold, H, L, S,
    SEED: tl.constexpr, MICRO: tl.constexpr, ROW: tl.constexpr, PURPOSE: tl.constexpr,
    CAUSAL: tl.constexpr, ALIGNED: tl.constexpr, NARROW: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """kept (N, H, L, S / 8): a program makes the bits of BM queries and BN keys of one head.

    Where a query looks at no key of a tile, its bits stay any.
    """
    tiles, blocks = tl.cdiv(S, BN), tl.cdiv(L, BM)
    start = tl.program_id(0) % tiles * BN
    block = tl.program_id(0) // tiles
    head, first = (block // blocks).to(tl.int64), block % blocks * BM
    i = first + tl.arange(0, BM)
    if not CAUSAL or start < first + BM:
        key, sample = key_of(scalars, layer, head // H, STORED, SEED, MICRO, ROW, PURPOSE)
        row = (head % H) * L + i
        bits = _drawn(key, sample, row, start, S, threshold, ALIGNED, NARROW, BN)
        place, inside = _bytes(kept + head * L * ((S + 7) // 8), i, start, L, S, BN)
        tl.store(place, bits.to(tl.uint8), mask=inside)
