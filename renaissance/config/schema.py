"""The JSON schema of experiments, for editors and other tools: ``renaissance schema``.

It is made from the same settings models that check a file, so it cannot say anything else.
"""

from __future__ import annotations

import typing
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from renaissance.config.experiment import Experiment
from renaissance.config.factories import IsPath, as_data, is_value
from renaissance.config.hints import OneOf, alternatives, hint_of, value_hint
from renaissance.config.kinds import REGISTRY, Registry
from renaissance.settings import SettingsModel, Value

DRAFT = "https://json-schema.org/draft/2020-12/schema"

_SCALARS: dict[Any, str] = {
    int: "integer",
    float: "number",
    bool: "boolean",
    str: "string",
    type(None): "null",
}
_LIMITS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
}


def json_schema(registry: Registry = REGISTRY) -> dict[str, Any]:
    """The schema of a whole file, with every registered name."""
    maker = _Maker(registry)
    schema = maker.model(Experiment)
    schema["properties"]["extends"] = {
        "type": "string",
        "description": "Path of one file whose settings this one's are laid on.",
    }
    schema["required"] = []  # the file that is extended may have them
    return {"$schema": DRAFT, "title": "Renaissance experiment", **schema, "$defs": maker.kinds}


class _Maker:
    """Makes schemas, and one definition for each kind that is met."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self.kinds: dict[str, Any] = {}

    def model(self, model: type[SettingsModel], type_: str = "") -> dict[str, Any]:
        """A mapping of settings, with its ``type`` first if it has one."""
        fields = model.model_fields
        properties = {"type": {"const": type_}} if type_ else {}
        required = (["type"] if type_ else []) + [n for n, f in fields.items() if f.is_required()]
        return {
            "type": "object",
            "properties": properties | {name: self.field(f) for name, f in fields.items()},
            "required": required,
            "additionalProperties": False,
        }

    def field(self, field: FieldInfo) -> dict[str, Any]:
        """One setting: its type, limits, text and default."""
        schema = self.hint(hint_of(field))
        for part in schema.get("anyOf", [schema]):
            for limit in field.metadata if part.get("type") in ("number", "integer") else ():
                part |= {k: getattr(limit, n) for n, k in _LIMITS.items() if hasattr(limit, n)}
        if field.description:
            schema["description"] = field.description
        default = field.get_default(call_default_factory=True, validated_data={})
        if default is not PydanticUndefined:
            schema["default"] = as_data(default)
        return schema

    def hint(self, hint: Any) -> dict[str, Any]:
        """The alternatives of a type."""
        parts = [self._alternative(option) for option in alternatives(hint)]
        unique = [part for k, part in enumerate(parts) if part not in parts[:k]]
        if {} in unique:
            return {}
        return unique[0] if len(unique) == 1 else {"anyOf": unique}

    def _alternative(self, hint: Any) -> dict[str, Any]:
        if isinstance(hint, IsPath):
            return {"type": "string"}
        if isinstance(hint, OneOf):
            return self._kind(hint.kind)
        if hint in _SCALARS:
            return {"type": _SCALARS[hint]}
        if typing.get_origin(hint) is typing.Literal:
            return {"enum": list(typing.get_args(hint))}
        if isinstance(hint, type) and issubclass(hint, SettingsModel):
            return self.model(hint)
        if is_value(hint):
            return self._nested(hint)
        return self._container(hint)

    def _kind(self, kind: str) -> dict[str, Any]:
        """A reference to the definition of a kind: a mapping with its ``type``, or a bare name."""
        if kind not in self.kinds:
            self.kinds[kind] = {}  # met again inside itself: a schedule of schedules
            known = [self.model(f.settings, f.name) for f in self._registry.factories(kind)]
            names: dict[str, Any] = {"type": "string"}
            if kind != "metric":  # those are resolved by the loss: top5, top3 ...
                names = {"enum": self._registry.names(kind)}
            self.kinds[kind] = {"anyOf": [names, *known]}
        return {"$ref": f"#/$defs/{kind}"}

    def _nested(self, cls: type[Value]) -> dict[str, Any]:
        """A description that is of no kind; a bare word or number may stand for it."""
        schema = self.model(cls.Settings)
        schema["properties"]["type"] = {"const": cls.type_name}
        return {"anyOf": [{"type": ["string", "number"]}, schema]}

    def _container(self, hint: Any) -> dict[str, Any]:
        origin, args = typing.get_origin(hint) or hint, typing.get_args(hint)
        if origin is dict:
            return {"type": "object"} | (
                {"additionalProperties": self.hint(args[1])} if args else {}
            )
        if origin not in (list, tuple):
            return {}
        if origin is tuple and args and Ellipsis not in args:
            items = [self.hint(arg) for arg in args]
            return {
                "type": "array",
                "prefixItems": items,
                "minItems": len(items),
                "maxItems": len(items),
            }
        items_schema = {"type": "array"} | ({"items": self.hint(args[0])} if args else {})
        pair = value_hint([hint])
        if pair is None:
            return items_schema
        # Pairs (text, value) may also be written as a mapping.
        return {
            "anyOf": [items_schema, {"type": "object", "additionalProperties": self.hint(pair)}]
        }
