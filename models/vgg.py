"""VGG networks with batch normalisation.

Reference:
    K. Simonyan, A. Zisserman, "Very Deep Convolutional Networks for Large-Scale Image
    Recognition", 2014, arXiv:1409.1556.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from renaissance.models.parts import check_choice, check_count, check_fraction
from renaissance.nn.pooling import GlobalMean, GridMean

HEADS = ("imagenet", "cifar")
STAGE_WIDTHS = (64, 128, 256, 512, 512)


class VGG(nn.Module):
    """Five stages of 3x3 convolutions, each ended by a max-pool, and a linear head.

    Args:
        depths: Convolutions of each stage (widths 64, 128, 256, 512, 512).
        num_classes: Number of outputs.
        head: "imagenet" is a 7x7 grid of means and three linear layers (4096, 4096,
            num_classes), with torchvision's state-dict keys and shapes, so pretrained weights
            load; "cifar" the mean over the picture and one linear layer.
        dropout: Probability of zeroing between the linear layers of the "imagenet" head, 0 up to
            below 1.
        in_channels: Channels of the pictures.

    Shape: (N, in_channels, H, W) with H and W at least 32 -> (N, num_classes), raw scores.
    """

    def __init__(
        self,
        depths: Sequence[int],
        num_classes: int = 1000,
        *,
        head: str = "imagenet",
        dropout: float = 0.5,
        in_channels: int = 3,
    ) -> None:
        super().__init__()
        check_count("vgg", "num_classes", num_classes)
        check_count("vgg", "in_channels", in_channels)
        check_choice("vgg", "head", head, HEADS)
        check_fraction("vgg", "dropout", dropout)
        self.features = features(depths, in_channels)
        if head == "imagenet":
            self.avgpool: nn.Module = GridMean(7)
            self.classifier: nn.Module = nn.Sequential(
                nn.Linear(512 * 7 * 7, 4096),
                nn.ReLU(inplace=True),
                nn.Dropout(dropout),
                nn.Linear(4096, 4096),
                nn.ReLU(inplace=True),
                nn.Dropout(dropout),
                nn.Linear(4096, num_classes),
            )
        else:
            self.avgpool = GlobalMean()
            self.classifier = nn.Linear(512, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        x = self.avgpool(self.features(x))  # (N, 512, 7, 7) or (N, 512, 1, 1)
        return self.classifier(x.flatten(1))  # type: ignore[no-any-return]


def features(depths: Sequence[int], in_channels: int) -> nn.Sequential:
    """The convolutions: (N, in_channels, H, W) -> (N, 512, H/32, W/32)."""
    layers: list[nn.Module] = []
    current = in_channels
    for depth, width in zip(depths, STAGE_WIDTHS):
        for _ in range(depth):
            # The bias in front of a batch-norm has no effect; the published weights contain it.
            layers += [
                nn.Conv2d(current, width, 3, padding=1),
                nn.BatchNorm2d(width),
                nn.ReLU(inplace=True),
            ]
            current = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers)


def vgg11_bn(
    num_classes: int = 1000, *, head: str = "imagenet", dropout: float = 0.5, in_channels: int = 3
) -> VGG:
    """VGG-11 with batch-norm: 132.9 million parameters with 1000 classes. See `VGG`."""
    return VGG((1, 1, 2, 2, 2), num_classes, head=head, dropout=dropout, in_channels=in_channels)


def vgg13_bn(
    num_classes: int = 1000, *, head: str = "imagenet", dropout: float = 0.5, in_channels: int = 3
) -> VGG:
    """VGG-13 with batch-norm: 133.1 million parameters with 1000 classes. See `VGG`."""
    return VGG((2, 2, 2, 2, 2), num_classes, head=head, dropout=dropout, in_channels=in_channels)


def vgg16_bn(
    num_classes: int = 1000, *, head: str = "imagenet", dropout: float = 0.5, in_channels: int = 3
) -> VGG:
    """VGG-16 with batch-norm: 138.4 million parameters with 1000 classes. See `VGG`."""
    return VGG((2, 2, 3, 3, 3), num_classes, head=head, dropout=dropout, in_channels=in_channels)


def vgg19_bn(
    num_classes: int = 1000, *, head: str = "imagenet", dropout: float = 0.5, in_channels: int = 3
) -> VGG:
    """VGG-19 with batch-norm: 143.7 million parameters with 1000 classes. See `VGG`."""
    return VGG((2, 2, 4, 4, 4), num_classes, head=head, dropout=dropout, in_channels=in_channels)
