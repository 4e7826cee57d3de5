"""Residual networks: ResNet v1.5 for ImageNet and CIFAR, and wide pre-activation networks.

References:
    K. He, X. Zhang, S. Ren, J. Sun, "Deep Residual Learning for Image Recognition", 2015,
    arXiv:1512.03385. Version 1.5 has the stride of a bottleneck in its 3x3 convolution.
    P. Goyal et al., "Accurate, Large Minibatch SGD", 2017, arXiv:1706.02677 (zero last scale).
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from renaissance.models.parts import check_choice, check_count
from renaissance.nn.pooling import GlobalMean

STEMS = ("imagenet", "cifar")


def convolution(in_channels: int, out_channels: int, size: int, stride: int = 1) -> nn.Conv2d:
    """A square convolution without bias, padded so that stride 1 keeps height and width."""
    return nn.Conv2d(in_channels, out_channels, size, stride, padding=size // 2, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions and a shortcut: (N, in, H, W) -> (N, width, H/stride, W/stride)."""

    expansion = 1
    last_norm = "bn2"  #: the batch-norm whose scale `zero_init_last` starts at 0

    def __init__(self, in_channels: int, width: int, stride: int = 1) -> None:
        super().__init__()
        self.conv1 = convolution(in_channels, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = convolution(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = shortcut(in_channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        identity = x if self.downsample is None else self.downsample(x)
        return self.relu(out + identity)  # type: ignore[no-any-return]


class Bottleneck(nn.Module):
    """1x1, 3x3 (strided), 1x1: (N, in, H, W) -> (N, 4*width, H/stride, W/stride)."""

    expansion = 4
    last_norm = "bn3"

    def __init__(self, in_channels: int, width: int, stride: int = 1) -> None:
        super().__init__()
        out_channels = width * self.expansion
        self.conv1 = convolution(in_channels, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = convolution(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = convolution(width, out_channels, 1)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut(in_channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.relu(self.bn2(self.conv2(out)))
        out = self.bn3(self.conv3(out))
        identity = x if self.downsample is None else self.downsample(x)
        return self.relu(out + identity)  # type: ignore[no-any-return]


def shortcut(in_channels: int, out_channels: int, stride: int) -> nn.Sequential | None:
    """A 1x1 convolution and batch-norm where the block changes shape; None where it does not."""
    if stride == 1 and in_channels == out_channels:
        return None
    return nn.Sequential(
        convolution(in_channels, out_channels, 1, stride), nn.BatchNorm2d(out_channels)
    )


class ResNet(nn.Module):
    """ResNet v1.5. State-dict keys and shapes are torchvision's, so pretrained weights load.

    Args:
        block: `BasicBlock` or `Bottleneck`.
        depths: Blocks of each of the four stages (widths 64, 128, 256, 512).
        num_classes: Number of outputs.
        stem: "imagenet" is a 7x7 convolution of stride 2 and a max-pool; "cifar" a 3x3
            convolution of stride 1 and no pooling, for pictures of about 32x32.
        zero_init_last: Start the last batch-norm scale of every block at 0, so that each block
            begins as its shortcut. A Task, which draws initial values itself, heeds it too.
        in_channels: Channels of the pictures.

    Shape: (N, in_channels, H, W) -> (N, num_classes), raw scores.
    """

    def __init__(
        self,
        block: type[BasicBlock] | type[Bottleneck],
        depths: Sequence[int],
        num_classes: int = 1000,
        *,
        stem: str = "imagenet",
        zero_init_last: bool = False,
        in_channels: int = 3,
    ) -> None:
        super().__init__()
        check_count("resnet", "num_classes", num_classes)
        check_count("resnet", "in_channels", in_channels)
        check_choice("resnet", "stem", stem, STEMS)
        if stem == "imagenet":
            self.conv1 = convolution(in_channels, 64, 7, stride=2)
        else:
            self.conv1 = convolution(in_channels, 64, 3)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool: nn.Module = (
            nn.MaxPool2d(3, stride=2, padding=1) if stem == "imagenet" else nn.Identity()
        )
        wide = block.expansion
        self.layer1 = _stage(block, depths[0], 64, 64, stride=1)
        self.layer2 = _stage(block, depths[1], 64 * wide, 128, stride=2)
        self.layer3 = _stage(block, depths[2], 128 * wide, 256, stride=2)
        self.layer4 = _stage(block, depths[3], 256 * wide, 512, stride=2)
        self.avgpool = GlobalMean()
        self.fc = nn.Linear(512 * wide, num_classes)
        self.zero_init_last = zero_init_last
        self._initialise()

    def _initialise(self) -> None:
        """Kaiming-normal convolutions; the initial values when no Task sets them."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            elif self.zero_init_last and isinstance(module, (BasicBlock, Bottleneck)):
                nn.init.zeros_(module.get_parameter(f"{module.last_norm}.weight"))

    def forward(self, x: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))  # (N, 64, H/4, W/4), cifar: H, W
        x = self.layer2(self.layer1(x))
        x = self.layer4(self.layer3(x))
        return self.fc(self.avgpool(x).flatten(1))  # type: ignore[no-any-return]


def _stage(
    block: type[BasicBlock] | type[Bottleneck],
    depth: int,
    in_channels: int,
    width: int,
    stride: int,
) -> nn.Sequential:
    """``depth`` blocks; the first one changes channels and strides."""
    first = block(in_channels, width, stride)
    return nn.Sequential(first, *(block(width * block.expansion, width) for _ in range(depth - 1)))


def resnet18(
    num_classes: int = 1000,
    *,
    stem: str = "imagenet",
    zero_init_last: bool = False,
    in_channels: int = 3,
) -> ResNet:
    """ResNet-18: 11.7 million parameters with 1000 classes. See `ResNet`."""
    return ResNet(
        BasicBlock,
        (2, 2, 2, 2),
        num_classes,
        stem=stem,
        zero_init_last=zero_init_last,
        in_channels=in_channels,
    )


def resnet34(
    num_classes: int = 1000,
    *,
    stem: str = "imagenet",
    zero_init_last: bool = False,
    in_channels: int = 3,
) -> ResNet:
    """ResNet-34: 21.8 million parameters with 1000 classes. See `ResNet`."""
    return ResNet(
        BasicBlock,
        (3, 4, 6, 3),
        num_classes,
        stem=stem,
        zero_init_last=zero_init_last,
        in_channels=in_channels,
    )


def resnet50(
    num_classes: int = 1000,
    *,
    stem: str = "imagenet",
    zero_init_last: bool = False,
    in_channels: int = 3,
) -> ResNet:
    """ResNet-50: 25.6 million parameters with 1000 classes. See `ResNet`."""
    return ResNet(
        Bottleneck,
        (3, 4, 6, 3),
        num_classes,
        stem=stem,
        zero_init_last=zero_init_last,
        in_channels=in_channels,
    )


def resnet101(
    num_classes: int = 1000,
    *,
    stem: str = "imagenet",
    zero_init_last: bool = False,
    in_channels: int = 3,
) -> ResNet:
    """ResNet-101: 44.5 million parameters with 1000 classes. See `ResNet`."""
    return ResNet(
        Bottleneck,
        (3, 4, 23, 3),
        num_classes,
        stem=stem,
        zero_init_last=zero_init_last,
        in_channels=in_channels,
    )
