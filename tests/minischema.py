"""As much of JSON Schema as `renaissance schema` uses: whether a value fits."""

TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def fits(value, schema, root):
    """Whether `value` is valid; every keyword met must be one of those known here."""
    return all(CHECKS[k](value, schema[k], schema, root) for k in schema if k not in SILENT)


def _type(value, names, schema, root):
    names = [names] if isinstance(names, str) else names
    if isinstance(value, bool):
        return "boolean" in names
    return any(isinstance(value, TYPES[name]) for name in names)


def _ref(value, target, schema, root):
    kind = target.removeprefix("#/$defs/")
    return fits(value, root["$defs"][kind], root)


def _properties(value, properties, schema, root):
    return not isinstance(value, dict) or all(
        fits(v, properties[k], root) for k, v in value.items() if k in properties
    )


def _additional(value, allowed, schema, root):
    if not isinstance(value, dict):
        return True
    extra = [v for k, v in value.items() if k not in schema.get("properties", {})]
    return not extra if allowed is False else all(fits(v, allowed, root) for v in extra)


def _ordered(value, limit, compare):
    return not isinstance(value, (int, float)) or compare(value, limit)


CHECKS = {
    "type": _type,
    "$ref": _ref,
    "properties": _properties,
    "additionalProperties": _additional,
    "anyOf": lambda v, parts, s, root: any(fits(v, part, root) for part in parts),
    "const": lambda v, wanted, s, root: v == wanted,
    "enum": lambda v, wanted, s, root: v in wanted,
    "required": lambda v, names, s, root: not isinstance(v, dict) or all(n in v for n in names),
    "items": lambda v, part, s, root: (
        not isinstance(v, list) or all(fits(x, part, root) for x in v)
    ),
    "prefixItems": lambda v, parts, s, root: (
        not isinstance(v, list) or all(fits(x, p, root) for x, p in zip(v, parts))
    ),
    "minItems": lambda v, n, s, root: not isinstance(v, list) or len(v) >= n,
    "maxItems": lambda v, n, s, root: not isinstance(v, list) or len(v) <= n,
    "minimum": lambda v, n, s, root: _ordered(v, n, lambda a, b: a >= b),
    "maximum": lambda v, n, s, root: _ordered(v, n, lambda a, b: a <= b),
    "exclusiveMinimum": lambda v, n, s, root: _ordered(v, n, lambda a, b: a > b),
    "exclusiveMaximum": lambda v, n, s, root: _ordered(v, n, lambda a, b: a < b),
}
SILENT = ("$schema", "$defs", "title", "description", "default")
