"""A recipe over a memory plan, as data: the list of range operations, and the fields of region S.

The number of operations does not depend on the number of layers: two updates (one more for each
further learning-rate factor), and at most seven operations in all, nine with LARS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from renaissance import _native
from renaissance.update.scalars import FIRST_LOSS_SCALE

if TYPE_CHECKING:
    from renaissance.ema import Clip, Ema
    from renaissance.memory.plan import MemoryPlan
    from renaissance.optim import Optimizer


@dataclass(frozen=True, slots=True)
class RangeOp:
    """One operation over a range, as ``compile(report="graph")`` prints it.

    Attributes:
        name: Such as ``RANGE_UPDATE_WEIGHTS_ADAMW``.
        kernel: Of ``update.h`` for updates, else what the operation is.
        regions: Those it reads or writes.
        begin, count: Elements, the same in all of its regions; bytes for B.
        row: Of the hyper-parameters in S.
    """

    name: str
    kernel: str
    regions: tuple[str, ...]
    begin: int
    count: int
    row: int = 0

    def __str__(self) -> str:
        where = f"[{self.begin:,} + {self.count:,}]"
        return f"{self.name:<36} {' '.join(self.regions):<14} {where}"


#: Operations of a window up to its decision.
UP_TO_DECISION = ("RANGE_SNAPSHOT_BUFFERS", "RANGE_GATHER", "SCALAR_INCREMENT")

_BIASES = {"lars": "momentum", "lars_nesterov": "nesterov"}


def operations(plan: MemoryPlan, optimizer: Optimizer, has_ema: bool) -> tuple[RangeOp, ...]:
    """All operations of a window, in order."""
    num_bytes = plan.region("B'").nbytes if plan.has("B'") else 0
    total = plan.region("W").count
    ops = [RangeOp("RANGE_GATHER", "gather", ("G",), 0, total)]
    ops += [RangeOp("SCALAR_INCREMENT", "scalars", ("S",), 0, 1)]
    updates, norms = [], []
    for row, part in enumerate(plan.ranges):
        is_weights = part.group == "weights"
        kernel = optimizer.kernel if is_weights else _BIASES.get(optimizer.kernel, optimizer.kernel)
        regions = ("W", "G", "M", "V")[: 2 + optimizer.moments]
        regions += ("A",) if plan.has("A") else ()
        if kernel.startswith("lars"):
            norms.append(
                RangeOp("RANGE_NORMS_LARS", "norms", ("W", "G", "N"), part.begin, part.count, row)
            )
            regions += ("N",)
        what = "WEIGHTS" if is_weights else "BIASES"
        name = f"RANGE_UPDATE_{what}_{kernel.upper()}"
        updates.append(RangeOp(name, kernel, regions, part.begin, part.count, row))
    ops += norms + updates
    if has_ema:
        ops += [RangeOp("RANGE_EMA", "average", ("W", "B", "E"), 0, total)]
    if num_bytes:
        ops.insert(0, RangeOp("RANGE_SNAPSHOT_BUFFERS", "snapshot", ("B", "B'"), 0, num_bytes))
        ops += [RangeOp("RANGE_RESTORE_BUFFERS", "restore", ("B", "B'"), 0, num_bytes)]
    return tuple(ops)


def recipe(
    optimizer: Optimizer, clip: Clip | None, ema: Ema | None, loss_scaling: bool
) -> dict[str, float]:
    """Fields of S that hold for all ranges; what an optimizer lacks is 0."""
    settings = optimizer.settings
    fields = {
        "beta1": getattr(settings, "beta1", getattr(settings, "momentum", 0.0)),
        "beta2": getattr(settings, "beta2", 0.0),
        "eps": getattr(settings, "eps", 0.0),
        "trust_coefficient": getattr(settings, "trust_coefficient", 0.0),
        "max_norm": 0.0 if clip is None else clip.settings.norm or 0.0,
        "clip_value": 0.0 if clip is None else clip.settings.value or 0.0,
        "ema_decay": 0.0 if ema is None else ema.settings.decay,
        "ema_warmup": 0 if ema is None else int(ema.settings.warmup),
        "is_scaling": int(loss_scaling),
        "loss_scale": FIRST_LOSS_SCALE if loss_scaling else 1.0,
    }
    return fields | LOSS_SCALE


#: Doubles after 2,000 consecutive updates, halves on a skip, within [1, 2^24].
LOSS_SCALE = {
    "growth": 2.0,
    "backoff": 0.5,
    "growth_interval": 2000,
    "min_scale": 1.0,
    "max_scale": 2.0**24,
}


def rows(plan: MemoryPlan, optimizer: Optimizer) -> dict[str, list[float]]:
    """Factor of the learning rate and weight decays of every update range."""
    ranges = plan.ranges
    if len(ranges) > _native.MAX_ROWS:
        raise ValueError(
            f"the plan has {len(ranges)} update ranges; at most {_native.MAX_ROWS} are allowed: "
            "use fewer distinct lr_scale factors"
        )
    decay = getattr(optimizer.settings, "weight_decay", 0.0)
    coupled = getattr(optimizer.settings, "l2", 0.0)
    if not optimizer.has_decoupled_decay:
        decay, coupled = 0.0, coupled or decay
    rest = [0.0] * (_native.MAX_ROWS - len(ranges))
    return {
        "factor": [part.lr_factor for part in ranges] + rest,
        "decay": [decay if part.decay else 0.0 for part in ranges] + rest,
        "coupled": [coupled if part.decay else 0.0 for part in ranges] + rest,
    }
