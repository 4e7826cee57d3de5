"""Normal noise inside a network, keyed by seed and step as dropout's masks are."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from renaissance.nn import draws
from renaissance.nn.dropout import Dropout


class Noise(Dropout):
    """Standard normal numbers in training, zeros in evaluation.

    Takes the place of ``torch.randn_like(x)`` in a forward, which a seed cannot repeat: for the
    sampling of a variational autoencoder (Kingma and Welling 2014, arXiv:1312.6114), noisy inputs
    or weights. ``x + 0.1 * noise(x)`` is Keras' ``GaussianNoise(0.1)``. One layer for each place
    that draws.

    The numbers are Box and Muller's (1958), float32 rounded to the type, the same bits on CPU and
    GPU.

    Shape:
        (N, ...) of any floating-point type gives the same shape and type; only they matter.
    """

    instead = "torch.randn_like"

    def __init__(self) -> None:
        super().__init__(0.0)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return torch.zeros_like(x)
        is_known = x.dtype in draws.DTYPES
        found = draws.noise(x if is_known else x.float(), self._bound(), self.layer)
        return found.to(x.dtype)

    def extra_repr(self) -> str:
        return ""

    def plain(self) -> nn.Module:
        return PlainNoise()

    def _copy(self) -> Dropout:
        return Noise()


class PlainNoise(nn.Module):
    """`Noise` from torch's generators: what it is outside of a task."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.randn_like(x) if self.training else torch.zeros_like(x)
