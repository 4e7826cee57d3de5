"""What of a sample, or of a batch, is the input and what the target."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Names under which a sample given as a dict holds its two parts, in order of preference.
INPUT_KEYS = ("x", "image", "img", "input", "inputs", "pixel_values", "data")
TARGET_KEYS = ("y", "label", "labels", "target", "targets", "fine_label")

#: What to do about several inputs.
SEVERAL = (
    "; several inputs of a sample go into one array, which the model's forward takes apart, and "
    "several targets, or a weight beside one, into another, for the loss: see rn.Fields. Batches "
    "of a torch DataLoader may hold several inputs as they are, in a dict or a tuple"
)


def parts_of(item: Any) -> tuple[Any, Any]:
    """(x, y) of one sample: a tuple, a dict or a lone tensor.

    Raises:
        TypeError: neither of them.
    """
    if isinstance(item, Mapping):
        x, y, _ = parts_of_dict(item, INPUT_KEYS)
        if isinstance(x, Mapping):
            raise TypeError(
                f"a sample is a dict with {', '.join(map(repr, item))}; it takes one input, best "
                f"under one of {', '.join(INPUT_KEYS)}, and, for the label, one of "
                f"{', '.join(TARGET_KEYS)}{SEVERAL}"
            )
        return x, y
    if isinstance(item, (tuple, list)):
        if len(item) not in (1, 2):
            raise TypeError(f"a sample has {len(item)} parts; it takes (x,) or (x, y)" + SEVERAL)
        return item[0], item[1] if len(item) == 2 else None
    return item, None


def parts_of_dict(
    item: Mapping[Any, Any], input_keys: tuple[str, ...]
) -> tuple[Any, Any, list[Any]]:
    """(x, y, keys left out) of a dict.

    y is the entry under the first of `TARGET_KEYS` there is, None without one. x is the one under
    the first of `input_keys`; without one all but targets: one as it is, several as a dict.
    """
    target = next((key for key in TARGET_KEYS if key in item), None)
    rest = {key: value for key, value in item.items() if key not in TARGET_KEYS}
    named = next((key for key in input_keys if key in item), None)
    used = set(rest) if named is None else {named}
    x: Any = rest if named is None else item[named]
    if named is None and len(rest) == 1:
        (x,) = rest.values()
    left_out = [key for key in item if key not in used and key != target]
    return x, None if target is None else item[target], left_out
