"""What messages about settings say: what came, what is allowed, and the nearest name."""

from __future__ import annotations

import difflib
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

import pydantic

F = TypeVar("F", bound=Callable[..., None])

#: Names that users of other frameworks try first, and ours.
FOREIGN_NAMES: Mapping[str, tuple[str, ...]] = {
    "learning_rate": ("lr", "base_lr", "max_lr"),
    "lr": ("base_lr", "max_lr"),
    "base_lr": ("lr", "max_lr"),
    "peak_lr": ("base_lr", "max_lr"),
    "beta_1": ("beta1",),
    "beta_2": ("beta2",),
    "betas": ("beta1",),
    "epsilon": ("eps",),
    "decay": ("weight_decay",),
    "wd": ("weight_decay",),
    "warmup_steps": ("warmup",),
    "warmup_epochs": ("warmup",),
    "start_factor": ("warmup_start_factor",),
    "interval": ("by",),
    "min_lr": ("eta_min", "end_lr"),
    "eta_min": ("end_lr", "min_lr"),
    "end_lr": ("eta_min", "min_lr"),
    "div_factor": ("div",),
    "final_div_factor": ("final_div",),
    "label_smooth": ("label_smoothing",),
    "weight": ("class_weights",),
    "max_norm": ("norm",),
    "clip_norm": ("norm",),
    "clip_value": ("value",),
    "prob": ("p",),
    "probability": ("p",),
}


def snake_case(name: str) -> str:
    """'RandomResizedCrop' as 'random_resized_crop'."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def nearest(name: str, allowed: Iterable[str]) -> str | None:
    """The allowed name most like the one given (other frameworks' names included), or None."""
    allowed = list(allowed)
    for candidate in FOREIGN_NAMES.get(name, ()):
        if candidate in allowed:
            return candidate
    close = difflib.get_close_matches(name.lower(), allowed, n=1, cutoff=0.6)
    return close[0] if close else None


def unknown_name(owner: str, name: str, allowed: Iterable[str]) -> str:
    """'X has no setting 'y'; did you mean 'z'? Allowed: ...'"""
    allowed = sorted(allowed)
    guess = nearest(name, allowed)
    hint = f"; did you mean {guess!r}?" if guess else "."
    return f"{owner} has no setting {name!r}{hint} Allowed: {', '.join(allowed) or 'none'}"


def telling_names(**ways: str) -> Callable[[F], F]:
    """Decorates ``__init__``: an argument that it lacks is a TypeError with what to write.

    Args:
        **ways: By names that users of other frameworks try, what it is here.
    """

    def decorated(init: F) -> F:
        known = list(inspect.signature(init).parameters)[1:]

        @functools.wraps(init)
        def checked(self: object, *arguments: Any, **settings: Any) -> None:
            for name in settings:
                if name not in known:
                    text = unknown_name(type(self).__name__, name, known)
                    if name in ways:
                        text = f"{type(self).__name__} has no setting {name!r}: {ways[name]}"
                    raise TypeError(text)
            init(self, *arguments, **settings)

        return cast("F", checked)

    return decorated


def immutable(owner: object, name: str, value: object) -> AttributeError:
    """The error of an assignment to a setting."""
    return AttributeError(
        f"{type(owner).__name__} is immutable: write value.{name}({value!r}), which gives a new one"
    )


_TYPE_ERRORS = ("_type", "is_instance_of", "callable_type", "missing")
_WHAT = {
    "float_type": "a number",
    "int_type": "a whole number",
    "bool_type": "True or False",
    "string_type": "a text",
    "tuple_type": "a list or tuple",
    "list_type": "a list",
    "finite_number": "a finite number",
}


def explain(
    owner: str, error: pydantic.ValidationError, model: type[pydantic.BaseModel]
) -> TypeError | ValueError:
    """One pydantic error as ours: what came, what is allowed."""
    found = error.errors(include_url=False)
    first = found[0]
    name = str(first["loc"][0]) if first["loc"] else "settings"
    if first["type"] == "missing" and len(first["loc"]) == 1:
        return TypeError(f"{owner} needs the setting {name!r}: {owner}({name}=...)")
    came = first["input"]
    same_place = [e for e in found if e["loc"][:1] == first["loc"][:1] and e["input"] is came]
    allowed = " or ".join(dict.fromkeys(_allowed(e) for e in same_place))
    limits = _limits(model.model_fields.get(name))
    if limits and first["type"] in _COMPARISONS:
        allowed = f"a number {limits}"
    place = name + "".join(f"[{part}]" for part in first["loc"][1:] if isinstance(part, int))
    if first["type"] == "missing":
        place, allowed = name, f"longer: its item [{first['loc'][-1]}] is missing"
    text = (
        f"{owner}: {place} = {came!r} ({type(came).__name__}) is not allowed; it must be {allowed}"
    )
    is_type = all(e["type"].endswith(_TYPE_ERRORS) for e in same_place)
    return TypeError(text) if is_type else ValueError(text)


_SCHEMA_WORDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "min_length": "minItems",
    "max_length": "maxItems",
}


def in_schema_words(schema: Any) -> Any:
    """A JSON schema in which pydantic's own names of limits (of optional settings) are JSON's."""
    if isinstance(schema, dict):
        return {_SCHEMA_WORDS.get(k, k): in_schema_words(item) for k, item in schema.items()}
    return [in_schema_words(item) for item in schema] if isinstance(schema, list) else schema


_COMPARISONS = ("greater_than", "greater_than_equal", "less_than", "less_than_equal")
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}


def _limits(field: Any) -> str:
    """'at least 0 and below 1', from the field's own bounds."""
    found = [
        f"{word} {getattr(limit, name)}"
        for limit in (field.metadata if field is not None else ())
        for name, word in _BOUNDS.items()
        if hasattr(limit, name)
    ]
    return " and ".join(found)


def _allowed(error: Any) -> str:
    if error["type"] in _WHAT:
        return _WHAT[error["type"]]
    if error["type"] in ("too_short", "too_long"):
        limits = error["ctx"]
        if "min_length" in limits:
            return f"at least {limits['min_length']} items"
        return f"at most {limits['max_length']} items"
    text = str(error["msg"])
    for lead in ("Input should be ", "Value error, ", "Assertion failed, "):
        text = text.removeprefix(lead)
    return text
