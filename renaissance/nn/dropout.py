"""Layers that drop: the mask is a pure function of (seed, attempted micro-step, layer, place)."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor, nn

from renaissance.nn import draws  # the operations that the layers call


class Dropout(nn.Module):
    """Sets elements to zero with probability p in training and scales the rest by 1 / (1 - p).

    As torch.nn.Dropout (Srivastava et al., JMLR 15, 2014), with keyed masks. ``task.compile()``
    puts it in the place of every torch.nn.Dropout and gives it a number hashed from its path, and
    the task's scalars.

    Args:
        p: Probability of a zero, at least 0 and below 1.

    Shape:
        (N, ...) float32, bfloat16 or float16; the output has the same shape and dtype.
    """

    #: What draws outside of a task.
    instead: ClassVar[str] = "torch.nn.Dropout"

    def __init__(self, p: float = 0.5) -> None:
        super().__init__()
        if isinstance(p, bool) or not isinstance(p, (int, float)):
            raise TypeError(f"Dropout: p = {p!r} ({type(p).__name__}) must be a number")
        if not 0 <= p < 1:
            raise ValueError(f"Dropout: p = {p} is not allowed; it must be at least 0 and below 1")
        self.p, self.layer = float(p), 0
        self._scalars: Tensor | None = None

    def bind(self, scalars: Tensor | None, layer: int = 0) -> None:
        """Use this region S and layer number, 0 to 2**63 - 1; None unbinds."""
        self._scalars, self.layer = scalars, layer

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        return draws.dropout(x, self._bound(), self.layer, self.p)

    def _bound(self) -> Tensor:
        """Region S; RuntimeError outside of a task."""
        if self._scalars is None:
            raise RuntimeError(
                f"rn.nn.{type(self).__name__} draws from a task's seed and step: give the model to "
                f"rn.Task and compile, or use {self.instead} outside of one"
            )
        return self._scalars

    def extra_repr(self) -> str:
        return f"p={self.p}"

    def plain(self) -> nn.Module:
        """The layer that draws from torch's generators, as it would be outside of a task."""
        return nn.Dropout(self.p)

    def __deepcopy__(self, memo: dict[int, Any]) -> Dropout:
        copy = self._copy()
        copy.train(self.training)
        return copy

    def _copy(self) -> Dropout:
        return Dropout(self.p)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_scalars": None}


class StochasticDepth(Dropout):
    """Drops whole samples, in training, as they pass a residual branch, and scales the rest.

    As torchvision.ops.StochasticDepth (Huang et al. 2016, arXiv:1603.09382), with keyed masks: a
    sample is zeroed with probability p or multiplied by 1 / (1 - p). ``task.compile()`` puts it in
    the place of torchvision's.

    Args:
        p: Probability of dropping, at least 0 and below 1.
        mode: "row" draws for every sample, "batch" once for all of them.

    Shape:
        (N, ...) float32, bfloat16 or float16; the output has the same shape and dtype.
    """

    instead = "torchvision.ops.StochasticDepth"

    def __init__(self, p: float, mode: str = "row") -> None:
        super().__init__(p)
        if mode not in ("row", "batch"):
            raise ValueError(
                f"StochasticDepth: mode = {mode!r} is not allowed; it takes 'row' or 'batch'"
            )
        self.mode = mode

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        rows = len(x) if self.mode == "row" else 1
        return x * super().forward(x.new_ones((rows, *(1 for _ in x.shape[1:]))))

    def extra_repr(self) -> str:
        return f"p={self.p}, mode={self.mode}"

    def plain(self) -> nn.Module:
        from torchvision.ops import StochasticDepth as Plain  # it takes a second to import

        return Plain(self.p, self.mode)  # type: ignore[no-any-return]

    def _copy(self) -> Dropout:
        return StochasticDepth(self.p, self.mode)


class ChannelDropout(Dropout):
    """Drops whole channels of a sample, in training, and scales the rest by 1 / (1 - p).

    As torch.nn.Dropout1d, 2d and 3d (Tompson et al. 2015, arXiv:1411.4280), with keyed masks.
    ``task.compile()`` puts it in the place of theirs.

    Args:
        p: Probability of dropping a channel, at least 0 and below 1.
        ndim: Dimensions behind the channels: 1, 2 or 3.

    Shape:
        (N, C, ...) float32, bfloat16 or float16; the output has the same shape and dtype.
    """

    instead = "torch.nn.Dropout1d, 2d or 3d"

    PLAIN: ClassVar[dict[int, type[nn.Module]]] = {
        1: nn.Dropout1d,
        2: nn.Dropout2d,
        3: nn.Dropout3d,
    }

    def __init__(self, p: float = 0.5, ndim: int = 2) -> None:
        super().__init__(p)
        if ndim not in self.PLAIN:
            raise ValueError(f"ChannelDropout: ndim = {ndim!r} is not allowed; it takes 1, 2 or 3")
        self.ndim = ndim

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        is_row = self.ndim == 2 and x.dim() == 3  # (N, C, L), which torch's Dropout2d takes too
        if x.dim() != self.ndim + 2 and not is_row:
            raise ValueError(
                f"ChannelDropout(ndim={self.ndim}) takes (N, C) and {self.ndim} more dimensions, "
                f"received {tuple(x.shape)}"
            )
        kept = super().forward(x.new_ones(x.shape[:2]))
        return x * kept.view(*x.shape[:2], *(1,) * (x.dim() - 2))

    def extra_repr(self) -> str:
        return f"p={self.p}, ndim={self.ndim}"

    def plain(self) -> nn.Module:
        return self.PLAIN[self.ndim](self.p)

    def _copy(self) -> Dropout:
        return ChannelDropout(self.p, self.ndim)
