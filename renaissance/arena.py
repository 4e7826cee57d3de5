"""The bytes behind a memory plan: one allocation, and its regions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.utils.dlpack import from_dlpack

from renaissance.segments import SHARED, Region, Segment, arena_bytes


class Arena:
    """One zeroed allocation on the device for all regions, and one on the host for region C.

    Args:
        regions: Of the plan.
        device: A CPU or CUDA device.
    """

    def __init__(self, regions: Sequence[Region], device: torch.device) -> None:
        self._plan = {region.name: region for region in regions}
        self.device = device
        self._regions: dict[str, torch.Tensor] = {}
        memory = torch.zeros(arena_bytes(regions), dtype=torch.uint8, device=device)
        assert memory.data_ptr() % 64 == 0, "torch aligns allocations to 64 bytes or more"
        for region in regions:
            source = memory
            if region.on_host:
                pinned = device.type == "cuda"
                source = torch.zeros(region.nbytes, dtype=torch.uint8, pin_memory=pinned)
            begin = region.offset_bytes
            self._regions[region.name] = source[begin : begin + region.nbytes].view(region.dtype)

    def region(self, name: str) -> torch.Tensor:
        """All of a region, 1-D."""
        if name not in self._regions:
            raise ValueError(
                f"the plan has no region {name!r}; it has {', '.join(map(repr, self._regions))}"
            )
        return self._regions[name]

    def view(self, region: str, segment: Segment) -> torch.Tensor:
        """A segment in a region, shaped and strided as in the module, on the arena's storage."""
        data = self.region(region)
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
