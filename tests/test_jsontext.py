"""JSON that comes back equal, or is refused."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from renaissance.jsontext import dump_json, load_json

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
values = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text().filter(lambda k: k != "$float"), inner)
    ),
    max_leaves=12,
)


def same(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return math.copysign(1, a) == math.copysign(1, b) and (a == b or (a != a and b != b))
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return type(a) is type(b) and a == b


@given(values)
def test_comes_back_equal(value):
    back = load_json(dump_json(value, what="x"))
    if isinstance(value, float) and math.isnan(value):
        assert math.isnan(back)
    else:
        assert same(strip_nan_sign(value), back)


def strip_nan_sign(value):
    """The sign of a NaN is no information we keep."""
    if isinstance(value, float) and math.isnan(value):
        return math.nan
    if isinstance(value, list):
        return [strip_nan_sign(v) for v in value]
    if isinstance(value, dict):
        return {k: strip_nan_sign(v) for k, v in value.items()}
    return value


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": {1: 2}}, r"x\.a is "),
        ({"a": [0, object()]}, r"x\.a\[1\] is "),
        ({"a": b"bytes"}, r"x\.a is b'bytes' \(bytes\)"),
        ({"a": {"$float": "nan"}}, r"x\.a is "),
        ({1, 2}, "x is "),
    ],
)
def test_refuses_what_would_not_come_back(value, place):
    with pytest.raises(TypeError, match=place):
        dump_json(value, what="x")


@pytest.mark.parametrize(
    "text", [b"", b"\xff", b"{", b"[" * 100_000, b"NaN", b"9" * 5000, b"{} {}"]
)
def test_anything_else_is_a_value_error(text):
    with pytest.raises(ValueError):
        load_json(text)
