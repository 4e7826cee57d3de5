"""One tensor of a bound module: where it should be, and the places in the module that hold it."""

from __future__ import annotations

import weakref

import torch
from torch import nn

from renaissance.memory.segments import Segment
from renaissance.memory.survey import Place


class Bound:
    """One tensor of the module, at home at `address`; one without elements has no address."""

    __slots__ = ("address", "places", "segment", "tensor")

    def __init__(self, segment: Segment, tensor: torch.Tensor, places: list[Place]) -> None:
        self.segment, self.tensor = segment, tensor
        self.address: int | None = None
        self.places = [(weakref.ref(place.owner), place.leaf) for place in places]

    def is_home(self, tensor: torch.Tensor | None) -> bool:
        return (
            tensor is self.tensor
            and tensor.shape == self.segment.shape
            and (
                self.address is None
                or (tensor.data_ptr() == self.address and tensor.stride() == self.segment.strides)
            )
        )

    def held(self) -> list[torch.Tensor]:
        """What the places hold now; those that no longer exist, or hold nothing, left out."""
        return [tensor for _, _, tensor in self._living()]

    def settle(self) -> None:
        """Puts `tensor` back into every place that exists and holds another one."""
        for owner, leaf, tensor in self._living():
            if tensor is not self.tensor:
                setattr(owner, leaf, self.tensor)  # an RNN keeps a list of its weights this way

    def _living(self) -> list[tuple[nn.Module, str, torch.Tensor]]:
        found = []
        for owner_ref, leaf in self.places:
            owner = owner_ref()
            if owner is not None:
                tensor = owner._parameters.get(leaf, owner._buffers.get(leaf))
                if tensor is not None:
                    found.append((owner, leaf, tensor))
        return found


def bits_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor in logical order, so that NaN equals NaN and -0 differs from 0."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
