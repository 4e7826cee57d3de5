"""The exchange of layers that drop for keyed ones, at compile, and back."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import Tensor, nn

from renaissance import _native
from renaissance.nn.attention import MultiheadAttention, keyed_attention
from renaissance.nn.dropout import ChannelDropout, Dropout, StochasticDepth
from renaissance.nn.recurrent import KeyedRecurrent, keyed_recurrent

#: What `_keyed` gives.
Keyed = Dropout | MultiheadAttention | KeyedRecurrent


def _keyed(layer: Any) -> Keyed | None:
    """Ours in the place of a layer that drops; None for any other layer."""
    kind = type(layer)
    for ndim, channels in ChannelDropout.PLAIN.items():
        if kind is channels and 0 <= layer.p < 1:
            return ChannelDropout(layer.p, ndim)
    if kind is nn.Dropout and 0 <= layer.p < 1:
        return Dropout(layer.p)
    is_torchvisions = kind.__module__ == "torchvision.ops.stochastic_depth"
    if is_torchvisions and kind.__name__ == "StochasticDepth" and 0 <= layer.p < 1:
        return StochasticDepth(layer.p, layer.mode)
    return keyed_attention(layer) or keyed_recurrent(layer)


def swap_dropouts(module: nn.Module, *, attention: bool = True) -> list[str]:
    """Keyed layers in the place of torch's and torchvision's that drop.

    Args:
        module: Whose layers are exchanged.
        attention: Keyed attention too. But for 16 bits on CUDA it computes its weights in full,
            which torch's kernels for GPUs need not; where nothing has to be repeated, torch's is
            left.

    Returns:
        Their paths.
    """
    swapped = []
    for path, parent in list(module.named_modules()):
        for name, child in list(parent.named_children()):
            own = _keyed(child)
            is_left = isinstance(own, MultiheadAttention) and not attention
            if own is not None and not is_left:
                own.train(child.training)
                setattr(parent, name, own)
                swapped.append(f"{path}.{name}" if path else name)
    return swapped


def restore_dropouts(module: nn.Module, paths: Collection[str] | None = None) -> None:
    """The plain layer in the place of every keyed one, or of those at `paths`."""
    for path, parent in list(module.named_modules()):
        for name, child in list(parent.named_children()):
            own = f"{path}.{name}" if path else name
            if isinstance(child, Keyed) and (paths is None or own in paths):
                plain = child.plain()
                plain.train(child.training)
                setattr(parent, name, plain)


def bind_dropouts(module: nn.Module, scalars: Tensor | None) -> None:
    """Give every `Dropout` region S, and a number hashed from its path.

    So adding a layer moves nobody else's masks.
    """
    for path, part in module.named_modules():
        if isinstance(part, Dropout):
            part.bind(scalars, _native.derive_text(0, path) >> 1)  # fits a signed 64-bit integer
