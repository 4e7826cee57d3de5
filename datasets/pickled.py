"""Reads the data out of a pickle without executing it.

A pickle is a program. This reader runs the part of the language that builds dicts, lists, texts,
numbers and NumPy arrays, and refuses everything else, so a file can be wrong but never dangerous:
no name in it is ever imported or called.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Names that build a NumPy array, in the NumPy and Python versions that wrote such files. They are
#: recognised as words; what they stand for is done here.
_RECONSTRUCT = {
    "numpy.core.multiarray _reconstruct",
    "numpy._core.multiarray _reconstruct",
}
_FROM_BUFFER = {"numpy.core.numeric _frombuffer", "numpy._core.numeric _frombuffer"}
_EMPTY_BYTES = {"__builtin__ bytes", "builtins bytes"}  # how protocol 2 writes b""
_NAMES = (
    _RECONSTRUCT | _FROM_BUFFER | _EMPTY_BYTES | {"numpy ndarray", "numpy dtype", "_codecs encode"}
)

_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_EMPTY: dict[str, Callable[[], Any]] = {
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
_VALUES = {
    "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "BINFLOAT", "FLOAT",
    "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8",
    "BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8",
}  # fmt: skip
_OLD_STRINGS = {"STRING", "BINSTRING", "SHORT_BINSTRING"}  # Python 2's byte strings
_IGNORED = {"PROTO", "FRAME", "STOP", "READONLY_BUFFER"}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


@dataclass(frozen=True)
class _Name:
    """A global name met in the file; nothing but a word."""

    text: str


class _Mark:
    """The place of a MARK on the stack."""


@dataclass
class _Array:
    """A NumPy array whose state comes later in the file."""

    value: Any = None


@dataclass
class _Dtype:
    code: str
    order: str = "|"

    @property
    def dtype(self) -> np.dtype[Any]:
        found = np.dtype(self.code)
        return found.newbyteorder(">") if self.order == ">" else found


def read_pickled(data: bytes) -> Any:
    """The dicts, lists, texts, numbers and arrays of a pickle.

    Texts written by Python 2 come back as bytes.

    Raises:
        ValueError: it holds anything else (a class, a function call), or is cut.
    """
    machine = _Machine()
    try:
        for opcode, argument, _ in pickletools.genops(data):
            machine.step(opcode.name, argument)
        return machine.result()
    except RecursionError:
        raise ValueError("the pickle contains itself; refused") from None
    except (IndexError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no readable pickle: {error!r}") from None


class _Machine:
    """The stack and memo of the pickle language."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}

    def result(self) -> Any:
        (found,) = self._stack
        return _plain(found)

    def step(self, name: str, argument: Any) -> None:
        stack = self._stack
        if name in _VALUES:
            stack.append(argument)
        elif name in _OLD_STRINGS:
            stack.append(argument.encode("latin-1"))
        elif name in _CONSTANTS:
            stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            stack.append(_EMPTY[name]())
        elif name == "MARK":
            stack.append(_Mark())
        elif name in _TUPLES:
            count = _TUPLES[name]
            stack[-count:] = [tuple(stack[-count:])]
        elif name in _IGNORED:
            pass
        else:
            self._other(name, argument)

    def _other(self, name: str, argument: Any) -> None:
        handler = getattr(self, f"_{name.lower()}", None)
        if handler is None:
            raise ValueError(f"the pickle does {name}, which plain data does not need; refused")
        handler(argument)

    def _marked(self) -> list[Any]:
        """Everything above the last mark, which goes too."""
        for place in range(len(self._stack) - 1, -1, -1):
            if isinstance(self._stack[place], _Mark):
                found = self._stack[place + 1 :]
                del self._stack[place:]
                return found
        raise IndexError("no mark on the stack")

    def _memoize(self, _: Any) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def _put(self, place: Any) -> None:
        self._memo[int(place)] = self._stack[-1]

    _binput = _long_binput = _put

    def _get(self, place: Any) -> None:
        self._stack.append(self._memo[int(place)])

    _binget = _long_binget = _get

    def _pop(self, _: Any) -> None:
        self._stack.pop()

    def _tuple(self, _: Any) -> None:
        self._stack.append(tuple(self._marked()))

    def _list(self, _: Any) -> None:
        self._stack.append(self._marked())

    def _dict(self, _: Any) -> None:
        items = self._marked()
        self._stack.append(dict(zip(items[::2], items[1::2])))

    def _append(self, _: Any) -> None:
        item = self._stack.pop()
        self._list_below().append(item)

    def _appends(self, _: Any) -> None:
        items = self._marked()
        self._list_below().extend(items)

    def _list_below(self) -> list[Any]:
        if not isinstance(self._stack[-1], list):
            raise ValueError("the pickle appends to something that is no list; refused")
        return self._stack[-1]

    def _setitem(self, _: Any) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._dict_below()[key] = value

    def _setitems(self, _: Any) -> None:
        items = self._marked()
        self._dict_below().update(zip(items[::2], items[1::2]))

    def _dict_below(self) -> dict[Any, Any]:
        if not isinstance(self._stack[-1], dict):
            raise ValueError("the pickle sets an item of something that is no dict; refused")
        return self._stack[-1]

    def _global(self, text: str) -> None:
        if text not in _NAMES:
            raise ValueError(f"the pickle names {text.replace(' ', '.')}; refused")
        self._stack.append(_Name(text))

    def _stack_global(self, _: Any) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._global(f"{module} {name}")

    def _reduce(self, _: Any) -> None:
        arguments, name = self._stack.pop(), self._stack.pop()
        if not isinstance(name, _Name):
            raise ValueError("the pickle calls something that has no name; refused")
        self._stack.append(_made(name.text, arguments))

    def _build(self, _: Any) -> None:
        state, target = self._stack.pop(), self._stack[-1]
        if isinstance(target, _Dtype):
            target.order = _word(state[1])
        elif isinstance(target, _Array):
            _, shape, dtype, is_fortran, raw = state
            target.value = _filled(raw, dtype, shape, "F" if is_fortran else "C")
        else:
            raise ValueError("the pickle sets the state of something that is no array; refused")


def _made(name: str, arguments: tuple[Any, ...]) -> Any:
    """What one of the known calls would give."""
    if name in _RECONSTRUCT:
        return _Array()
    if name in _FROM_BUFFER:
        raw, dtype, shape, order = arguments
        return _Array(_filled(raw, dtype, shape, _word(order)))
    if name == "numpy dtype":
        return _Dtype(_word(arguments[0]))
    if name == "_codecs encode":
        text, encoding = arguments
        if _word(encoding) != "latin1":
            raise ValueError(f"the pickle encodes as {encoding!r}; refused")
        return text.encode("latin-1")
    if name in _EMPTY_BYTES and not arguments:
        return b""
    raise ValueError(f"the pickle calls {name.replace(' ', '.')}; refused")


def _filled(raw: Any, dtype: Any, shape: tuple[int, ...], order: str) -> Any:
    if (
        not isinstance(dtype, _Dtype)
        or dtype.dtype.hasobject
        or not isinstance(raw, bytes | bytearray)
    ):
        raise ValueError("the pickle holds an array of objects; refused")
    array = np.frombuffer(raw, dtype.dtype)
    return array.reshape(shape, order="F" if order == "F" else "C")


def _word(text: Any) -> str:
    return text.decode("ascii") if isinstance(text, bytes) else str(text)


def _plain(found: Any) -> Any:
    """The data without our markers."""
    if isinstance(found, _Array):
        return found.value
    if isinstance(found, dict):
        return {_plain(key): _plain(value) for key, value in found.items()}
    if isinstance(found, (list, tuple)):
        return type(found)(map(_plain, found))
    if isinstance(found, (_Name, _Dtype, _Mark)):
        raise ValueError("the pickle is no plain data; refused")
    return found
