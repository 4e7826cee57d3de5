"""Cross-entropy, its gradient, accuracy and the step's sums in one launch, on CUDA.

For the few classes of a small network, whose step is bound by the number of kernels. The gradient
of the logits is made together with the loss, from the seed that stands in region S, and handed out
in backward.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from renaissance import kernels

MAX_CLASSES, MAX_ROWS = 64, 8192  # one block does all of it
THREADS = 1024  # of that block; the first 256 take rows
_DTYPES = {torch.bfloat16: 1, torch.float16: 2}


class _Classify(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, z: Tensor, target: Tensor, smoothing: float, scalars: Tensor, sums: Tensor
    ) -> tuple[Tensor, Tensor]:
        gradient = torch.empty_like(z) if ctx.needs_input_grad[0] else None
        loss, weight = z.new_empty(2, dtype=torch.float32).unbind()
        kernels.launch(
            "classify",
            1,
            THREADS,
            z.data_ptr(),
            np.int32(_DTYPES[z.dtype]),
            target.data_ptr(),
            0 if gradient is None else gradient.data_ptr(),
            np.int32(z.shape[0]),
            np.int32(z.shape[1]),
            np.float32(smoothing),
            scalars.data_ptr(),
            sums.data_ptr(),
            loss.data_ptr(),
            weight.data_ptr(),
        )
        ctx.mark_non_differentiable(weight)
        ctx.set_materialize_grads(False)
        ctx.gradient = gradient
        return loss, weight

    @staticmethod
    def backward(ctx: Any, g: Tensor, *_: Tensor) -> tuple[Tensor, None, None, None, None]:
        gradient, ctx.gradient = ctx.gradient, None
        return gradient, None, None, None, None


def classify(
    z: Tensor, target: Tensor, *, smoothing: float, scalars: Tensor, sums: Tensor
) -> tuple[Tensor, Tensor]:
    """Loss sum (differentiable) and weight of a batch, 0-d float32; its sums are added to `sums`.

    Backward gives the gradient for the seed in region S, whatever it is called with: a step seeds
    its backward with just that.

    Args:
        z: Logits (M, C), bfloat16 or float16, contiguous, up to 8192 rows of up to 64 classes.
        target: Class numbers (M) int64, each from 0 to C - 1.
        smoothing: Label smoothing, 0 to 1.
        scalars: Region S.
        sums: (4,) float64: loss sum, weight, correct, counted.
    """
    result: tuple[Tensor, Tensor] = _Classify.apply(z, target, smoothing, scalars, sums)
    return result
