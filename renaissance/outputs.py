"""What a model gives, as losses and metrics see it: in float32 where it came in 16 bits."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._pytree import register_pytree_node, tree_any, tree_map_only
from typing_extensions import Self

HALVES = (torch.bfloat16, torch.float16)


def widened(output: Any) -> Any:
    """What a model gives with its 16-bit tensors as float32, inside tuples and dicts too.

    A loss or a metric that somebody wrote computes in the type it gets: a mean in bfloat16 has two
    or three digits. What is not read of a dict stays as it is; who takes one of a tuple takes all.
    Under torch.compile all is cast, and what nobody uses is dropped there.
    """
    if torch.compiler.is_compiling() or isinstance(output, Tensor):
        return tree_map_only(Tensor, _as_float32, output)
    if not tree_any(_is_half, output):
        return output
    return tree_map_only((Tensor, dict), _widened, output, is_leaf=_is_dict)


def _widened(part: Any) -> Any:
    return Outputs(part) if _is_dict(part) else _as_float32(part)


def _is_dict(part: Any) -> bool:
    return type(part) is dict


def _is_half(part: Any) -> bool:
    return isinstance(part, Tensor) and part.dtype in HALVES


def _as_float32(tensor: Tensor) -> Tensor:
    if tensor.dtype not in HALVES:
        return tensor
    with torch.set_grad_enabled(tensor.requires_grad):  # wherever it is read first
        return tensor.float()


if TYPE_CHECKING:
    _ByItem = dict[Any, Any]
else:

    class _ByItem(MutableMapping, dict):
        """A dict all of whose methods go by ``__getitem__``; to typeshed, any dict is that."""


class Outputs(_ByItem):
    """A dict whose values become float32 when they are read, once.

    The storage of `dict` is empty: all that reads around these methods finds nothing, rather than
    values in 16 bits.
    """

    def __init__(self, given: dict[Any, Any]) -> None:
        super().__init__()
        self._given, self._read = dict(given), dict[Any, Any]()

    def __getitem__(self, key: Any) -> Any:
        if key not in self._read:
            self._read[key] = widened(self._given[key])
        return self._read[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._given[key] = self._read[key] = value

    def __delitem__(self, key: Any) -> None:
        del self._given[key]
        self._read.pop(key, None)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._given)

    def __reversed__(self) -> Iterator[Any]:
        return reversed(self._given)

    def __len__(self) -> int:
        return len(self._given)

    def __contains__(self, key: object) -> bool:
        return key in self._given

    def __repr__(self) -> str:
        return repr(self.copy())

    def copy(self) -> dict[Any, Any]:
        """A plain dict: all is read."""
        return {key: self[key] for key in self}

    def flat(self) -> tuple[list[Any], list[Any]]:
        """Values and keys, for functions of torch that map over containers: all is read."""
        return list(self.values()), list(self)

    def __or__(self, other: Any) -> dict[Any, Any]:
        return self.copy() | dict(other)

    def __ior__(self, other: Any) -> Self:
        self.update(other)
        return self

    def __ror__(self, other: Any) -> dict[Any, Any]:
        return dict(other) | self.copy()


register_pytree_node(Outputs, Outputs.flat, lambda values, keys: dict(zip(keys, values)))
