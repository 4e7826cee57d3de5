"""JSON that comes back equal: what it cannot hold is refused when written, not found when read.

Numbers keep every bit (Python writes the shortest text that reads back the same). NaN and the
infinities, which JSON does not have, are written as ``{"$float": "nan"}``, so that any reader of
JSON can open the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

T = TypeVar("T")

_NOT_FINITE = ("nan", "inf", "-inf")


def dump_json(value: object, *, what: str, indent: int | None = 1) -> bytes:
    """The text of `value`, ending in a newline.

    Args:
        value: Mappings with text keys, lists (tuples come back as lists), texts, numbers, switches
            and None.
        what: What it is, for the error.
        indent: Spaces per level; None puts all on one line.

    Raises:
        TypeError: Something that would not come back equal; names the place.
    """
    return json.dumps(_encode(value, what), indent=indent, allow_nan=False).encode() + b"\n"


def load_json(text: bytes) -> Any:
    """What `dump_json` wrote; ValueError for anything that is no JSON."""
    try:
        return json.loads(text, object_hook=_decode, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _encode(value: object, at: str) -> object:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": repr(float(value))}
    if isinstance(value, (list, tuple)):
        return [_encode(item, f"{at}[{k}]") for k, item in enumerate(value)]
    if isinstance(value, Mapping) and all(isinstance(k, str) and k != "$float" for k in value):
        return {key: _encode(item, f"{at}.{key}") for key, item in value.items()}
    raise TypeError(
        f"{at} is {value!r:.60} ({type(value).__name__}), which JSON cannot hold; it takes objects "
        "with text keys, lists, texts, numbers, True, False and None"
    )


def _decode(entry: dict[str, Any]) -> object:
    if entry.keys() == {"$float"} and entry["$float"] in _NOT_FINITE:
        return float(entry["$float"])
    return entry


# What was read is somebody's text: it is taken as what it has to be, or refused.


def whole(value: object) -> int:
    """A count that 64 bits hold; ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        raise ValueError(f"{value!r:.40} is no count")
    return value


def number(value: object) -> float:
    """A number, which may be NaN; ValueError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"{value!r:.40} is no number")
    return float(value)


def switch(value: object) -> bool:
    """True or False; ValueError for anything else."""
    if not isinstance(value, bool):
        raise ValueError(f"{value!r:.40} is neither true nor false")
    return value


def optional(kind: Callable[[object], T], value: object) -> T | None:
    """None, or what `kind` makes of the value."""
    return None if value is None else kind(value)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
