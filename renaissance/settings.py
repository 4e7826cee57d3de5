"""Immutable values whose settings are keywords and fluent methods: what every description is.

A description (an optimizer, a schedule, a loss, a transform ...) says what is wanted and holds no
tensor. One line declares one setting::

    @value
    class AdamW(Value):
        beta1: Setting[float] = setting(default=0.9, ge=0, lt=1, doc="Decay of the first moment.")

    AdamW(beta1=0.8) == AdamW().beta1(0.8)      # a new value each time
    AdamW(beta1=0.8).settings.beta1             # 0.8
    repr(AdamW(beta1=0.8))                      # 'AdamW(beta1=0.8)'

The settings of a class are one frozen pydantic model (``AdamW.Settings``), which also checks what
comes from YAML and gives the JSON schema. A wrong name, type or range is an error at once that says
what came, what is allowed, and the nearest name.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar, Union, overload

import numpy as np
import pydantic
from pydantic_core import PydanticUndefined, core_schema
from typing_extensions import Self, dataclass_transform

from renaissance.wording import explain as explain
from renaissance.wording import immutable, in_schema_words
from renaissance.wording import nearest as nearest
from renaissance.wording import snake_case as snake_case
from renaissance.wording import unknown_name as unknown_name

T = TypeVar("T")
V = TypeVar("V", bound="Value")


_MISSING: Any = object()  # no argument was given


class BoundSetting(Generic[V]):
    """A setting seen on a value: callable in subclasses, and a hint to who only reads it."""

    def __init__(self, owner: V, name: str, doc: str) -> None:
        self._owner, self._name, self.__doc__ = owner, name, doc

    def __repr__(self) -> str:
        current = getattr(self._owner.settings, self._name)
        return (
            f"<setting {self._name} = {current!r} of {type(self._owner).__name__}; "
            f".{self._name}(value) gives a new value, .settings.{self._name} reads it>"
        )


class Fluent(BoundSetting[V], Generic[T, V]):
    """The fluent method of one setting, bound to a value: ``AdamW().beta1`` in ``.beta1(0.9)``."""

    @overload
    def __call__(self: Fluent[bool, V], /) -> V: ...
    @overload
    def __call__(self, value: T, /) -> V: ...
    def __call__(self: Any, value: Any = _MISSING, /) -> Any:
        """A new value with this setting changed (a switch may be called without argument)."""
        owner, name = self._owner, self._name
        if value is _MISSING:
            if owner.Settings.model_fields[name].annotation is not bool:
                raise TypeError(
                    f"{type(owner).__name__}().{name}() received no value; write "
                    f".{name}(value) to set it, .settings.{name} to read it"
                )
            value = True
        return owner.replace(**{name: value})


class Setting(Generic[T]):
    """A declared setting; reading it on an instance gives the fluent method."""

    name: str

    def __init__(self, field: Any, doc: str, positional: bool) -> None:
        self.field, self.__doc__, self.positional = field, doc, positional

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, instance: None, owner: type) -> Setting[T]: ...
    @overload
    def __get__(self, instance: V, owner: type[V]) -> Fluent[T, V]: ...
    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self
        return Fluent(instance, self.name, self.__doc__ or "")

    def __set__(self, instance: Any, value: T) -> None:
        raise immutable(instance, self.name, value)


def setting(
    *,
    default: Any = PydanticUndefined,
    doc: str = "",
    kw_only: bool = True,
    factory: Callable[[], Any] | None = None,
    kind: type[Setting[Any]] = Setting,
    **limits: Any,
) -> Any:
    """Declare one setting of a value class.

    Args:
        default: Its default; without one the setting is required.
        doc: One sentence: meaning, unit and range. Shown by ``help`` and in the JSON schema.
        kw_only: False lets the constructor take it by position too, in order of declaration.
        factory: Makes the default, in place of ``default``.
        kind: A subclass of `Setting` whose fluent method takes more than one argument.
        **limits: ``ge``, ``gt``, ``le``, ``lt``, ``min_length`` ... as pydantic names them.
    """
    if factory is not None:
        field = pydantic.Field(default_factory=factory, description=doc, **limits)
    else:
        field = pydantic.Field(default, description=doc, **limits)
    return kind(field, doc, not kw_only)


class SettingsModel(pydantic.BaseModel):
    """Base of every ``X.Settings``: frozen, no unknown names, no NaN or infinity."""

    model_config = pydantic.ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=True
    )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> Any:
        return in_schema_words(handler(schema))


class Value:
    """An immutable description. See the module's text; subclasses are decorated with `value`."""

    Settings: typing.ClassVar[type[SettingsModel]] = SettingsModel
    #: The name in YAML (``type: adamw``); the class's own in snake_case unless it says otherwise.
    type_name: typing.ClassVar[str] = "value"
    #: Settings that are None by default and must be given before the value is used.
    demanded: typing.ClassVar[tuple[str, ...]] = ()
    settings: Any  #: the frozen settings, by name
    __slots__ = ("settings",)

    def __init__(self, *args: Any, **settings: Any) -> None:
        self._accept(self._bind(args, settings))
        self.check_complete()

    def _accept(self, given: dict[str, Any]) -> None:
        try:
            model = self.Settings(**given)
        except pydantic.ValidationError as error:
            raise explain(type(self).__name__, error, self.Settings) from None
        object.__setattr__(self, "settings", model)
        self.check()

    @classmethod
    def _make(cls, given: dict[str, Any]) -> Self:
        """A value that later settings may still complete."""
        made = object.__new__(cls)
        made._accept(cls._bind((), given))
        return made

    @classmethod
    def _bind(cls, args: tuple[Any, ...], settings: dict[str, Any]) -> dict[str, Any]:
        names = [s.name for s in declared(cls) if s.positional]
        if len(args) > len(names):
            allowed = f"at most {len(names)} ({', '.join(names)})" if names else "none"
            raise TypeError(
                f"{cls.__name__} received {len(args)} positional arguments, takes {allowed}; "
                f"name them: {signature_text(cls)}"
            )
        given = dict(zip(names, args))
        twice = sorted(given.keys() & settings.keys())
        if twice:
            raise TypeError(f"{cls.__name__} received {twice[0]!r} twice: by position and by name")
        unknown = [name for name in settings if name not in cls.Settings.model_fields]
        if unknown:
            raise TypeError(unknown_name(cls.__name__, unknown[0], cls.Settings.model_fields))
        return given | settings

    def check(self) -> None:
        """Refuse settings that contradict each other (ValueError). Subclasses extend it."""

    def check_complete(self) -> None:
        """Refuse settings that need another one (ValueError). Subclasses extend it.

        The constructor calls it; fluent methods do not, so that their order is free:
        ``SGD().nesterov().momentum(0.9)``. Who uses a value asks for ``value.ready()``.
        """

    def ready(self) -> Self:
        """The value itself, complete: with every setting that its use demands (else ValueError).

        Such settings have no default that could be right (`demanded`), and yet a value without
        them can be written down, so that fluent methods may give them: ``StepLR().step_size(30)``.
        """
        self.check_complete()
        for name in self.demanded:
            if getattr(self.settings, name) is None:
                doc = self.Settings.model_fields[name].description
                raise ValueError(
                    f"{self!r} has no {name}, which it needs: {doc} Write "
                    f"{type(self).__name__}({name}=...) or .{name}(...)"
                )
        return self

    def replace(self, **settings: Any) -> Self:
        """A new value with these settings changed; see `check_complete`."""
        current = {name: getattr(self.settings, name) for name in self.settings.model_fields_set}
        return self._make(current | settings)

    def __setattr__(self, name: str, value: Any) -> None:
        raise immutable(self, name, value)

    if not TYPE_CHECKING:  # a type checker shall find wrong names by itself

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_"):
                raise AttributeError(name)
            allowed = self.Settings.model_fields
            raise AttributeError(unknown_name(type(self).__name__, name, allowed))

    def changed(self) -> dict[str, Any]:
        """The settings that differ from their defaults, in order of declaration."""
        found = {}
        for name, field in self.Settings.model_fields.items():
            current = getattr(self.settings, name)
            default = field.get_default(call_default_factory=True, validated_data={})
            if field.is_required() or not same(current, default):
                found[name] = current
        return found

    def to_dict(self, *, defaults: bool = False) -> dict[str, Any]:
        """The settings as YAML and JSON hold them; values inside get their ``type`` as well.

        Args:
            defaults: Write also what was left at its default, so that a record stays true when a
                later version has other defaults.

        Raises:
            TypeError: A setting is no data (a function, say).
        """
        chosen = self.changed()
        if defaults:
            chosen = {name: getattr(self.settings, name) for name in self.Settings.model_fields}
        return {
            name: _as_data(item, f"{type(self).__name__}: {name}", defaults)
            for name, item in chosen.items()
        }

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> Any:
        return core_schema.is_instance_schema(cls)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: Any, handler: Any) -> dict[str, Any]:
        return {"type": "object", "title": cls.__name__}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(
            same(getattr(self.settings, name), getattr(other.settings, name))
            for name in self.Settings.model_fields
        )

    def __hash__(self) -> int:
        return hash((type(self).__name__, repr(self)))

    def __repr__(self) -> str:
        positional = [item.name for item in declared(type(self)) if item.positional]
        parts: list[str] = []
        for name, current in self.changed().items():
            is_next = positional[len(parts) : len(parts) + 1] == [name]
            parts.append(repr(current) if is_next else f"{name}={current!r}")
        return f"{type(self).__name__}({', '.join(parts)})"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> Any:
        return self._make, (self.changed(),)


def _as_data(item: Any, place: str, defaults: bool) -> Any:
    if isinstance(item, Value):
        return {"type": item.type_name, **item.to_dict(defaults=defaults)}
    if isinstance(item, (tuple, list)):
        return [_as_data(part, place, defaults) for part in item]
    if isinstance(item, dict):
        return {key: _as_data(part, place, defaults) for key, part in item.items()}
    if item is None or isinstance(item, (bool, int, float, str)):
        return item
    came = f"{place} = {item!r} ({type(item).__name__})"
    raise TypeError(f"{came} cannot be written as data; numbers, texts, lists and values can")


# Not frozen_default: mypy then loses the fluent methods of inherited settings. Values are immutable
# all the same, see Setting.__set__.
@dataclass_transform(kw_only_default=True, field_specifiers=(setting,))
def value(cls: type[V]) -> type[V]:
    """Class decorator: builds ``Settings`` and the constructor's signature from the settings."""
    hints = typing.get_type_hints(cls, include_extras=True)
    fields: dict[str, Any] = {}
    for item in declared(cls):
        inner = typing.get_args(hints[item.name])[0]
        fields[item.name] = (strict(inner), item.field)
    cls.Settings = pydantic.create_model(
        f"{cls.__name__}Settings", __base__=SettingsModel, __module__=cls.__module__, **fields
    )
    cls.__signature__ = _signature(cls)  # type: ignore[attr-defined]
    if "type_name" not in vars(cls):
        cls.type_name = snake_case(cls.__name__)
    return cls


def declared(cls: type) -> list[Setting[Any]]:
    """The settings of a value class: its own in order of declaration, then those of its bases.

    Positional ones come first in any case, so that a subclass may add them.
    """
    found: dict[str, Setting[Any]] = {}
    for base in cls.__mro__:
        for name, item in vars(base).items():
            if isinstance(item, Setting):
                found.setdefault(name, item)
    return list(found.values())


def _signature(cls: type[Value]) -> inspect.Signature:
    parameters = []
    for item in sorted(declared(cls), key=lambda s: not s.positional):
        field = cls.Settings.model_fields[item.name]
        kind = (
            inspect.Parameter.POSITIONAL_OR_KEYWORD
            if item.positional
            else inspect.Parameter.KEYWORD_ONLY
        )
        default = (
            inspect.Parameter.empty
            if field.is_required()
            else field.get_default(call_default_factory=True, validated_data={})
        )
        parameters.append(inspect.Parameter(item.name, kind, default=default))
    return inspect.Signature(parameters)


def signature_text(cls: type[Value]) -> str:
    """The constructor as one would type it: ``AdamW(*, beta1=0.9, ...)``."""
    return f"{cls.__name__}{_signature(cls)}"


def strict(hint: Any) -> Any:
    """The type hint with numbers, texts and switches taken as they are: '0.9' is no number.

    NumPy scalars count as the Python number they hold.
    """
    if hint in (float, int, bool, str):
        return Annotated[hint, pydantic.BeforeValidator(_plain), pydantic.Strict()]
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is Annotated:
        return Annotated[(strict(args[0]), *args[1:])]
    if origin in (Union, types.UnionType):
        return Union[tuple(strict(a) for a in args)]  # noqa: UP007
    if origin in (tuple, list):
        return origin[tuple(a if a is Ellipsis else strict(a) for a in args)]
    if origin is dict:
        return types.GenericAlias(dict, (strict(args[0]), strict(args[1])))
    return hint


def _plain(given: Any) -> Any:
    return given.item() if isinstance(given, np.generic) else given


def pairs(given: Any) -> Any:
    """A mapping, as YAML has it, as a tuple of pairs; for `pydantic.BeforeValidator`."""
    return tuple(given.items()) if isinstance(given, Mapping) else given


def same(a: Any, b: Any) -> bool:
    """Equality that tells 1, 1.0 and True apart, inside containers too."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    return bool(a == b)
