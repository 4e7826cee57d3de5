"""The layers that `patterns` puts into a network's graph: over its own modules, without state."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from renaissance.nn.beside import Beside, Form, Sizes, awaited, convolution

_FEW = 4  #: Channels of a picture.
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


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
        if other is not None:  # torch would spread a smaller one, or choose the wider type
            is_alike = is_alike and other.shape == x.shape and other.dtype == x.dtype
        is_known = x.is_cuda and x.dtype in _DTYPES
        if is_known and is_alike and (norm.training or not self._needs_gradient(x, other)):
            return self._fast(x, other)
        y = self._plain(x, other)
        return y, y

    def _needs_gradient(self, *inputs: Tensor | None) -> bool:
        """Whether a gradient goes through here: in evaluation mode the kernels have none."""
        own = [t for norm in self._norms if norm is not None for t in (norm.weight, norm.bias)]
        tensors = [t for t in (*inputs, *own) if t is not None]
        return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors)

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
        return y if pool is None else _pooled(pool, y)

    def extra_repr(self) -> str:
        (norm, second), (pool,) = self._norms, self._pool
        parts = [
            str(norm),
            f"+ {second}" if second else "",
            "relu" if self.relu else "",
            pool or "",
        ]
        return ", ".join(str(part) for part in parts if part)


class FusedPool(nn.Module):
    """A max-pool of small square windows whose backward adds in a fixed order, on CUDA.

    Args:
        pool: Whose sizes are single numbers.

    Shape: as the pool's.
    """

    def __init__(self, pool: nn.MaxPool2d) -> None:
        super().__init__()
        self._pool = (pool,)

    def forward(self, x: Tensor) -> Tensor:
        return _pooled(*self._pool, x)

    def extra_repr(self) -> str:
        return str(*self._pool)


def _pooled(pool: nn.MaxPool2d, x: Tensor) -> Tensor:
    if not x.is_cuda or x.dtype not in _DTYPES:
        y: Tensor = pool(x)
        return y
    from renaissance.nn.fused_norm import Window
    from renaissance.nn.fused_pool import max_pool

    return max_pool(x, Window.of(pool))


class FusedConvolution(nn.Module):
    """A convolution in a form of our own: without its bias, over few channels, of single pixels.

    Tensor cores read at least 8 channels at once: of the pictures' 3, what each output reads is
    written side by side first, and the convolution is one matrix product. A strided 1x1
    convolution, whose deterministic forms are slow, reads its pixels side by side too. The sums are
    the same.

    Args:
        convolution: Its tensors are used; it stays where it is.
        is_biased: Whether its bias is added.
        is_first: Whether it reads the pictures, which need no gradient.
        beside: Where the gradients of its weight and bias are made, after `begin`; None makes them
            in their turn.

    Shape: as the convolution's.
    """

    def __init__(
        self,
        convolution: nn.Conv2d,
        *,
        is_biased: bool,
        is_first: bool,
        beside: Beside | None = None,
    ) -> None:
        super().__init__()
        self._convolution, self.is_biased = (convolution,), is_biased
        self._is_spread = is_first and self.has_few(convolution)
        self._is_sparse = self.is_sparse(convolution)
        self._beside = beside
        self._awaited: tuple[Tensor, Tensor | None] | None = None

    @staticmethod
    def is_sparse(convolution: nn.Conv2d) -> bool:
        """Whether it reads every so many-th pixel and nothing else."""
        stride = convolution.stride
        return (
            convolution.kernel_size == (1, 1)
            and stride[0] == stride[1] > 1
            and convolution.padding in ((0, 0), "valid")
        )

    @staticmethod
    def has_few(convolution: nn.Conv2d) -> bool:
        """Whether it has too few channels, and a form that can be written otherwise."""
        side, padding = convolution.kernel_size[0], convolution.padding
        return (
            convolution.groups == 1
            and convolution.in_channels <= _FEW
            and convolution.kernel_size == (side, side)
            and isinstance(padding, tuple)
            and padding[0] == padding[1]
            and convolution.padding_mode == "zeros"
            and convolution.dilation == (1, 1)
            and convolution.stride[0] == convolution.stride[1]
        )

    def forward(self, x: Tensor) -> Tensor:
        (layer,) = self._convolution
        bias = layer.bias if self.is_biased else None
        is_known = x.is_cuda and x.dtype in _DTYPES
        if is_known and self._is_sparse:
            return self._dense(x, layer, bias)
        if is_known and self._is_spread and x.dtype != torch.float32 and not x.requires_grad:
            return self._product(x, layer, bias)
        if is_known and layer.padding_mode == "zeros" and isinstance(layer.padding, tuple):
            return self._convolve(x, layer, bias, layer.stride, layer.padding)
        y: Tensor = layer._conv_forward(x, layer.weight, bias)
        return y

    def begin(self) -> None:
        """Called before a forward: its gradients are then the last that backward waits for."""
        (layer,) = self._convolution
        self._awaited = None
        if self._beside is None or self._is_spread:
            return
        if torch.is_grad_enabled() and layer.weight.requires_grad:
            bias = layer.bias if self.is_biased else None
            bias = None if bias is None else awaited(bias, self._beside)
            self._awaited = awaited(layer.weight, self._beside), bias

    def _convolve(
        self, x: Tensor, layer: nn.Conv2d, bias: Tensor | None, stride: Sizes, padding: Sizes
    ) -> Tensor:
        """The convolution over other pixels, if need be; weight gradients beside the rest."""
        form = Form(stride, padding, layer.dilation, layer.groups)
        found, self._awaited = self._awaited, None  # for one use
        if self._beside is None or found is None or x.dtype != layer.weight.dtype:
            return F.conv2d(x, layer.weight, bias, *form)
        return convolution(x, *found, form, self._beside)

    def _dense(self, x: Tensor, layer: nn.Conv2d, bias: Tensor | None) -> Tensor:
        from renaissance.nn.fused_pixels import every

        return self._convolve(every(x, int(layer.stride[0])), layer, bias, (1, 1), (0, 0))

    def _product(self, x: Tensor, convolution: nn.Conv2d, bias: Tensor | None) -> Tensor:
        from renaissance.nn.fused_norm import Window
        from renaissance.nn.fused_pixels import patches

        side, stride, padding = (
            int(sizes[0])
            for sizes in (convolution.kernel_size, convolution.stride, convolution.padding)
        )
        read = patches(x, Window(side, stride, padding))
        weight = convolution.weight.permute(0, 2, 3, 1).flatten(1)  # in channels-last order
        weight = F.pad(weight, (0, read.shape[1] - weight.shape[1]))
        return F.conv2d(read, weight[:, :, None, None], bias)

    def extra_repr(self) -> str:
        return str(self._convolution[0])


class FusedMean(nn.Module):
    """The mean over height and width; backward is channels-last like everything around it.

    Shape: (N, C, H, W) -> (N, C, 1, 1).
    """

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = _Mean.apply(x)
        return result


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.shape = x.shape
        return x.mean((-2, -1), keepdim=True)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        share = g / (ctx.shape[2] * ctx.shape[3])
        whole: Tensor = share.expand(ctx.shape)
        return whole.contiguous(memory_format=torch.channels_last)
