"""Several arrays of a sample as one: inputs, targets and weights that travel together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from renaissance.data.arrays import INT64, as_numpy
from renaissance.settings import unknown_name

#: Whole numbers that float32 has exactly: those up to this one.
EXACT = 2**24

FLOAT32 = np.finfo(np.float32)


class Fields:
    """Named arrays of a sample that are laid behind each other, and taken apart again.

    A sample is one array x and one array y, so that a batch is two places in memory that a captured
    step can read. Several inputs, or several targets, go into one with `pack`; the model's forward,
    the loss and the metrics take them apart with `unpack`, which costs nothing.

    Args:
        **fields: What each is in one sample: ``float`` or ``int`` for a number, ``(3,)`` for
            float32 numbers of that shape, ``(24, int)`` for whole ones.

    Whole numbers beside others become float32 and are exact up to 2**24; where all are whole the
    array is int64.

    Example:
        >>> fields = Fields(label=int, box=(4,))
        >>> y = fields.pack(label=[3, 1], box=np.ones((2, 4)))
        >>> y.shape, sorted(fields.unpack(y)), fields.unpack(y)["label"].tolist()
        ((2, 5), ['box', 'label'], [3, 1])
    """

    def __init__(self, /, **fields: Any) -> None:
        if not fields:
            raise ValueError("Fields: there are none; name at least one, as in Fields(label=int)")
        self._fields = {name: _shape_of(name, given) for name, given in fields.items()}
        self._sizes = [math.prod(shape) for shape, _ in self._fields.values()]
        self._is_whole = all(is_whole for _, is_whole in self._fields.values())

    @classmethod
    def of(cls, /, **arrays: Any) -> Fields:
        """The fields that these arrays have, the batch first in each."""
        found = {}
        for name, given in arrays.items():
            array = as_numpy(given, name)
            if array.ndim == 0:
                raise ValueError(f"Fields.of: {name} is a single number; it takes (N, ...)")
            found[name] = (*array.shape[1:], *((int,) if array.dtype.kind in "iub" else ()))
        return cls(**found)

    @property
    def size(self) -> int:
        """Numbers of a packed sample."""
        return sum(self._sizes)

    def __repr__(self) -> str:
        named = ", ".join(
            f"{name}={(*shape, int) if is_whole else shape}".replace("<class 'int'>", "int")
            for name, (shape, is_whole) in self._fields.items()
        )
        return f"Fields({named})"

    def pack(self, /, **arrays: Any) -> npt.NDArray[Any]:
        """(N, size) of arrays (N, ...), one for each field: float32, int64 where all are whole.

        Raises:
            TypeError: A field is missing or unknown, or gets another kind of numbers.
            ValueError: A shape differs, or a number is beyond int64 or float32, or a whole one not
                exact in float32.
        """
        for name in arrays:
            if name not in self._fields:
                raise TypeError(unknown_name("Fields", name, list(self._fields)))
        missing = [name for name in self._fields if name not in arrays]
        if missing:
            raise TypeError(f"{self!r} got no {', '.join(missing)}; it takes all fields")
        parts = [self._part(name, as_numpy(arrays[name], name)) for name in self._fields]
        counts = {name: len(part) for name, part in zip(self._fields, parts)}
        if len(set(counts.values())) > 1:
            raise ValueError(f"the fields have {counts} samples; they must be equally many")
        return np.concatenate(parts, axis=1)

    def pack_one(self, /, **values: Any) -> npt.NDArray[Any]:
        """The same for one sample, without the batch's dimension: what a data set gives."""
        row: npt.NDArray[Any] = self.pack(
            **{name: as_numpy(value, name)[None] for name, value in values.items()}
        )[0]
        return row

    def _part(self, name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        shape, is_whole = self._fields[name]
        if array.shape[1:] != shape or array.ndim == 0:
            raise ValueError(
                f"{self!r}: {name} has shape {array.shape}; it takes (N, ...) with {shape} a sample"
            )
        if array.dtype.kind not in ("iub" if is_whole else "fiub"):
            raise TypeError(
                f"{self!r}: {name} has dtype {array.dtype}; it takes "
                f"{'whole numbers' if is_whole else 'numbers'}"
            )
        if array.size:
            self._check_range(name, array, is_whole)
        flat = array.reshape(len(array), math.prod(shape))
        return flat.astype(np.int64 if self._is_whole else np.float32)

    def _check_range(self, name: str, array: npt.NDArray[Any], is_whole: bool) -> None:
        """ValueError for what would become another number, or an infinity."""
        largest = max(array.min().item(), array.max().item(), key=abs)  # Python's: abs is exact
        if self._is_whole and largest > INT64.max:
            raise ValueError(f"{self!r}: {name} holds {largest}; it takes int64, up to {INT64.max}")
        if is_whole and not self._is_whole and abs(largest) > EXACT:
            raise ValueError(
                f"{self!r}: {name} holds {largest}; beside fields of floats whole numbers are "
                f"exact up to {EXACT}"
            )
        if array.dtype.kind == "f":
            finite = np.abs(array[np.isfinite(array)]).max(initial=0)
            if finite > FLOAT32.max:
                raise ValueError(
                    f"{self!r}: {name} holds {finite:.4g} (or its negative), which float32 makes "
                    f"infinite; it takes up to {FLOAT32.max:.4g}"
                )

    def unpack(self, packed: Any) -> dict[str, Any]:
        """The fields of a packed batch, tensor or array (N, size), by name: (N, ...) each.

        Raises:
            ValueError: It has another number of columns.
        """
        packed = packed if isinstance(packed, Tensor) else np.asarray(packed)
        if packed.ndim != 2 or packed.shape[1] != self.size:
            raise ValueError(
                f"{self!r} are {self.size} numbers a sample, received {tuple(packed.shape)}"
            )
        found, begin = {}, 0
        for (name, (shape, is_whole)), size in zip(self._fields.items(), self._sizes):
            part = packed[:, begin : begin + size].reshape(len(packed), *shape)
            if is_whole:
                part = part.long() if isinstance(part, Tensor) else part.astype(np.int64)
            found[name], begin = part, begin + size
        return found


def _shape_of(name: str, given: Any) -> tuple[tuple[int, ...], bool]:
    """(shape of one sample, whether its numbers are whole)."""
    if given is int or given is float:
        return (), given is int
    if isinstance(given, (tuple, list, torch.Size)):
        is_whole = bool(given) and given[-1] is int
        shape = tuple(given[:-1] if given and given[-1] in (int, float) else given)
        is_size = [isinstance(n, (int, np.integer)) and not isinstance(n, bool) for n in shape]
        if all(is_size) and all(n > 0 for n in shape):
            return tuple(map(int, shape)), is_whole
    raise TypeError(
        f"Fields: {name} = {given!r} is not allowed; it takes float, int, or a shape such as (3,) "
        "of floats and (24, int) of whole numbers"
    )
