"""Losses that are no values of ours: torch's modules and any function, as a `Loss`."""

from __future__ import annotations

import copy
import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy.typing as npt
import torch
from torch import Tensor, nn

from renaissance.broadcasts import ELEMENTWISE, watched
from renaissance.losses import (
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    Loss,
    LossFunction,
    MSELoss,
    check_equal_shapes,
    number,
    wide_dtype,
)
from renaissance.settings import Setting, setting, value

#: Torch's losses that compare element by element, and broadcast where shapes differ.
_ELEMENTWISE_MODULES = (
    *(nn.L1Loss, nn.MSELoss, nn.SmoothL1Loss, nn.HuberLoss, nn.PoissonNLLLoss, nn.KLDivLoss),
    *(nn.HingeEmbeddingLoss, nn.MultiLabelSoftMarginLoss),
)


#: Losses whose first call is watched, or was.
_told: weakref.WeakValueDictionary[int, CallableLoss] = weakref.WeakValueDictionary()


@value
class CallableLoss(Loss):
    """Any ``(output, target) -> scalar mean over the batch``; what `as_loss` makes of a function.

    The output is whatever the model gives: a tensor, or several in a tuple or dict. A torch module
    is copied to the device with its buffers. Torch's losses of single elements refuse targets of
    another shape than the outputs; of others that broadcast them to all pairs the first call warns.
    """

    knows_targets: ClassVar[bool] = False
    mean: Setting[Callable[[Any, Any], Any]] = setting(
        kw_only=False, doc="Function of (output, target) that gives the mean loss, a scalar tensor."
    )

    def function(self, device: torch.device | str) -> LossFunction:
        mean = self.settings.mean
        if isinstance(mean, torch.nn.Module):
            mean = copy.deepcopy(mean).to(device)
        inner = _inner(mean)
        is_elementwise = isinstance(inner, _ELEMENTWISE_MODULES) or inner in ELEMENTWISE
        if not is_elementwise and id(self) not in _told:
            mean, _told[id(self)] = watched(mean, f"the loss {self.name}"), self

        def from_mean(output: Any, target: Tensor) -> tuple[Tensor, Tensor]:
            if is_elementwise:
                check_equal_shapes(self.name, target.shape, output.shape)
            given = mean(output, target)
            if not isinstance(given, Tensor) or given.numel() != 1:
                came = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
                raise ValueError(
                    f"the loss {self.name} gave {came}, not a scalar tensor; a loss is the mean "
                    "over the batch, as in loss.mean()"
                )
            dtype = wide_dtype(output) if isinstance(output, Tensor) else torch.float32
            wide, count = given.reshape(()).to(dtype), target.shape[0]
            return wide * count, number(count, wide)

        return from_mean

    @property
    def name(self) -> str:
        """What messages call it."""
        mean = _inner(self.settings.mean)
        return str(getattr(mean, "__name__", type(mean).__name__))

    def nominal_weight(self, output_shape: Sequence[int]) -> float:
        return float(output_shape[0])

    def check_target(self, target: npt.NDArray[Any], output_shape: Sequence[int]) -> None:
        if not target.shape or target.shape[0] != output_shape[0]:
            raise ValueError(
                f"the loss {self.name} gets targets {tuple(target.shape)} for outputs "
                f"{tuple(output_shape)}; both must begin with the batch"
            )

    def __repr__(self) -> str:
        return f"CallableLoss({self.name})"


def _inner(mean: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a ``functools.partial``, itself otherwise."""
    while isinstance(mean, functools.partial):
        mean = mean.func
    return mean


def as_loss(given: object) -> Loss:
    """A loss as it is, a function or torch module as a `CallableLoss`.

    Torch's own CrossEntropyLoss, MSELoss and BCEWithLogitsLoss become ours with the same settings:
    they count class weights and ignored targets over a whole window, which a mean cannot.

    Raises:
        TypeError: Neither.
        ValueError: A module of torch's whose reduction is not "mean".
    """
    if isinstance(given, Loss):
        return given
    if isinstance(given, type) or not callable(given):
        hint = f"; write {given.__name__}()" if isinstance(given, type) else ""
        raise TypeError(
            f"loss = {given!r} ({type(given).__name__}) is not allowed; it takes a loss such as "
            f"CrossEntropyLoss() or a function (output, target) -> scalar mean{hint}"
        )
    reduction = getattr(given, "reduction", "mean") if isinstance(given, nn.Module) else "mean"
    if reduction != "mean":
        raise ValueError(
            f"{type(given).__name__}(reduction={reduction!r}) is not allowed as a loss; it takes "
            'reduction="mean": sums and weights are kept by the task'
        )
    return _own(given) or CallableLoss(given)


def _own(given: object) -> Loss | None:
    """The loss of ours that equals one of torch's; a subclass may compute anything."""
    if type(given) is nn.CrossEntropyLoss:
        return CrossEntropyLoss(
            label_smoothing=given.label_smoothing,
            class_weights=given.weight,
            ignore_index=given.ignore_index,
        )
    if type(given) is nn.MSELoss:
        return MSELoss()
    if type(given) is nn.BCEWithLogitsLoss and given.weight is None and given.pos_weight is None:
        return BCEWithLogitsLoss()
    return None
