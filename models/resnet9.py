"""The nine-layer residual network of the public speed records on CIFAR-10.

Reference:
    D. Page, "How to Train Your ResNet", 2018-2019, parts 4 (the network: 94 % on CIFAR-10 in 24
    epochs) and 8 (pooling before batch-norm, label smoothing, averaged weights: fewer epochs).
"""

from __future__ import annotations

from torch import Tensor, nn

from renaissance.models.parts import check_count
from renaissance.models.resnet import convolution
from renaissance.nn.pooling import GlobalMax


class NormedConvolution(nn.Sequential):
    """3x3 convolution, [2x2 max-pool,] batch-norm, ReLU: (N, in, H, W) -> (N, out, H, W).

    With ``pool`` height and width are halved. The pool stands in front of the batch-norm, which
    then has a quarter of the pixels to read.
    """

    def __init__(self, in_channels: int, out_channels: int, *, pool: bool = False) -> None:
        layers: list[tuple[str, nn.Module]] = [("conv", convolution(in_channels, out_channels, 3))]
        if pool:
            layers.append(("pool", nn.MaxPool2d(2)))
        layers += [("bn", nn.BatchNorm2d(out_channels)), ("relu", nn.ReLU(inplace=True))]
        super().__init__()
        for name, layer in layers:
            self.add_module(name, layer)


class ResidualPair(nn.Module):
    """Two 3x3 convolutions, each with batch-norm and ReLU, plus the input: shapes stay."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = NormedConvolution(channels, channels)
        self.second = NormedConvolution(channels, channels)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.second(self.first(x))  # type: ignore[no-any-return]


class ResNet9(nn.Module):
    """Eight 3x3 convolutions and a linear layer, three poolings, two shortcuts.

    Args:
        num_classes: Number of outputs.
        width: Channels of the first convolution; the stages have 2, 4 and 8 times as many.
        scale: Factor on the scores. A small one keeps the loss of a high learning rate tame.
        in_channels: Channels of the pictures.

    Shape: (N, in_channels, H, W) with H and W at least 8 -> (N, num_classes), raw scores.
    """

    def __init__(
        self,
        num_classes: int = 10,
        *,
        width: int = 64,
        scale: float = 0.125,
        in_channels: int = 3,
    ) -> None:
        super().__init__()
        check_count("resnet9", "num_classes", num_classes)
        check_count("resnet9", "width", width)
        check_count("resnet9", "in_channels", in_channels)
        if not scale > 0:
            raise ValueError(f"resnet9: scale = {scale!r} is not allowed; it must be above 0")
        self.stem = NormedConvolution(in_channels, width)
        self.stage1 = NormedConvolution(width, 2 * width, pool=True)
        self.residual1 = ResidualPair(2 * width)
        self.stage2 = NormedConvolution(2 * width, 4 * width, pool=True)
        self.stage3 = NormedConvolution(4 * width, 8 * width, pool=True)
        self.residual3 = ResidualPair(8 * width)
        self.maximum = GlobalMax()
        self.fc = nn.Linear(8 * width, num_classes, bias=False)
        self.scale = scale
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.residual1(self.stage1(self.stem(x)))  # (N, 2*width, H/2, W/2)
        x = self.residual3(self.stage3(self.stage2(x)))  # (N, 8*width, H/8, W/8)
        return self.fc(self.maximum(x).flatten(1)) * self.scale  # type: ignore[no-any-return]


def resnet9(
    num_classes: int = 10, *, width: int = 64, scale: float = 0.125, in_channels: int = 3
) -> ResNet9:
    """The nine-layer network: 6.6 million parameters with 10 classes. See `ResNet9`."""
    return ResNet9(num_classes, width=width, scale=scale, in_channels=in_channels)
