"""Wide residual networks for small pictures: pre-activation blocks, few of them, many channels.

Reference:
    S. Zagoruyko, N. Komodakis, "Wide Residual Networks", 2016, arXiv:1605.07146.
"""

from __future__ import annotations

from torch import Tensor, nn

from renaissance.models.parts import check_count, check_fraction
from renaissance.models.resnet import convolution
from renaissance.nn.pooling import GlobalMean


class WideBlock(nn.Module):
    """norm, ReLU, 3x3, norm, ReLU, [dropout,] 3x3, plus the shortcut.

    Where the shape changes the shortcut is a 1x1 convolution of the *activated* input.

    Shape: (N, in_channels, H, W) -> (N, out_channels, H/stride, W/stride).
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int, dropout: float) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.relu = nn.ReLU(inplace=True)
        self.conv1 = convolution(in_channels, out_channels, 3, stride)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.dropout: nn.Module = nn.Dropout(dropout) if dropout > 0 else nn.Identity()
        self.conv2 = convolution(out_channels, out_channels, 3)
        changes = stride != 1 or in_channels != out_channels
        self.shortcut = convolution(in_channels, out_channels, 1, stride) if changes else None

    def forward(self, x: Tensor) -> Tensor:
        activated = self.relu(self.bn1(x))
        out = self.dropout(self.relu(self.bn2(self.conv1(activated))))
        out = self.conv2(out)
        return out + (x if self.shortcut is None else self.shortcut(activated))  # type: ignore[no-any-return]


class WideResNet(nn.Module):
    """A wide residual network of three stages (widths 16, 32 and 64 times ``widen``).

    Args:
        depth: Number of layers, 6 * n + 4: 10, 16, 22, 28, 40.
        widen: Factor on the channels.
        num_classes: Number of outputs.
        dropout: Probability of zeroing inside a block, 0 up to below 1.
        in_channels: Channels of the pictures.

    Shape: (N, in_channels, H, W) -> (N, num_classes), raw scores.

    Raises:
        ValueError: for a depth that is not 6 * n + 4.
    """

    def __init__(
        self,
        depth: int,
        widen: int,
        num_classes: int = 10,
        *,
        dropout: float = 0.0,
        in_channels: int = 3,
    ) -> None:
        super().__init__()
        check_count("wide_resnet", "depth", depth, least=10)
        if depth % 6 != 4:
            raise ValueError(
                f"wide_resnet: depth = {depth} is not allowed; it must be 6 * n + 4: "
                "10, 16, 22, 28, 34, 40"
            )
        check_count("wide_resnet", "widen", widen)
        check_count("wide_resnet", "num_classes", num_classes)
        check_count("wide_resnet", "in_channels", in_channels)
        check_fraction("wide_resnet", "dropout", dropout)
        self.conv1 = convolution(in_channels, 16, 3)
        blocks = (depth - 4) // 6
        self.layer1 = _stage(blocks, 16, 16 * widen, 1, dropout)
        self.layer2 = _stage(blocks, 16 * widen, 32 * widen, 2, dropout)
        self.layer3 = _stage(blocks, 32 * widen, 64 * widen, 2, dropout)
        self.bn = nn.BatchNorm2d(64 * widen)
        self.relu = nn.ReLU(inplace=True)
        self.avgpool = GlobalMean()
        self.fc = nn.Linear(64 * widen, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer3(self.layer2(self.layer1(self.conv1(x))))  # (N, 64*widen, H/4, W/4)
        x = self.avgpool(self.relu(self.bn(x)))
        return self.fc(x.flatten(1))  # type: ignore[no-any-return]


def _stage(
    depth: int, in_channels: int, channels: int, stride: int, dropout: float
) -> nn.Sequential:
    """``depth`` blocks; the first one changes channels and strides."""
    first = WideBlock(in_channels, channels, stride, dropout)
    rest = (WideBlock(channels, channels, 1, dropout) for _ in range(depth - 1))
    return nn.Sequential(first, *rest)


def wide_resnet(
    depth: int,
    widen: int,
    num_classes: int = 10,
    *,
    dropout: float = 0.0,
    in_channels: int = 3,
) -> WideResNet:
    """A `WideResNet`: ``wide_resnet(16, 4, num_classes=10)``."""
    return WideResNet(depth, widen, num_classes, dropout=dropout, in_channels=in_channels)


def wide_resnet28_10(
    num_classes: int = 10, *, dropout: float = 0.0, in_channels: int = 3
) -> WideResNet:
    """The 28-layer network widened tenfold: 36.5 million parameters. See `WideResNet`."""
    return WideResNet(28, 10, num_classes, dropout=dropout, in_channels=in_channels)
