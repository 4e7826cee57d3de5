"""Factories: a function or class whose arguments a configuration can give, checked beforehand.

The signature becomes the same kind of settings model that descriptions have, so that a model or a
data set is named, checked, printed and published in the schema as an optimizer is.
"""

from __future__ import annotations

import collections.abc
import inspect
import os
import re
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Union

import pydantic

from renaissance.settings import SettingsModel, Value, strict


class IsPath:
    """Marks a text setting as a path, relative to the file it stands in."""


PathText = Annotated[str, IsPath()]


@dataclass(frozen=True)
class Factory:
    """Something a configuration can name.

    Attributes:
        kind, name: ``model``, ``mlp``.
        make: Called with the settings as keywords.
        settings: What it takes.
        is_builtin: It is ours.
    """

    kind: str
    name: str
    make: Callable[..., Any]
    settings: type[SettingsModel]
    is_builtin: bool = False

    @property
    def makes_value(self) -> bool:
        """Whether it gives a description, which is data itself and needs no `Call`."""
        return isinstance(self.make, type) and issubclass(self.make, Value)

    @property
    def summary(self) -> str:
        """The first sentence of its documentation."""
        text = inspect.getdoc(self.make) or ""
        return text.split("\n\n")[0].replace("\n", " ")


def factory(kind: str, name: str, make: Callable[..., Any], *, is_builtin: bool = False) -> Factory:
    """The factory of a description's class, or of any function or class.

    Raises:
        TypeError: It cannot be called with keywords.
    """
    if isinstance(make, type) and issubclass(make, Value):
        return Factory(kind, name, make, make.Settings, is_builtin)
    return Factory(kind, name, make, settings_of(make), is_builtin)


@dataclass(frozen=True)
class Call:
    """A factory with its arguments: what will be made, when it is needed.

    Attributes:
        kind, type: The factory's name: ``model``, ``mlp``.
        arguments: Checked, by name.
    """

    kind: str
    type: str
    arguments: Mapping[str, Any]
    make: Callable[..., Any] = field(compare=False, repr=False)

    def build(self) -> Any:
        """Call the factory."""
        return self.make(**self.arguments)

    def to_dict(self) -> dict[str, Any]:
        """As YAML holds it."""
        return {"type": self.type, **{k: as_data(v) for k, v in self.arguments.items()}}


def as_data(item: Any) -> Any:
    """Descriptions, calls and tuples as mappings and lists."""
    if isinstance(item, Call):
        return item.to_dict()
    if isinstance(item, Value):
        return {"type": item.type_name, **item.to_dict(defaults=True)}
    if isinstance(item, SettingsModel):
        return {name: as_data(getattr(item, name)) for name in type(item).model_fields}
    if isinstance(item, (tuple, list)):
        return [as_data(part) for part in item]
    if isinstance(item, Mapping):
        return {key: as_data(part) for key, part in item.items()}
    return item


def settings_of(make: Callable[..., Any]) -> type[SettingsModel]:
    """The settings model of a signature; texts come from the docstring's ``Args:``."""
    name = getattr(make, "__name__", type(make).__name__)
    hints = _hints(make)
    texts = argument_texts(make)
    fields: dict[str, Any] = {}
    for parameter in _parameters(make, name):
        hint = setting_hint(hints.get(parameter.name, Any))
        required = parameter.default is inspect.Parameter.empty
        default = ... if required else parameter.default
        doc = texts.get(parameter.name)
        fields[parameter.name] = (strict(hint), pydantic.Field(default, description=doc))
    model: type[SettingsModel] = pydantic.create_model(
        f"{name}_settings", __base__=SettingsModel, __module__=__name__, **fields
    )
    return model


def _parameters(make: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        signature = inspect.signature(make)
    except (TypeError, ValueError):
        raise TypeError(f"{name} cannot be registered: it has no readable signature") from None
    found = []
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if parameter.kind is parameter.POSITIONAL_ONLY:
            raise TypeError(
                f"{name} cannot be registered: its parameter {parameter.name!r} takes no keyword"
            )
        if parameter.name == "type" or parameter.name.startswith("_"):
            raise TypeError(
                f"{name} cannot be registered: its parameter {parameter.name!r} would clash with "
                "the key `type`, or is private; wrap it in a function with other names"
            )
        found.append(parameter)
    return found


def _hints(make: Callable[..., Any]) -> dict[str, Any]:
    """The type hints of a function, or of a class's constructor; none if they do not resolve."""
    target = make.__init__ if isinstance(make, type) else make  # type: ignore[misc]
    try:
        return typing.get_type_hints(target, include_extras=True)
    except (NameError, TypeError, AttributeError):
        return {}


_CONTAINERS: Mapping[Any, Any] = {
    collections.abc.Sequence: tuple,
    collections.abc.Iterable: tuple,
    collections.abc.Mapping: dict,
}


def setting_hint(hint: Any) -> Any:
    """A parameter's type hint as the type of a setting: sequences as tuples, paths as texts."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return Annotated[(setting_hint(args[0]), *args[1:])]
    if origin in (Union, types.UnionType):
        if any(is_path(arg) for arg in args):
            args = (PathText, *(a for a in args if a is not str and not is_path(a)))
        return Union[tuple(setting_hint(arg) for arg in args)]  # noqa: UP007
    if is_path(hint):
        return PathText
    origin = _CONTAINERS.get(origin, origin)
    if origin is tuple and args and Ellipsis not in args and hint_is_open(hint):
        return types.GenericAlias(tuple, (setting_hint(args[0]), Ellipsis))
    if origin in (tuple, list, dict) and args:
        inner = tuple(a if a is Ellipsis else setting_hint(a) for a in args)
        return types.GenericAlias(origin, inner)
    known = (int, float, bool, str, type(None), tuple, list, dict)
    if hint in known or origin is typing.Literal or is_value(hint):
        return hint
    return Any


def hint_is_open(hint: Any) -> bool:
    """Whether a sequence type has any length: Sequence[int] does, tuple[int, int] does not."""
    return typing.get_origin(hint) in _CONTAINERS


def is_value(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Value)


def is_path(hint: Any) -> bool:
    origin = typing.get_origin(hint) or hint
    return isinstance(origin, type) and issubclass(origin, os.PathLike)


_ENTRY = re.compile(r"^    (?P<names>\w+(?:, \w+)*): (?P<text>.*(?:\n {5,}.*)*)", re.MULTILINE)


def argument_texts(make: Callable[..., Any]) -> dict[str, str]:
    """What the docstring's ``Args:`` says of each parameter."""
    text = inspect.getdoc(make) or ""
    _, found, rest = text.partition("Args:\n")
    if not found:
        return {}
    section = re.split(r"^\S", rest, maxsplit=1, flags=re.MULTILINE)[0]
    return {
        name: " ".join(entry["text"].split())
        for entry in _ENTRY.finditer(section)
        for name in entry["names"].split(", ")
    }
