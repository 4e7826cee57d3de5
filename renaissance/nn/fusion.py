"""What compile puts in the place of a whole forward on CUDA, where it knows something faster.

A multi-layer perceptron in 16 bits runs as one kernel a layer and one for its loss; networks of
convolutions and batch-norms are rewritten by `patterns`; all else goes through torch.compile. Hooks
on the layers do not run then, as in any captured step.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from renaissance.nn.beside import Beside
    from renaissance.nn.fused_linear import Landing

Forward = Callable[[Tensor], Tensor]
Head = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]


@dataclasses.dataclass(frozen=True)
class Fusion:
    """A forward in the place of a module's.

    Attributes:
        forward: The module's function, in whatever mode it is, over its own parameters.
        last: The layer whose output is the network's, if it is a linear one.
        text: For the report.
        beside: Where backward makes gradients beside the rest, if it does.
    """

    forward: Forward
    last: nn.Linear | None
    text: str
    beside: Beside | None = None


class Perceptron:
    """The forward of a sequence of linear layers and ReLUs, one kernel a layer.

    Args:
        steps: The layers, and whether a ReLU follows.
        dtype: Of their weights.

    """

    def __init__(self, steps: Sequence[tuple[nn.Linear, bool]], dtype: torch.dtype) -> None:
        self._steps, self._dtype = steps, dtype
        self._landing: Landing | None = None

    def __call__(self, x: Tensor) -> Tensor:
        from renaissance.nn.fused_linear import fused_perceptron

        rows = x.flatten(1).to(self._dtype).contiguous()
        layers = [(layer.weight, layer.bias, relu) for layer, relu in self._steps]
        return fused_perceptron(rows, layers, self._landing)

    def land(self, places: Mapping[Tensor, tuple[str, Tensor]]) -> Landing | None:
        """Let backward put its gradients where they are wanted, if it has just those; else None.

        Args:
            places: Name, and float32 place of the gradient, of every parameter that is trained. A
                parameter that two layers share has two gradients, which are added elsewhere.
        """
        from renaissance.nn.fused_linear import Landing

        layers = [layer for layer, _ in self._steps]
        own = [t for layer in layers for t in (layer.weight, layer.bias) if t is not None]
        is_dense = all(place.is_contiguous() for _, place in places.values())
        if not is_dense or len(own) != len(places) or set(own) != set(places):
            return None
        weights = [places[layer.weight] for layer in layers]
        biases = [None if layer.bias is None else places[layer.bias] for layer in layers]
        self._landing = Landing.of(list(zip(weights, biases)))
        return self._landing


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
    text = f"{len(steps)} linear layers, one kernel each"
    return Fusion(Perceptron(steps, dtype), steps[-1][0], text)


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


def check_counted(low: int | None) -> None:
    """ValueError for labels of no class, which a fused loss would take for places in memory."""
    if low is not None and low < 0:
        raise ValueError(
            f"some labels are {low}, which does not count; those that the task was compiled "
            "with all did. Compile with such data, or with fuse='off'"
        )
