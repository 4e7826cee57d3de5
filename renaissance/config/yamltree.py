"""YAML as a tree that remembers where everything stands and leaves plain text as it was typed.

PyYAML's composer gives structure and positions; what a plain word *means* is decided later, by the
type of the setting it is for. That closes the traps of YAML 1.1 at the root: ``1e-3`` is a number
where a number belongs, ``no`` stays a text where a text belongs, also as a key, and ``010`` or
``12:30`` are never read in base 8 or 60. Tags are refused, so a file can name no Python object.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, Union

import yaml

#: Larger files and deeper trees are no configuration; the limits keep reading quick.
MAX_BYTES, MAX_DEPTH, MAX_NODES = 1 << 17, 60, 20_000
#: Longer words are no numbers; it also bounds the work of the patterns below.
MAX_DIGITS = 400

_INT = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_PADDED = re.compile(r"[-+]?0[0-9]")
_NULLS = ("null", "Null", "NULL", "~", "")
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")


class ConfigError(ValueError):
    """A configuration is wrong; one line for each problem, ``FILE:line:col: path: what``."""


@dataclass(frozen=True)
class Source:
    """Where text came from.

    Attributes:
        name: The file as the user typed it, or what stands for it in messages.
        folder: What relative paths in it are relative to.
    """

    name: str
    folder: Path


@dataclass(frozen=True)
class Mark:
    """A position: source, line and column, both from 1."""

    source: Source
    line: int = 1
    column: int = 1

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Text:
    """A scalar as typed; `plain` without quotes, so that it may mean a number, a switch or null."""

    mark: Mark
    text: str
    plain: bool

    @property
    def is_null(self) -> bool:
        return self.plain and self.text in _NULLS


@dataclass(frozen=True)
class Items:
    """A sequence."""

    mark: Mark
    items: tuple[Node, ...]


@dataclass(frozen=True)
class Entries:
    """A mapping; `keys` are the positions of the keys."""

    mark: Mark
    entries: dict[str, Node]
    keys: dict[str, Mark] = field(repr=False)


Node = Union[Text, Items, Entries]  # noqa: UP007 - a forward reference in a union


def refuse(mark: Mark, path: str, what: str) -> NoReturn:
    raise ConfigError(problem(mark, path, what))


def problem(mark: Mark, path: str, what: str) -> str:
    """``FILE:line:col: path: what``, on one line whatever was typed."""
    place = f"{path}: {what}" if path else what
    return f"{mark}: " + " ".join(place.split())


# ------------------------------------------------------------------------------------- reading


def read_tree(path: Path, name: str | None = None) -> Entries:
    """The tree of a file.

    Args:
        path: The file.
        name: What messages call it; as the user typed it.

    Raises:
        ConfigError: It cannot be read or is no YAML mapping.
    """
    source = Source(name or str(path), path.resolve().parent)
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
        text = data.decode("utf-8-sig")
    except OSError as error:
        refuse(Mark(source), "", f"cannot be read ({error.strerror or error})")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        refuse(Mark(source, line), "", f"is not UTF-8 text (byte {error.start})")
    if len(data) > MAX_BYTES:
        refuse(Mark(source), "", f"is larger than {MAX_BYTES} bytes; that is no configuration")
    tree = parse_text(text, source)
    if tree is None or (isinstance(tree, Text) and tree.is_null):
        refuse(Mark(source), "", "is empty; `renaissance new NAME` writes an example")
    if not isinstance(tree, Entries):
        refuse(tree.mark, "", "is not a mapping; it takes lines such as `seed: 123`")
    return tree


def parse_text(text: str, source: Source, mark: Mark | None = None) -> Node | None:
    """The tree of YAML text, None when there is no document.

    Args:
        text: One document.
        source: Where it came from.
        mark: Its first character, if that is not line 1, column 1.
    """
    start = mark or Mark(source)
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        at = error.problem_mark or error.context_mark
        refuse(_mark(at, start), "", f"is not YAML: {error.problem or error.context}")
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
        refuse(Mark(source, line, column), "", f"is not YAML: {error.reason}")
    except RecursionError:
        refuse(start, "", f"is nested deeper than {MAX_DEPTH} levels")
    except (ValueError, OverflowError):  # PyYAML on an escape such as "\UFFFFFFFF"
        refuse(start, "", "is not YAML: an escape stands for no character")
    return None if root is None else _Reader(start).node(root, "", 0)


class _Loader(yaml.BaseLoader):
    """Gives no plain word a meaning, and refuses deep brackets, whose scanning would take ages."""

    def fetch_flow_collection_start(self, token: Any) -> None:
        if self.flow_level > MAX_DEPTH:
            raise yaml.MarkedYAMLError(
                problem=f"nested deeper than {MAX_DEPTH} levels", problem_mark=self.get_mark()
            )
        super().fetch_flow_collection_start(token)


def _mark(mark: Any, start: Mark) -> Mark:
    if mark is None:
        return start
    column = mark.column + (start.column if mark.line == 0 else 1)
    return Mark(start.source, start.line + mark.line, column)


_DEFAULT_TAGS = {yaml.ScalarNode: "str", yaml.SequenceNode: "seq", yaml.MappingNode: "map"}


class _Reader:
    """Turns PyYAML's nodes into ours; counts them, so that aliases cannot blow a file up."""

    def __init__(self, start: Mark) -> None:
        self._start, self._count, self._open = start, 0, set[int]()

    def node(self, node: Any, path: str, depth: int) -> Node:
        mark = _mark(node.start_mark, self._start)
        self._count += 1
        if depth > MAX_DEPTH:
            refuse(mark, path, f"is nested deeper than {MAX_DEPTH} levels")
        if self._count > MAX_NODES:
            refuse(mark, path, f"is more than {MAX_NODES} values; that is no configuration")
        if id(node) in self._open:
            refuse(mark, path, "contains itself through an alias")
        self._open.add(id(node))
        found = self._convert(node, mark, path, depth)
        self._open.discard(id(node))
        return found

    def _convert(self, node: Any, mark: Mark, path: str, depth: int) -> Node:
        self._no_tag(node, mark, path)
        if isinstance(node, yaml.ScalarNode):
            if any("\ud800" <= sign <= "\udfff" for sign in node.value):
                refuse(mark, path, "holds an escape that stands for no character")
            return Text(mark, node.value, plain=node.style is None)
        if isinstance(node, yaml.SequenceNode):
            items = (self.node(n, f"{path}[{k}]", depth + 1) for k, n in enumerate(node.value))
            return Items(mark, tuple(items))
        return self._mapping(node, mark, path, depth)

    def _no_tag(self, node: Any, mark: Mark, path: str) -> None:
        if node.tag != f"tag:yaml.org,2002:{_DEFAULT_TAGS[type(node)]}":
            refuse(mark, path, f"has the tag {node.tag!r}; tags are not allowed")

    def _mapping(self, node: Any, mark: Mark, path: str, depth: int) -> Entries:
        entries: dict[str, Node] = {}
        keys: dict[str, Mark] = {}
        merged: list[Entries] = []
        for key_node, value_node in node.value:
            at = _mark(key_node.start_mark, self._start)
            if not isinstance(key_node, yaml.ScalarNode):
                refuse(at, path, "has a key that is no text")
            key = key_node.value
            if key == "<<" and key_node.style is None:
                merged += self._merge(value_node, at, path, depth)
                continue
            self._no_tag(key_node, at, path)
            inside = join(path, key)
            if key in entries:
                refuse(at, inside, f"is given twice, first in line {keys[key].line}; keep one")
            entries[key], keys[key] = self.node(value_node, inside, depth + 1), at
        for base in merged:
            for key, value in base.entries.items():
                if key not in entries:
                    entries[key], keys[key] = value, base.keys[key]
        return Entries(mark, entries, keys)

    def _merge(self, node: Any, mark: Mark, path: str, depth: int) -> Iterator[Entries]:
        nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
        for one in nodes:
            found = self.node(one, path, depth + 1)
            if not isinstance(found, Entries):
                refuse(mark, join(path, "<<"), "merges what is no mapping")
            yield found


def join(path: str, key: str) -> str:
    """``optimizer.lr``."""
    return f"{path}.{key}" if path else key


# ------------------------------------------------------------------------------------- meaning


def as_int(text: str) -> int | None:
    """A whole number in plain decimal notation, or None."""
    return int(text) if len(text) <= MAX_DIGITS and _INT.fullmatch(text) else None


def as_float(text: str) -> float | None:
    """A number in decimal notation, exponent allowed with or without point; or None."""
    is_one = len(text) <= MAX_DIGITS and _FLOAT.fullmatch(text) and not _PADDED.match(text)
    return float(text) if is_one else None


def as_bool(text: str) -> bool | None:
    """true or false as YAML 1.2 has them, or None."""
    return text in _TRUE if text in _TRUE + _FALSE else None


def hint_for(text: str) -> str:
    """What to write instead of a plain word that was meant as a number or switch, or ''."""
    if len(text) > MAX_DIGITS:
        return ""
    if re.fullmatch(r"[-+]?0[0-9]+(\.[0-9]*)?", text):
        return f"no leading zeros: write {text.lstrip('+-0') or '0'}"
    if re.fullmatch(r"[-+]?[0-9][0-9_]*_[0-9_.eE+-]*", text):
        return f"no underscores: write {text.replace('_', '')}"
    if re.fullmatch(r"[-+]?0(x[0-9a-fA-F]+|o[0-7]+|b[01]+)", text):
        return f"decimal notation: write {int(text, 0)}"
    if text.lower() in ("yes", "on", "y"):
        return "write true"
    if text.lower() in ("no", "off", "n"):
        return "write false"
    if text.lower() in ("none", "nil"):
        return "write null"
    if "$" in text:
        return "environment values are not read: pass it as key=value on the command line"
    return ""


def plain_value(node: Node) -> Any:
    """What a tree means where no type is known: the core types of YAML 1.2.

    Raises:
        ConfigError: A plain word could be a number in other notation (010, 0x10).
    """
    if isinstance(node, Items):
        return [plain_value(item) for item in node.items]
    if isinstance(node, Entries):
        return {key: plain_value(item) for key, item in node.entries.items()}
    return plain_word(node.text) if node.plain else node.text


def plain_word(text: str) -> Any:
    """A plain word as null, a switch, a number or else the text itself."""
    if text in _NULLS:
        return None
    for meaning in (as_bool, as_int, as_float):
        found = meaning(text)
        if found is not None:
            return found
    return text


# ------------------------------------------------------------------------------------- changing


def merge(base: Node, over: Node) -> Node:
    """`over` laid on `base`: mappings entry by entry, anything else replaces.

    A mapping of another ``type`` replaces too, as settings of the one mean nothing to the other.
    """
    if not isinstance(base, Entries) or not isinstance(over, Entries):
        return over
    if "type" in over.entries and _type_of(base) != _type_of(over):
        return over
    entries = dict(base.entries)
    for key, node in over.entries.items():
        entries[key] = merge(entries[key], node) if key in entries else node
    return Entries(over.mark, entries, base.keys | over.keys)


def _type_of(node: Entries) -> str | None:
    named = node.entries.get("type")
    return named.text if isinstance(named, Text) else None


def put(tree: Node, path: list[str], value: Node, at: str = "") -> Node:
    """`tree` with the value at ``optimizer.lr`` or ``data.train.transforms.0.p`` replaced."""
    if not path:
        return value
    key, rest = path[0], path[1:]
    if isinstance(tree, Items):
        index = as_int(key)
        if index is None or not 0 <= index < len(tree.items):
            refuse(
                value.mark,
                join(at, key),
                f"is no place in a list of {len(tree.items)}; it takes 0 to {len(tree.items) - 1}",
            )
        items = list(tree.items)
        items[index] = put(items[index], rest, value, f"{at}[{index}]")
        return replace(tree, items=tuple(items))
    if isinstance(tree, Text) and not tree.is_null:
        # `optimizer: adamw` is short for `optimizer: {type: adamw}`
        tree = Entries(tree.mark, {"type": tree}, {"type": tree.mark})
    if isinstance(tree, Text):
        tree = Entries(value.mark, {}, {})
    inner = tree.entries.get(key, Entries(value.mark, {}, {}))
    entries = tree.entries | {key: put(inner, rest, value, join(at, key))}
    return replace(tree, entries=entries, keys=tree.keys | {key: value.mark})


def apply_override(tree: Entries, argument: str, number: int) -> Entries:
    """One ``key=value`` or ``--key=value`` of the command line, the `number`-th from 1.

    The value is YAML, typed by the setting as in a file; paths in it are relative to the current
    folder.
    """
    source = Source("command line", Path.cwd())
    mark = Mark(source, number, 1)
    text = argument.removeprefix("--")
    key, equals, value = text.partition("=")
    if argument[:1] in "+~" or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z0-9_-]+)*", key):
        refuse(mark, "", f"{argument!r} is not an override; it takes key=value, such as seed=7")
    if not equals:
        refuse(mark, key, f"{argument!r} has no value; write {key}=value")
    at = Mark(source, number, len(argument) - len(value) + 1)
    node = parse_text(value, source, at) or Text(at, "", plain=True)
    path = key.split(".")
    if len(path) > MAX_DEPTH:
        refuse(mark, "", f"is nested deeper than {MAX_DEPTH} levels")
    changed = put(tree, path, node)
    assert isinstance(changed, Entries)
    return changed
