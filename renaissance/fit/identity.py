"""What makes a run this run: compared entry by entry when a checkpoint is resumed.

A difference is refused with what differs; one that is allowed by name is said, with what is lost.
"""

from __future__ import annotations

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
    "recipe": "equality with the unbroken run",
    "plan": "equality with the unbroken run",
    "environment": "equal bits (other threads, precision or determinism)",
}


def identity_of(task: Task) -> dict[str, Any]:
    """The identity of a task as it is now: JSON by the names of `IDENTITY`."""
    built = task.require()
    recipe = built.recipe
    used, told = task.trained_on
    train = used if used is not None and told is recipe.train else recipe.train
    return {
        "seed": str(task.seed),
        "data": None if train is None else train.identity(),
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
        for name in IDENTITY
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
    now, then = identity_of(task), checkpoint.state["identity"]
    if now["data"] is None:  # fit will be given some
        now["data"] = then["data"]
    own = task.require().recipe.train
    if FIT not in task.busy and own is not None and now["data"] != then["data"]:
        now["data"] = own.identity()  # after a fit of other data the task may go back to its own
    found = differences(now, then)
    if "plan" in found:  # hashes say nothing
        found["plan"] = "its weights fit; moments, averages, metrics or the layout are others"
    refused = [name for name in found if name not in allow]
    if refused:
        what = "; ".join(f"another {name} ({found[name]})" for name in refused)
        lost = ", ".join(dict.fromkeys(IDENTITY[name] for name in refused))
        raise ValueError(
            f"checkpoint {checkpoint.path}: {what}. Resuming would lose {lost}; "
            f"allow it with allow={list(dict.fromkeys([*allow, *refused]))} (--allow "
            f"{' --allow '.join(refused)} on the command line), or load weights only"
        )
    for name, what in found.items():
        logger.warning("resume: another %s (%s); lost: %s", name, what, IDENTITY[name])
    return set(found)
