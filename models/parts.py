"""What the network builders share: checked numbers and activations."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable

from torch import nn

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
