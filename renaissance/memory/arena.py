"""The bytes behind a memory plan: one allocation, and its regions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.utils.dlpack import from_dlpack

from renaissance import _native
from renaissance.memory.segments import SHARED, Region, Segment, arena_bytes


class Arena:
    """One zeroed allocation on the device for all regions, and one on the host for region C.

    Args:
        regions: Of the plan.
        snapshot: The parts of C.
        device: A CPU or CUDA device.
    """

    def __init__(
        self, regions: Sequence[Region], snapshot: Sequence[Region], device: torch.device
    ) -> None:
        self._plan = {region.name: region for region in regions}
        self._regions: dict[str, torch.Tensor] = {}
        memory = torch.empty(arena_bytes(regions), dtype=torch.uint8, device=device)
        if memory.device.type == "cpu":
            _native.advise_huge_pages(memory.data_ptr(), memory.nbytes)
        memory.zero_()
        assert memory.data_ptr() % 64 == 0, "torch aligns allocations to 64 bytes or more"
        self.device = memory.device
        for region in regions:
            source = memory
            if region.on_host:
                pinned = device.type == "cuda"
                source = torch.zeros(
                    region.nbytes, dtype=torch.uint8, device="cpu", pin_memory=pinned
                )
            self._regions[region.name] = _slice(source, region)
        self._saved = {part.name: _slice(self._regions["C"], part) for part in snapshot}

    def region(self, name: str, saved: bool = False) -> torch.Tensor:
        """All of a region, or of its copy in C, 1-D."""
        held = self._saved if saved else self._regions
        if name not in held:
            where = "snapshot" if saved else "plan"
            raise ValueError(
                f"the {where} has no region {name!r}; "
                f"it has {', '.join(map(repr, held)) or 'none at all'}"
            )
        return held[name]

    def view(self, region: str, segment: Segment, saved: bool = False) -> torch.Tensor:
        """A segment in a region, shaped and strided as in the module, on the arena's storage."""
        data = self.region(region, saved)
        offset = self._offset(region, segment)
        if segment.dtype != torch.float32 and segment.region == "B":
            data = data.view(segment.dtype)
        return data[offset:].as_strided(segment.shape, segment.strides)

    def wrap(self, region: str, segment: Segment) -> torch.Tensor:
        """As `view`, with a storage of its own over the same bytes, which keeps the arena alive."""
        view = self.view(region, segment)
        if segment.count == 0:
            return view
        flat = view.as_strided((segment.count,), (1,))
        owned = from_dlpack(flat.view(torch.uint8)).untyped_storage()
        tensor = torch.empty(0, dtype=view.dtype, device=view.device)
        return tensor.set_(owned, 0, segment.shape, segment.strides)

    def _offset(self, region: str, segment: Segment) -> int:
        """In elements of the view."""
        offset = segment.offset
        if segment.region == "W":
            fits = region in SHARED and offset + segment.count <= self._plan[region].count
        elif region == "E":
            fits = segment.averaged
            offset += self._plan["W"].count
        else:
            end = segment.offset_bytes + segment.nbytes
            fits = region in ("B", "B'") and end <= self._plan[region].nbytes
        if not fits:
            raise ValueError(
                f"{segment.name!r} ({segment.group}, {segment.state}) has no place in region "
                f"{region!r}"
            )
        return offset


def _slice(memory: torch.Tensor, region: Region) -> torch.Tensor:
    return memory[region.offset_bytes : region.offset_bytes + region.nbytes].view(region.dtype)
