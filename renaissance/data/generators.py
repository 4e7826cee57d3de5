"""States of random generators, lent to code that draws from what is not its own."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from renaissance.random import derive


class Generators:
    """States of torch's, NumPy's and Python's global generators, lent inside a ``with`` block.

    Args:
        own: Generators of the DataLoader and its samplers, which are lent states as well.
        states: Of all of them, as `_states` gives them.
    """

    def __init__(self, own: Sequence[torch.Generator], states: _States) -> None:
        self._own, self._lent, self._theirs = own, states, states

    @classmethod
    def seeded(cls, key: int, own: Sequence[torch.Generator] = ()) -> Generators:
        """The states that seeding with `key` gives; what is seeded now stays as it is.

        Generators of the DataLoader's are keyed by the seed they have, too.
        """
        seeded = [
            torch.Generator(g.device).manual_seed(derive(key, g.initial_seed()) % 2**63)
            for g in own
        ]
        states = (
            torch.Generator().manual_seed(key % 2**63).get_state(),
            np.random.RandomState(key % 2**32).get_state(),
            random.Random(key).getstate(),
            [generator.get_state() for generator in seeded],
        )
        return cls(own, states)

    def __enter__(self) -> None:
        self._theirs = _states(self._own)
        _set_states(self._own, self._lent)

    def __exit__(self, *_: object) -> None:
        self._lent = _states(self._own)
        _set_states(self._own, self._theirs)


_States = tuple[torch.Tensor, Any, Any, list[torch.Tensor]]


def _states(own: Sequence[torch.Generator]) -> _States:
    mine = [generator.get_state() for generator in own]
    return torch.get_rng_state(), np.random.get_state(), random.getstate(), mine


def _set_states(own: Sequence[torch.Generator], states: _States) -> None:
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])
    random.setstate(states[2])
    for generator, state in zip(own, states[3]):
        generator.set_state(state)


def samplers_of(loader: torch.utils.data.DataLoader[Any]) -> list[Any]:
    """What chooses a DataLoader's samples: its sampler, its batch sampler and that one's own."""
    batches: Any = loader.batch_sampler
    places = (loader.sampler, batches, getattr(batches, "sampler", None))
    return list({id(place): place for place in places if place is not None}.values())


def generators_of(loader: torch.utils.data.DataLoader[Any]) -> list[torch.Generator]:
    """The generators that a DataLoader and its samplers have as attributes, each once."""
    places = (loader, *samplers_of(loader))
    found = [one for place in places for one in getattr(place, "__dict__", {}).values()]
    return list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())
