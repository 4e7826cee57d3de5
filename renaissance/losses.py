"""Losses as values; each gives a function (output, target) -> (sum, weight).

The mean loss is sum / weight. The two are kept apart because a window of micro-batches, the ranks
of a group and an epoch divide once, by the weight that they gathered on the device: batches of
different size, class weights and ignored targets then count as they should, and a batch in which
nothing counts gives (0, 0) and contributes nothing.

The functions are torch operations without any read by the host, so they can be captured; logits
in 16 bits are taken to float32 first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
import pydantic
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._pytree import tree_map_only

from renaissance.settings import Setting, Value, setting, value

#: (output, target) -> (sum of the losses, sum of their weights), both 0-d float32.
LossFunction = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@value
class Loss(Value):
    """Base of all losses."""

    #: Whether targets are classes, so that accuracy has a meaning.
    is_classification: ClassVar[bool] = False
    knows_targets: ClassVar[bool] = True  #: False: what targets are, only the user knows
    takes_itself: ClassVar[str | None] = None  #: "Softmax", "Sigmoid": what a model must not end in

    def function(self, device: torch.device | str) -> LossFunction:
        """The loss on a device, with its constants there."""
        raise NotImplementedError

    def nominal_weight(self, output_shape: Sequence[int]) -> float:
        """The weight of a full batch of which every target counts once."""
        raise NotImplementedError

    def check_target(self, target: npt.NDArray[Any], output_shape: Sequence[int]) -> None:
        """Refuse a target that does not fit an output of this shape (batch first), on the host.

        Raises:
            ValueError: Its shape, type or a value does not fit; the text names which.
        """
        raise NotImplementedError


def wide_dtype(output: Tensor) -> torch.dtype:
    """Float32, or float64 where the caller computes in it."""
    return torch.float64 if output.dtype == torch.float64 else torch.float32


def widened(output: Any) -> Any:
    """What a model gives with its 16-bit tensors as float32, inside tuples and dicts too.

    A loss or a metric that somebody wrote computes in the type it gets: a mean in bfloat16 has two
    or three digits.
    """
    return tree_map_only(Tensor, _from_half, output)


def _from_half(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def _wide(output: Tensor) -> Tensor:
    return output.to(wide_dtype(output))


def _as_floats(given: Any) -> Any:
    """Lists, arrays and tensors of one dimension, and {class: number} of all, as a tuple."""
    if isinstance(given, Mapping) and sorted(given, key=str) == sorted(range(len(given)), key=str):
        given = [given[k] for k in range(len(given))]
    if isinstance(given, (np.ndarray, Tensor)):
        given = given.tolist()
    return tuple(given) if isinstance(given, list) else given


ClassWeights = Annotated[
    tuple[float, ...] | list[float] | npt.NDArray[Any] | Tensor | None,
    pydantic.BeforeValidator(_as_floats),
]


@value
class CrossEntropyLoss(Loss):
    """Cross entropy of logits (N, C, ...) against classes (N, ...) or probabilities (N, C, ...).

    Classes y, with w the class weights, e the smoothing and q = log_softmax(logits):
    ``sum = -sum_i [(1-e)*w[y_i]*q[i, y_i] + e/C * sum_c w_c*q[i, c]]``, ``weight = sum_i w[y_i]``,
    over the targets that are not ignored. Probabilities t: ``sum = -sum_i sum_c w_c *
    ((1-e)*t[i, c] + e/C) * q[i, c]``, ``weight`` = their number. sum / weight is
    torch.nn.CrossEntropyLoss's mean, but 0/0 where torch gives NaN for a batch that is all ignored.

    For pictures of classes (N, H, W) the target's class is selected by comparison instead of
    torch's nll_loss2d, which adds atomically on CUDA: these losses have the same bits in every run.

    Example:
        >>> CrossEntropyLoss().label_smoothing(0.1)
        CrossEntropyLoss(label_smoothing=0.1)
    """

    type_name: ClassVar[str] = "cross_entropy"
    is_classification: ClassVar[bool] = True
    takes_itself: ClassVar[str | None] = "Softmax"

    label_smoothing: Setting[float] = setting(
        default=0.0, ge=0, le=1, doc="Part of the target spread over all classes, from 0 to 1."
    )
    class_weights: Setting[ClassWeights] = setting(
        default=None, doc="One weight per class, at least 0, not all 0; None: all 1."
    )
    ignore_index: Setting[int] = setting(
        default=-100, doc="Targets of this class do not count; any whole number."
    )

    def check(self) -> None:
        weights = self.settings.class_weights
        if weights is not None and (min(weights, default=-1.0) < 0 or max(weights) == 0):
            raise ValueError(
                f"CrossEntropyLoss: class_weights = {weights!r} is not allowed; it takes one "
                "number per class, at least 0 and not all 0"
            )

    def function(self, device: torch.device | str) -> LossFunction:
        smoothing, ignored = self.settings.label_smoothing, self.settings.ignore_index
        given = self.settings.class_weights
        weights = None if given is None else torch.tensor(given, dtype=torch.float32, device=device)

        def cross_entropy(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
            wide = _wide(output)  # (N, C, ...)
            if not target.is_floating_point():
                check_classes_shape("CrossEntropyLoss", target.shape, output.shape)
                target = target.long()  # as uint8, -100 would be class 156
            by_class = None if weights is None else weights.to(wide.dtype)
            if output.ndim > 2 and not target.is_floating_point():
                return _pictures(torch.log_softmax(wide, 1), target, by_class, smoothing, ignored)
            options: dict[str, Any] = {
                "weight": by_class,
                "label_smoothing": smoothing,
                "reduction": "sum",
            }
            if target.is_floating_point():
                total = F.cross_entropy(wide, target.to(wide.dtype), **options)
                return total, number(wide.numel() // wide.shape[1], total)
            total = F.cross_entropy(wide, target, ignore_index=ignored, **options)
            return total, _weight_of(target, by_class, ignored).to(wide.dtype)

        return cross_entropy

    def nominal_weight(self, output_shape: Sequence[int]) -> float:
        return float(math.prod(output_shape) // output_shape[1])

    def check_target(self, target: npt.NDArray[Any], output_shape: Sequence[int]) -> None:
        shape, given = tuple(output_shape), tuple(target.shape)
        if len(shape) < 2:
            raise ValueError(
                f"CrossEntropyLoss needs outputs (N, C, ...), the model gives {shape}; its last "
                "layer must have one output per class"
            )
        weights = self.settings.class_weights
        if weights is not None and len(weights) != shape[1]:
            raise ValueError(
                f"CrossEntropyLoss has {len(weights)} class_weights, the model gives {shape[1]} "
                "classes; the two must agree"
            )
        classes = (shape[0], *shape[2:])
        if target.dtype.kind == "f" and given == shape:
            self._check_probabilities(target)
        elif target.dtype.kind in "iu" and given == classes:
            self._check_classes(target, shape[1])
        else:
            raise ValueError(
                f"CrossEntropyLoss cannot compare outputs {shape} with targets {given} of type "
                f"{target.dtype}; it takes classes, whole numbers {classes}, or probabilities, "
                f"floating-point {shape}{_classes_last(given, shape)}"
            )

    def _check_classes(self, target: npt.NDArray[Any], num_classes: int) -> None:
        wrong = (target < 0) | (target >= num_classes)
        wrong &= target != self.settings.ignore_index
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise ValueError(
                f"target{list(place)} = {int(target[place])} is no class: the model gives "
                f"{num_classes}, numbered 0 to {num_classes - 1} (and ignore_index = "
                f"{self.settings.ignore_index} does not count)"
            )

    def _check_probabilities(self, target: npt.NDArray[Any]) -> None:
        if self.settings.ignore_index >= 0:
            raise ValueError(
                f"CrossEntropyLoss: ignore_index = {self.settings.ignore_index} has no meaning for "
                "targets that are probabilities; leave it at its default"
            )
        wrong = ~(np.isfinite(target) & (target >= 0))
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise ValueError(
                f"target{list(place)} = {float(target[place])} is no probability; it takes finite "
                "numbers of at least 0"
            )


def number(count: int, like: Tensor) -> Tensor:
    """A 0-d tensor on the device and of the type of another."""
    return torch.full((), count, dtype=like.dtype, device=like.device)


def _weight_of(target: Tensor, weights: Tensor | None, ignored: int) -> Tensor:
    """Sum of the class weights of the targets (N,) that count."""
    counted = target != ignored
    if weights is None:
        return counted.sum()
    return torch.where(counted, weights[target.clamp(0, len(weights) - 1)], 0.0).sum()


def _pictures(
    logs: Tensor, target: Tensor, weights: Tensor | None, smoothing: float, ignored: int
) -> tuple[Tensor, Tensor]:
    """(sum, weight) of logarithms (N, C, ...) against classes (N, ...).

    A class outside 0 to C-1 makes the sum NaN, gradients too, so that the step is skipped and told;
    torch's own loss ends in an error, which nothing in a captured step can.
    """
    line = (-1, *(1,) * (logs.ndim - 2))  # (C, 1, ...)
    classes = torch.arange(logs.shape[1], device=logs.device).view(line)
    counted = (target != ignored).unsqueeze(1)  # (N, 1, ...)
    hit = (target.unsqueeze(1) == classes) & counted  # (N, C, ...)
    if weights is None:
        weight = counted.sum().to(logs.dtype)
    else:
        weight = torch.where(hit, weights.view(line), 0.0).sum()
        logs = logs * weights.view(line)
    total = -torch.where(hit, logs, 0.0).sum()
    if smoothing:
        spread = -torch.where(counted, logs, 0.0).sum()
        total = total * (1.0 - smoothing) + spread * (smoothing / logs.shape[1])
    odd = (counted.squeeze(1) & ((target < 0) | (target >= logs.shape[1]))).any()
    return total * torch.where(odd, math.nan, 1.0), weight


def check_equal_shapes(name: str, target: Sequence[int], output: Sequence[int]) -> None:
    """Refuse shapes that differ; they are known where an operation is traced, so this is free.

    Raises:
        ValueError: They differ.
    """
    if tuple(target) != tuple(output):
        raise ValueError(
            f"{name} needs targets of the shape of the outputs {tuple(output)}, received "
            f"{tuple(target)}; reshape one of them (broadcasting would compare every target "
            "with every output)"
        )


def check_classes_shape(name: str, target: Sequence[int], output: Sequence[int]) -> None:
    """The same for classes (N, ...) against outputs (N, C, ...)."""
    if tuple(target) != (*output[:1], *output[2:]):
        raise ValueError(
            f"{name} cannot compare outputs {tuple(output)} with classes {tuple(target)}; it takes "
            f"one whole number for each prediction, {(*output[:1], *output[2:])}"
            f"{_classes_last(target, output)}"
        )


def _classes_last(target: Sequence[int], output: Sequence[int]) -> str:
    """What to do about outputs (N, ..., C), as those of a model of language often are."""
    if len(output) < 3 or tuple(target) != tuple(output[:-1]):
        return ""
    return "; the scores of the classes belong into dimension 1: return output.movedim(-1, 1)"


def _check_values(
    name: str, target: npt.NDArray[Any], output_shape: Sequence[int], kinds: str
) -> None:
    check_equal_shapes(name, target.shape, output_shape)
    if target.dtype.kind not in kinds:
        raise ValueError(f"{name} cannot compare with targets of type {target.dtype}")
    if target.dtype.kind == "f" and not np.isfinite(target).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(target))[0])
        raise ValueError(f"target{list(place)} = {float(target[place])} is not finite")


@value
class BCEWithLogitsLoss(Loss):
    """Binary cross entropy of logits against targets of 0 to 1 of the same shape; any shape.

    ``sum = -sum_i [p*t_i*log s(x_i) + (1-t_i)*log(1 - s(x_i))]`` with s the sigmoid and p the
    pos_weight of the element's class, weight = number of elements.

    Example:
        >>> BCEWithLogitsLoss().pos_weight([3.0, 1.0])
        BCEWithLogitsLoss(pos_weight=(3.0, 1.0))
    """

    type_name: ClassVar[str] = "bce_with_logits"
    takes_itself: ClassVar[str | None] = "Sigmoid"

    pos_weight: Setting[float | ClassWeights] = setting(
        default=None,
        doc="Factor, above 0, of what is positive: a number, or one for each class (dimension 1).",
    )

    def check(self) -> None:
        given = self.settings.pos_weight
        factors = given if isinstance(given, tuple) else (1.0 if given is None else given,)
        if not all(0 < factor < math.inf for factor in factors) or not factors:
            raise ValueError(
                f"BCEWithLogitsLoss: pos_weight = {given!r} is not allowed; it takes a finite "
                "number above 0, or one for each class"
            )

    def function(self, device: torch.device | str) -> LossFunction:
        given = self.settings.pos_weight
        factors = None if given is None else torch.tensor(given, dtype=torch.float32, device=device)

        def bce_with_logits(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
            check_equal_shapes("BCEWithLogitsLoss", target.shape, output.shape)
            wide = _wide(output)
            positive = None if factors is None else factors.to(wide.dtype)
            if positive is not None and positive.ndim:  # one for each class: (C, 1, ...)
                positive = positive.view(-1, *(1,) * (wide.ndim - 2))
            total = F.binary_cross_entropy_with_logits(
                wide, target.to(wide.dtype), pos_weight=positive, reduction="sum"
            )
            return total, number(wide.numel(), total)

        return bce_with_logits

    def nominal_weight(self, output_shape: Sequence[int]) -> float:
        return float(math.prod(output_shape))

    def check_target(self, target: npt.NDArray[Any], output_shape: Sequence[int]) -> None:
        _check_values("BCEWithLogitsLoss", target, output_shape, "fiub")
        given, shape = self.settings.pos_weight, tuple(output_shape)
        if isinstance(given, tuple) and (len(shape) < 2 or shape[1] != len(given)):
            raise ValueError(
                f"BCEWithLogitsLoss has a pos_weight for each of {len(given)} classes, the model "
                f"gives {shape}, with classes in dimension 1; the two must agree"
            )
        wrong = (target < 0) | (target > 1)
        if wrong.any():
            place = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise ValueError(
                f"target{list(place)} = {target[place].item()} is not allowed; "
                "BCEWithLogitsLoss takes targets from 0 to 1"
            )


@value
class MSELoss(Loss):
    """Mean squared error against targets of the same shape; any shape.

    ``sum = sum_i (x_i - t_i)^2``, weight = number of elements.
    """

    type_name: ClassVar[str] = "mse"

    def function(self, device: torch.device | str) -> LossFunction:
        def mse(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
            check_equal_shapes("MSELoss", target.shape, output.shape)
            wide = _wide(output)
            difference = wide - target.to(wide.dtype)
            total = (difference * difference).sum()
            return total, number(wide.numel(), total)

        return mse

    def nominal_weight(self, output_shape: Sequence[int]) -> float:
        return float(math.prod(output_shape))

    def check_target(self, target: npt.NDArray[Any], output_shape: Sequence[int]) -> None:
        _check_values("MSELoss", target, output_shape, "fiu")
