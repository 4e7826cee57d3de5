"""What one evaluates and predicts: a loader, an array of inputs, or one batch given by hand."""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch

from renaissance.data.batch import Batch, mapped
from renaissance.data.collated import Collated, is_numbers
from renaissance.data.foreign import TorchLoader, as_loader
from renaissance.data.loader import Loader
from renaissance.data.parts import TARGET_KEYS

#: Samples that go through the model at a time, of an array and of a batch.
ROWS = 256


class _ByHand(TorchLoader):
    """One batch given by hand."""


def is_by_hand(data: Any) -> bool:
    """Whether it is a batch given by hand, for which nobody expects a step to be made ready."""
    return isinstance(data, _ByHand)


def as_looked_at(data: Any, what: str) -> Loader:
    """A loader over what `Task.evaluate` and `Task.predict` are given.

    Args:
        data: A loader, a DataLoader, or one batch as a DataLoader gives it: a dict, a tuple (x, y)
            or a `Batch`. For "predict" an array or tensor of inputs, too.
        what: "evaluate" or "predict": who asks.

    Raises:
        TypeError: It is something else; the text says what to write.
        ValueError: A batch, or an array of pictures, cannot be read so.
    """
    if what == "predict" and isinstance(data, (np.ndarray, torch.Tensor)):
        if str(data.dtype).endswith("uint8"):
            raise ValueError(
                "predict: uint8 pictures need the transforms of their data; write "
                "task.predict(rn.Loader.from_arrays(x, batch_size=256, transforms=[...]))"
            )
        return Loader.from_arrays(data, batch_size=min(ROWS, max(1, len(data))))
    if isinstance(data, (np.ndarray, torch.Tensor)):
        raise TypeError(
            f"evaluate: received {type(data).__name__}, which has no targets; write "
            "task.evaluate((x, y)), or for pictures with transforms "
            "task.evaluate(rn.Loader.from_arrays(x, y, batch_size=256, transforms=[...]))"
        )
    return _of_batch(data, what) if _is_batch(data) else as_loader(data)


def _is_batch(data: Any) -> bool:
    """Whether it holds tensors or arrays as a DataLoader's batch does; rows of numbers do not."""
    if isinstance(data, (Batch, Mapping)):
        return True
    is_some = isinstance(data, (tuple, list)) and len(data) > 0 and not is_numbers(data)
    return is_some and isinstance(data[0], (torch.Tensor, np.ndarray, Mapping, tuple, list))


def _of_batch(data: Any, what: str) -> Loader:
    """A loader over one batch, in parts of at most `ROWS` samples."""
    if isinstance(data, Batch):
        data = (data.x, data.y)
    if isinstance(data, list) and all(isinstance(one, Mapping) for one in data):
        raise TypeError(
            f"{what}: received a list of {len(data)} dicts, which are single samples; stack them: "
            f"task.{what}(torch.utils.data.default_collate(samples))"
        )
    if isinstance(data, (tuple, list)) and len(data) == 2 and data[1] is None:
        data = data[:1]
    try:
        x, y, count = _reader_of(tuple(data) if isinstance(data, Mapping) else ()).parts(data)
    except (TypeError, ValueError) as error:
        text = f"{what} takes one batch as a DataLoader gives it, and cannot read this one: {error}"
        raise type(error)(text) from None
    if y is None and what == "evaluate":
        raise ValueError(_without_target(data))
    batch = mapped(torch.Tensor.cpu, (x,) if y is None else (x, y))
    places = [slice(begin, begin + ROWS) for begin in range(0, count, ROWS)]
    parts = [mapped(operator.itemgetter(place), batch) for place in places]
    loader = torch.utils.data.DataLoader(
        cast("torch.utils.data.Dataset[Any]", parts), batch_size=None, collate_fn=_as_it_is
    )
    return cast("Loader", _ByHand(loader))


@functools.lru_cache(maxsize=64)
def _reader_of(names: tuple[Any, ...]) -> Collated:
    """What takes batches of these entries apart; it says once, not of each, what it leaves out."""
    return Collated()


def _as_it_is(part: Any) -> Any:
    return part


def _without_target(data: Any) -> str:
    if not isinstance(data, Mapping):
        return (
            "evaluate: the batch has no targets, which the loss needs; give (x, y), or a dict that "
            "holds them under 'labels'. task.predict takes samples without"
        )
    return (
        f"evaluate: the dict has {', '.join(map(repr, data))}, and no targets, which the loss "
        f"needs: it takes them under one of {', '.join(TARGET_KEYS)}, or as ({{...}}, y). "
        "task.predict takes samples without"
    )
