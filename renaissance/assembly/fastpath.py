"""Which passes a step runs on CUDA: fused ones where they are known, else torch.compile's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import nn

from renaissance.nn.fusion import Fusion, Head, Perceptron, classifier_head, perceptron

if TYPE_CHECKING:
    from renaissance.step.executor import StepExecutor
    from renaissance.task import Task

#: Dozens of kernels more to launch, which a graph does for nothing and the host does not. With a
#: seed they run all the same: the bits of an eager step are a captured one's.
NOT_WORTH_IT = "not fused: an eager step without a seed is faster on torch's layers"


def choose_passes(executor: StepExecutor, task: Task, *, fuse: str, compile_model: str) -> None:
    """Give the executor of a CUDA device the fastest passes that are known to work.

    Args:
        executor: Not prepared yet.
        task: Bound to its memory.
        fuse: "auto" or "off".
        compile_model: "auto" or "off".
    """
    recipe = task.settings
    if fuse == "auto" and recipe.train is not None:
        from renaissance.nn.patterns import fuse as fuse_norms

        found: Fusion | str | None = perceptron(task.model, task.precision.working_dtype)
        if found is None:
            found = fuse_norms(task.model)
            if isinstance(found, Fusion) and not (executor.is_captured or task.deterministic):
                found = NOT_WORTH_IT
        if isinstance(found, Fusion):
            _take(executor, task, found)
            return
        executor.fused = found
    if compile_model == "auto":
        executor.compile_passes()


def _take(executor: StepExecutor, task: Task, found: Fusion) -> None:
    """A fused forward; its gradients land in region G where it can put them there itself."""
    passes, memory = executor.passes, executor.memory
    passes.forward, executor.how, executor.fused = found.forward, "fused", found.text
    if found.beside is not None:
        found.beside.is_on = executor.is_captured
    passes.head = _head(executor, task, found.last)
    if isinstance(found.forward, Perceptron):
        places = ((s.name, memory.view("G", s.name)) for s in memory.plan.parameters)
        passes.landing = found.forward.land(dict(zip(executor.parameters, places)))


def _head(executor: StepExecutor, task: Task, last: nn.Linear | None) -> Head | None:
    """Loss and metrics of 16-bit scores in one kernel, where they are simple enough."""
    recipe = task.settings
    if last is None or task.precision.working_dtype is None:
        return None
    names = [metric.name for metric in executor.passes.metrics]
    loaders = [one for one in (recipe.train, recipe.valid) if one is not None]
    labels = [loader.sample_spec().label for loader in loaders]
    return classifier_head(last, recipe.loss, names, labels, executor.memory.region("S"))
