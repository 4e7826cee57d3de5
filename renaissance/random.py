"""Counter-based randomness: the user's `Generator`, the keys of every draw, and `Permutation`.

Everything is Philox4x32-10 (Salmon et al., SC 2011). What the library itself draws is *keyed*: a
pure function of (seed, purpose, operation, epoch or step, sample id), see ``ext/include/renaissance
/philox.h``; nothing of it has state. `Generator` is for user code and has the one state there is,
the pair (seed, offset).
"""

from __future__ import annotations

import operator
import secrets
import threading
from typing import overload

import numpy as np
import numpy.typing as npt

from renaissance import _native

U64 = 1 << 64

#: Purposes of keys; the numbers are part of the format of a run (``philox.h`` has the same).
INIT, ORDER, AUGMENT, DROPOUT, MIX, REPLACE, SPLIT = 1, 2, 3, 4, 5, 6, 7


def check_seed(seed: object) -> int:
    """The seed as an int; TypeError for what is no whole number, ValueError outside [0, 2^64)."""
    if isinstance(seed, bool) or not hasattr(type(seed), "__index__"):
        raise TypeError(
            f"seed = {seed!r} ({type(seed).__name__}) is not allowed; it takes a whole number "
            "from 0 to 2**64 - 1"
        )
    number = operator.index(seed)  # type: ignore[arg-type]
    if not 0 <= number < U64:
        raise ValueError(f"seed = {number} is not allowed; it takes 0 to 2**64 - 1, used whole")
    return number


def fresh_seed() -> int:
    """A seed from the operating system, 63 bits so that every tool can read it."""
    return secrets.randbits(63)


def derive(seed: int, *words: int | str) -> int:
    """A child key by hashing; words are purposes, epochs, ids (integers) or names (texts)."""
    key = seed
    for word in words:
        key = (
            _native.derive_text(key, word)
            if isinstance(word, str)
            else _native.derive(key, word % U64)
        )
    return key


def _count(n: object, what: str) -> int:
    if isinstance(n, bool) or not hasattr(type(n), "__index__"):
        raise TypeError(f"{what} = {n!r} ({type(n).__name__}) is not allowed; it takes an integer")
    number = operator.index(n)  # type: ignore[arg-type]
    if number < 0:
        raise ValueError(f"{what} = {number} is not allowed; it takes 0 or more")
    return number


class Generator:
    """A stream of random numbers whose whole state is ``(seed, offset)``, 64 bits each.

    Element i of a draw at offset o comes from Philox block o + i (uniform) or o + i // 2 (normal),
    so a draw is the same in one piece or in three, on any number of threads, and on a GPU.

    Args:
        seed: 0 to 2**64 - 1, used whole.

    Example:
        >>> g = Generator(42)
        >>> g.uniform(3).dtype, g.current_offset
        (dtype('float32'), 3)
    """

    def __init__(self, seed: int) -> None:
        self._seed, self._offset = check_seed(seed), 0
        self._lock = threading.Lock()

    @property
    def seed(self) -> int:
        return self._seed

    @property
    def current_offset(self) -> int:
        return self._offset

    def next_offset(self, n: int) -> int:
        """Reserve blocks [o, o + n) for the caller, from any thread; returns o."""
        n = _count(n, "n")
        with self._lock:
            offset = self._offset
            self._offset = (offset + n) % U64
        return offset

    def get_state(self) -> tuple[int, int]:
        """(seed, offset)."""
        with self._lock:
            return self._seed, self._offset

    def set_state(self, seed: int, offset: int) -> None:
        """Continue from (seed, offset), both 0 to 2**64 - 1."""
        seed, offset = check_seed(seed), _count(offset, "offset")
        if offset >= U64:
            raise ValueError(f"offset = {offset} is not allowed; it takes 0 to 2**64 - 1")
        with self._lock:
            self._seed, self._offset = seed, offset

    def uniform(self, n: int) -> npt.NDArray[np.float32]:
        """n numbers of [0, 1) in steps of 2^-24, (n,) float32; takes n offsets."""
        out = np.empty(_count(n, "n"), np.float32)
        seed, offset = self._take(n)
        _native.fill_uniform(out.ctypes.data, out.size, seed, offset, 0)
        return out

    def normal(self, n: int) -> npt.NDArray[np.float32]:
        """n standard normals, |z| <= 5.77, (n,) float32; takes ceil(n / 2) offsets."""
        out = np.empty(_count(n, "n"), np.float32)
        seed, offset = self._take((out.size + 1) // 2)
        _native.fill_normal(out.ctypes.data, out.size, seed, offset, 0)
        return out

    def random_int(self, low: int, high: int) -> int:
        """A whole number from low to high inclusive, exactly uniform; takes at least one offset."""
        low, high = operator.index(low), operator.index(high)
        if low > high:
            raise ValueError(f"low = {low} is above high = {high}; it takes low <= high")
        span = high - low + 1
        if span > U64:
            raise ValueError(f"high - low = {span - 1} is not allowed; it takes at most 2**64 - 1")
        while True:
            seed, offset = self._take(1)
            low32, high32 = offset & 0xFFFFFFFF, offset >> 32
            words = _native.philox(low32, high32, 0, 0, seed & 0xFFFFFFFF, seed >> 32)
            product = (words[0] | words[1] << 32) * span
            if product % U64 >= (U64 - span) % span:
                return low + product // U64

    def _take(self, n: int) -> tuple[int, int]:
        with self._lock:
            seed, offset = self._seed, self._offset
            self._offset = (offset + n) % U64
        return seed, offset

    def __repr__(self) -> str:
        return f"Generator(seed={self._seed}, offset={self._offset})"


class Permutation:
    """The order of one epoch: a permutation of 0 ... n-1 that depends on (n, seed, epoch) alone.

    Up to 2**22 samples it is Fisher and Yates' shuffle with exactly uniform integers (made once, at
    the first use); above, a Feistel network with cycle walking that needs no memory and finds any
    position, or the position of any sample, at once.

    Args:
        n: Number of samples, 0 or more.
        seed: 0 to 2**64 - 1.
        epoch: 0 or more.
    """

    def __init__(self, n: int, seed: int, epoch: int) -> None:
        self._n, self.seed, self.epoch = _count(n, "n"), check_seed(seed), _count(epoch, "epoch")
        self._key = derive(self.seed, ORDER, self.epoch)
        self._ids: npt.NDArray[np.int64] | None = None
        self._places: npt.NDArray[np.int64] | None = None

    def __len__(self) -> int:
        return self._n

    @overload
    def __getitem__(self, k: slice) -> npt.NDArray[np.int64]: ...
    @overload
    def __getitem__(self, k: int) -> int: ...
    def __getitem__(self, k: int | slice) -> int | npt.NDArray[np.int64]:
        if isinstance(k, slice):
            start, stop, step = k.indices(self._n)
            return self._at(start, step, len(range(start, stop, step)))
        place = operator.index(k)
        if not -self._n <= place < self._n:
            raise IndexError(f"position {place} is outside a permutation of {self._n}")
        return int(self._at(place % self._n, 1, 1)[0])

    def inverse(self, id: int) -> int:
        """The position at which sample `id` comes."""
        place = operator.index(id)
        if not 0 <= place < self._n:
            raise IndexError(f"sample {place} is outside a permutation of {self._n}")
        if self._n > _native.SHUFFLE_LIMIT:
            return int(_native.feistel_position(self._n, self._key, place))
        if self._places is None:
            places = np.empty(self._n, np.int64)
            places[self._table()] = np.arange(self._n)
            self._places = places
        return int(self._places[place])

    def _table(self) -> npt.NDArray[np.int64]:
        if self._ids is None:
            ids = np.empty(self._n, np.int64)
            _native.fill_permutation(ids.ctypes.data, self._n, self._key)
            ids.flags.writeable = False
            self._ids = ids
        return self._ids

    def _at(self, start: int, step: int, count: int) -> npt.NDArray[np.int64]:
        if self._n <= _native.SHUFFLE_LIMIT:
            return (
                self._table()[np.arange(count) * step + start] if count else np.empty(0, np.int64)
            )
        out = np.empty(count, np.int64)
        _native.fill_feistel(out.ctypes.data, self._n, self._key, start, step, count)
        return out

    def __repr__(self) -> str:
        return f"Permutation({self._n}, seed={self.seed}, epoch={self.epoch})"


_default_seed: list[int] = []


def manual_seed(seed: int) -> None:
    """The seed of tasks made later without one of their own."""
    _default_seed[:] = [check_seed(seed)]


def default_seed() -> int | None:
    """What `manual_seed` said, if it did."""
    return _default_seed[0] if _default_seed else None
