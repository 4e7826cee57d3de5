"""Fills of parameters, the same bits on CPU and GPU.

The value of an element is a function of (seed, parameter name, its index in row-major order of the
logical shape) and of its rule: adding a layer moves nobody else's, and neither threads, nor memory
layout, nor the device matter. Scaling is one float32 multiplication, rounded on its own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from renaissance import _native, kernels
from renaissance.random import INIT, derive


@dataclass(frozen=True)
class Fill:
    """A rule made concrete for one parameter.

    Attributes:
        kind: "keep", "constant", "normal", "trunc_normal" or "uniform".
        scale: The constant, the deviation, or the bound.
        source: Where it comes from, for reports: ``"kaiming_normal fan_out 576"``.
        zero_row: Row that is zero (an embedding's padding index), or None.
    """

    kind: str
    scale: float
    source: str
    zero_row: int | None = None


def fill(
    tensor: Tensor, rule: Fill, seed: int, name: str, device: torch.device | None = None
) -> None:
    """Fill a parameter in place; equal bits on every device, layout and number of threads.

    The rule "keep" leaves it as it is.

    Args:
        tensor: Any strides; 16-bit types get the float32 value rounded once.
        rule: From `Initializer.resolve`.
        seed: The task's, 0 to 2**64 - 1.
        name: The parameter's name, a part of the key.
        device: Where the numbers are drawn; the tensor's own by default.
    """
    if rule.kind == "keep" or not tensor.numel():
        return
    with torch.no_grad():
        if rule.kind == "constant":
            tensor.fill_(rule.scale)
        else:
            drawn = _draw(
                rule.kind, tensor.numel(), derive(seed, INIT, name), device or tensor.device
            )
            if rule.kind == "uniform":
                drawn.mul_(2.0).sub_(1.0)  # both exact: [-1, 1) in steps of 2^-23
            tensor.copy_(drawn.mul_(rule.scale).view(tensor.shape))
        if rule.zero_row is not None:
            tensor[rule.zero_row].zero_()


def _draw(kind: str, count: int, key: int, device: torch.device) -> Tensor:
    """`count` standard draws in index order, (count,) float32 on the device."""
    out = torch.empty(count, dtype=torch.float32, device=device)
    if out.is_cuda:
        threads = (count + 1) // 2 if kind == "normal" else count
        with torch.cuda.device(device):
            kernels.launch(
                f"fill_{kind}",
                kernels.blocks(threads),
                kernels.BLOCK,
                out.data_ptr(),
                np.int64(count),
                np.uint64(key),
                np.uint64(0),
            )
        return out
    host = {
        "uniform": _native.fill_uniform,
        "normal": _native.fill_normal,
        "trunc_normal": _native.fill_trunc_normal,
    }
    host[kind](out.data_ptr(), count, key, 0, torch.get_num_threads())
    return out
