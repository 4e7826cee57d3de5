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
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from renaissance import nn as layers
from renaissance.checkpoint import STATE, SUFFIX, Checkpoint
from renaissance.fit.hoststate import FIELDS, HostState, complete
from renaissance.fit.identity import compare
from renaissance.memory.link import Link, link_of
from renaissance.memory.survey import COUNTER
from renaissance.tensorfile import TensorSpec

if TYPE_CHECKING:
    from renaissance.assembly.build import Built
    from renaissance.task import Task

logger = logging.getLogger("renaissance")

#: Tensor files beside the model's, and what is in them.
BESIDE = {"optimizer": "moments", "ema": "averages", "buffers": "buffers of no state dict"}


def files_of(built: Built) -> dict[str, dict[str, Tensor]]:
    """Tensors by name, by file, as views of the regions or copies: float32 masters, never A."""
    with built.memory.looked_at(built.module):
        model = {name: _tensor(name, t) for name, t in built.module.state_dict().items()}
    files = {"model": model}
    hidden = {
        segment.name: _real(built.memory.view("B", segment.name))
        for segment in built.plan.segments
        if segment.region == "B" and not any(name in model for name in segment.names)
    }
    if hidden:  # persistent=False keeps them out of a state dict, and forward may change them
        files["buffers"] = hidden
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


def _tensor(name: str, found: object) -> Tensor:
    if not isinstance(found, Tensor):
        raise TypeError(
            f"checkpoint: the state dict's {name!r} is {found!r:.60} ({type(found).__name__}), and "
            "only tensors can be stored: let get_extra_state give a tensor, or register a buffer"
        )
    return found.detach()


def _real(tensor: Tensor) -> Tensor:
    """The tensor, a complex one as pairs of numbers: what a tensor file can hold."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


def bytes_of(files: Mapping[str, Mapping[str, Tensor]]) -> int:
    """Bytes of all tensors."""
    return sum(t.nbytes for tensors in files.values() for t in tensors.values())


def restore(task: Task, checkpoint: Checkpoint, allow: Collection[str]) -> list[dict[str, Any]]:
    """Put a checkpoint's whole state into the task; returns the callbacks' states.

    Where another recipe or plan was allowed, moments, averages and metric sums that the checkpoint
    has not got start afresh, and those that the task has no use for are left out; both are said.

    Raises:
        CheckpointError: Something is missing, misshapen or of another type.
        ValueError: The run differs in something that was not allowed by name.
    """
    built = task.require()
    complete(checkpoint.state)
    checkpoint.check_state(FIELDS)
    expected = files_of(built)
    specs = {name: _specs(tensors) for name, tensors in expected.items()}
    checkpoint.file("model").check(specs["model"])
    changed = compare(task, checkpoint, allow)
    may_differ = bool(changed & {"recipe", "plan"})
    beside = [name for name in BESIDE if name in specs or name in checkpoint.files]
    fitting = [name for name in beside if _fits(checkpoint, name, specs.get(name), may_differ)]
    sums = _sums(checkpoint, built.executor.tally.names, may_differ)
    host = HostState.of(checkpoint, task.settings.schedule(), may_differ=may_differ)
    # Counters first: num_batches_tracked is stored as its distance from the counter in S.
    built.updater.scalars.load_state(host.counters)
    built.clear_stop()
    load_model(built, checkpoint)
    built.restart_moments()
    built.memory.restart_average()
    if built.has_ema and "ema" not in fitting:
        built.updater.scalars.write(averaged=0)
    for name in fitting:
        checkpoint.file(name).load_into(expected[name])
    built.executor.tally.load("epoch", sums)
    host.put(task)
    return host.callbacks


def _specs(tensors: Mapping[str, Tensor]) -> dict[str, TensorSpec]:
    return {name: TensorSpec.of(tensor) for name, tensor in tensors.items()}


def _fits(
    checkpoint: Checkpoint, name: str, wanted: Mapping[str, TensorSpec] | None, may_differ: bool
) -> bool:
    """Whether a tensor file is to be loaded; refuses one that does not fit, or says so."""
    what = BESIDE[name]
    if wanted is None:
        if not may_differ:
            checkpoint.refuse(f"{name}{SUFFIX} is not part of this run")
        logger.warning("resume: the checkpoint's %s are left out, this run has none", what)
        return False
    if name == "buffers" and name not in checkpoint.files:
        logger.warning("resume: the checkpoint is from before %s were kept; they stay", what)
        return False
    if not may_differ:
        checkpoint.file(name).check(wanted)
        return True
    if name in checkpoint.files and not checkpoint.file(name).misfits(wanted):
        return True
    logger.warning("resume: the checkpoint has other %s; this run's start afresh", what)
    return False


def _sums(checkpoint: Checkpoint, names: Sequence[str], may_differ: bool) -> list[float]:
    """The running epoch's sums in the order of this task's metrics, (sum, count) of each."""
    stored = checkpoint.state["sums"]
    known, values = stored["names"], stored["epoch"]
    if len(values) != 2 * len(known) or not all(
        isinstance(value, float) and isinstance(name, str)
        for value, name in zip(values, [name for name in known for _ in range(2)])
    ):
        checkpoint.refuse(f"{STATE}: 'sums' is not what a run writes: two numbers for each name")
    if known != list(names):
        text = f"sums of {known}, this task has {list(names)}"
        if not may_differ:
            checkpoint.refuse(f"{STATE}: {text}")
        logger.warning("resume: %s; those of this epoch start here", text)
    pairs = dict(zip(known, zip(values[0::2], values[1::2])))
    return [value for name in names for value in pairs.get(name, (0.0, 0.0))]


def load_model(built: Built, checkpoint: Checkpoint) -> None:
    """Weights and buffers of a checkpoint into the module, which has been checked to fit."""
    built.module.load_state_dict(checkpoint.file("model").read_all(), strict=True)


def load_weights(built: Built, checkpoint: Checkpoint) -> None:
    """Weights, buffers and their average, and nothing else; all or nothing.

    An average that the checkpoint has not got starts at the weights.

    Raises:
        CheckpointError: An entry is missing, too many, misshapen or of another type.
    """
    expected = files_of(built)
    checkpoint.file("model").check(_specs(expected["model"]))
    has_average = built.has_ema and "ema" in checkpoint.files
    if has_average:
        checkpoint.file("ema").check(_specs(expected["ema"]))
    built.clear_stop()
    load_model(built, checkpoint)
    built.origin.is_untold = False
    built.memory.restart_average()
    if has_average:
        checkpoint.file("ema").load_into(expected["ema"])


def copy_weights(built: Built) -> dict[str, dict[str, Tensor]]:
    """Weights, buffers and their average on the host, for `put_weights`."""
    files = files_of(built)
    return {
        name: {key: tensor.cpu().clone() for key, tensor in files[name].items()}
        for name in ("model", "ema")
        if name in files
    }


def put_weights(built: Built, weights: Mapping[str, Mapping[str, Tensor]]) -> None:
    """Put back what `copy_weights` gave; without an average there, it starts at the weights."""
    built.module.load_state_dict(weights["model"])
    built.origin.is_untold = False
    built.memory.restart_average()
    if built.has_ema and "ema" in weights:
        for name, target in files_of(built)["ema"].items():
            target.copy_(weights["ema"][name])


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


class HostCopy:
    """Memory on the host for consistent copies of tensors, one after another.

    It is allocated once, page-locked where it is filled from a GPU: at a checkpoint that would take
    longer than the copy. A copy must have been used up before the next one is taken.

    Args:
        files: Tensors by name, by file, of the shapes that will be copied.
    """

    def __init__(self, files: Mapping[str, Mapping[str, Tensor]]) -> None:
        self._copies = {
            name: {
                key: torch.empty_like(
                    tensor,
                    device="cpu",
                    memory_format=torch.contiguous_format,
                    pin_memory=tensor.is_cuda,
                )
                for key, tensor in tensors.items()
            }
            for name, tensors in files.items()
        }

    def take(
        self, files: Mapping[str, Mapping[str, Tensor]]
    ) -> Callable[[], dict[str, dict[str, Tensor]]]:
        """Copy the tensors as they are now; the function waits for it and gives the copies."""
        event = None
        for name, tensors in files.items():
            for key, tensor in tensors.items():
                self._copies[name][key].copy_(tensor, non_blocking=tensor.is_cuda)
                if tensor.is_cuda and event is None:
                    event = torch.cuda.Event()
        if event is not None:
            event.record()

        def finished() -> dict[str, dict[str, Tensor]]:
            if event is not None:
                event.synchronize()
            return self._copies

        return finished
