"""Where everything is: the pure data of a memory plan, its questions and its text."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from renaissance.memory.segments import (
    BIAS_LIKE,
    BUFFERS,
    MEANINGS,
    SHARED,
    WEIGHTS,
    Region,
    Segment,
    UpdateRange,
    aligned,
    arena_bytes,
)
from renaissance.memory.tables import human, table


@dataclass(frozen=True, repr=False)
class Layout:
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

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__}: {len(self.segments)} tensors, {human(self.total_bytes)}; "
            "print(plan.to_text()) shows it>"
        )

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
        return self._hash

    @cached_property
    def _hash(self) -> str:
        """Worked out once: every checkpoint has it."""
        text = json.dumps({"format": 1, **self.to_dict()}, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

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
