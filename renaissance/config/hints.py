"""Type hints of settings, as the reader of YAML and the published schema take them apart."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Union

from renaissance.config.factories import IsPath, is_value
from renaissance.config.kinds import BASES


@dataclass(frozen=True)
class OneOf:
    """Marks a setting as one thing of a kind: ``{type: adamw, ...}`` or only its name."""

    kind: str


def hint_of(field: Any) -> Any:
    """A field's type with the marks that pydantic keeps beside it."""
    marks = [m for m in field.metadata if isinstance(m, (OneOf, IsPath))]
    return Annotated[(field.annotation, *marks)] if marks else field.annotation


def alternatives(hint: Any) -> Iterable[Any]:
    """The alternatives of a type; a mark stands for the type it is on."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        marks = [mark for mark in args[1:] if isinstance(mark, (OneOf, IsPath))]
        yield from marks or alternatives(args[0])
    elif origin in (Union, types.UnionType):
        for arg in args:
            yield from alternatives(arg)
    elif is_value(hint):
        kinds = [kind for kind, base in BASES.items() if issubclass(hint, base)]
        yield OneOf(kinds[0]) if kinds else hint
    else:
        yield hint


def item_hints(options: list[Any], count: int) -> list[Any] | None:
    """The types of the items of a list: of a tuple of this length, else of any length."""
    open_, fixed = None, None
    for option in options:
        origin, args = typing.get_origin(option), typing.get_args(option)
        if origin is list or (origin is tuple and Ellipsis in args):
            open_ = [args[0]] * count
        elif origin is tuple and len(args) == count:
            return list(args)
        elif origin is tuple:
            fixed = [args[min(k, len(args) - 1)] for k in range(count)]
        elif option in (list, tuple, Any):
            open_ = open_ or [Any] * count
    return open_ or fixed


def value_hint(options: list[Any]) -> Any:
    """The type of a mapping's values; a mapping may stand for pairs (text, value)."""
    for option in options:
        origin, args = typing.get_origin(option), typing.get_args(option)
        if origin is dict:
            return args[1]
        if origin is tuple and Ellipsis in args:
            pair = typing.get_args(args[0])
            if typing.get_origin(args[0]) is tuple and len(pair) == 2:
                return pair[1]
    return None
