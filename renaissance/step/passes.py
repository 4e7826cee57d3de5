"""`Passes`: the functions of a batch that are traced: its loss and metrics, its outputs.

They are pure: what they add up goes into the sums they are given. `with_own_code` gives each task's
functions to torch.compile as code of its own.
"""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from renaissance.losses import widened
from renaissance.metrics import Metric
from renaissance.nn.fusion import Forward, Head
from renaissance.precision import Precision
from renaissance.update.updater import Landing

LossFunction = Callable[[Any, Tensor], tuple[Tensor, Tensor]]
_serial = itertools.count()


def with_own_code(method: Callable[..., Any]) -> Callable[..., Any]:
    """A copy of a bound method with a code object of its own.

    torch.compile counts recompilations per code object; tasks that shared one would reach its
    limit together and run uncompiled from then on.
    """
    plain: Any = getattr(method, "__func__")  # noqa: B009 - bound methods have it, typing does not
    code = plain.__code__.replace(co_name=f"{plain.__name__}_{next(_serial)}")
    copy = types.FunctionType(
        code, plain.__globals__, code.co_name, plain.__defaults__, plain.__closure__
    )
    return types.MethodType(copy, getattr(method, "__self__"))  # noqa: B009


class Passes:
    """What is traced: pure functions of a batch over the bound module.

    Args:
        module: The module, bound to its memory.
        loss: ``(output, target) -> (loss sum, weight)``, 0-d float32 tensors.
        metrics: Metrics beside the loss.
        precision: Autocast and working dtype.

    Attributes:
        forward: A fused forward in the place of the module's, or None.
        head: A fused ``(output, target, sums) -> (loss sum, weight)`` that adds to the sums
            itself, or None.
        landing: Where a fused forward's backward puts its gradients, or None.
        takes_any_numbers: Loss and metrics are ours, which no output makes fail; one of somebody
            else may assert on the device that probabilities are some.
    """

    forward: Forward | None = None
    head: Head | None = None
    landing: Landing | None = None
    takes_any_numbers: bool = False

    def __init__(
        self, module: nn.Module, loss: LossFunction, metrics: Sequence[Metric], precision: Precision
    ) -> None:
        self.module, self.loss, self.metrics = module, loss, tuple(metrics)
        self.precision = precision

    def output(self, x: Any) -> Any:
        """The module's output under the task's autocast, or the fused forward's."""
        with self.autocast(x):
            return self.module(x) if self.forward is None else self.forward(x)

    def autocast(self, x: Any) -> torch.autocast:
        """The task's autocast, without its weight cache (a cache goes stale inside a graph)."""
        dtype = self.precision.autocast_dtype
        return torch.autocast(
            _device_type(x), dtype=dtype, enabled=dtype is not None, cache_enabled=False
        )

    def train(self, x: Any, y: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        """Loss sum (differentiable) and loss weight, 0-d float32; a batch's sums join `sums`."""
        return self._sums(x, y, sums)

    def test(self, x: Any, y: Tensor, sums: Tensor) -> None:
        """Add the sums of a batch: loss sum, weight, metric sum, count ... (float64)."""
        self._sums(x, y, sums)

    def predict(self, x: Any) -> Any:
        """Raw outputs: a tensor or a tree of them, those of floating point in float32."""
        return tree_map_only(Tensor, _as_float32, self.output(x))

    def _sums(self, x: Any, y: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        output = self.output(x)
        if self.head is not None and y.dtype == torch.int64:  # class numbers, not probabilities
            return self.head(output, y, sums)
        output = widened(output)
        loss_sum, weight = self.loss(output, y)
        found = [loss_sum.detach(), weight]
        with torch.no_grad():
            for metric in self.metrics:
                found += metric.function(output, y)
            sums.add_(torch.stack([one.double() for one in found]))
        return loss_sum.float(), weight.float()  # a loss of float64 outputs is float64


def _as_float32(output: Tensor) -> Tensor:
    return output.float() if torch.is_floating_point(output) else output


def _device_type(x: Any) -> str:
    while not isinstance(x, Tensor):
        x = next(iter(x.values() if isinstance(x, dict) else x))
    return str(x.device.type)
