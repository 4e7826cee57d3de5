"""Linear and ReLU in one kernel forward and one backward, for small 16-bit networks on CUDA.

A multi-layer perceptron's step is bound by the latency of its kernels, not by arithmetic. So the
kernels are few: bias and ReLU belong to the product forward; backward makes the input's gradient,
the weight's and the bias's in one launch whose thread blocks share the work. A layer's backward
expects its gradient behind its own activation, and masks what it hands on by the activation of the
layer before, whose output is its input: operands then come straight from memory.

Sums run over fixed blocks in a fixed order: the bits depend on the shapes alone.

Gradients of weights and biases are returned to autograd, rounded to 16 bits, or go to a `Landing`:
float32 where the update reads them, so that no kernel needs to bring them there.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from renaissance.nn.ahead import Kernel


@dataclasses.dataclass(frozen=True)
class Tiles:
    """Rows, columns and depth of a thread block's tile, its warps and its pipeline's stages."""

    rows: int
    columns: int
    depth: int
    warps: int = 4
    stages: int = 3


#: As measured on an H200 (benchmarks/bench_mlp.py): products of some 200 rows.
FORWARD = Tiles(64, 32, 64, stages=4)
BACKWARD = Tiles(64, 64, 128, stages=2)


@Kernel
@triton.jit  # type: ignore[untyped-decorator]
def _forward(
    x, w, b, y, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    has_bias: tl.constexpr, relu: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """y (M, N) = act(x (M, K) w (N, K)^T + b): float32 sums, one rounding at the end."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
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
def _put(into, found, inside, partial, lands: tl.constexpr, is_sum: tl.constexpr):
    """A program's piece of a gradient to its place, and its sum of squares beside it."""
    if is_sum:
        found += tl.load(into, mask=inside, other=0.0)
    tl.store(into, found.to(into.dtype.element_ty), mask=inside)
    if lands:
        tl.store(partial, tl.sum(tl.where(inside, found * found, 0.0)))


@Kernel
@triton.jit  # type: ignore[untyped-decorator]
def _backward(
    g, x, w, gx, gw, gb, partials, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
    input_blocks: tl.constexpr, weight_blocks: tl.constexpr, mask_input: tl.constexpr,
    lands: tl.constexpr, is_sum: tl.constexpr,
    BM: tl.constexpr, BK: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """The first programs make gx (M, K), the next gw (N, K), the last gb (N).

    With `lands` gw and gb are float32, `is_sum` adds to them, and each of their programs leaves the
    sum of squares of what then stands there in partials (programs of gw and gb).
    """
    place = tl.program_id(0)
    blocks_k: tl.constexpr = tl.cdiv(K, BK)
    if place < input_blocks:
        rows = (place // blocks_k) * BM + tl.arange(0, BM)
        columns = (place % blocks_k) * BK + tl.arange(0, BK)
        total = tl.zeros((BM, BK), tl.float32)
        for start in range(0, N, SUM):
            n = start + tl.arange(0, SUM)
            left = tl.load(
                g + rows[:, None] * N + n[None, :],
                mask=(rows[:, None] < M) & (n[None, :] < N),
                other=0.0,
            )
            right = tl.load(
                w + n[:, None] * K + columns[None, :],
                mask=(n[:, None] < N) & (columns[None, :] < K),
                other=0.0,
            )
            total = tl.dot(left, right, total)
        inside = (rows[:, None] < M) & (columns[None, :] < K)
        at = rows[:, None] * K + columns[None, :]
        if mask_input:
            total = tl.where(tl.load(x + at, mask=inside, other=0.0) > 0, total, 0.0)
        tl.store(gx + at, total.to(gx.dtype.element_ty), mask=inside)
    elif place < input_blocks + weight_blocks:
        other = place - input_blocks
        rows = (other // blocks_k) * BM + tl.arange(0, BM)
        columns = (other % blocks_k) * BK + tl.arange(0, BK)
        total = tl.zeros((BM, BK), tl.float32)
        for start in range(0, M, SUM):
            m = start + tl.arange(0, SUM)
            left = tl.load(
                g + m[None, :] * N + rows[:, None],
                mask=(m[None, :] < M) & (rows[:, None] < N),
                other=0.0,
            )
            right = tl.load(
                x + m[:, None] * K + columns[None, :],
                mask=(m[:, None] < M) & (columns[None, :] < K),
                other=0.0,
            )
            total = tl.dot(left, right, total)
        inside = (rows[:, None] < N) & (columns[None, :] < K)
        at = rows[:, None] * K + columns[None, :]
        _put(gw + at, total, inside, partials + other, lands, is_sum)
    else:
        other = place - input_blocks
        columns = (other - weight_blocks) * BK + tl.arange(0, BK)
        bias = tl.zeros((BK,), tl.float32)
        for start in range(0, M, SUM):
            m = start + tl.arange(0, SUM)
            block = tl.load(
                g + m[:, None] * N + columns[None, :],
                mask=(m[:, None] < M) & (columns[None, :] < N),
                other=0.0,
            )
            bias += tl.sum(block.to(tl.float32), axis=0)
        _put(gb + columns, bias, columns < N, partials + other, lands, is_sum)


def forward(x: Tensor, weight: Tensor, bias: Tensor | None, relu: bool, tiles: Tiles) -> Tensor:
    """One layer: (M, K) -> (M, N)."""
    (M, K), N = x.shape, weight.shape[0]
    y = x.new_empty(M, N)
    grid = (triton.cdiv(M, tiles.rows), triton.cdiv(N, tiles.columns))
    _forward[grid](
        x, weight, bias if bias is not None else weight, y, M, N, K, bias is not None, relu,
        tiles.rows, tiles.columns, tiles.depth, num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    return y


@dataclasses.dataclass
class Place:
    """Where the gradients of one layer land: float32, dense.

    Attributes:
        weight, bias: (N, K), and (N) or None.
        partials: (n,) float32: sums of squares of the pieces of both; see `num_pieces`.
    """

    weight: Tensor
    bias: Tensor | None
    partials: Tensor


@dataclasses.dataclass
class Landing:
    """Where the gradients of all layers land.

    Attributes:
        places: In the order of the layers.
        partials: (n,) float32, sums of squares of pieces of all gradients, layer by layer.
        names: The parameter that a piece belongs to, for each of them.
        is_sum: Whether backward adds to what is there.
    """

    places: Sequence[Place]
    partials: Tensor
    names: Sequence[str]
    is_sum: bool = False

    @classmethod
    def of(cls, layers: Sequence[tuple[tuple[str, Tensor], tuple[str, Tensor] | None]]) -> Landing:
        """For layers given as (name, place of the gradient) of weight and bias, if there is one."""
        names: list[str] = []
        counts = []
        for (name, weight), bias in layers:
            in_weight, in_bias = num_pieces(weight.shape[0], weight.shape[1], BACKWARD)
            names += [name] * in_weight + ([] if bias is None else [bias[0]] * in_bias)
            counts.append(in_weight + (0 if bias is None else in_bias))
        partials = layers[0][0][1].new_zeros(len(names))
        places = [
            Place(weight, None if bias is None else bias[1], part)
            for ((_, weight), bias), part in zip(layers, partials.split(counts))
        ]
        return cls(places, partials, names)


def num_pieces(N: int, K: int, tiles: Tiles) -> tuple[int, int]:
    """Thread blocks that make the gradients of a layer's weight (N, K) and of its bias."""
    return triton.cdiv(N, tiles.rows) * triton.cdiv(K, tiles.columns), triton.cdiv(N, tiles.columns)


def backward(
    g: Tensor,
    x: Tensor,
    weight: Tensor,
    *,
    has_bias: bool,
    mask: bool | None,
    tiles: Tiles,
    place: Place | None = None,
    is_sum: bool = False,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of input, weight and bias; `mask` None leaves the input's out.

    With a `place` those of weight and bias are written there, or added with `is_sum`, and None is
    returned for them.
    """
    (M, K), N = x.shape, weight.shape[0]
    gx = torch.empty_like(x) if mask is not None else None
    gw = torch.empty_like(weight) if place is None else place.weight
    gb = None if place is None else place.bias
    if has_bias and place is None:
        gb = weight.new_empty(N)
    weight_blocks, bias_blocks = num_pieces(N, K, tiles)
    input_blocks = 0
    if mask is not None:
        input_blocks = triton.cdiv(M, tiles.rows) * triton.cdiv(K, tiles.columns)
    _backward[(input_blocks + weight_blocks + (bias_blocks if has_bias else 0),)](
        g, x, weight, gx if gx is not None else gw, gw, gb if gb is not None else gw,
        gw if place is None else place.partials, M, N, K, input_blocks, weight_blocks, bool(mask),
        place is not None, is_sum, tiles.rows, tiles.columns, tiles.depth,
        num_warps=tiles.warps, num_stages=tiles.stages,
    )  # fmt: skip
    return (gx, gw, gb) if place is None else (gx, None, None)


class _Perceptron(torch.autograd.Function):
    """All layers as one function, since each layer's backward masks for the one before."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        relus: tuple[bool, ...],
        landing: Landing | None,
        *tensors: Tensor | None,
    ) -> Tensor:
        weights, biases = tensors[0::2], tensors[1::2]
        inputs = []
        for weight, bias, relu in zip(weights, biases, relus):
            assert weight is not None
            inputs.append(x)
            x = forward(x, weight, bias, relu, FORWARD)
        ctx.save_for_backward(*inputs, *weights)
        ctx.relus, ctx.has_bias = relus, tuple(bias is not None for bias in biases)
        ctx.landing = landing
        return x

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        count, landing = len(ctx.relus), ctx.landing
        inputs, weights = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        found: list[Tensor | None] = []
        g = g.contiguous()
        gx: Tensor | None = None
        for i in reversed(range(count)):
            mask = ctx.relus[i - 1] if i else (False if ctx.needs_input_grad[0] else None)
            gx, gw, gb = backward(
                g, inputs[i], weights[i], has_bias=ctx.has_bias[i], mask=mask, tiles=BACKWARD,
                place=None if landing is None else landing.places[i],
                is_sum=landing is not None and landing.is_sum,
            )  # fmt: skip
            found = [gw, gb, *found]
            g = gx if gx is not None else g
        return gx, None, None, *found


def fused_perceptron(
    x: Tensor,
    layers: Sequence[tuple[Tensor, Tensor | None, bool]],
    landing: Landing | None = None,
) -> Tensor:
    """A chain of ``relu(x @ weight.T + bias)``, with or without the ReLU; differentiable.

    Args:
        x: (M, K) float16 or bfloat16, contiguous.
        layers: Weight (N, K), bias (N) or None, and whether a ReLU follows; the last has none.
        landing: Where backward puts the gradients of weights and biases; autograd has none of them
            then.

    Returns:
        (M, N) of the same dtype: sums in float32, rounded once a layer.
    """
    assert not layers[-1][2], "the last layer's output is not masked"
    tensors = [t for weight, bias, _ in layers for t in (weight, bias)]
    relus = tuple(relu for _, _, relu in layers)
    result: Tensor = _Perceptron.apply(  # type: ignore[no-untyped-call]
        x, relus, landing, *tensors
    )
    return result
