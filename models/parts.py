"""What the network builders share: checked numbers, activations and deterministic pooling."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "relu": lambda: nn.ReLU(inplace=True),
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "leaky_relu": nn.LeakyReLU,
}


def did_you_mean(given: str, allowed: Iterable[str]) -> str:
    """ "; did you mean 'relu'?" for a name near an allowed one, else "."."""
    near = difflib.get_close_matches(given.lower(), list(allowed), n=1, cutoff=0.6)
    return f"; did you mean {near[0]!r}?" if near else "."


def activation_layer(owner: str, name: str) -> nn.Module:
    """A new activation module by name; ValueError with the nearest name for an unknown one."""
    if name not in ACTIVATIONS:
        hint = did_you_mean(str(name), ACTIVATIONS)
        raise ValueError(
            f"{owner}: unknown activation {name!r}{hint} Allowed: {', '.join(ACTIVATIONS)}"
        )
    return ACTIVATIONS[name]()


def check_count(owner: str, name: str, given: int, least: int = 1) -> int:
    """``given`` as it is when it is a whole number of at least ``least``."""
    if isinstance(given, bool) or not isinstance(given, int):
        raise TypeError(
            f"{owner}: {name} = {given!r} ({type(given).__name__}) is not allowed; "
            f"it must be a whole number of at least {least}"
        )
    if given < least:
        raise ValueError(f"{owner}: {name} = {given} is not allowed; it must be at least {least}")
    return given


def check_fraction(owner: str, name: str, given: float) -> float:
    """``given`` as it is when it lies in [0, 1)."""
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        raise TypeError(
            f"{owner}: {name} = {given!r} ({type(given).__name__}) is not allowed; "
            "it must be a number at least 0 and below 1"
        )
    if not 0 <= given < 1:
        raise ValueError(
            f"{owner}: {name} = {given!r} is not allowed; it must be at least 0 and below 1"
        )
    return given


def check_choice(owner: str, name: str, given: str, allowed: tuple[str, ...]) -> str:
    """``given`` as it is when it is one of ``allowed``."""
    if given not in allowed:
        hint = did_you_mean(str(given), allowed)
        raise ValueError(f"{owner}: {name} = {given!r}{hint} Allowed: {', '.join(allowed)}")
    return given


class GlobalMean(nn.Module):
    """The mean over height and width: (N, C, H, W) -> (N, C, 1, 1).

    Equal bit for bit to ``nn.AdaptiveAvgPool2d(1)`` in forward. Adaptive pooling's backward adds
    in no fixed order on CUDA and raises under deterministic algorithms; a mean's does neither.
    """

    def forward(self, x: Tensor) -> Tensor:
        return x.mean((-2, -1), keepdim=True)


class GlobalMax(nn.Module):
    """The maximum over height and width: (N, C, H, W) -> (N, C, 1, 1).

    Equal to ``nn.AdaptiveMaxPool2d(1)`` in forward; equal maxima share the gradient.
    """

    def forward(self, x: Tensor) -> Tensor:
        return x.amax((-2, -1), keepdim=True)


class GridMean(nn.Module):
    """Means over a grid of windows: (N, C, H, W) -> (N, C, size, size).

    The windows are those of ``nn.AdaptiveAvgPool2d(size)``: window i of ``size`` covers rows
    floor(i*H/size) up to ceil((i+1)*H/size). The identity when H = W = size. Built from slices,
    means and concatenations, so that backward adds in a fixed order on every device.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = check_count("GridMean", "size", size)

    def forward(self, x: Tensor) -> Tensor:
        return self._along(self._along(x, -2), -1)

    def _along(self, x: Tensor, axis: int) -> Tensor:
        length = x.shape[axis]
        if length == self.size:
            return x
        windows = []
        for index in range(self.size):
            begin = index * length // self.size
            end = -((-(index + 1) * length) // self.size)
            windows.append(x.narrow(axis, begin, end - begin).mean(axis, keepdim=True))
        return torch.cat(windows, axis)

    def extra_repr(self) -> str:
        return str(self.size)
