"""From a YAML tree to checked settings: every value is read by the type of the setting it is for.

Problems are collected, each on one line with its place, so that one run of ``config check`` shows
all of them. Ranges and other limits are checked by the same pydantic models that check descriptions
made in Python.
"""

from __future__ import annotations

import os
import re
import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pydantic

from renaissance.config.factories import Call, Factory, IsPath, is_value
from renaissance.config.hints import OneOf, alternatives, hint_of, item_hints, value_hint
from renaissance.config.kinds import ARTICLES, Registry
from renaissance.config.yamltree import (
    Entries,
    Items,
    Mark,
    Node,
    Text,
    as_bool,
    as_float,
    as_int,
    hint_for,
    join,
    plain_value,
    problem,
)
from renaissance.settings import SettingsModel, Value, explain, nearest


class _Broken:
    """What stands for a value whose problem has been noted."""


BROKEN: Final = _Broken()


@dataclass(frozen=True)
class _Note:
    """A problem; `key` and `allowed` when it is an unknown name, which may belong elsewhere."""

    mark: Mark
    path: str
    what: str
    key: str = ""
    allowed: Iterable[str] = ()


class Reader:
    """Reads nodes by type hints, and keeps note of every problem."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self._notes: list[_Note] = []
        self._seen: dict[str, Iterable[str]] = {}  # settings by the path of their mapping

    def note(self, node: Node, path: str, what: str) -> _Broken:
        self._notes.append(_Note(node.mark, path, what))
        return BROKEN

    def problems(self) -> list[str]:
        """One line for each problem, in the order found."""
        return [problem(n.mark, n.path, n.what + self._hint(n)) for n in self._notes]

    def _hint(self, note: _Note) -> str:
        """For an unknown name: the nearest one there, else in another section; and all allowed."""
        if not note.key:
            return ""
        guess = nearest(note.key, note.allowed) or self._elsewhere(note.key)
        hint = f"; did you mean {guess!r}?" if guess else "."
        return f"{hint} Allowed: {', '.join(note.allowed)}"

    def _elsewhere(self, key: str) -> str | None:
        """The path of a setting of that very name in another section, or of the nearest one."""
        sections = [(path, names) for path, names in self._seen.items() if path]
        for path, names in sections:
            if key in names:
                return join(path, key)
        found = [join(path, near) for path, names in sections if (near := nearest(key, names))]
        return found[0] if found else None

    # ---------------------------------------------------------------------------- mappings

    def section(self, model: type[SettingsModel], node: Node, path: str) -> Any:
        """A settings model from a mapping."""
        if not isinstance(node, Entries):
            return self.note(node, path, f"must be a mapping of {', '.join(_names(model))}")
        given = self.given(model, node, path)
        if given is BROKEN:
            return BROKEN
        return self.checked(model, given, node, path)

    def given(self, model: type[SettingsModel], node: Entries, path: str, type_: str = "") -> Any:
        """The values of a mapping by name, each read by its field's type.

        Args:
            type_: What the keys belong to, when the mapping has a ``type``.
        """
        before = len(self._notes)
        fields = model.model_fields
        self._seen[path] = fields
        for key in node.entries:
            if key not in fields and not (type_ and key == "type"):
                self._unknown(key, node, path, model, type_)
        for name, field in fields.items():
            if field.is_required() and name not in node.entries:
                self.note(node, join(path, name), f"is missing{self._about(field)}")
        values = {
            name: self.value(hint_of(fields[name]), entry, join(path, name))
            for name, entry in node.entries.items()
            if name in fields
        }
        return BROKEN if len(self._notes) > before else values

    def _about(self, field: Any) -> str:
        """What a missing setting is."""
        for option in alternatives(hint_of(field)):
            if isinstance(option, OneOf):
                names = ", ".join(self.registry.names(option.kind))
                return f"; it names {ARTICLES[option.kind]}: {names}"
        return f": {field.description}" if field.description else ""

    def _unknown(
        self, key: str, node: Entries, path: str, model: type[SettingsModel], type_: str
    ) -> None:
        owner = f" of {type_}" if type_ else ""
        what, allowed = f"is no setting{owner}", _names(model, type_)
        self._notes.append(_Note(node.keys[key], join(path, key), what, key, allowed))

    def checked(
        self, model: type[SettingsModel], given: Mapping[str, Any], node: Entries, path: str
    ) -> Any:
        """The model, or a note at the place of the first value that pydantic refuses."""
        try:
            return model.model_validate(dict(given))
        except pydantic.ValidationError as error:
            text = str(explain("", error, model))
            where = error.errors(include_url=False)[0]["loc"]
            place, inside = _at(node, path, where)
            allowed = text.rpartition("is not allowed; it must be ")[2]
            return self.note(
                place, inside, f"{_came(place)}is not allowed; {_must(allowed, place)}"
            )

    def thing(self, kind: str, node: Node, path: str) -> Any:
        """A description or a `Call` from ``{type: name, ...}`` or the bare name."""
        found = self.named(kind, node, path)
        if found is BROKEN:
            return BROKEN
        entries = node if isinstance(node, Entries) else Entries(node.mark, {}, {})
        given = self.given(found.settings, entries, path, found.name)
        if given is BROKEN:
            return BROKEN
        model = self.checked(found.settings, given, entries, path)
        if model is BROKEN:
            return BROKEN
        return self._made(found, given, model, entries, path)

    def named(self, kind: str, node: Node, path: str) -> Any:
        """The factory that the ``type`` of a mapping (or a bare name) stands for."""
        name: Node | None = node
        if isinstance(node, Entries):
            name = node.entries.get("type")
            path = join(path, "type")
        if isinstance(name, Text) and not name.is_null:
            found = self.registry.find(kind, name.text)
            return self._no_such(kind, name, path) if found is None else found
        what = "is missing; it names" if name is None else "must name"
        if isinstance(name, Text):
            what = "has no value; it names"
        allowed = ", ".join(self.registry.names(kind))
        return self.note(name or node, path, f"{what} {ARTICLES[kind]}: {allowed}")

    def _no_such(self, kind: str, name: Text, path: str) -> _Broken:
        allowed = self.registry.names(kind)
        guess = nearest(name.text, allowed)
        hint = f"; did you mean {guess!r}?" if guess else "."
        return self.note(
            name,
            path,
            f"{name.text!r} is no {kind}{hint} Allowed: {', '.join(allowed)}; "
            "a file of yours adds its own with --import my.py",
        )

    def _made(
        self, found: Factory, given: Mapping[str, Any], model: Any, node: Entries, path: str
    ) -> Any:
        if not found.makes_value:
            arguments = {name: getattr(model, name) for name in type(model).model_fields}
            return Call(found.kind, found.name, arguments, found.make)
        return self._value(found.make, given, node, path)

    def _value(self, make: Any, given: Mapping[str, Any], node: Node, path: str) -> Any:
        try:
            made = make(**given)
            return made.ready() if isinstance(made, Value) else made
        except (ValueError, TypeError) as error:
            return self.note(node, path, str(error))

    # ------------------------------------------------------------------------------- values

    def value(self, hint: Any, node: Node, path: str) -> Any:
        """One value; what fits no alternative of the type is left for pydantic to refuse."""
        options = list(alternatives(hint))
        for option in options:
            if isinstance(option, OneOf) and not self._is_text(node, options, option.kind):
                return self.thing(option.kind, node, path)
        for option in options:
            is_section = isinstance(option, type) and issubclass(option, SettingsModel)
            if is_section and not _is_null(node, options):
                return self.section(option, node, path)
        if isinstance(node, Text):
            return self._word(options, node, path)
        if isinstance(node, Items):
            return self._list(options, node, path)
        return self._mapping(options, node, path)

    def _is_text(self, node: Node, options: list[Any], kind: str) -> bool:
        """Whether a word is null, or a text that names nothing of the kind."""
        if not isinstance(node, Text):
            return False
        free = str in options and self.registry.find(kind, node.text) is None
        return free or _is_null(node, options)

    def _word(self, options: list[Any], node: Text, path: str) -> Any:
        if _is_null(node, options):
            return None
        literals = [
            w for o in options if typing.get_origin(o) is typing.Literal for w in o.__args__
        ]
        number = as_int(node.text) if node.plain and int in map(type, literals) else None
        for word in (node.text, number):
            if word in literals and word is not None:
                return word
        meanings = ((bool, as_bool), (int, as_int), (float, as_float))
        for kind, meaning in meanings if node.plain else ():
            found = meaning(node.text) if kind in options else None
            if found is not None:
                return found
        if any(isinstance(option, IsPath) for option in options):
            return _path(node)
        if str in options and node.is_null:
            return self.note(node, path, "has no value; put quotes around a text")
        if str in options:
            return node.text
        if Any in options or any(map(is_value, options)):
            return plain_value(node)
        return self._not_a_word(literals, node, path)

    def _not_a_word(self, literals: list[Any], node: Text, path: str) -> Any:
        """A word of no allowed meaning: pydantic says what is allowed, a guess is ours."""
        guess = nearest(node.text, [w for w in literals if isinstance(w, str)])
        if guess:
            allowed = ", ".join(map(repr, literals))
            return self.note(
                node,
                path,
                f"{node.text} is not allowed; did you mean {guess!r}? Allowed: {allowed}",
            )
        return None if node.is_null else node.text

    def _list(self, options: list[Any], node: Items, path: str) -> Any:
        hints = item_hints(options, len(node.items))
        if hints is None:
            return plain_value(node)
        values = [
            self.value(hint, item, f"{path}[{k}]")
            for k, (hint, item) in enumerate(zip(hints, node.items))
        ]
        return BROKEN if any(v is BROKEN for v in values) else values

    def _mapping(self, options: list[Any], node: Entries, path: str) -> Any:
        for option in options:
            if is_value(option):
                return self._nested(option, node, path)
        inner = value_hint(options)
        if inner is None:
            return plain_value(node)
        values = {k: self.value(inner, entry, join(path, k)) for k, entry in node.entries.items()}
        return BROKEN if any(v is BROKEN for v in values.values()) else values

    def _nested(self, cls: type[Value], node: Entries, path: str) -> Any:
        """A description inside another one, of a class that is no kind of its own."""
        named = node.entries.get("type")
        if named is not None and not (isinstance(named, Text) and named.text == cls.type_name):
            return self.note(named, join(path, "type"), f"must be {cls.type_name}, or left out")
        given = self.given(cls.Settings, node, path, cls.type_name)
        if given is BROKEN or self.checked(cls.Settings, given, node, path) is BROKEN:
            return BROKEN
        return self._value(cls, given, node, path)


def _is_null(node: Node, options: list[Any]) -> bool:
    return isinstance(node, Text) and node.is_null and (type(None) in options or None in options)


def _path(node: Text) -> str:
    """A path relative to the file it stands in, made absolute."""
    place = Path(os.path.expanduser(node.text))
    return os.path.normpath(node.mark.source.folder / place)


def _at(node: Entries, path: str, where: tuple[int | str, ...]) -> tuple[Node, str]:
    """The node that pydantic means, and its path."""
    found: Node = node
    for part in where:
        if isinstance(part, int) and isinstance(found, Items) and part < len(found.items):
            found, path = found.items[part], f"{path}[{part}]"
        elif isinstance(part, str) and isinstance(found, Entries) and part in found.entries:
            found, path = found.entries[part], join(path, part)
    return found, path


def _came(node: Node) -> str:
    """What was typed, with a space after it."""
    if isinstance(node, Text):
        return f"{node.text:.60} " if node.plain else f"the text {node.text!r:.60} "
    return "a list " if isinstance(node, Items) else "a mapping "


#: What Python calls otherwise than YAML.
_YAML_WORDS = {
    r"\ba list or tuple\b": "a list",
    r"\bTrue or False\b": "true or false",
    r"\bNone\b": "null",
    r"\ban instance of \w+": "a mapping of its settings",
}


def _must(allowed: str, node: Node) -> str:
    """What must be there instead, with a hint on how to write it."""
    for word, ours in _YAML_WORDS.items():
        allowed = re.sub(word, ours, allowed)
    hint = ""
    if isinstance(node, Text):
        number = as_float(node.text) if "a whole number" in allowed else None
        hint = hint_for(node.text) if node.plain else "without quotes, if that is meant"
        if hint in ("write true", "write false") and "true or false" not in allowed:
            hint = ""
        if node.is_null:
            hint = "leave the line out for the default"
        elif node.plain and number is not None and number.is_integer() and abs(number) < 1e15:
            hint = f"write {int(number)}"
    return f"it must be {allowed}" + (f" ({hint})" if hint else "")


def _names(model: type[SettingsModel], type_: str = "") -> list[str]:
    return sorted([*model.model_fields, *(["type"] if type_ else [])])
