"""What a run would take, before any data is opened: memory plan, schedule, largest batch.

The model is built on torch's meta device, where tensors have shapes and no memory, so that a
network that fits nowhere can be planned on a laptop. Static bytes are exact. The peak of a step is
found by running forward and backward there and adding up what is alive: what an eager step
allocates. A compiled step needs less; workspaces of the libraries come on top.
"""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from renaissance import nn as layers
from renaissance.assembly.build import plan_of
from renaissance.assembly.frozen import Frozen, freeze
from renaissance.assembly.recipe import Recipe
from renaissance.assembly.scan import Scan, scan
from renaissance.config.experiment import Experiment, made
from renaissance.describe import human_bytes
from renaissance.foreign_losses import as_loss
from renaissance.losses import Loss
from renaissance.memory.plan import MemoryPlan
from renaissance.precision import Precision, resolve_precision

#: Updates of an epoch that a schedule is drawn with where the data is not opened.
NOMINAL_STEPS = 1000

#: What the CUDA context, library workspaces and rounding take, beside what is counted.
RESERVE_BYTES = 1 << 30

LARGEST_BATCH = 1 << 20


class LiveBytes(TorchDispatchMode):
    """Adds up the bytes of the tensors that operations make, for as long as they live.

    Attributes:
        now, peak: Bytes alive, and the most there were.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.now = self.peak = 0
        self._known: dict[int, weakref.ref[Any]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(found):
            if isinstance(leaf, Tensor):
                self._add(leaf.untyped_storage())
        return found

    def _add(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key in self._known:
            return
        size = storage.nbytes()

        def forget(_: object) -> None:
            self.now -= size
            del self._known[key]

        self._known[key] = weakref.ref(storage, forget)
        self.now += size
        self.peak = max(self.peak, self.now)


@dataclass(frozen=True)
class Outlook:
    """A run before it is one.

    Attributes:
        experiment: What is to be run.
        plan: The memory plan.
        shape: Shape of a sample as the model takes it, None when nobody said.
        scan: What a step on such samples showed, None without a shape.
    """

    experiment: Experiment
    recipe: Recipe
    precision: Precision
    plan: MemoryPlan
    shape: tuple[int, ...] | None
    scan: Scan | None

    @classmethod
    def of(cls, experiment: Experiment, shape: Sequence[int] | None = None) -> Outlook:
        """The outlook of an experiment.

        Args:
            experiment: What is to be run.
            shape: Of a sample, (C, H, W) or (F,); None takes it from the model's arguments.
        """
        with torch.device("meta"):
            module = experiment.model.build()
        layers.swap_dropouts(module)
        freeze(module, experiment.freeze, Frozen())
        recipe = Recipe(
            loss=as_loss(made(experiment.loss)),
            optimizer=experiment.optimizer,
            scheduler=experiment.scheduler,
            ema=experiment.ema,
            clip=experiment.clip,
            accumulate=experiment.accumulate,
            freeze=experiment.freeze,
            metrics=tuple(made(metric) for metric in experiment.metrics),
        )
        kind = "cuda" if experiment.precision == "16-mixed" else device_kind(experiment.device)
        precision = resolve_precision(experiment.precision, kind)
        chosen = tuple(shape) if shape is not None else shape_of(experiment)
        found = None
        if chosen is not None:
            step = _Step(module, recipe.loss, torch.float32, chosen)
            found = scan(module, lambda: step.forward(2))
        unused = found.unused if found is not None else ()
        module.to_empty(device="cpu")  # addresses without pages: nothing is ever written there
        plan = plan_of(module, recipe, precision, unused)
        return cls(experiment, recipe, precision, plan, chosen, found)

    def peak_bytes(self, batch: int) -> int:
        """Most bytes a step of so many samples has alive beside the plan; needs a shape.

        In mixed precision every layer is counted as 16 bits wide.
        """
        if self.shape is None:
            raise ValueError("the shape of a sample is not known; give it: --input-shape 3,224,224")
        step = self._step
        parameters = [p for p in step.module.parameters() if p.requires_grad]
        with LiveBytes() as live:
            _, loss = step.forward(batch)
            torch.autograd.grad(loss, parameters, allow_unused=True)
        return int(live.peak)

    @cached_property
    def _step(self) -> _Step:
        """The step in the precision of the weights' working copy."""
        assert self.shape is not None
        dtype = self.precision.working_dtype or torch.float32
        with torch.device("meta"):
            module = self.experiment.model.build().to(dtype)
        layers.swap_dropouts(module)
        freeze(module, self.experiment.freeze, Frozen())
        return _Step(module, self.recipe.loss, dtype, self.shape)

    def largest_batch(self, memory: int) -> int:
        """The largest batch whose step fits into so many bytes beside the plan and a reserve.

        Returns:
            0 when not even one sample fits.
        """
        room = memory - self.plan.total_bytes - RESERVE_BYTES

        def fits(batch: int) -> bool:
            return batch <= LARGEST_BATCH and self.peak_bytes(batch) <= room

        guess, known = 16, {4: self.peak_bytes(4)}
        while guess not in known and len(known) < 8:  # bytes are nearly linear in the batch
            known[guess] = self.peak_bytes(guess)
            (a, low_peak), (b, high_peak) = list(known.items())[-2:]
            slope = max(1, (high_peak - low_peak) // (b - a))
            guess = max(2, min(b + (room - high_peak) // slope, LARGEST_BATCH))
        step = 1
        if fits(guess):
            while fits(guess + step):
                guess, step = guess + step, 2 * step
            low, high = guess, guess + step
        else:
            while guess - step > 0 and not fits(guess - step):
                guess, step = guess - step, 2 * step
            low, high = max(0, guess - step), guess
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if fits(middle) else (low, middle)
        return low

    def to_text(self) -> str:
        """Plan, schedule and what would be captured."""
        e = self.experiment
        head = f"{e.title}: {e.model.type}, {self.precision.name}, {self.recipe.optimizer!r}"
        return "\n\n".join([head, self.plan.to_text(), self._schedule(), self._capture()])

    def _schedule(self) -> str:
        fit = self.experiment.fit
        schedule = self.recipe.schedule()
        per_epoch = fit.steps_per_epoch or NOMINAL_STEPS
        total = fit.max_steps or (fit.epochs or 1) * per_epoch
        places = sorted({0, *(total * k // 10 for k in range(10)), total - 1})
        rows = [f"  step {s:8}  lr {schedule.lr(s, total, per_epoch):.6g}" for s in places]
        drawn = f"drawn over {total} steps, {per_epoch} an epoch"
        if fit.steps_per_epoch is None:
            drawn += " (the data says the real number)"
        return "\n".join([f"{schedule!r}, {drawn}", *rows])

    def _capture(self) -> str:
        if self.scan is None:
            return (
                "capture: not tried, the shape of a sample is not known; give it: "
                "--input-shape 3,224,224"
            )
        if self.scan.not_capturable:
            rows = [f"  {finding}" for finding in self.scan.not_capturable]
            return "\n".join(["capture: on CUDA the step would run eagerly because of", *rows])
        shape = ", ".join(map(str, self.shape or ()))
        return (
            f"capture: on CUDA the whole step is one graph; a step on samples of ({shape}) has no "
            "host read and no shape that depends on data"
        )


class _Step:
    """Forward and loss on the meta device."""

    def __init__(
        self, module: nn.Module, loss: Loss | None, dtype: torch.dtype, shape: tuple[int, ...]
    ) -> None:
        assert loss is not None
        self.module, self._loss, self._dtype, self._shape = module, loss, dtype, shape

    def forward(self, batch: int) -> tuple[Any, Tensor]:
        """(output, loss sum) of a batch."""
        x = torch.empty((batch, *self._shape), dtype=self._dtype, device="meta")
        output = self.module(x)
        if self._loss.is_classification:
            places = (batch, *output.shape[2:])
            target = torch.empty(places, dtype=torch.int64, device="meta")
        else:
            target = torch.empty(output.shape, device="meta")
        return output, self._loss.function("meta")(output, target)[0]


def shape_of(experiment: Experiment) -> tuple[int, ...] | None:
    """The shape of a sample that the model's arguments tell, or None."""
    arguments = experiment.model.arguments
    if "input_shape" in arguments:
        return tuple(arguments["input_shape"])
    if "in_features" in arguments:
        return (int(arguments["in_features"]),)
    if "in_channels" in arguments:
        is_small = "cifar" in (arguments.get("stem"), arguments.get("head"))
        is_small |= experiment.model.type.startswith(("wide_resnet", "resnet9"))
        side = 32 if is_small else 224
        return (int(arguments["in_channels"]), side, side)
    return None


def device_kind(device: str) -> str:
    """ "cuda" or "cpu", as "auto" would choose here."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device.partition(":")[0]


_UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


def parse_bytes(text: str) -> int:
    """80GiB as bytes; ValueError for anything else."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]iB|B)?", text)
    if match is None:
        raise ValueError(f"{text!r} is no size; it takes a number and a unit, such as 80GiB")
    return int(float(match[1]) * _UNITS[match[2] or ""])


def free_bytes() -> int | None:
    """What is free on the current CUDA device; None without one."""
    return int(torch.cuda.mem_get_info()[0]) if torch.cuda.is_available() else None


def batch_text(outlook: Outlook, memory: int, batches: Iterable[int] = ()) -> str:
    """A sentence on the largest batch, and the peaks of some."""
    largest = outlook.largest_batch(memory)
    lines = [
        f"largest batch in {human_bytes(memory)}: {largest} samples a step and device",
        f"  plan            {human_bytes(outlook.plan.total_bytes)}",
        f"  reserve         {human_bytes(RESERVE_BYTES)} (context, workspaces, rounding)",
    ]
    for batch in sorted({*batches, *((largest,) if largest else ())}):
        lines.append(f"  peak of {batch:7} {human_bytes(outlook.peak_bytes(batch))}")
    return "\n".join(lines)
