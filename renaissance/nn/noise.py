"""Normal noise inside a network, keyed by seed and step as dropout's masks are."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from renaissance.nn.dropout import Dropout

#: Binary digits of a uniform number, as many as float32 has.
DIGITS = 24


class Noise(Dropout):
    """Standard normal numbers in training, zeros in evaluation.

    Takes the place of ``torch.randn_like(x)`` in a forward, which a seed cannot repeat: for the
    sampling of a variational autoencoder (Kingma and Welling 2014, arXiv:1312.6114), noisy inputs
    or weights. ``x + 0.1 * noise(x)`` is Keras' ``GaussianNoise(0.1)``. One layer for each place
    that draws.

    The numbers are Box and Muller's, of two uniform ones whose binary digits are a mask of dropout
    each: 48 words a number, which is meant for codes and features and is slow for pictures. The
    same on CPU and GPU to the rounding of sine and logarithm.

    Shape:
        (N, ...) of any floating-point type gives the same shape and type; only they matter.
    """

    def __init__(self) -> None:
        super().__init__(0.5)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return torch.zeros_like(x)
        numbers = math.prod(x.shape[1:])
        ones = torch.ones((len(x), 2 * DIGITS, numbers), dtype=torch.float32, device=x.device)
        digits = super().forward(ones).view(len(x), 2, DIGITS, numbers) * 0.5
        places = torch.arange(1, DIGITS + 1, dtype=torch.float32, device=x.device)
        # Sums of different powers of two: exact in any order. Half a step keeps them above 0.
        first, second = ((digits * (-places).exp2()[:, None]).sum(2) + 2.0**-25).unbind(1)
        normal = (-2.0 * first.log()).sqrt() * (2.0 * math.pi * second).cos()
        return normal.view_as(x).to(x.dtype)

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
