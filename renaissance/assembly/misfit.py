"""Data that does not fit a compiled task: what came, and what the task takes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from renaissance.data.batch import NO_TARGETS, Batch, Judge, mapped
from renaissance.data.dataset import IGNORED
from renaissance.data.loader import Loader
from renaissance.losses import Loss

if TYPE_CHECKING:
    from renaissance.assembly.build import Built


def check_targets(loss: Loss, loader: Loader | None, output_shape: tuple[int, ...]) -> None:
    """Shape, type and range of a loader's targets, as far as they are known without reading.

    Raises:
        ValueError: There are none, or the loss cannot compare them with outputs of this shape
            (batch first).
    """
    if not isinstance(loader, Loader):
        return
    label = loader.sample_spec().label
    if label is None:
        raise ValueError(NO_TARGETS)
    example = torch.full((2, *label.shape), label.low or 0, dtype=label.dtype, device="cpu")
    loss.check_target(example.numpy(), (2, *output_shape[1:]))
    is_class_numbers = loss.is_classification and label.shape == output_shape[2:]
    if label.high is not None and is_class_numbers:
        known = [label.low, label.high] + [label.ignored] * (label.ignored != IGNORED)
        loss.check_target(np.array(known), (len(known), output_shape[1]))
        if label.values is not None and loss.settings.ignore_index in (label.low, label.high):
            # The lowest or highest says nothing of the others.
            loss.check_target(label.values, (len(label.values), output_shape[1]))


def judge_of(loss: Loss, output_shape: tuple[int, ...] | None) -> Judge | None:
    """What looks for class numbers of no class in batches, on the host: a GPU that meets one stops
    the process, without a word of where it was. None for losses without class numbers.

    Args:
        loss: The task's.
        output_shape: The model's (N, C), None when not known.
    """
    if not loss.is_classification or output_shape is None or len(output_shape) != 2:
        return None

    def judge(batch: Batch) -> None:
        y = batch.y
        if isinstance(y, torch.Tensor) and y.ndim == 1 and not y.is_floating_point():
            loss.check_target(y.long().numpy(), (len(y), *output_shape[1:]))

    return judge


def check_data(built: Built, loader: Loader | None, what: str) -> None:
    """Refuse data other than what was compiled with whose targets are missing or do not fit.

    Args:
        built: The compiled task.
        loader: The data; outputs for samples of another shape are not known, so nothing is said
            of their targets.
        what: "fit", "evaluate": who asks.

    Raises:
        ValueError: See above.
    """
    recipe = built.recipe
    if not isinstance(loader, Loader) or loader is recipe.train or loader is recipe.valid:
        return
    spec = loader.sample_spec()
    if spec.label is None:
        raise ValueError(f"{what}: {NO_TARGETS}")
    known = None if recipe.train is None else recipe.train.sample_spec()
    output_shape = None if built.scan is None else built.scan.output_shape
    if recipe.loss is not None and output_shape and known and known.shape == spec.shape:
        try:
            check_targets(recipe.loss, loader, output_shape)
        except ValueError as error:
            raise ValueError(f"{what}: {error}") from None


def refuse_samples(
    error: RuntimeError, built: Built, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    """Say what a model that failed was given, where that is not what its training data has.

    Args:
        error: What the model raised; anything but a plain RuntimeError is left to itself.
        built: The compiled task.
        shape, dtype: Of a sample.

    Raises:
        ValueError: With both shapes and types.
    """
    train = built.recipe.train
    known = None if train is None else train.sample_spec()
    if type(error) is not RuntimeError or (known and known[:2] == (shape, dtype)):
        return
    text = _misfit(shape, dtype, error)
    if known is not None:
        text += f". Its training data has {known.shape} and {_name(known.dtype)}"
    raise ValueError(text) from error


def refuse_call(x: Any, error: Exception) -> None:
    """Say what a model that failed in compile's look at it was called with.

    Args:
        x: Its argument.
        error: What it raised. Of one tensor only torch's own errors, which are plain RuntimeErrors,
            are about its shape and type; anything may come of a container.

    Raises:
        ValueError: With the shapes.
    """
    if isinstance(x, torch.Tensor):
        if isinstance(error, RuntimeError):
            raise ValueError(_misfit(tuple(x.shape), x.dtype, error)) from error
        return
    shapes = mapped(lambda tensor: tuple(tensor.shape), x)
    hint = (
        ": self.net(**x) there hands its entries on by name"
        if isinstance(x, dict)
        else ". (default_collate makes such a list of samples whose x is a list of numbers; give "
        "them as arrays or tensors)"
    )
    raise ValueError(
        f"the model does not take what the data gives, a {type(x).__name__} of tensors {shapes}: "
        f"{type(error).__name__}: {error}\nforward gets it as its one argument x{hint}"
    ) from error


def _misfit(shape: Any, dtype: Any, error: Exception) -> str:
    """That a model does not take samples; of a type that layers of weights do not, what to do."""
    text = f"the model does not take samples of shape {shape} and type {_name(dtype)}: {error}"
    if isinstance(dtype, torch.dtype) and not dtype.is_floating_point and not dtype.is_complex:
        text += (
            ". Whole numbers and booleans reach the model as they are; for one that computes with "
            "floats give x as float32"
        )
    return text


@contextlib.contextmanager
def explaining(built: Built, batch: Batch) -> Iterator[None]:
    """Around a step on a batch given by hand: what fails is said of its targets, or its samples.

    Raises:
        ValueError: In the place of torch's own error, where they do not fit.
    """
    try:
        yield
    except (RuntimeError, IndexError) as error:
        if isinstance(batch.x, torch.Tensor):
            _refuse_batch(error, built, batch.x, batch.y)
        raise


def _refuse_batch(error: Exception, built: Built, x: torch.Tensor, y: torch.Tensor) -> None:
    train = built.recipe.train
    is_usual = train is not None and train.sample_spec().shape == tuple(x.shape[1:])
    output_shape = None if built.scan is None else built.scan.output_shape
    loss = built.recipe.loss
    if loss is not None and output_shape and (is_usual or isinstance(error, IndexError)):
        loss.check_target(y.cpu().numpy(), (len(x), *output_shape[1:]))
    if isinstance(error, RuntimeError):
        refuse_samples(error, built, tuple(x.shape[1:]), x.dtype)


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")
