"""A batch as a DataLoader's collate function leaves it: which of it are inputs, which targets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from renaissance.data.arrays import INT64, NUMBER_THEM, as_numpy, logger
from renaissance.data.fields import Fields
from renaissance.data.parts import parts_of_dict

#: Names of entries of a batch that are the input whatever is beside them.
INPUT_KEYS = ("x", "image", "img", "input", "inputs", "data")

#: The lines of a collate function: what it unpacks, what it returns.
COLLATE = (
    "    def collate(samples):\n"
    "        {} = torch.utils.data.default_collate(samples)\n"
    "        return {}\n"
    "    DataLoader(..., collate_fn=collate)\n"
)

#: A batch of more parts than this is rather a list of samples.
MANY = 8


class Collated:
    """Takes the batches of one DataLoader apart, into (x, y) of tensors.

    x is a tensor, or several in a dict, a tuple or a list, which the model's forward gets as it is;
    y is a tensor or None.
    """

    def __init__(self) -> None:
        self._has_said = False

    def parts(self, item: Any) -> tuple[Any, torch.Tensor | None, int]:
        """Inputs, targets and number of samples of a batch.

        Of a dict the target is the entry under one of `TARGET_KEYS`; the input is the one under one
        of `INPUT_KEYS` if there is any, else all that is left.

        Raises:
            TypeError: Which are inputs is not known, or something is no tensor.
            ValueError: There is no input, or not a row for each sample in all of them.
        """
        x, y = self._split(item)
        x = mapped_by_name(x, "x")
        if y is not None:
            y = _target(y)
        return x, y, _count_of(x, y)

    def count(self, item: Any) -> int:
        """Samples of a batch that is dropped."""
        return self.parts(item)[2]

    def _split(self, item: Any) -> tuple[Any, Any]:
        if isinstance(item, Mapping):
            x, y, left_out = parts_of_dict(item, INPUT_KEYS)
            if left_out and not self._has_said:
                self._has_said = True
                logger.warning(
                    "of the dicts that the DataLoader gives these entries are left out: %s (a "
                    "collate_fn that returns a dict of inputs and the target, ({...}, y), hands "
                    "them to the model)",
                    ", ".join(map(repr, left_out)),
                )
            return x, y
        if not isinstance(item, (tuple, list)):
            return item, None
        if len(item) > 2:
            raise TypeError(_many_parts(item))
        if len(item) == 0:
            raise ValueError("a batch of the DataLoader is empty; it takes (x,) or (x, y)")
        return item[0], item[1] if len(item) == 2 else None


#: What a list of several inputs begins with; others are lists of numbers, or of something else.
_PARTS = (torch.Tensor, np.ndarray, Mapping, tuple, list)


def mapped_by_name(given: Any, name: str) -> Any:
    """Arrays as tensors, in the containers they came in; a dict of any kind as a plain one."""
    if isinstance(given, torch.nn.utils.rnn.PackedSequence):
        raise TypeError(
            f"{name} of the DataLoader's batch is a PackedSequence, whose rows are no samples; "
            "give the padded tensor and the lengths, ({'x': padded, 'lengths': lengths}, y), and "
            "pack in the model's forward"
        )
    if isinstance(given, Mapping):
        return {key: mapped_by_name(value, f"{name}[{key!r}]") for key, value in given.items()}
    is_list = isinstance(given, (tuple, list)) and not is_numbers(given)
    if is_list and (not given or isinstance(given[0], _PARTS)):
        parts = [mapped_by_name(value, f"{name}[{place}]") for place, value in enumerate(given)]
        is_named = hasattr(given, "_fields")
        return type(given)(*parts) if is_named else type(given)(parts)
    return tensor_of(given, name)


def tensor_of(given: Any, name: str) -> torch.Tensor:
    """A tensor, an array or a list of numbers as a tensor in host memory, outside of any graph."""
    whose = f"{name} of the DataLoader's batch"
    if isinstance(given, torch.Tensor):
        tensor = given.detach()
        if tensor.is_nested or tensor.layout is not torch.strided or tensor.is_quantized:
            came, advice = ("nested", "pad them") if tensor.is_nested else (tensor.layout, "")
            advice = advice or "tensor.to_dense()"
            raise TypeError(f"{whose} is a {came} tensor; it takes dense ones: {advice}")
        if tensor.is_meta:
            raise TypeError(f"{whose} is a tensor on the meta device, which has no numbers")
    elif isinstance(given, np.ndarray):
        array = as_numpy(given, whose)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"{whose} is an array of {array.dtype}; it takes numbers")
        is_long = array.dtype == np.longdouble  # which torch has not
        dtype = np.dtype(np.float64) if is_long else array.dtype.newbyteorder("=")
        native = array.astype(dtype, copy=False)
        tensor = torch.from_numpy(np.require(native, requirements=["C", "W"]))
    elif is_numbers(given):
        tensor = torch.from_numpy(as_numpy(given, whose))
    else:
        raise TypeError(
            f"{whose} is {_described(given)}; it takes tensors, and for "
            "x dicts and tuples of them. Leave out in the collate_fn, or in the data set, what is "
            "not for the model"
        )
    return tensor


def _target(y: Any) -> torch.Tensor:
    if isinstance(y, Mapping) or (isinstance(y, (tuple, list)) and not is_numbers(y)):
        raise TypeError(_many_targets(y))
    target = tensor_of(y, "y")
    if target.is_complex():
        raise TypeError("y of the DataLoader's batch is complex; it takes real numbers")
    if target.dtype == torch.uint64 and (target.view(torch.int64) < 0).any():
        largest = np.asarray(target).max()
        raise ValueError(
            f"y of the DataLoader's batch holds {largest}; it takes int64, up to {INT64.max}"
        )
    return target.float() if target.is_floating_point() else target.long()


def _count_of(x: Any, y: torch.Tensor | None) -> int:
    """Samples: rows of every tensor."""
    named = {**_named(x, "x"), **({} if y is None else {"y": y})}
    if "y" in named and len(named) == 1 or not named:
        raise ValueError("x of the DataLoader's batch is an empty container; it takes a tensor")
    rows = {tensor.shape[0] if tensor.ndim else -1 for tensor in named.values()}
    if len(rows) > 1 or -1 in rows:
        shown = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in named.items())
        raise ValueError(
            f"the DataLoader's batch has shapes {shown}; each input and the target begin with a "
            "row for every sample (a list of single samples: torch.stack(...) in the collate_fn)"
        )
    (count,) = rows
    if count == 0:
        raise ValueError("a batch of the DataLoader has 0 samples; it takes at least 1")
    return count


def _named(x: Any, name: str) -> dict[str, torch.Tensor]:
    """The tensors of a tree by the expressions that reach them."""
    if isinstance(x, torch.Tensor):
        return {name: x}
    pairs = x.items() if isinstance(x, Mapping) else enumerate(x)
    found: dict[str, torch.Tensor] = {}
    for key, value in pairs:
        found.update(_named(value, f"{name}[{key!r}]"))
    return found


def is_numbers(given: Any) -> bool:
    """Whether it is a list of numbers, or of lists of them."""
    while isinstance(given, (tuple, list)) and given:
        if all(isinstance(one, (int, float, np.number, np.bool_)) for one in given):
            return True
        given = given[0]
    return False


def _many_parts(item: Any) -> str:
    count = len(item)
    head = f"a batch of the DataLoader has {count} parts, and which are inputs is not known; "
    if count > MANY or isinstance(item[0], (tuple, list, Mapping)):  # samples, as they were
        return (
            f"{head}a collate_fn returns (x, y) of stacked samples, x a tensor or a dict of some, "
            "as torch.utils.data.default_collate does"
        )
    names = [chr(ord("a") + k) for k in range(count - 1)]
    returned = ", ".join(f'"{name}": {name}' for name in names)
    lines = COLLATE.format(f"{', '.join(names)}, y", f"{{{returned}}}, y")
    return (
        f"{head}say it in a collate function:\n{lines}"
        "The model's forward gets the dict as its one argument. A weight of each sample goes into "
        "one array with its target: see rn.Fields"
    )


def _many_targets(y: Any) -> str:
    """What to write for several targets."""
    is_dict = isinstance(y, Mapping)
    came = f"a dict of {', '.join(map(repr, y))}" if is_dict else f"a {type(y).__name__}"
    arrays = {str(k): a for k, a in y.items()} if is_dict else {f"y{k}": a for k, a in enumerate(y)}
    head = f"y of the DataLoader's batch is {came}; it takes one tensor. "
    parts = list(arrays.values())
    if all(isinstance(one, str) for one in parts):
        return f"y of the DataLoader's batch is a {type(y).__name__} of text; {NUMBER_THEM}"
    if not is_dict and all(isinstance(one, torch.Tensor) and one.ndim == 0 for one in parts):
        return head + "Stack those of the samples: torch.stack(y) in the collate_fn"
    if not all(name.isidentifier() and _has_rows(a) for name, a in arrays.items()):
        return head + "Several targets of a sample go into one, for a loss of your own: rn.Fields"
    given = ", ".join(f"{name}=y[{k}]" for k, name in enumerate(arrays))
    lines = COLLATE.format("x, y", f"x, targets.pack({'**y' if is_dict else given})")
    return (
        f"{head}Several of a sample go into one, for a loss of your own that takes them apart:\n"
        f"    targets = rn.{Fields.of(**arrays)!r}\n{lines}"
        "    def loss(output, y):\n"
        "        y = targets.unpack(y)"
    )


def _has_rows(given: Any) -> bool:
    """Whether it is an array of numbers for some samples."""
    if isinstance(given, torch.Tensor):
        return given.numel() > 0 and given.ndim > 0 and not given.is_complex()
    return (
        isinstance(given, np.ndarray) and given.size > 0 < given.ndim and given.dtype.kind in "fiub"
    )


def _described(given: Any) -> str:
    if isinstance(given, (list, tuple)):
        kinds = sorted({type(one).__name__ for one in given})
        return f"a {type(given).__name__} of {', '.join(kinds) or 'nothing'}"
    return "None" if given is None else f"a {type(given).__name__}"
