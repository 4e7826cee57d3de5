"""The layers that `patterns` puts into a network's graph: over its own modules, without state."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PADDED = 8  #: Channels in a first convolution: what tensor cores take in one 16-byte read.


class FusedNorm(nn.Module):
    """``pool(relu(norm(x) + other))`` in as few passes over memory as it takes, on CUDA.

    Elsewhere, and where gradients are wanted of a batch-norm in evaluation mode, torch's own
    layers run.

    Args:
        norm: Its tensors are used and its running statistics updated; it stays where it is.
        second: A batch-norm of `other`, or None.
        relu: Whether a ReLU follows.
        pool: A max-pool behind the ReLU, or None.
        before: The convolution whose bias was left out before the norm, or None: batch statistics
            take it away again, only the running mean must know of it.

    Shape:
        x and other (N, C, H, W), C a multiple of 8; twice the output, in the same memory, so that
        the gradients of two users are added in the kernels.
    """

    def __init__(
        self,
        norm: nn.BatchNorm2d,
        second: nn.BatchNorm2d | None = None,
        *,
        relu: bool = False,
        pool: nn.MaxPool2d | None = None,
        before: nn.Conv2d | None = None,
    ) -> None:
        super().__init__()
        self._norms, self._before = (norm, second), (before,)  # in tuples: no modules of this one
        self.relu = relu
        self._pool = (pool,)

    def forward(self, x: Tensor, other: Tensor | None = None) -> tuple[Tensor, Tensor]:
        norm, second = self._norms
        is_alike = second is None or second.training == norm.training
        if not x.is_cuda or not is_alike or (not norm.training and torch.is_grad_enabled()):
            y = self._plain(x, other)
            return y, y
        return self._fast(x, other)

    def _fast(self, x: Tensor, other: Tensor | None) -> tuple[Tensor, Tensor]:
        from renaissance.nn import fused_norm as fused

        (norm, second), (before,), (pool,) = self._norms, self._before, self._pool
        window = None
        if pool is not None:
            window = fused.Window.of(pool)
        first = fused.Norm.of(norm, None if before is None else before.bias)
        by = None if second is None else fused.Norm.of(second)
        if norm.training:
            return fused.fused_norm(x, first, other, by, relu=self.relu, window=window)
        y = fused.evaluated_norm(x, first, other, by, relu=self.relu, window=window)
        return y, y

    def _plain(self, x: Tensor, other: Tensor | None) -> Tensor:
        (norm, second), (before,), (pool,) = self._norms, self._before, self._pool
        if before is not None and before.bias is not None:
            x = x + before.bias[:, None, None]
        y: Tensor = norm(x)
        if other is not None:
            y = y + (other if second is None else second(other))
        y = F.relu(y) if self.relu else y
        return y if pool is None else pool(y)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        (norm, second), (pool,) = self._norms, self._pool
        parts = [
            str(norm),
            f"+ {second}" if second else "",
            "relu" if self.relu else "",
            pool or "",
        ]
        return ", ".join(str(part) for part in parts if part)


class PaddedConvolution(nn.Module):
    """A convolution over pictures of few channels as one over `PADDED`, the others being zero.

    Args:
        convolution: Its weight is used; it stays where it is.
        is_biased: Whether its bias is added.
    """

    def __init__(self, convolution: nn.Conv2d, *, is_biased: bool) -> None:
        super().__init__()
        self._convolution, self.is_biased = (convolution,), is_biased
        self._missing = PADDED - convolution.in_channels if self.helps(convolution) else 0

    @staticmethod
    def helps(convolution: nn.Conv2d) -> bool:
        """Whether it has fewer channels than tensor cores read at once, and can be padded."""
        return convolution.groups == 1 and convolution.in_channels < PADDED

    def forward(self, x: Tensor) -> Tensor:
        (convolution,) = self._convolution
        weight = convolution.weight
        if self._missing and x.is_cuda and x.dtype in (torch.float16, torch.bfloat16):
            pad = (0, 0, 0, 0, 0, self._missing)
            x, weight = F.pad(x, pad), F.pad(weight, pad)
        bias = convolution.bias if self.is_biased else None
        return convolution._conv_forward(x, weight, bias)

    def extra_repr(self) -> str:
        return str(self._convolution[0])
