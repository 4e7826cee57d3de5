"""Attention with keyed dropout on CUDA that never holds its weights, (N, H, L, S), in memory.

One pass forward and two backward over tiles of queries and keys, after FlashAttention-2, with masks
from `renaissance.nn.fused_masks`. Products take 16-bit operands
into float32 sums; every sum runs over fixed blocks in a fixed order, so that the bits depend on the
shapes alone.

References:
    T. Dao, "FlashAttention-2: faster attention with better parallelism and work partitioning",
    2023, arXiv:2307.08691.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

from renaissance.nn.fused_masks import NONE, kept_of, key_of, launched

_LOG2E = tl.constexpr(math.log2(math.e))


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
    q, k, bias, bias_l, i, j, L, S, scale,
    HAS_BIAS: tl.constexpr, CAUSAL: tl.constexpr, EDGE: tl.constexpr,
):  # fmt: skip
    """Scores of a tile, float32; at an edge minus infinity where nothing is looked at.

    `scale` is still to be applied, but with a bias.
    """
    found = tl.dot(q, tl.trans(k))
    if HAS_BIAS:
        inside = (j < S)[None, :] & (i < L)[:, None]
        at = i[:, None].to(tl.int64) * bias_l + j[None, :]
        found = found * scale + tl.load(bias + at, mask=inside, other=0.0).to(tl.float32)
    if EDGE:
        shown = (j < S)[None, :]
        if CAUSAL:
            shown = shown & (j[None, :] <= i[:, None])
        found = tl.where(shown, found, float("-inf"))
    return found


@triton.jit  # type: ignore[untyped-decorator]
def _above(scores, peak, scale, HAS_BIAS: tl.constexpr):
    """Scores less their row's `peak`, as powers of two.

    A bias that hides by a large finite number leaves of a score, and of a sum with one, few digits
    or none: what is that large is taken from its like before anything else.
    """
    if HAS_BIAS:
        found = (scores - peak[:, None]) * _LOG2E
    else:
        found = scores * (scale * _LOG2E) - (peak * (scale * _LOG2E))[:, None]
    return found


@triton.jit  # type: ignore[untyped-decorator]
def _weights(scores, peak, logs, scale, HAS_BIAS: tl.constexpr):
    """Weights of a tile, from what `attend` left of their rows; with a bias none is above 1."""
    if HAS_BIAS:
        found = tl.minimum(scores - peak[:, None], 0.0) * _LOG2E - logs[:, None]
    else:
        found = scores * (scale * _LOG2E) - (peak * (scale * _LOG2E) + logs)[:, None]
    return tl.exp2(found)


@triton.jit  # type: ignore[untyped-decorator]
def _place(length, H, BLOCK: tl.constexpr):
    """Sample, head and first row of a program; those of one head are neighbours.

    All are in the first dimension of the grid: the others end at 65,535.
    """
    blocks = tl.cdiv(length, BLOCK)
    head = (tl.program_id(0) // blocks).to(tl.int64)
    return head // H, head % H, tl.program_id(0) % blocks * BLOCK


@triton.jit  # type: ignore[untyped-decorator]
def _look(
    queries, k, v, bias, kept, top, total, mixed, key, sample, row, start, i, threshold, scale, L,
    S, k_l, v_l, bias_l, MASK: tl.constexpr, HAS_BIAS: tl.constexpr, CAUSAL: tl.constexpr,
    ALIGNED: tl.constexpr, NARROW: tl.constexpr, EDGE: tl.constexpr, D: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Largest score, sum of exponentials and mixed values after BN more keys."""
    j = start + tl.arange(0, BN)
    keys = _rows(k, start, S, k_l, BN, D)
    scores = _scores(queries, keys, bias, bias_l, i, j, L, S, scale, HAS_BIAS, CAUSAL, EDGE)
    higher = tl.maximum(top, tl.max(scores, 1))
    peak = tl.where(higher == float("-inf"), 0.0, higher)  # nothing looked at so far
    weights = tl.exp2(_above(scores, peak, scale, HAS_BIAS))
    shrink = tl.exp2((top - peak) * (_LOG2E if HAS_BIAS else scale * _LOG2E))
    total = total * shrink + tl.sum(weights, 1)
    if MASK != NONE:
        is_kept = kept_of(
            kept, key, sample, row, i, start, L, S, threshold, MASK, ALIGNED, NARROW, BM, BN
        )
        weights = tl.where(is_kept, weights, 0.0)
    values = _rows(v, start, S, v_l, BN, D)
    weights = weights.to(values.dtype)
    return higher, total, tl.dot(weights, values, mixed * shrink[:, None])


@launched
def attend(
    q, k, v, bias, kept, out, spread, scalars, layer, threshold, factor, scale, H, L, S,
    q_n, q_h, q_l, k_n, k_h, k_l, v_n, v_h, v_l, bias_n, bias_h, bias_l,
    SEED: tl.constexpr, MICRO: tl.constexpr, ROW: tl.constexpr, PURPOSE: tl.constexpr,
    MASK: tl.constexpr, HAS_BIAS: tl.constexpr, CAUSAL: tl.constexpr, ALIGNED: tl.constexpr,
    NARROW: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """out (N, L, H, D), and of each query its highest score and a sum of exponentials (N, H, 2, L).

    The sum is that of the scores less the highest, its logarithm to base 2. A program makes BM rows
    of one head.
    """
    n, h, first = _place(L, H, BM)
    i = first + tl.arange(0, BM)
    queries = _rows(q + n * q_n + h * q_h, first, L, q_l, BM, D)
    key, sample = key_of(scalars, layer, n, MASK, SEED, MICRO, ROW, PURPOSE)
    k += n * k_n + h * k_h
    v += n * v_n + h * v_h
    bias += n * bias_n + h * bias_h
    kept += (n * H + h) * L * ((S + 7) // 8)
    top = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    mixed = tl.zeros((BM, D), tl.float32)
    end = tl.minimum(S, first + BM) if CAUSAL else S
    edge = (tl.minimum(S, first + 1) if CAUSAL else S) // BN * BN  # from here on some are hidden
    for start in range(0, edge, BN):
        top, total, mixed = _look(
            queries, k, v, bias, kept, top, total, mixed, key, sample, h * L + i, start, i,
            threshold, scale, L, S, k_l, v_l, bias_l,
            MASK, HAS_BIAS, CAUSAL, ALIGNED, NARROW, False, D, BM, BN,
        )  # fmt: skip
    for start in range(edge, end, BN):
        top, total, mixed = _look(
            queries, k, v, bias, kept, top, total, mixed, key, sample, h * L + i, start, i,
            threshold, scale, L, S, k_l, v_l, bias_l,
            MASK, HAS_BIAS, CAUSAL, ALIGNED, NARROW, True, D, BM, BN,
        )  # fmt: skip
    whole = tl.where(total == 0.0, 1.0, total)
    _put(out + (n * L * H + h) * D, mixed * (factor / whole)[:, None], first, L, H * D, BM, D)
    spread += (n * H + h) * 2 * L
    tl.store(spread + i, tl.where(total == 0.0, 0.0, top), mask=i < L)
    tl.store(spread + L + i, tl.log2(whole), mask=i < L)


@launched
def shares(g, out, delta, rows, D: tl.constexpr, BM: tl.constexpr):
    """Sum of g times out over the features of each row: float32 (rows)."""
    first = tl.program_id(0) * BM
    i = first + tl.arange(0, BM)
    given = _rows(g, first, rows, D, BM, D).to(tl.float32)
    tl.store(delta + i, tl.sum(given * _rows(out, first, rows, D, BM, D), 1), mask=i < rows)


@triton.jit  # type: ignore[untyped-decorator]
def _change(
    queries, given, keys, values, bias, kept, peak, logs, share, key, sample, row, start, i,
    threshold, factor, scale, L, S, bias_l, MASK: tl.constexpr, HAS_BIAS: tl.constexpr,
    CAUSAL: tl.constexpr, ALIGNED: tl.constexpr, NARROW: tl.constexpr, EDGE: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Kept weights of a tile, and the scores' gradient over `scale * factor`, (BM, BN) float32."""
    j = start + tl.arange(0, BN)
    scores = _scores(queries, keys, bias, bias_l, i, j, L, S, scale, HAS_BIAS, CAUSAL, EDGE)
    weights = _weights(scores, peak, logs, scale, HAS_BIAS)
    change = tl.dot(given, tl.trans(values))
    stay = weights
    if MASK != NONE:
        is_kept = kept_of(
            kept, key, sample, row, i, start, L, S, threshold, MASK, ALIGNED, NARROW, BM, BN
        )
        change = tl.where(is_kept, change, 0.0)
        stay = tl.where(is_kept, weights, 0.0)
    return stay, weights * (change - (share / factor)[:, None])


@triton.jit  # type: ignore[untyped-decorator]
def _from_queries(
    q, g, keys, values, bias, kept, spread, delta, of_keys, of_values, key, sample, start, first,
    n, h, threshold, factor, scale, H, L, S, q_l, bias_l,
    MASK: tl.constexpr, HAS_BIAS: tl.constexpr, CAUSAL: tl.constexpr, ALIGNED: tl.constexpr,
    NARROW: tl.constexpr, EDGE: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Sums of both gradients after BM more queries."""
    i = first + tl.arange(0, BM)
    queries, given = _rows(q, first, L, q_l, BM, D), _rows(g, first, L, H * D, BM, D)
    spread += (n * H + h) * 2 * L
    peak = tl.load(spread + i, mask=i < L, other=0.0)
    logs = tl.load(spread + L + i, mask=i < L, other=0.0)
    share = tl.load(delta + (n * L + i) * H + h, mask=i < L, other=0.0)
    weights, change = _change(
        queries, given, keys, values, bias, kept, peak, logs, share, key, sample, h * L + i, start,
        i, threshold, factor, scale, L, S, bias_l, MASK, HAS_BIAS, CAUSAL, ALIGNED, NARROW, EDGE,
        BM, BN,
    )  # fmt: skip
    of_values = tl.dot(tl.trans(weights.to(given.dtype)), given, of_values)
    return tl.dot(tl.trans(change.to(queries.dtype)), queries, of_keys), of_values


@launched
def gradient_of_keys(
    q, k, v, bias, kept, g, spread, delta, gk, gv, scalars, layer, threshold, factor, scale,
    H, L, S,
    q_n, q_h, q_l, k_n, k_h, k_l, v_n, v_h, v_l, bias_n, bias_h, bias_l,
    SEED: tl.constexpr, MICRO: tl.constexpr, ROW: tl.constexpr, PURPOSE: tl.constexpr,
    MASK: tl.constexpr, HAS_BIAS: tl.constexpr, CAUSAL: tl.constexpr, ALIGNED: tl.constexpr,
    NARROW: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """gk and gv (N, S, H, D): a program goes through the queries for BN keys of one head.

    Keys behind the end have rows of their own, which are not stored, and need no hiding.
    """
    n, h, start = _place(S, H, BN)
    keys = _rows(k + n * k_n + h * k_h, start, S, k_l, BN, D)
    values = _rows(v + n * v_n + h * v_h, start, S, v_l, BN, D)
    key, sample = key_of(scalars, layer, n, MASK, SEED, MICRO, ROW, PURPOSE)
    q += n * q_n + h * q_h
    g += (n * L * H + h) * D
    bias += n * bias_n + h * bias_h
    kept += (n * H + h) * L * ((S + 7) // 8)
    of_keys, of_values = tl.zeros((BN, D), tl.float32), tl.zeros((BN, D), tl.float32)
    begin = start // BM * BM if CAUSAL else 0
    edge = tl.minimum(tl.cdiv(start + BN - 1, BM) * BM, L) if CAUSAL else 0  # all seen from here
    for first in range(begin, edge, BM):
        of_keys, of_values = _from_queries(
            q, g, keys, values, bias, kept, spread, delta, of_keys, of_values, key, sample, start,
            first, n, h, threshold, factor, scale, H, L, S, q_l, bias_l,
            MASK, HAS_BIAS, CAUSAL, ALIGNED, NARROW, True, D, BM, BN,
        )  # fmt: skip
    for first in range(edge, L, BM):
        of_keys, of_values = _from_queries(
            q, g, keys, values, bias, kept, spread, delta, of_keys, of_values, key, sample, start,
            first, n, h, threshold, factor, scale, H, L, S, q_l, bias_l,
            MASK, HAS_BIAS, CAUSAL, ALIGNED, NARROW, False, D, BM, BN,
        )  # fmt: skip
    _put(gk + (n * S * H + h) * D, of_keys * (scale * factor), start, S, H * D, BN, D)
    _put(gv + (n * S * H + h) * D, of_values * factor, start, S, H * D, BN, D)


@triton.jit  # type: ignore[untyped-decorator]
def _from_keys(
    queries, given, k, v, bias, kept, peak, logs, share, found, key, sample, row, start, i,
    threshold, factor, scale, L, S, k_l, v_l, bias_l, MASK: tl.constexpr, HAS_BIAS: tl.constexpr,
    CAUSAL: tl.constexpr, ALIGNED: tl.constexpr, NARROW: tl.constexpr, EDGE: tl.constexpr,
    D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Sum of the queries' gradient after BN more keys."""
    keys, values = _rows(k, start, S, k_l, BN, D), _rows(v, start, S, v_l, BN, D)
    _, change = _change(
        queries, given, keys, values, bias, kept, peak, logs, share, key, sample, row, start, i,
        threshold, factor, scale, L, S, bias_l, MASK, HAS_BIAS, CAUSAL, ALIGNED, NARROW, EDGE,
        BM, BN,
    )  # fmt: skip
    return tl.dot(change.to(keys.dtype), keys, found)


@launched
def gradient_of_queries(
    q, k, v, bias, kept, g, spread, delta, gq, scalars, layer, threshold, factor, scale, H, L, S,
    q_n, q_h, q_l, k_n, k_h, k_l, v_n, v_h, v_l, bias_n, bias_h, bias_l,
    SEED: tl.constexpr, MICRO: tl.constexpr, ROW: tl.constexpr, PURPOSE: tl.constexpr,
    MASK: tl.constexpr, HAS_BIAS: tl.constexpr, CAUSAL: tl.constexpr, ALIGNED: tl.constexpr,
    NARROW: tl.constexpr, D: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """gq (N, L, H, D): a program goes through the keys for BM queries of one head."""
    n, h, first = _place(L, H, BM)
    i = first + tl.arange(0, BM)
    queries = _rows(q + n * q_n + h * q_h, first, L, q_l, BM, D)
    given = _rows(g + (n * L * H + h) * D, first, L, H * D, BM, D)
    spread += (n * H + h) * 2 * L
    peak = tl.load(spread + i, mask=i < L, other=0.0)
    logs = tl.load(spread + L + i, mask=i < L, other=0.0)
    share = tl.load(delta + (n * L + i) * H + h, mask=i < L, other=0.0)
    key, sample = key_of(scalars, layer, n, MASK, SEED, MICRO, ROW, PURPOSE)
    k += n * k_n + h * k_h
    v += n * v_n + h * v_h
    bias += n * bias_n + h * bias_h
    kept += (n * H + h) * L * ((S + 7) // 8)
    found = tl.zeros((BM, D), tl.float32)
    end = tl.minimum(S, first + BM) if CAUSAL else S
    edge = (tl.minimum(S, first + 1) if CAUSAL else S) // BN * BN
    for start in range(0, edge, BN):
        found = _from_keys(
            queries, given, k, v, bias, kept, peak, logs, share, found, key, sample, h * L + i,
            start, i, threshold, factor, scale, L, S, k_l, v_l, bias_l,
            MASK, HAS_BIAS, CAUSAL, ALIGNED, NARROW, False, D, BM, BN,
        )  # fmt: skip
    for start in range(edge, end, BN):
        found = _from_keys(
            queries, given, k, v, bias, kept, peak, logs, share, found, key, sample, h * L + i,
            start, i, threshold, factor, scale, L, S, k_l, v_l, bias_l,
            MASK, HAS_BIAS, CAUSAL, ALIGNED, NARROW, True, D, BM, BN,
        )  # fmt: skip
    _put(gq + (n * L * H + h) * D, found * (scale * factor), first, L, H * D, BM, D)
