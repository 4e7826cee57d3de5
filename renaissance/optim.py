"""Optimizers as values: hyper-parameters, number of moments and the name of the range kernel.

A value holds no tensor and has no ``step()``: `renaissance.update` turns it into range operations.
The formulas, with g the unscaled and clipped gradient and wd = 0 for biases and norm parameters,
stand at each class; every operation is rounded to float32 on its own, in the order written.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar

import pydantic
from typing_extensions import Self

from renaissance.settings import Setting, Value, pairs, setting, value

LrScales = Annotated[
    tuple[tuple[str, float], ...] | Mapping[str, float], pydantic.BeforeValidator(pairs)
]


@value
class Optimizer(Value):
    """What every optimizer has: a learning rate of its own, and factors of it by parameter."""

    lr: Setting[float | None] = setting(
        default=None,
        ge=0,
        doc="Constant learning rate, at least 0; None: a schedule's base_lr gives it.",
    )
    lr_scales: Setting[LrScales] = setting(
        default=(),
        doc="Pairs (parameter name pattern, factor at least 0) that multiply the learning rate; "
        "patterns as in a shell ('head.*'); the last one that matches counts.",
    )

    #: Moment regions that the optimizer needs: 0, 1 (M) or 2 (M and V).
    moments: ClassVar[int] = 0

    @property
    def kernel(self) -> str:
        """Name of the range kernel."""
        raise NotImplementedError

    @property
    def has_decoupled_decay(self) -> bool:
        """Whether ``weight_decay`` shrinks weights directly rather than through the gradient."""
        return True

    def lr_scale(self, pattern: str, factor: float) -> Self:
        """A new value whose learning rate is `factor` times as high for parameters of a pattern.

        Each distinct factor costs one more range in the update. A pattern given before gets the
        new factor.

        Args:
            pattern: Shell-like pattern of parameter names, such as ``"head.*"``.
            factor: At least 0 and finite.
        """
        kept = tuple(pair for pair in self.settings.lr_scales if pair[0] != pattern)
        return self.replace(lr_scales=(*kept, (pattern, factor)))

    def check(self) -> None:
        patterns = [pattern for pattern, _ in self.settings.lr_scales]
        for pattern, factor in self.settings.lr_scales:
            if not pattern:
                raise ValueError(
                    f"{type(self).__name__}: lr_scale('', {factor!r}) has an empty pattern, which "
                    "matches no parameter; write '*' for all of them"
                )
            if factor < 0:
                raise ValueError(
                    f"{type(self).__name__}: lr_scale({pattern!r}, {factor!r}) has a negative "
                    "factor; it takes a number at least 0"
                )
            if patterns.count(pattern) > 1:
                raise ValueError(
                    f"{type(self).__name__}: lr_scales names the pattern {pattern!r} twice; give "
                    "each pattern one factor"
                )


@value
class SGD(Optimizer):
    """Stochastic gradient descent, plain, with momentum, or with Nesterov's momentum.

    Plain: ``w = w - (lr*g + (lr*wd)*w)``. With momentum: ``m = momentum*m + g`` and
    ``w = w - (lr*m + (lr*wd)*w)``. Nesterov: the same with ``momentum*m + g`` in place of m, m
    already new. With ``l2`` instead of ``weight_decay``: ``g = g + l2*w`` first.

    `weight_decay` is decoupled from the gradient (Loshchilov and Hutter 2019, arXiv:1711.05101);
    `l2` is what torch.optim.SGD calls weight_decay. A recipe written for torch takes ``l2``.

    Example:
        >>> SGD(momentum=0.9).nesterov().l2(5e-4)
        SGD(momentum=0.9, nesterov=True, l2=0.0005)
    """

    momentum: Setting[float] = setting(
        default=0.0, ge=0, lt=1, doc="Decay of the running gradient sum, from 0 to below 1."
    )
    nesterov: Setting[bool] = setting(
        default=False, doc="Nesterov's look-ahead; needs momentum above 0."
    )
    weight_decay: Setting[float] = setting(
        default=0.0,
        ge=0,
        doc="Decoupled weight decay, times the learning rate, at least 0; weights only, not biases "
        "and norm parameters.",
    )
    l2: Setting[float] = setting(
        default=0.0,
        ge=0,
        doc="Coupled weight decay (torch's), added to the gradient, at least 0; weights only.",
    )

    def check(self) -> None:
        super().check()
        if self.settings.weight_decay and self.settings.l2:
            raise ValueError(
                f"SGD: weight_decay={self.settings.weight_decay!r} (decoupled) and "
                f"l2={self.settings.l2!r} (coupled, torch's weight_decay) are both given; keep one"
            )

    def check_complete(self) -> None:
        _check_nesterov(self)

    @property
    def moments(self) -> int:  # type: ignore[override]
        return 1 if self.settings.momentum else 0

    @property
    def kernel(self) -> str:
        self.check_complete()
        if not self.settings.momentum:
            return "sgd"
        return "nesterov" if self.settings.nesterov else "momentum"

    @property
    def has_decoupled_decay(self) -> bool:
        return not self.settings.l2


@value
class Adam(Optimizer):
    """Adam (Kingma and Ba 2015, arXiv:1412.6980) with coupled weight decay, as torch.optim.Adam.

    ``g = g + wd*w; m = b1*m + (1-b1)*g; v = b2*v + ((1-b2)*g)*g;
    w = w - lr*((m*bc1) / (sqrt(v*bc2) + eps))`` with ``bc = 1/(1 - beta^t)``, t applied updates
    from 1.
    """

    moments: ClassVar[int] = 2

    beta1: Setting[float] = setting(
        default=0.9, ge=0, lt=1, doc="Decay of the mean of gradients, from 0 to below 1."
    )
    beta2: Setting[float] = setting(
        default=0.999, ge=0, lt=1, doc="Decay of the mean of squared gradients, from 0 to below 1."
    )
    eps: Setting[float] = setting(
        default=1e-8,
        gt=0,
        doc="Added to the root of the second moment, above 0 (also once rounded to float32).",
    )
    weight_decay: Setting[float] = setting(
        default=0.0,
        ge=0,
        doc="Coupled weight decay, added to the gradient, at least 0; weights only, not biases and "
        "norm parameters.",
    )

    def check(self) -> None:
        super().check()
        _check_eps(self)

    @property
    def kernel(self) -> str:
        return "adam"

    @property
    def has_decoupled_decay(self) -> bool:
        return False


@value
class AdamW(Optimizer):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv:1711.05101).

    m and v as `Adam` without the coupled term;
    ``w = w - (lr*((m*bc1) / (sqrt(v*bc2) + eps)) + (lr*wd)*w)``.

    Example:
        >>> AdamW().beta1(0.8).weight_decay(1e-4) == AdamW(beta1=0.8, weight_decay=1e-4)
        True
    """

    moments: ClassVar[int] = 2
    type_name: ClassVar[str] = "adamw"

    beta1: Setting[float] = setting(
        default=0.9, ge=0, lt=1, doc="Decay of the mean of gradients, from 0 to below 1."
    )
    beta2: Setting[float] = setting(
        default=0.999, ge=0, lt=1, doc="Decay of the mean of squared gradients, from 0 to below 1."
    )
    eps: Setting[float] = setting(
        default=1e-8,
        gt=0,
        doc="Added to the root of the second moment, above 0 (also once rounded to float32).",
    )
    weight_decay: Setting[float] = setting(
        default=0.01,
        ge=0,
        doc="Decoupled weight decay, times the learning rate, at least 0; weights only, not biases "
        "and norm parameters.",
    )

    def check(self) -> None:
        super().check()
        _check_eps(self)

    @property
    def kernel(self) -> str:
        return "adamw"


@value
class LARS(Optimizer):
    """Layer-wise adaptive rates (You, Gitman, Ginsburg 2017, arXiv:1708.03888).

    Per tensor ``eta = tc*|w| / (|g| + wd*|w| + eps)``, 1 when either norm is below 1e-12, at most
    100; ``g' = g + wd*w; m = momentum*m + (lr*eta)*g'; w = w - m`` (Nesterov:
    ``w = w - ((lr*eta)*g' + momentum*m)``). Biases and norm parameters take SGD's path.
    """

    moments: ClassVar[int] = 1

    momentum: Setting[float] = setting(
        default=0.9, ge=0, lt=1, doc="Decay of the running update, from 0 to below 1."
    )
    nesterov: Setting[bool] = setting(
        default=False, doc="Nesterov's look-ahead; needs momentum above 0."
    )
    weight_decay: Setting[float] = setting(
        default=0.0,
        ge=0,
        doc="Weight decay inside the trust ratio, at least 0; weights only.",
    )
    trust_coefficient: Setting[float] = setting(
        default=1e-3, gt=0, doc="Size of an update relative to the weights' norm, above 0."
    )
    eps: Setting[float] = setting(
        default=1e-8, gt=0, doc="Added to the gradient's norm in the trust ratio, above 0."
    )

    def check(self) -> None:
        super().check()
        _check_eps(self)

    def check_complete(self) -> None:
        _check_nesterov(self)

    @property
    def kernel(self) -> str:
        self.check_complete()
        return "lars_nesterov" if self.settings.nesterov else "lars"

    @property
    def has_decoupled_decay(self) -> bool:
        return False


def _check_nesterov(optimizer: Optimizer) -> None:
    if optimizer.settings.nesterov and not optimizer.settings.momentum:
        name = type(optimizer).__name__
        raise ValueError(
            f"{name}: nesterov=True needs a momentum above 0, received momentum=0.0; write "
            f"{name}(momentum=0.9, nesterov=True)"
        )


#: The smallest positive normal float32: below it eps would be flushed or lose its digits.
_SMALLEST_EPS = math.ldexp(1.0, -126)


def _check_eps(optimizer: Optimizer) -> None:
    if optimizer.settings.eps < _SMALLEST_EPS:
        raise ValueError(
            f"{type(optimizer).__name__}: eps = {optimizer.settings.eps!r} is not allowed; it must "
            f"be at least {_SMALLEST_EPS!r}, the smallest normal float32 number"
        )
