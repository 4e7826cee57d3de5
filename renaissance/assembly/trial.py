"""The trial of a module: real samples pass through it before it is bound, and are looked at."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from renaissance import _native
from renaissance import nn as layers
from renaissance.assembly.misfit import check_targets, refuse_call
from renaissance.assembly.scan import Finding, Scan, check_random, scan
from renaissance.data.batch import NO_TARGETS, mapped, on_host, to_device
from renaissance.data.loader import Loader
from renaissance.losses import LossFunction

if TYPE_CHECKING:
    from renaissance.assembly.recipe import Recipe
    from renaissance.task import Task


def first_samples(
    loader: Loader, count: int = 2, *, needs_targets: bool = True
) -> tuple[Any, Tensor | None]:
    """The first samples of epoch 0 as tensors: what shapes are judged by."""
    batch = loader.batch_at(0, 0, seed=0)
    if batch.y is None and needs_targets:
        raise ValueError(f"training data: {NO_TARGETS}")
    x = mapped(lambda rows: on_host(rows)[:count], batch.x)
    return x, None if batch.y is None else on_host(batch.y)[:count]


def materialise(module: nn.Module, x: Any) -> None:
    """Give lazy parameters their shapes, from one pass in evaluation mode."""
    lazy = (nn.parameter.UninitializedParameter, nn.parameter.UninitializedBuffer)
    tensors = [*module.parameters(), *module.buffers()]
    if any(isinstance(t, lazy) for t in tensors):
        training = module.training
        module.eval()
        with torch.no_grad():
            _call(module, x)
        module.train(training)


def smallest_batch(recipe: Recipe) -> int | None:
    """Samples of the smallest batch that the module trains on, if that is known."""
    if recipe.train is None:
        return None
    rest = recipe.train.num_samples % recipe.train.batch_size
    return rest if rest and not recipe.train.drop_last else recipe.train.batch_size


def try_samples(task: Task, sample: tuple[Any, Tensor | None] | None) -> Scan | None:
    """One pass over a few samples on the unbound module; its buffers are put back.

    The pass is that of a step, or of an evaluation where the task has no optimizer. Parameters
    that two samples do not reach are judged by the whole first batch.

    Args:
        task: With a module that is on some device, not bound.
        sample: `first_samples` of its training data, if it has any.

    Returns:
        None without samples or without a loss.

    Raises:
        ValueError: Model, loss and data do not fit.
        RuntimeError: See `check_random`.
    """
    recipe, loader = task.settings, task.settings.train
    if sample is None or recipe.loss is None or loader is None:
        return None
    x, y = sample
    assert y is not None, "a task with a loss asks for targets"
    found = _scan(task.model, recipe, x, y)
    if recipe.trains:
        parameters = [p.requires_grad for p in task.model.parameters()]
        if len(found.unused) == sum(parameters):
            raise ValueError(
                "there is nothing to train: the loss depends on none of the model's "
                f"{len(parameters)} parameters, or none has requires_grad"
            )
        if found.unused and len(y) < min(loader.batch_size, loader.num_samples):
            return try_samples(task, first_samples(loader, loader.batch_size))
        check_random(found, seeded=task.seed_given)
    if found.output_shape is not None:
        check_targets(recipe.loss, loader, found.output_shape)
        try:
            check_targets(recipe.loss, recipe.valid, found.output_shape)
        except ValueError as error:
            raise ValueError(f"validation data: {error}") from None
    return found


def _scan(module: nn.Module, recipe: Recipe, x: Any, y: Tensor) -> Scan:
    assert recipe.loss is not None
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    x, y = to_device(x, device), y.to(device)
    buffers = {n: b.clone() for n, b in module.named_buffers()}
    training = module.training
    module.train(recipe.trains)
    layers.bind_dropouts(
        module, torch.zeros(_native.SCALARS_BYTES, dtype=torch.uint8, device=device)
    )
    function = recipe.loss.function(device)  # with tensors of its own, perhaps
    try:
        with torch.set_grad_enabled(recipe.trains):
            found = scan(
                module, lambda: _one_pass(module, recipe, function, x, y), (layers.Dropout,)
            )
    finally:
        module.train(training)
        for name, buffer in module.named_buffers():
            buffer.copy_(buffers[name])
    if isinstance(x, Tensor):
        return found
    several = Finding("several inputs", type(x).__name__, "the batches of the data")
    return dataclasses.replace(found, findings=(*found.findings, several))


def _one_pass(
    module: nn.Module, recipe: Recipe, loss: LossFunction, x: Any, y: Tensor
) -> tuple[Any, Tensor]:
    assert recipe.loss is not None
    output = _call(module, mapped(Tensor.detach, x))
    if isinstance(output, Tensor):
        recipe.loss.check_target(y.cpu().numpy(), tuple(output.shape))
    elif recipe.loss.knows_targets:
        raise TypeError(
            f"the model gives {type(output).__name__}, {type(recipe.loss).__name__} takes one "
            "tensor; return that tensor, or give task.loss a function of (output, target)"
        )
    return output, loss(output, y)[0]


def _call(module: nn.Module, x: Any) -> Any:
    try:
        return module(x)
    except (RuntimeError, TypeError, AttributeError, ValueError) as error:
        refuse_call(x, error)
        raise
