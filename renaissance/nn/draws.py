"""What a layer draws in training: torch operations whose numbers are keyed.

Each is a pure function of (seed, attempted micro-step, layer, place in the global batch), the same
on CPU and GPU, for any number of ranks and in a replayed graph, where every replay has new ones.
Nothing is stored for backward: it draws the same numbers again. The definition is
``ext/include/renaissance/dropout.h``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from renaissance import _native, kernels

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
#: Threads of a launch at most, a device full of them: what a thread prepares serves all its places.
THREADS = 1 << 18

# Defined through Library, not through torch.library.custom_op: that imports torch's compiler at the
# operator's first call, two seconds at the start of every run.
_LIBRARY = torch.library.Library("renaissance", "FRAGMENT")
_TAGS = (torch.Tag.pt2_compliant_tag,)
_LIBRARY.define("dropout(Tensor x, Tensor scalars, int layer, float p) -> Tensor", tags=_TAGS)
_LIBRARY.define("noise(Tensor x, Tensor scalars, int layer) -> Tensor", tags=_TAGS)


def threshold_of(p: float) -> int:
    """What a word of 32 bits must reach to stay with probability 1 - p; all but one at most."""
    return min(round(p * 2**32), 2**32 - 1)


def _dense(x: Tensor) -> Tensor:
    """x side by side in memory: channels-last where it is that, else row-major."""
    if x.dim() == 4 and not x.is_contiguous():
        return x.contiguous(memory_format=torch.channels_last)
    return x.contiguous()


def _sizes(x: Tensor) -> tuple[int, int, int]:
    """Samples, elements of one, and channels when those lie side by side, else 1."""
    rows = (len(x) if x.dim() else 1) if x.numel() else 0
    channels = 1 if x.is_contiguous() else x.shape[1]
    return rows, x.numel() // max(rows, 1), channels


def _launch(name: str, x: Tensor, *arguments: Any) -> None:
    kernels.launch(
        name, kernels.blocks(min(x.numel() // 4 + _sizes(x)[0], THREADS)), kernels.BLOCK, *arguments
    )


def _dropout(x: Tensor, scalars: Tensor, layer: int, p: float) -> Tensor:
    """x times 0 or 1 / (1 - p), in x's memory order; `scalars` is region S, (bytes,) uint8."""
    x = _dense(x)
    y = torch.empty_like(x)
    sizes, dtype = _sizes(x), DTYPES[x.dtype]
    threshold, scale = threshold_of(p), 1.0 / (1.0 - p)
    if not x.is_cuda:
        places, threads = (x.data_ptr(), y.data_ptr()), torch.get_num_threads()
        draw: tuple[int, int, int] = (scalars.data_ptr(), layer, threshold)
        _native.dropout(*places, *sizes, dtype, *draw, scale, threads)
        return y
    _launch(
        "dropout", x, x.data_ptr(), y.data_ptr(), *map(np.int64, sizes), np.int32(dtype),
        scalars.data_ptr(), np.uint64(layer), np.uint32(threshold), np.float32(scale),
    )  # fmt: skip
    return y


def _noise(x: Tensor, scalars: Tensor, layer: int) -> Tensor:
    """Standard normals of x's shape, dtype and memory order."""
    y = torch.empty_like(_dense(x))
    sizes, dtype = _sizes(y), DTYPES[y.dtype]
    if not y.is_cuda:
        threads = torch.get_num_threads()
        _native.noise(y.data_ptr(), *sizes, dtype, scalars.data_ptr(), layer, threads)
        return y
    _launch(
        "noise", y, y.data_ptr(), *map(np.int64, sizes), np.int32(dtype), scalars.data_ptr(),
        np.uint64(layer),
    )  # fmt: skip
    return y


def _like(x: Tensor, scalars: Tensor, layer: int, p: float = 0.0) -> Tensor:
    if x.dim() == 4 and not x.is_contiguous():
        return torch.empty_like(x, memory_format=torch.channels_last)
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, scalars, ctx.layer, ctx.p = inputs
    ctx.save_for_backward(scalars)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
    (scalars,) = ctx.saved_tensors
    return torch.ops.renaissance.dropout(grad, scalars, ctx.layer, ctx.p), None, None, None


for _key in ("CPU", "CUDA"):
    _LIBRARY.impl("dropout", _dropout, _key)
    _LIBRARY.impl("noise", _noise, _key)
for _name in ("dropout", "noise"):
    torch.library.register_fake(f"renaissance::{_name}", _like, lib=_LIBRARY)
torch.library.register_autograd(
    "renaissance::dropout", _backward, setup_context=_save, lib=_LIBRARY
)


def dropout(x: Tensor, scalars: Tensor, layer: int, p: float) -> Tensor:
    """x with elements set to zero with probability p, the rest times 1 / (1 - p).

    Args:
        x: (N, ...) of any floating-point type.
        scalars: Region S of the task.
        layer: 0 to 2**63 - 1.
        p: At least 0 and below 1.

    Returns:
        A tensor of x's shape and dtype, dense in x's memory order.

    Raises:
        TypeError: x holds integers, or complex numbers.
    """
    if not x.is_floating_point():
        raise TypeError(f"dropout takes floating-point numbers, received {x.dtype}; x.float()")
    draw = torch.ops.renaissance.dropout
    if x.dtype in DTYPES:
        result: Tensor = draw(x, scalars, layer, p)
        return result
    kept = draw(torch.ones_like(x, dtype=torch.float32), scalars, layer, p)
    return torch.where(kept > 0, x / (1.0 - p), 0.0)


def noise(x: Tensor, scalars: Tensor, layer: int) -> Tensor:
    """Standard normals of x's shape, dtype and memory order; arguments as of `dropout`."""
    result: Tensor = torch.ops.renaissance.noise(x.detach(), scalars, layer)
    return result
