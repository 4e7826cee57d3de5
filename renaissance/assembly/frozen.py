"""Layers that training leaves as they are: their parameters, and the statistics of their norms."""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from renaissance.settings import nearest


@dataclass(frozen=True)
class Frozen:
    """What `freeze` has changed, so that it can be taken back.

    Attributes:
        parameters: Those whose ``requires_grad`` it took away.
        norms: Batch-norms that work as in evaluation, with the statistics they have.
    """

    parameters: tuple[nn.Parameter, ...] = ()
    norms: tuple[nn.Module, ...] = ()


def freeze(module: nn.Module, patterns: Sequence[str], before: Frozen) -> Frozen:
    """Freeze the layers whose names match, with all that they contain, and no others.

    Args:
        module: The network, not bound.
        patterns: Names of layers as `torch.nn.Module.named_modules` gives them, or patterns of
            names as in a shell.
        before: What an earlier call froze; it is thawed first.

    Raises:
        ValueError: A pattern matches no layer; nothing is changed then.
    """
    layers = dict(module.named_modules())
    chosen: dict[str, nn.Module] = {}
    for pattern in patterns:
        found = [name for name in fnmatch.filter(layers, pattern) if name]
        if not found:
            names = [name for name in layers if name]
            guess = nearest(pattern, names)
            hint = f"did you mean {guess!r}? " if guess else ""
            direct = ", ".join(name for name, _ in module.named_children())
            raise ValueError(
                f"freeze: {pattern!r} matches no layer of {type(module).__name__}; {hint}Its "
                f"layers are {direct}, and those within, such as {names[-1] if names else 'none'!r}"
            )
        chosen.update((name, layers[name]) for name in found)
    for parameter in before.parameters:
        parameter.requires_grad_(True)
    parts = [part for layer in chosen.values() for part in layer.modules()]
    parameters = dict.fromkeys(p for part in parts for p in part.parameters() if p.requires_grad)
    for parameter in parameters:
        parameter.requires_grad_(False)
    norms = [part for part in parts if isinstance(part, nn.modules.batchnorm._BatchNorm)]
    return Frozen(tuple(parameters), tuple(dict.fromkeys(norms)))


def check_patterns(patterns: Sequence[str]) -> tuple[str, ...]:
    """TypeError or ValueError for what is no name of a layer."""
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TypeError(
                f"freeze: {pattern!r:.60} is not allowed; it takes names of layers, such as "
                "task.freeze('conv1', 'bn1', 'layer1')"
            )
        if not pattern:
            raise ValueError("freeze: '' names no layer; '*' stands for all of them")
    return tuple(patterns)
