"""Pooling over a whole picture whose backward adds in a fixed order on every device."""

from __future__ import annotations

import torch
from torch import Tensor, nn


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
        if isinstance(size, bool) or not isinstance(size, int):
            raise TypeError(
                f"GridMean: size = {size!r} ({type(size).__name__}) is not allowed; it must be a "
                "whole number of at least 1"
            )
        if size < 1:
            raise ValueError(f"GridMean: size = {size} is not allowed; it must be at least 1")
        self.size = size

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
