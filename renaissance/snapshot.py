"""The whole state of a task: as tensors and JSON for a checkpoint, and as one hash.

A checkpoint restored into an equal task continues with the same bits. Tensors go by parameter
name, never by offset in a region, so that another plan (another precision, EMA on or off) can still
read the weights. What a resume must find equal is compared first, and a difference has to be
allowed by name.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from renaissance import nn as layers
from renaissance.binding import Link, link_of
from renaissance.checkpoint import Checkpoint
from renaissance.options import Horizon
from renaissance.scalars import STATE
from renaissance.survey import COUNTER
from renaissance.tensorfile import TensorSpec

if TYPE_CHECKING:
    from renaissance.build import Built
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

_FIELDS: Mapping[str, Any] = {
    "name": str,
    "position": {"epoch": int, "step": int, "attempted": int},
    "counters": {name: float if name == "loss_scale" else int for name in STATE},
    "sums": {"names": list, "epoch": list},
    "open_epoch": dict,
    "generator": {"seed": str, "offset": str},
    "horizon": (dict, type(None)),
    "schedule": dict,
    "history": dict,
    "callbacks": list,
    "best": dict,
    "identity": dict.fromkeys(IDENTITY, object),
}


def files_of(built: Built) -> dict[str, dict[str, Tensor]]:
    """Tensors by name, by file, as views of the regions or copies: float32 masters, never A."""
    model = {name: t.detach() for name, t in built.module.state_dict().items()}
    files = {"model": model}
    moments = {
        f"{letter}/{segment.name}": built.memory.view(letter, segment.name)
        for letter in built.moment_regions
        for segment in built.plan.parameters
    }
    if moments:
        files["optimizer"] = moments
    if built.has_ema:
        files["ema"] = {
            segment.name: built.memory.view("E", segment.name)
            for segment in built.plan.segments
            if segment.region == "W" or segment.averaged
        }
    return files


def state_of(task: Task, callbacks: list[dict[str, Any]]) -> dict[str, Any]:
    """Everything but tensors, as JSON."""
    built = task.require()
    seed, offset = task.generator.get_state()
    return {
        "name": task.name,
        "position": dataclasses.asdict(task.position),
        "counters": built.updater.scalars.state(),
        "sums": {
            "names": list(built.executor.tally.names),
            "epoch": built.executor.tally.values("epoch"),
        },
        "open_epoch": dict(task.open_epoch),
        "generator": {"seed": str(seed), "offset": str(offset)},
        "horizon": None if task.horizon is None else dataclasses.asdict(task.horizon),
        "schedule": task.rates.state_dict(),
        "history": task.history.state_dict(),
        "callbacks": callbacks,
        "best": dict(task.best),
        "identity": identity_of(task),
    }


def identity_of(task: Task) -> dict[str, Any]:
    """What makes a run this run: JSON, compared entry by entry on resume."""
    recipe, built = task.settings, task.require()
    return {
        "seed": str(task.seed),
        "data": None if recipe.train is None else recipe.train.identity(),
        "recipe": recipe.identity(),
        "plan": built.plan.hash(),
        "environment": {
            "precision": task.precision.name,
            "deterministic": task.deterministic,
            "threads": task.threads,
            "device": task.device.type,
        },
    }


def differences(now: Mapping[str, Any], then: Mapping[str, Any]) -> dict[str, str]:
    """Entry of the identity -> what differs, in words."""
    found = {}
    for name in IDENTITY:
        a, b = now[name], then[name]
        if a == b:
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            keys = [k for k in {**a, **b} if a.get(k) != b.get(k)]
            found[name] = "; ".join(f"{k}: {b.get(k)!r} then, {a.get(k)!r} now" for k in keys)
        else:
            found[name] = f"{b!r} then, {a!r} now"
    return found


def restore(task: Task, checkpoint: Checkpoint, allow: Collection[str]) -> list[dict[str, Any]]:
    """Put a checkpoint's whole state into the task; returns the callbacks' states.

    Raises:
        CheckpointError: Something is missing, misshapen or of another type.
        ValueError: The run differs in something that was not allowed by name.
    """
    built = task.require()
    state = checkpoint.state
    checkpoint.check_state(_FIELDS)
    _compare(task, checkpoint, allow)
    names = list(built.executor.tally.names)
    if state["sums"]["names"] != names or len(state["sums"]["epoch"]) != 2 * len(names):
        checkpoint.refuse(f"state.json: sums of {state['sums']['names']}, this task has {names}")
    expected = files_of(built)
    missing = sorted(set(expected) - set(checkpoint.files))
    if missing:
        checkpoint.refuse(f"{missing[0]}.safetensors is missing")
    for name, tensors in expected.items():
        checkpoint.file(name).check({k: TensorSpec.of(t) for k, t in tensors.items()})
    # Counters first: num_batches_tracked is stored as its distance from the counter in S.
    built.updater.scalars.load_state(state["counters"])
    load_model(built, checkpoint)
    for name in set(expected) - {"model"}:
        checkpoint.file(name).load_into(expected[name])
    built.executor.tally.load("epoch", state["sums"]["epoch"])
    _restore_host(task, state)
    return list(state["callbacks"])


def _restore_host(task: Task, state: Mapping[str, Any]) -> None:
    position = state["position"]
    task.position.epoch, task.position.step = position["epoch"], position["step"]
    task.position.attempted = position["attempted"]
    task.open_epoch = dict(state["open_epoch"])
    task.generator.set_state(int(state["generator"]["seed"]), int(state["generator"]["offset"]))
    task.horizon = None if state["horizon"] is None else Horizon(**state["horizon"])
    task.rates.load_state_dict(state["schedule"])
    task.history.load_state_dict(state["history"])
    task.best = dict(state["best"])


def _compare(task: Task, checkpoint: Checkpoint, allow: Collection[str]) -> None:
    unknown = sorted(set(allow) - set(IDENTITY))
    if unknown:
        raise ValueError(f"allow = {unknown[0]!r} is not known; it takes {', '.join(IDENTITY)}")
    found = differences(identity_of(task), checkpoint.state["identity"])
    for name, what in found.items():
        if name not in allow:
            raise ValueError(
                f"checkpoint {checkpoint.path}: another {name} ({what}). Resuming would lose "
                f"{IDENTITY[name]}; allow it with allow=[{name!r}], or load weights only"
            )
        logger.warning("resume: another %s (%s); lost: %s", name, what, IDENTITY[name])


def load_model(built: Built, checkpoint: Checkpoint) -> None:
    """Weights and buffers of a checkpoint into the module, strictly."""
    tensors = checkpoint.file("model").read_all()
    built.module.load_state_dict(tensors, strict=True)


def export_module(built: Built) -> nn.Module:
    """A plain copy of the module: float32 tensors of its own, torch's own dropout."""
    module, state = built.module, built.module.state_dict()
    memo: dict[int, Any] = {}
    for name, parameter in module.named_parameters():
        own = nn.Parameter(state[name].detach().clone(), parameter.requires_grad)
        memo[id(parameter)] = own
    for part in module.modules():
        link = link_of(part)
        if link is not None:
            memo[id(link)] = Link()
    plain = copy.deepcopy(module, memo)
    layers.restore_dropouts(plain)
    for name, counter in state.items():
        owner, _, leaf = name.rpartition(".")
        if leaf == COUNTER:
            plain.get_submodule(owner)._buffers[COUNTER] = counter.clone()
    return plain


@dataclasses.dataclass
class Kept:
    """A task's state, kept in memory for `put_back`."""

    regions: dict[str, Tensor]


def keep(task: Task) -> Kept:
    """Copies of every region that a step changes."""
    built = task.require()
    names = [n for n in ("B", "W", "A", "G", "M", "V", "E", "N", "S", "R") if built.plan.has(n)]
    return Kept({n: built.memory.region(n).clone() for n in names})


def put_back(task: Task, kept: Kept) -> None:
    """Every bit as it was."""
    memory = task.require().memory
    for name, region in kept.regions.items():
        memory.region(name).copy_(region)


def state_hash(built: Built) -> str:
    """SHA-256 over W, M, V, E, B, the counters and the loss scale, in hex."""
    digest = hashlib.sha256()
    for name in ("W", "M", "V", "E", "B"):
        if built.plan.has(name):
            region = built.memory.region(name).view(torch.uint8).cpu()
            digest.update(region.numpy().tobytes())
    digest.update(repr(sorted(built.updater.scalars.state().items())).encode())
    return digest.hexdigest()


def host_copy(
    files: Mapping[str, Mapping[str, Tensor]],
) -> Callable[[], dict[str, dict[str, Tensor]]]:
    """A consistent copy on the host, started now; the function waits for it and returns it."""
    copies: dict[str, dict[str, Tensor]] = {}
    event = None
    for name, tensors in files.items():
        copies[name] = {}
        for key, tensor in tensors.items():
            target = torch.empty_like(
                tensor,
                device="cpu",
                memory_format=torch.contiguous_format,
                pin_memory=tensor.is_cuda,
            )
            target.copy_(tensor, non_blocking=tensor.is_cuda)
            copies[name][key] = target
            if tensor.is_cuda:
                event = torch.cuda.Event()
    if event is not None:
        event.record()

    def finished() -> dict[str, dict[str, Tensor]]:
        if event is not None:
            event.synchronize()
        return copies

    return finished
