"""What makes a run this run: compared entry by entry when a checkpoint is resumed.

A difference is refused with what differs; one that is allowed by name is said, with what is lost.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from torch import nn

from renaissance.busy import FIT
from renaissance.checkpoint import Checkpoint

if TYPE_CHECKING:
    from renaissance.task import Task

logger = logging.getLogger("renaissance")

#: What a resume compares, and what is lost when a difference is allowed.
IDENTITY: Mapping[str, str] = {
    "seed": "order, pixels and masks",
    "data": "the order and the pixels of the run",
    "validation": "comparison with what was measured: the best, early stops, plateaus",
    "recipe": "equality with the unbroken run",
    "plan": "equality with the unbroken run",
    "environment": "equal bits (other threads, precision or determinism)",
}

#: What a checkpoint from before validation data were compared says of them.
UNKNOWN = "unknown"

#: Data that a task may not have before a fit brings it.
BROUGHT = ("data", "validation")


@dataclasses.dataclass(frozen=True)
class Awaited:
    """Data of a checkpoint that a task has loaded without having any: the next fit compares it.

    Attributes:
        checkpoint: Its folder.
        identity: By those names of `BROUGHT` that the task had nothing to compare with.
    """

    checkpoint: str
    identity: dict[str, Any]


def identity_of(task: Task) -> dict[str, Any]:
    """The identity of a task as it is now: JSON by the names of `IDENTITY`."""
    built = task.require()
    recipe = built.recipe
    train, valid = task.fitted.over(recipe.train, recipe.valid)
    return {
        "seed": str(task.seed),
        "data": None if train is None else train.identity(),
        "validation": None if valid is None else valid.identity(),
        "recipe": recipe.identity()
        | {"metrics": list(built.executor.tally.names), "model": layers_of(task.model)},
        "plan": built.plan.hash(),
        "environment": {
            "precision": task.precision.name,
            "deterministic": task.deterministic,
            "threads": task.threads,
            "device": task.device.type,
        },
    }


def layers_of(module: nn.Module) -> dict[str, str]:
    """Path -> type and settings of every layer: what a plan does not show, such as dropout's p."""
    return {
        path or "(model)": f"{type(layer).__name__}({layer.extra_repr()})"
        for path, layer in module.named_modules()
    }


def differences(now: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, str]:
    """Entry of the identity -> what differs, in words."""
    return {
        name: "; ".join(_differences(now[name], then[name], ""))
        for name in then
        if now[name] != then[name]
    }


def _differences(now: Any, then: Any, at: str) -> Iterator[str]:
    """``batch_size: 8 then, 4 now`` of every leaf that differs."""
    if isinstance(now, dict) and isinstance(then, dict):
        for key in {**now, **then}:
            if now.get(key) != then.get(key):
                yield from _differences(now.get(key), then.get(key), f"{at}.{key}" if at else key)
    else:
        yield (f"{at}: " if at else "") + f"{_short(then)} then, {_short(now)} now"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 100 else f"{text[:90]} ... ({len(text)} characters)"


def compare(task: Task, checkpoint: Checkpoint, allow: Collection[str]) -> set[str]:
    """Refuse a checkpoint of another run, but for what is allowed, which is said.

    Args:
        task: The task as it is now.
        checkpoint: Its state has been checked, and that its model fits.
        allow: Names of `IDENTITY`.

    Returns:
        The names that differ, all of them allowed.

    Raises:
        ValueError: An entry differs that was not allowed, or `allow` has an unknown name.
    """
    unknown = sorted(set(allow) - set(IDENTITY))
    if unknown:
        raise ValueError(f"allow = {unknown[0]!r} is not known; it takes {', '.join(IDENTITY)}")
    now, then = identity_of(task), dict(checkpoint.state["identity"])
    recipe = task.require().recipe
    for name, own in zip(BROUGHT, (recipe.train, recipe.valid)):
        if FIT not in task.busy and own is not None and now[name] != then[name]:
            now[name] = own.identity()  # after a fit of other data the task may go back to its own
    _tell_of_validation(now, then, has_all=FIT in task.busy)
    for name in BROUGHT:
        if now[name] is None or then[name] == UNKNOWN:  # fit will be given some
            now[name] = then[name]
    found = differences(now, then)
    if "plan" in found:  # hashes say nothing
        found["plan"] = "its weights fit; moments, averages, metrics or the layout are others"
    _judge(f"checkpoint {checkpoint.path}", found, allow)
    return set(found)


def _tell_of_validation(now: dict[str, Any], then: dict[str, Any], *, has_all: bool) -> None:
    """Say that a run is validated from here on, or no longer: that is no other validation."""
    if then["validation"] is None and now["validation"] is not None:
        logger.warning("resume: the run had no validation data so far, and has some from here on")
        then["validation"] = now["validation"]
    elif has_all and now["validation"] is None and then["validation"] not in (None, UNKNOWN):
        logger.warning("resume: the run had validation data, and has none from here on")
        then["validation"] = None


def _judge(what: str, found: Mapping[str, str], allow: Collection[str]) -> None:
    """Refuse differences, but for what is allowed, which is said."""
    refused = [name for name in found if name not in allow]
    if refused:
        others = "; ".join(f"another {name} ({found[name]})" for name in refused)
        lost = ", ".join(dict.fromkeys(IDENTITY[name] for name in refused))
        raise ValueError(
            f"{what}: {others}. Resuming would lose {lost}; "
            f"allow it with allow={list(dict.fromkeys([*allow, *refused]))} (--allow "
            f"{' --allow '.join(refused)} on the command line), or load weights only"
        )
    for name, text in found.items():
        logger.warning("resume: another %s (%s); lost: %s", name, text, IDENTITY[name])


def is_other_data(task: Task, checkpoint: Checkpoint) -> bool:
    """Whether the task's data now are not those of a checkpoint, as far as that is known."""
    now, then = identity_of(task), checkpoint.state["identity"]
    return any(now[name] != then[name] != UNKNOWN for name in BROUGHT)


def awaited_by(task: Task, checkpoint: Checkpoint, allow: Collection[str]) -> Awaited | None:
    """What `compare` could not compare, because the task has no such data yet."""
    now, then = identity_of(task), checkpoint.state["identity"]
    names = [name for name in BROUGHT if now[name] is None and name not in allow]
    left = {name: then[name] for name in names if then[name] not in (None, UNKNOWN)}
    return Awaited(str(checkpoint.path), left) if left else None


def check_awaited(task: Task, allow: Collection[str]) -> None:
    """Refuse to go on from a checkpoint that was loaded without data, with other data.

    Raises:
        ValueError: See `compare`.
    """
    if task.awaited is None:
        return
    now, then = identity_of(task), dict(task.awaited.identity)
    if "validation" in then:
        _tell_of_validation(now, then, has_all=True)
    found = differences(now, {name: one for name, one in then.items() if now[name] is not None})
    _judge(f"checkpoint {task.awaited.checkpoint}", found, allow)
    task.awaited = None
