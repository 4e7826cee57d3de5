"""Metrics: functions (output, target) -> (sum, count) whose quotient is a mean over samples.

Sums and counts of batches, ranks and an epoch are added and divided once, so that a partial batch
weighs what it holds. All are torch operations without a read by the host and can be captured.

Right or wrong is decided by rank: a target has the rank #(logits above its own) + #(equal logits
with a smaller index), which has no ties; a row that holds a NaN is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from renaissance.broadcasts import watched
from renaissance.settings import nearest

#: (output, target) -> (sum over the samples that count, their number), 0-d float32.
MetricFunction = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Metric:
    """A name in the history and its function.

    Attributes:
        name: Key in `history.history`; validation adds ``val_``.
        function: (output, target) -> (sum, count), two 0-d tensors.
    """

    name: str
    function: MetricFunction

    def __post_init__(self) -> None:
        check_name(self.name)
        if not callable(self.function):
            raise TypeError(f"metric {self.name!r}: {self.function!r} is no function")


RESERVED = ("loss", "learning_rate", "lr", "epoch", "step")


def check_name(name: Any) -> str:
    """The name of a metric; ValueError for one that cannot be a key of the history."""
    if not isinstance(name, str) or not re.fullmatch(r"[^\W\d][\w.-]*", name):
        of_lambda = " (a lambda has none; write a def)" if name == "<lambda>" else ""
        raise ValueError(
            f"a metric's name = {name!r} is not allowed; it takes a word such as 'accuracy', the "
            f"key of the history{of_lambda}"
        )
    if name in RESERVED or name.startswith("val_"):
        raise ValueError(
            f"a metric's name = {name!r} is not allowed: the history uses it; take another"
        )
    return name


def is_stateful(metric: object) -> bool:
    """Whether it keeps what it saw of earlier batches, as torchmetrics' objects do."""
    return all(callable(getattr(metric, name, None)) for name in ("update", "compute", "reset"))


class _Settings(Protocol):
    @property
    def is_classification(self) -> bool: ...
    @property
    def knows_targets(self) -> bool: ...
    @property
    def settings(self) -> Any: ...


def rank(output: Tensor, target: Tensor) -> Tensor:
    """Rank of each target among the logits of its row, from 0; C where the row holds a NaN.

    Args:
        output: Logits (N, C, ...).
        target: Classes (N, ...), any integer type; a class outside 0 to C-1 gives a rank, too.
    """
    classes = torch.arange(output.shape[1], device=output.device)
    classes = classes.view(-1, *(1,) * (output.ndim - 2))
    wanted = target.unsqueeze(1)  # (N, 1, ...)
    own = torch.where(classes == wanted, output, 0.0).sum(1, keepdim=True)
    ahead = (output > own) | ((output == own) & (classes < wanted))
    broken = torch.isnan(output).any(1)
    return torch.where(broken, output.shape[1], ahead.sum(1))


def top_k(k: int, ignore_index: int | None = None) -> MetricFunction:
    """The function that counts targets of a rank below k; accuracy is k = 1.

    Targets that are probabilities (N, C, ...) stand for their most probable class, the first of
    equals. Targets that are `ignore_index` do not count.
    """

    def counts(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        if target.is_floating_point():
            _check_shape("accuracy of probabilities", target.shape, output.shape)
            target = target.argmax(1)
            counted = torch.ones_like(target, dtype=torch.bool)
        elif ignore_index is None:
            counted = torch.ones_like(target, dtype=torch.bool)
        else:
            target = target.long()  # as uint8, -100 would be class 156
            counted = target != ignore_index
        _check_shape("accuracy", target.shape, (*output.shape[:1], *output.shape[2:]))
        place = rank(output, target)
        # A row of C classes is never of rank k >= C unless it is broken.
        right = counted & (place < min(k, output.shape[1]))
        return right.sum(dtype=torch.float32), counted.sum(dtype=torch.float32)

    return counts


def _check_shape(name: str, target: Sequence[int], expected: Sequence[int]) -> None:
    """Shapes that would broadcast compare every target with every output."""
    if tuple(target) != tuple(expected):
        raise ValueError(
            f"{name} takes targets of shape {tuple(expected)} here, received {tuple(target)}; "
            "reshape them, or give a metric of your own"
        )


def binary_accuracy(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Elements whose logit is above 0 exactly when the target is above 0.5; NaN is wrong."""
    _check_shape("binary_accuracy", target.shape, output.shape)
    right = ((output > 0) == (target > 0.5)) & ~torch.isnan(output)
    count = torch.full((), right.numel(), dtype=torch.float32, device=output.device)
    return right.sum(dtype=torch.float32), count


def _mean_over_elements(name: str, of: Callable[[Tensor], Tensor]) -> MetricFunction:
    """The function that averages something of output - target over all elements."""

    def sums(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        _check_shape(name, target.shape, output.shape)
        total = of(output.float() - target.float()).sum()
        return total, torch.full((), output.numel(), dtype=torch.float32, device=output.device)

    return sums


#: Metrics that compare element by element, by name.
_ELEMENTWISE: dict[str, MetricFunction] = {
    "binary_accuracy": binary_accuracy,
    "mae": _mean_over_elements("mae", torch.abs),
    "mse": _mean_over_elements("mse", torch.square),
}


def from_callable(name: str, function: Callable[[Tensor, Tensor], Any]) -> Metric:
    """A metric from what a user's function gives: a mean, a value per sample, or (sum, count).

    The output is whatever the model gives: a tensor, or several in a tuple or dict. Where it
    compares all outputs with all targets, its first call warns.
    """
    seen = watched(function, f"the metric {name!r}")

    def counts(output: Any, target: Tensor) -> tuple[Tensor, Tensor]:
        given = seen(output, target)
        if isinstance(given, tuple) and len(given) == 2:
            total, count = (torch.as_tensor(x, device=target.device).float() for x in given)
            return total, count
        size = target.shape[0]
        if not isinstance(given, Tensor) or (given.numel() != 1 and given.shape != (size,)):
            came = tuple(given.shape) if isinstance(given, Tensor) else type(given).__name__
            raise ValueError(
                f"the metric {name!r} gave {came} for a batch of {size}; it takes a scalar tensor "
                f"(the mean over the batch), one of shape ({size},), or a pair (sum, count)"
            )
        number = torch.full((), size, dtype=torch.float32, device=target.device)
        if given.shape == (size,):
            return given.float().sum(), number
        return given.float().reshape(()) * number, number

    return Metric(name, counts)


def resolve_metrics(
    wanted: Iterable[str | Metric | Callable[[Tensor, Tensor], Any]], loss: _Settings
) -> tuple[Metric, ...]:
    """The metrics of a task, beside the loss itself.

    Args:
        wanted: Names ("accuracy", "top5", any number, "binary_accuracy", "mae", "mse"), `Metric`
            objects, or functions (output, target) -> mean, value per sample, or (sum, count).
        loss: A classification loss brings "accuracy" by itself, and its ignored class.

    Raises:
        TypeError: Something else was given.
        ValueError: An unknown name, or two metrics of one name.
    """
    found = [_by_name("accuracy", loss)] if loss.is_classification else []
    for item in wanted:
        if isinstance(item, str):
            metric = _by_name(item, loss)
            if metric.name == "accuracy" and loss.is_classification:
                continue  # there already
        elif isinstance(item, Metric):
            metric = item
        elif is_stateful(item):
            raise TypeError(
                f"metric = {type(item).__name__}() is not allowed: it is a value of a whole data "
                "set, and the mean over batches of what it gives is another number; write "
                f"task.callbacks(rn.Score({type(item).__name__}(...))), which gives it all outputs "
                "and targets after each epoch"
            )
        elif callable(item) and not isinstance(item, type):
            metric = from_callable(str(getattr(item, "__name__", type(item).__name__)), item)
        else:
            raise TypeError(
                f"metric = {item!r} ({type(item).__name__}) is not allowed; it takes a name, a "
                "function (output, target) -> mean, or a Metric; several are separate arguments: "
                "task.metrics('accuracy', 'top5')"
            )
        if metric.name in (other.name for other in found):
            raise ValueError(f"two metrics are called {metric.name!r}; give each its own name")
        found.append(metric)
    return tuple(found)


#: Of targets under a loss that is a function: what torch's losses ignore unless told otherwise.
_IGNORED = -100


def _by_name(name: str, loss: _Settings) -> Metric:
    if name in _ELEMENTWISE:
        return Metric(name, _ELEMENTWISE[name])
    match = re.fullmatch(r"top([1-9]\d*)(_accuracy)?", name)
    if match is None and name != "accuracy":
        guess = nearest(name, ("accuracy", "top5", *_ELEMENTWISE))
        hint = f"did you mean {guess!r}? " if guess else ""
        raise ValueError(
            f"metric {name!r} is unknown; {hint}it takes 'accuracy', 'topN' for any N such as "
            "'top5', 'binary_accuracy', 'mae', 'mse', or a function (output, target) -> mean; "
            "rn.Score is for values of a whole data set, such as F1 or R2"
        )
    if not loss.is_classification and loss.knows_targets:
        raise ValueError(
            f"metric {name!r} needs classes as targets, which {type(loss).__name__} has not; "
            "'binary_accuracy' compares element by element, or give a function"
        )
    ignored = loss.settings.ignore_index if loss.is_classification else _IGNORED
    if match is None:
        return Metric("accuracy", top_k(1, ignored))
    return Metric(f"top{match[1]}_accuracy", top_k(int(match[1]), ignored))
