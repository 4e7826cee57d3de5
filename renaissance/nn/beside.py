"""Weight gradients of convolutions, beside the rest of backward.

A weight's gradient is wanted only when backward is over, while the input's is waited for by the
layer before. So the first runs on a stream of its own, beside the passes over memory of the
batch-norms that come next: one keeps the tensor cores busy, the other the memory. The bits are
those of one stream, for no sum is split or ordered otherwise.

Nothing may read such a gradient before the streams have met. So a weight goes through `awaited` on
its way into a convolution, and its gradient on the way back: autograd may add others to it, hand it
to a hook or turn it into another type, all of it behind that.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

#: Gradients that may be under way at once: what they read stays in memory until they are made.
LAG = 2

Sizes = tuple[int, ...]


class Form(NamedTuple):
    """How a convolution reads: what `torch.nn.functional.conv2d` takes behind the bias."""

    stride: Sizes
    padding: Sizes
    dilation: Sizes
    groups: int


@functools.cache
def _side(device: int) -> torch.cuda.Stream:
    """The one stream of all weight gradients: cuBLAS keeps a workspace for each it runs on."""
    return torch.cuda.Stream(device)


class Beside:
    """A stream beside the current one, and what its work reads.

    Attributes:
        is_on: Whether there is one. Where the host launches every kernel anew it is what takes
            time, and more for two streams; the work runs in its turn then.
    """

    is_on = False

    def __init__(self) -> None:
        self._under_way: collections.deque[tuple[torch.cuda.Event, tuple[Tensor, ...]]] = (
            collections.deque()
        )

    def run(self, work: Callable[[], Any], *read: Tensor) -> Any:
        """Start work that follows what the current stream holds; its result is there after `join`.

        Args:
            work: Launches kernels.
            read: What they read; kept until they are done.
        """
        if not self.is_on:
            return work()
        current = torch.cuda.current_stream()
        side = _side(torch.cuda.current_device())
        side.wait_stream(current)
        with torch.cuda.stream(side):
            found = work()
        self._under_way.append((side.record_event(), read))
        while len(self._under_way) > LAG:
            current.wait_event(self._under_way[0][0])  # what it has read may be written from now on
            self._under_way.popleft()
        return found

    def join(self) -> None:
        """Let the current stream wait for all that was started; nothing where it has already."""
        if self._under_way:
            torch.cuda.current_stream().wait_event(self._under_way[-1][0])
        self._under_way.clear()


class _Awaited(torch.autograd.Function):
    """A tensor as it is, whose gradient goes on once it is made."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, beside: Beside) -> Tensor:
        ctx.beside = beside
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        ctx.beside.join()
        return g, None


def awaited(tensor: Tensor, beside: Beside) -> Tensor:
    """The tensor, for one use as weight or bias of `convolution`.

    Autograd runs last what was made first: called before the rest of forward, this lets all of
    backward go by before it waits. Whatever else adds to the gradient, or looks at it, comes later.
    """
    found: Tensor = _Awaited.apply(tensor, beside)
    return found


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, form: Form, beside: Beside
    ) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.form, ctx.beside = form, beside
        ctx.bias_sizes = None if bias is None else list(bias.shape)
        ctx.bias_dtype = None if bias is None else bias.dtype
        return torch.conv2d(x, weight, bias, *form)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        of_input, of_weight, of_bias, *_ = ctx.needs_input_grad
        stride, padding, dilation, groups = ctx.form
        more = (ctx.bias_sizes, stride, padding, dilation, False, (0, 0), groups)

        def backward(*wanted: bool) -> tuple[Tensor | None, ...]:
            found: tuple[Tensor | None, ...] = torch.ops.aten.convolution_backward(
                g, x, weight, *more, wanted
            )
            return found

        def own() -> tuple[Tensor | None, Tensor | None]:
            _, gw, gb = backward(False, of_weight, of_bias)
            # Of its parameter's type already: autograd would change it before it is there.
            return gw, None if gb is None else gb.to(ctx.bias_dtype)

        gx = backward(True, False, False)[0] if of_input else None
        gw = gb = None
        if of_weight or of_bias:
            gw, gb = ctx.beside.run(own, g, x)
        return gx, gw, gb, None, None


def convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, form: Form, beside: Beside
) -> Tensor:
    """As `torch.nn.functional.conv2d`, on CUDA.

    Args:
        weight, bias: As `awaited` gives them, weight of x's dtype.
    """
    found: Tensor = _Convolution.apply(x, weight, bias, form, beside)
    return found
