"""The memory plan: every parameter, gradient, moment and buffer of a task in flat regions.

The plan is pure data. It can be built, printed, compared and hashed without allocating a byte::

    plan = MemoryPlan.build(module, moments=2)     # what AdamW needs
    print(plan.to_text())
    memory = plan.allocate("cpu")                  # one arena, all zero
    memory.bind(module)                            # parameters now live in W

W (float32 masters), A (16-bit working copy), G (gradients), M, V (moments) and E (average) share
one element offset per tensor, a multiple of 128, padded with zeros. Bias-like tensors come first,
then weights; inside a group what is trained comes first, so that each (group, learning-rate factor)
is one contiguous range that one kernel updates.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import nn

from renaissance.arena import Memory
from renaissance.binding import check_free
from renaissance.segments import (
    BIAS_LIKE,
    BUFFERS,
    MEANINGS,
    REGION_ALIGNMENT,
    SHARED,
    WEIGHTS,
    Region,
    Segment,
    UpdateRange,
    aligned,
    arena_bytes,
    lay_out,
    place,
    update_ranges,
)
from renaissance.survey import (
    GroupRule,
    Rules,
    WorkingRule,
    buffers_of,
    counters_of,
    parameters_of,
    survey,
)
from renaissance.tables import human, table


@dataclass(frozen=True)
class MemoryPlan:
    """Where everything is, as values. Two equal plans have the same regions, offsets and ranges.

    Attributes:
        regions: In memory order; C is on the host, all others in one arena on the device.
        segments: Parameters in memory order (region W), then buffers (region B).
        ranges: What one kernel updates; padding included, frozen and unused tensors not.
        counters: Names of the ``num_batches_tracked`` that a bound module does without.
        snapshot: The parts of region C, with their offsets in it.
    """

    regions: tuple[Region, ...]
    segments: tuple[Segment, ...]
    ranges: tuple[UpdateRange, ...]
    counters: tuple[str, ...]
    snapshot: tuple[Region, ...]

    @classmethod
    def build(  # noqa: PLR0913 - one keyword for each thing a recipe can ask for
        cls,
        module: nn.Module,
        *,
        moments: int = 0,
        working_dtype: torch.dtype | None = None,
        ema: bool = False,
        lars: bool = False,
        scalars_bytes: int = 4096,
        inputs_bytes: int = 0,
        results_bytes: int = 0,
        snapshot: bool = False,
        group: GroupRule | None = None,
        working: WorkingRule | None = None,
        lr_scales: Sequence[tuple[str, float]] = (),
        unused: Collection[str] = (),
        constants: Collection[str] = (),
    ) -> MemoryPlan:
        """Plans the memory of a module and its recipe.

        Args:
            module: Any module of static shapes with float32 parameters, not bound yet.
            moments: Moment regions the optimizer needs: 0, 1 (M) or 2 (M and V).
            working_dtype: bfloat16 or float16 in mixed precision: adds A, which then holds the
                parameters of linear, convolution and attention layers.
            ema: Adds E, the average of W and of the floating-point buffers that forward changes.
            lars: Adds N, one float32 for each trained tensor of the weights group.
            scalars_bytes, inputs_bytes, results_bytes: Sizes of S, I and R.
            snapshot: Adds C, pinned host memory for B, W, M, V, E and S.
            group: ``(name, parameter, module) -> "weights" | "bias-like" | None`` overrides the
                group where it does not answer None.
            working: ``(name, parameter, module) -> bool | None`` overrides whether the parameter
                is the 16-bit copy where it does not answer None.
            lr_scales: (pattern, factor) pairs; names are matched as file names are, the last
                pattern that matches counts.
            unused: Parameters that no loss depends on; placed like frozen ones.
            constants: Buffers that forward does not change: they need no shadow in B'.

        Raises:
            ValueError: A module without parameters, parameters that are not float32 or lazy,
                rules that name nothing, numbers out of range.
            RuntimeError: The module is bound to another plan.
        """
        check_free(module)
        _check_recipe(moments, working_dtype)
        rules = Rules(
            working_dtype=working_dtype,
            group=group,
            working=working,
            lr_scales=tuple(lr_scales),
            unused=frozenset(unused),
            constants=frozenset(constants),
        )
        segments = place(survey(module, rules))
        ranges = update_ranges(segments)
        trained = max((r.end for r in ranges), default=0)  # G, M and V end with the last range
        whole = max(s.offset + aligned(s.count) for s in segments if s.region == "W")
        buffers = [s for s in segments if s.region == "B"]
        changing = [s for s in buffers if s.kind != "constant"]
        averaged = sum(aligned(s.count) for s in buffers if s.averaged)
        trusted = sum(s.trainable and s.group == WEIGHTS for s in segments)
        sizes = {
            "B": _end_bytes(buffers),
            "B'": _end_bytes(changing),
            "W": 4 * whole,
            "A": 2 * whole * (working_dtype is not None),
            "G": 4 * trained,
            "M": 4 * trained * (moments > 0),
            "V": 4 * trained * (moments > 1),
            "E": 4 * (whole + averaged) * ema,
            "N": 4 * aligned(trusted) * lars,
            "S": scalars_bytes,
            "I": inputs_bytes,
            "R": results_bytes,
            "C": snapshot,
        }
        regions, parts = lay_out(sizes, working_dtype)
        counters = tuple(counter.name for counter in counters_of(module))
        return cls(regions, segments, ranges, counters, parts)

    # -- questions -----------------------------------------------------------------------------

    @cached_property
    def parameters(self) -> tuple[Segment, ...]:
        """The trained segments in memory order: the order of gradients everywhere."""
        return tuple(segment for segment in self.segments if segment.trainable)

    @property
    def trust_segments(self) -> tuple[Segment, ...]:
        """The segments with a slot in N, in the order of their slots."""
        return tuple(segment for segment in self.parameters if segment.group == WEIGHTS)

    def has(self, region: str) -> bool:
        """Whether the plan has this region."""
        return any(region == known.name for known in self.regions)

    def region(self, name: str) -> Region:
        """The region of this name."""
        for region in self.regions:
            if region.name == name:
                return region
        raise ValueError(
            f"the plan has no region {name!r}; it has {', '.join(r.name for r in self.regions)}"
        )

    def segment(self, name: str) -> Segment:
        """The segment of a parameter or buffer, by any of its names."""
        segment = self._by_name.get(name)
        if segment is None:
            raise ValueError(
                f"the plan has no tensor {name!r}; it has {len(self.segments)}, "
                f"such as {', '.join(repr(s.name) for s in self.segments[:3])}"
            )
        return segment

    def range(self, region: str, group: str) -> tuple[int, int]:
        """(offset, count) in elements of what is trained of a group, padding included.

        For "buffers": the float32 buffers that forward changes, in B, B' or E.
        """
        planned = self.region(region)
        if group == BUFFERS and region in ("B", "B'", "E"):
            return (self.region("W").count if region == "E" else 0), self.averaged
        if group not in (BIAS_LIKE, WEIGHTS) or region not in SHARED:
            raise ValueError(
                f"region {planned.name!r} has no group {group!r}: {', '.join(SHARED)} have "
                f"{BIAS_LIKE!r} and {WEIGHTS!r}; B, B' and E have {BUFFERS!r}"
            )
        mine = [r for r in self.ranges if r.group == group]
        if not mine:
            return 0, 0
        return mine[0].begin, mine[-1].end - mine[0].begin

    @property
    def averaged(self) -> int:
        """Elements at the start of B that E averages, padding included."""
        return sum(aligned(segment.count) for segment in self.segments if segment.averaged)

    @property
    def total_bytes(self) -> int:
        """Bytes of the arena on the device."""
        return arena_bytes(self.regions)

    @property
    def host_bytes(self) -> int:
        """Bytes of pinned host memory (region C)."""
        return sum(r.nbytes for r in self.regions if r.on_host)

    def to_dict(self) -> dict[str, Any]:
        """The plan as numbers and texts."""
        return {
            field.name: [_plain(item) for item in getattr(self, field.name)]
            for field in dataclasses.fields(self)
        }

    def hash(self) -> str:
        """SHA-256 of `to_dict`, hexadecimal; the same in every process."""
        text = json.dumps({"format": 1, **self.to_dict()}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def check_fits(self, module: nn.Module) -> None:
        """ValueError unless the module has exactly the plan's tensors."""
        found = [*parameters_of(module), *buffers_of(module)]
        shapes = {
            tuple(dict.fromkeys(place.name for place in places)): tuple(tensor.shape)
            for tensor, places in found
        }
        planned = {segment.names: segment.shape for segment in self.segments}
        wrong = sorted(shapes.items() ^ planned.items())
        if wrong:
            raise ValueError(
                f"the module is not the one this plan was built for: {wrong[0][0][0]!r} differs "
                f"(planned {planned.get(wrong[0][0])}, found {shapes.get(wrong[0][0])})"
            )

    # -- allocation and text -------------------------------------------------------------------

    def allocate(self, device: str | torch.device) -> Memory:
        """All regions, zeroed, on a CPU or CUDA device.

        Raises:
            ValueError: Another kind of device.
        """
        chosen = torch.device(device)
        if chosen.type not in ("cpu", "cuda"):
            raise ValueError(f"device = {str(device)!r} is not allowed; it takes 'cpu' or 'cuda'")
        return Memory(self, chosen)

    def to_text(self) -> str:
        """Every region, range and tensor with offset and size, for people."""
        return "\n".join(
            [
                f"memory plan: {human(self.total_bytes)} on the device"
                + (f", {human(self.host_bytes)} pinned on the host" if self.host_bytes else "")
                + f", hash {self.hash()[:16]}",
                *self._region_lines(),
                *self._range_lines(),
                *self._segment_lines(),
            ]
        )

    def _region_lines(self) -> list[str]:
        rows: list[Sequence[str]] = [("region", "offset", "elements", "dtype", "size")]
        for region in self.regions:
            place = "host" if region.on_host else f"{region.offset_bytes:,}"
            rows.append(
                (
                    f"{region.name:<3} {MEANINGS[region.name]}",
                    place,
                    f"{region.count:,}",
                    str(region.dtype).removeprefix("torch."),
                    human(region.nbytes),
                )
            )
        return ["", *table(rows, right=(1, 2, 4))]

    def _range_lines(self) -> list[str]:
        rows: list[Sequence[str]] = [
            ("range", "begin", "elements", "tensors", "lr factor", "weight decay")
        ]
        for item in self.ranges:
            inside = [s for s in self.parameters if item.begin <= s.offset < item.end]
            tensors = [s for s in inside if s.group == item.group]
            decay = "yes" if item.decay else "no"
            rows.append(
                (
                    item.group,
                    f"{item.begin:,}",
                    f"{item.count:,}",
                    f"{len(tensors)}",
                    f"{item.lr_factor:g}",
                    decay,
                )
            )
        return ["", *table(rows, right=(1, 2, 3, 4))]

    def _segment_lines(self) -> list[str]:
        rows: list[Sequence[str]] = [
            ("tensor", "region", "group", "kind", "offset", "shape", "size", "")
        ]
        for segment in self.segments:
            notes = [segment.state] if segment.state in ("frozen", "unused") else []
            notes += ["16-bit in A"] if segment.working else []
            notes += ["channels-last"] if segment.channels_last else []
            notes += [f"also {', '.join(segment.tied)}"] if segment.tied else []
            rows.append(
                (
                    segment.name,
                    segment.region,
                    segment.group,
                    segment.kind,
                    f"{segment.offset:,}",
                    "x".join(map(str, segment.shape)) or "scalar",
                    human(segment.nbytes),
                    "; ".join(notes),
                )
            )
        lines = ["", *table(rows, right=(4, 6))]
        if self.counters:
            lines += ["", f"{len(self.counters)} num_batches_tracked counters in S"]
        return lines

    @cached_property
    def _by_name(self) -> dict[str, Segment]:
        return {name: segment for segment in self.segments for name in segment.names}


def _plain(item: Segment | Region | UpdateRange | str) -> Any:
    """A value as JSON writes it, dtypes as texts."""
    if isinstance(item, str):
        return item
    fields = dataclasses.asdict(item)
    return {k: str(v) if isinstance(v, torch.dtype) else v for k, v in fields.items()}


def _end_bytes(segments: Sequence[Segment]) -> int:
    """Where the last of these buffers ends, rounded up."""
    return max((aligned(s.offset_bytes + s.nbytes, REGION_ALIGNMENT) for s in segments), default=0)


def _check_recipe(moments: int, working_dtype: torch.dtype | None) -> None:
    if moments not in (0, 1, 2):
        raise ValueError(f"moments = {moments!r} is not allowed; it takes 0, 1 or 2")
    if working_dtype not in (None, torch.bfloat16, torch.float16):
        raise ValueError(
            f"working_dtype = {working_dtype} is not allowed; it takes torch.bfloat16, "
            "torch.float16 or None"
        )
