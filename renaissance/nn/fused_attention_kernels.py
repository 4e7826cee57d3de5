"""Attention with keyed dropout on CUDA that never holds its weights, (N, H, L, S), in memory.

One pass forward and two backward over tiles of queries and keys, after FlashAttention-2. Masks are
those of `renaissance.nn.draws.dropout` on the weights, place ``(h L + i) S + j`` of sample n, so a
step has the same on a CPU, where the weights are computed in full. Products take 16-bit operands
into float32 sums; every sum runs over fixed blocks in a fixed order, so that the bits depend on the
shapes alone.

References:
    T. Dao, "FlashAttention-2: faster attention with better parallelism and work partitioning",
    2023, arXiv:2307.08691.
"""

from __future__ import annotations

import math
from typing import Any

import triton
import triton.language as tl

from renaissance.nn.ahead import Kernel

_LOG2E = tl.constexpr(math.log2(math.e))
_SIZES = ["H", "L", "S", "bias_n", "bias_h", "bias_l", "layer", "threshold", "rows"]


def _kernel(function: Any) -> Kernel:
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
def _key(scalars, layer, SEED: tl.constexpr, MICRO: tl.constexpr, PURPOSE: tl.constexpr):
    """Key of a layer in this step; `scalars` is region S as int64, its fields by their places."""
    seed, micro = tl.load(scalars + SEED).to(tl.uint64), tl.load(scalars + MICRO).to(tl.uint64)
    purpose = tl.full((), PURPOSE, tl.uint64)
    return _derive(_derive(_derive(seed, purpose), layer.to(tl.uint64)), micro)


@triton.jit  # type: ignore[untyped-decorator]
def _kept(
    key, sample, row, j, S, threshold, ALIGNED: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """Which weights of a tile stay, (BM, BN): `row` (BM) are h L + i, `j` the first key.

    Where S is a multiple of four a block of Philox serves four neighbouring keys.
    """
    places = row.to(tl.int64) * S + j
    if ALIGNED:
        quads = (places // 4)[:, None] + tl.arange(0, BN // 4)[None, :]
    else:
        every = places[:, None] + tl.arange(0, BN)[None, :]
        quads = every // 4
    zero = (quads * 0).to(tl.uint32)
    a, b, c, d = tl.philox_impl(
        quads.to(tl.uint32), (quads >> 32).to(tl.uint32),
        zero + sample.to(tl.uint32), zero + (sample >> 32).to(tl.uint32),
        zero + key.to(tl.uint32), zero + (key >> 32).to(tl.uint32),
    )  # fmt: skip
    limit = threshold.to(tl.uint32)
    if ALIGNED:
        even = tl.interleave((a >= limit).to(tl.int8), (c >= limit).to(tl.int8))
        odd = tl.interleave((b >= limit).to(tl.int8), (d >= limit).to(tl.int8))
        kept = tl.interleave(even, odd) != 0
    else:
        word = every % 4
        drawn = tl.where(word == 0, a, tl.where(word == 1, b, tl.where(word == 2, c, d)))
        kept = drawn >= limit
    return kept


@triton.jit  # type: ignore[untyped-decorator]
def _rows(pointer, first, count, stride, BLOCK: tl.constexpr, D: tl.constexpr):
    """Rows `first` and on of D features, `stride` apart; zero from row `count` on."""
    i = first + tl.arange(0, BLOCK)
    at = i[:, None].to(tl.int64) * stride + tl.arange(0, D)[None, :]
    return tl.load(pointer + at, mask=i[:, None] < count, other=0.0)


@triton.jit  # type: ignore[untyped-decorator]
def _put(pointer, found, first, count, stride, BLOCK: tl.constexpr, D: tl.constexpr):
    i = first + tl.arange(0, BLOCK)
    at = i[:, None].to(tl.int64) * stride + tl.arange(0, D)[None, :]
    tl.store(pointer + at, found.to(pointer.dtype.element_ty), mask=i[:, None] < count)


@triton.jit  # type: ignore[untyped-decorator]
def _scores(
    q, k, bias, bias_l, i, j, L, S, scale, HAS_BIAS: tl.constexpr, CAUSAL: tl.constexpr
):  # fmt: skip
    """Scores of a tile in units of log2, float32; minus infinity where nothing is looked at."""
    found = tl.dot(q, tl.trans(k)) * (scale * _LOG2E)
    inside = (j < S)[None, :] & (i < L)[:, None]
    if HAS_BIAS:
        at = i[:, None].to(tl.int64) * bias_l + j[None, :]
        found += tl.load(bias + at, mask=inside, other=0.0).to(tl.float32) * _LOG2E
    if CAUSAL:
        inside = inside & (j[None, :] <= i[:, None])
    return tl.where(inside, found, float("-inf"))


@_kernel
def attend(
    q, k, v, bias, out, spread, scalars, layer, threshold, factor, scale, H, L, S,
    q_n, q_h, q_l, k_n, k_h, k_l, v_n, v_h, v_l, bias_n, bias_h, bias_l,
    SEED: tl.constexpr, MICRO: tl.constexpr, ROW: tl.constexpr, PURPOSE: tl.constexpr,
    HAS_BIAS: tl.constexpr, CAUSAL: tl.constexpr, ALIGNED: tl.constexpr,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """out (N, L, H, D), and the logarithm to base 2 of each query's sum of exponentials (N, H, L).

    A program makes BM rows of one head.
    """
    head = tl.program_id(1).to(tl.int64)
    n, h = head // H, head % H
    first = tl.program_id(0) * BM
    i = first + tl.arange(0, BM)
    queries = _rows(q + n * q_n + h * q_h, first, L, q_l, BM, D)
    key = _key(scalars, layer, SEED, MICRO, PURPOSE)
    sample = tl.load(scalars + ROW).to(tl.uint64) + n.to(tl.uint64)
    k += n * k_n + h * k_h
    v += n * v_n + h * v_h
    bias += n * bias_n + h * bias_h
    top = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    mixed = tl.zeros((BM, D), tl.float32)
    end = tl.minimum(S, first + BM) if CAUSAL else S
    for start in range(0, end, BN):
        j = start + tl.arange(0, BN)
        keys = _rows(k, start, S, k_l, BN, D)
        scores = _scores(queries, keys, bias, bias_l, i, j, L, S, scale, HAS_BIAS, CAUSAL)
        higher = tl.maximum(top, tl.max(scores, 1))
        at = tl.where(higher == float("-inf"), 0.0, higher)  # nothing looked at so far
        weights = tl.exp2(scores - at[:, None])
        shrink = tl.exp2(top - at)
        total = total * shrink + tl.sum(weights, 1)
        kept = _kept(key, sample, h * L + i, start, S, threshold, ALIGNED, BM, BN)
        values = _rows(v, start, S, v_l, BN, D)
        weights = tl.where(kept, weights, 0.0).to(values.dtype)
        mixed = tl.dot(weights, values, mixed * shrink[:, None])
        top = higher
    whole = tl.where(total == 0.0, 1.0, total)
    _put(out + (n * L * H + h) * D, mixed * (factor / whole)[:, None], first, L, H * D, BM, D)
    tl.store(spread + head * L + i, tl.where(total == 0.0, 0.0, top + tl.log2(whole)), mask=i < L)


@_kernel
def shares(g, out, delta, rows, D: tl.constexpr, BM: tl.constexpr):
    """Sum of g times out over the features of each row: float32 (rows)."""
    first = tl.program_id(0) * BM
    i = first + tl.arange(0, BM)
    given = _rows(g, first, rows, D, BM, D).to(tl.float32)
    tl.store(delta + i, tl.sum(given * _rows(out, first, rows, D, BM, D), 1), mask=i < rows)


@_kernel
def gradient_of_keys(
    q, k, v, bias, g, spread, delta, gk, gv, scalars, layer, threshold, factor, scale, H, L, S,
    q_n, q_h, q_l, k_n, k_h, k_l, v_n, v_h, v_l, bias_n, bias_h, bias_l,
    SEED: tl.constexpr, MICRO: tl.constexpr, ROW: tl.constexpr, PURPOSE: tl.constexpr,
    HAS_BIAS: tl.constexpr, CAUSAL: tl.constexpr, ALIGNED: tl.constexpr,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """gk and gv (N, S, H, D): a program goes through the queries for BN keys of one head."""
    head = tl.program_id(1).to(tl.int64)
    n, h = head // H, head % H
    start = tl.program_id(0) * BN
    j = start + tl.arange(0, BN)
    keys = _rows(k + n * k_n + h * k_h, start, S, k_l, BN, D)
    values = _rows(v + n * v_n + h * v_h, start, S, v_l, BN, D)
    key = _key(scalars, layer, SEED, MICRO, PURPOSE)
    sample = tl.load(scalars + ROW).to(tl.uint64) + n.to(tl.uint64)
    q += n * q_n + h * q_h
    g += (n * L * H + h) * D
    bias += n * bias_n + h * bias_h
    of_keys, of_values = tl.zeros((BN, D), tl.float32), tl.zeros((BN, D), tl.float32)
    begin = (start // BM) * BM if CAUSAL else 0
    for first in range(begin, L, BM):
        i = first + tl.arange(0, BM)
        queries = _rows(q, first, L, q_l, BM, D)
        given = _rows(g, first, L, H * D, BM, D)
        scores = _scores(queries, keys, bias, bias_l, i, j, L, S, scale, HAS_BIAS, CAUSAL)
        logs = tl.load(spread + head * L + i, mask=i < L, other=0.0)
        weights = tl.exp2(scores - logs[:, None])
        kept = _kept(key, sample, h * L + i, start, S, threshold, ALIGNED, BM, BN)
        dropped = tl.where(kept, weights * factor, 0.0).to(values.dtype)
        of_values = tl.dot(tl.trans(dropped), given, of_values)
        change = tl.where(kept, tl.dot(given, tl.trans(values)) * factor, 0.0)
        share = tl.load(delta + (n * L + i) * H + h, mask=i < L, other=0.0)
        change = (weights * (change - share[:, None])).to(keys.dtype)
        of_keys = tl.dot(tl.trans(change), queries, of_keys)
    _put(gk + (n * S * H + h) * D, of_keys * scale, start, S, H * D, BN, D)
    _put(gv + (n * S * H + h) * D, of_values, start, S, H * D, BN, D)


@_kernel
def gradient_of_queries(
    q, k, v, bias, g, spread, delta, gq, scalars, layer, threshold, factor, scale, H, L, S,
    q_n, q_h, q_l, k_n, k_h, k_l, v_n, v_h, v_l, bias_n, bias_h, bias_l,
    SEED: tl.constexpr, MICRO: tl.constexpr, ROW: tl.constexpr, PURPOSE: tl.constexpr,
    HAS_BIAS: tl.constexpr, CAUSAL: tl.constexpr, ALIGNED: tl.constexpr,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """gq (N, L, H, D): a program goes through the keys for BM queries of one head."""
    head = tl.program_id(1).to(tl.int64)
    n, h = head // H, head % H
    first = tl.program_id(0) * BM
    i = first + tl.arange(0, BM)
    queries = _rows(q + n * q_n + h * q_h, first, L, q_l, BM, D)
    given = _rows(g + (n * L * H + h) * D, first, L, H * D, BM, D)
    logs = tl.load(spread + head * L + i, mask=i < L, other=0.0)
    share = tl.load(delta + (n * L + i) * H + h, mask=i < L, other=0.0)
    key = _key(scalars, layer, SEED, MICRO, PURPOSE)
    sample = tl.load(scalars + ROW).to(tl.uint64) + n.to(tl.uint64)
    k += n * k_n + h * k_h
    v += n * v_n + h * v_h
    bias += n * bias_n + h * bias_h
    found = tl.zeros((BM, D), tl.float32)
    end = tl.minimum(S, first + BM) if CAUSAL else S
    for start in range(0, end, BN):
        j = start + tl.arange(0, BN)
        keys, values = _rows(k, start, S, k_l, BN, D), _rows(v, start, S, v_l, BN, D)
        scores = _scores(queries, keys, bias, bias_l, i, j, L, S, scale, HAS_BIAS, CAUSAL)
        weights = tl.exp2(scores - logs[:, None])
        kept = _kept(key, sample, h * L + i, start, S, threshold, ALIGNED, BM, BN)
        change = tl.where(kept, tl.dot(given, tl.trans(values)) * factor, 0.0)
        change = (weights * (change - share[:, None])).to(keys.dtype)
        found = tl.dot(change, keys, found)
    _put(gq + (n * L * H + h) * D, found * scale, first, L, H * D, BM, D)
