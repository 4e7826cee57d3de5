"""A multilayer perceptron: linear layers with an activation between them."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from renaissance.models.parts import activation_layer, check_count, check_fraction


class MLP(nn.Sequential):
    """flatten, then ``linear, activation[, dropout]`` for every hidden width, then a linear layer.

    Args:
        hidden: Widths of the hidden layers, first to last; empty is logistic regression.
        num_classes: Number of outputs.
        in_features: Number of numbers in one sample: 784 for a 28x28 picture of one channel.
        dropout: Probability of zeroing a hidden unit, 0 (no dropout layers) up to below 1.
        activation: "relu", "gelu", "silu", "tanh", "sigmoid" or "leaky_relu".

    Shape: (N, ...) with ``in_features`` numbers a sample -> (N, num_classes), raw scores.

    Raises:
        TypeError, ValueError: for widths that are no positive whole numbers, a dropout outside
            [0, 1) or an unknown activation.
    """

    def __init__(
        self,
        hidden: Sequence[int],
        num_classes: int,
        in_features: int,
        dropout: float = 0.0,
        activation: str = "relu",
    ) -> None:
        if isinstance(hidden, (str, int)):
            raise TypeError(
                f"mlp: hidden = {hidden!r} is not allowed; it must be a list of widths, "
                "for example [1024, 512]"
            )
        widths = [check_count("mlp", "hidden width", width) for width in hidden]
        check_count("mlp", "num_classes", num_classes)
        check_count("mlp", "in_features", in_features)
        check_fraction("mlp", "dropout", dropout)
        layers: list[nn.Module] = [nn.Flatten()]
        current = in_features
        for width in widths:
            layers += [nn.Linear(current, width), activation_layer("mlp", activation)]
            if dropout > 0:
                layers.append(nn.Dropout(dropout))
            current = width
        layers.append(nn.Linear(current, num_classes))
        super().__init__(*layers)


def mlp(
    hidden: Sequence[int],
    num_classes: int,
    in_features: int,
    dropout: float = 0.0,
    activation: str = "relu",
) -> MLP:
    """An `MLP`: ``mlp([1024, 512, 256], num_classes=10, in_features=784)``."""
    return MLP(hidden, num_classes, in_features, dropout, activation)
