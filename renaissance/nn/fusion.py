"""What compile puts in the place of a whole forward on CUDA, where it knows something faster.

A multi-layer perceptron in 16 bits runs as one kernel a layer and one for its loss; networks of
convolutions and batch-norms are rewritten by `patterns`; all else goes through torch.compile. Hooks
on the layers do not run then, as in any captured step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

Forward = Callable[[Tensor], Tensor]
Head = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclasses.dataclass(frozen=True)
class Fusion:
    """A forward in the place of a module's.

    Attributes:
        forward: The module's function, in whatever mode it is, over its own parameters.
        last: The layer whose output is the network's, if it is a linear one.
        text: For the report.
    """

    forward: Forward
    last: nn.Linear | None
    text: str


def perceptron(module: nn.Module, dtype: torch.dtype | None) -> Fusion | None:
    """The fused forward of a sequence of Flatten, Linear and ReLU layers in 16 bits, else None."""
    if dtype is None or not isinstance(module, nn.Sequential):
        return None
    layers = [layer for layer in module if not isinstance(layer, nn.Identity)]
    if layers and isinstance(layers[0], nn.Flatten) and layers[0].start_dim == 1:
        layers = layers[1:]
    steps: list[tuple[nn.Linear, bool]] = []
    for layer in layers:
        if isinstance(layer, nn.Linear):
            steps.append((layer, False))
        elif isinstance(layer, nn.ReLU) and steps and not steps[-1][1]:
            steps[-1] = (steps[-1][0], True)
        else:
            return None
    if not steps or steps[-1][1] or any(step.weight.dtype != dtype for step, _ in steps):
        return None
    from renaissance.nn.fused_linear import fused_perceptron

    def forward(x: Tensor) -> Tensor:
        rows = x.flatten(1).to(dtype).contiguous()
        return fused_perceptron(rows, [(step.weight, step.bias, relu) for step, relu in steps])

    return Fusion(forward, steps[-1][0], f"{len(steps)} linear layers, one kernel each")


def classifier_head(
    last: nn.Linear,
    loss: Any,
    metric_names: Sequence[str],
    labels: Sequence[Any],
    scalars: Tensor,
) -> Head | None:
    """Cross-entropy and accuracy in one kernel, for class numbers without weights, else None.

    Args:
        last: The layer that gives the logits.
        loss: The task's loss.
        metric_names: The task's metrics beside it.
        labels: What each loader knows of its labels.
        scalars: Region S.
    """
    settings = loss.settings
    is_plain = (
        type(loss).__name__ == "CrossEntropyLoss"
        and settings.class_weights is None
        and settings.ignore_index < 0
        and list(metric_names) == ["accuracy"]
        and all(label is not None and label.shape == () for label in labels)
        and all(label.low is not None and label.low >= 0 for label in labels)
    )
    if not is_plain:
        return None
    from renaissance.nn.fused_loss import MAX_CLASSES, classify

    if int(last.out_features) > MAX_CLASSES:
        return None
    smoothing = float(settings.label_smoothing)

    def head(output: Tensor, target: Tensor, sums: Tensor) -> tuple[Tensor, Tensor]:
        return classify(output, target, smoothing=smoothing, scalars=scalars, sums=sums)

    return head
