"""The bytes behind a memory plan: one arena on the device, its regions, and the bound module."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.utils.dlpack import from_dlpack
from typing_extensions import Self

from renaissance.binding import Binding, check_free
from renaissance.segments import SHARED, Region, Segment, arena_bytes

if TYPE_CHECKING:
    from renaissance.memory import MemoryPlan


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


class Memory:
    """The regions of a plan on one device, and the module that is bound to them.

    Made by `MemoryPlan.allocate`. Close it, use it as a context manager, or let it be collected:
    each way the module gets its own float32 tensors back. Tensors taken from here keep the bytes
    alive for as long as they live.

    Attributes:
        plan: The plan.
        device: Where all regions but C live.
    """

    def __init__(self, plan: MemoryPlan, device: torch.device) -> None:
        self.plan, self.device = plan, device
        self._arena: Arena | None = Arena(plan.regions, device)
        self._binding: Binding | None = None
        self._release: weakref.finalize[..., Memory] | None = None

    # -- regions -------------------------------------------------------------------------------

    def region(self, name: str) -> torch.Tensor:
        """All of a region, 1-D, in the region's dtype."""
        return self._open.region(name)

    def address(self, region: str) -> int:
        """Where a region begins."""
        return self.region(region).data_ptr()

    def view(self, region: str, name: str) -> torch.Tensor:
        """A tensor in a region, shaped and strided like the module's.

        Args:
            region: "W", "A", "G", "M", "V" or "E" for a parameter; "B", "B'" or "E" for a buffer.
            name: Any of the tensor's names.
        """
        return self._open.view(region, self.plan.segment(name))

    @torch.no_grad()
    def refresh(self) -> None:
        """A = W rounded to nearest even, where the plan has A. Call it after writing W."""
        if self.plan.has("A"):
            self.region("A").copy_(self.region("W"))

    @torch.no_grad()
    def restart_average(self) -> None:
        """E = W and the floating-point buffers of B, where the plan has E."""
        if self.plan.has("E"):
            average, weights = self.region("E"), self.region("W")
            average[: weights.numel()].copy_(weights)
            offset, count = self.plan.range("B", "buffers")
            if count:
                average[weights.numel() :].copy_(self.region("B")[offset : offset + count])

    @torch.no_grad()
    def reset_statistics(self) -> None:
        """Running means 0, running variances 1, ``num_batches_tracked`` 0, as constructors do."""
        for segment in self.plan.segments:
            if segment.kind in ("running_mean", "running_var"):
                self.view("B", segment.name).fill_(float(segment.kind == "running_var"))
        for name in self.batches_tracked:
            self.set_batches_tracked(name, 0)

    # -- the module ----------------------------------------------------------------------------

    @property
    def module(self) -> nn.Module | None:
        """The bound module, None when there is none or it no longer exists."""
        return self._binding.module if self._binding is not None else None

    def bind(self, module: nn.Module, keep_values: bool = True) -> None:
        """Makes the regions the home of every parameter and buffer of the module.

        Parameter objects stay, with new data; buffers are replaced; ``.grad`` becomes None;
        ``num_batches_tracked`` leaves batch-norm modules and lives on in ``state_dict()``.

        Args:
            module: The module the plan was built for, or one with the same tensors.
            keep_values: Copy its parameters into W (and round to A); otherwise they become zero,
                for an initialisation to come. Buffers are always copied.

        Raises:
            RuntimeError: The module, or this memory, is bound already.
            ValueError: The module's tensors are not the plan's.
        """
        arena = self._open
        if self.module is not None:
            raise RuntimeError("this memory has a module already; unbind() it first")
        check_free(module)
        self.plan.check_fits(module)
        self._binding = Binding(module, self.plan.segments, arena.wrap, keep_values)
        self._release = weakref.finalize(self, self._binding.release)
        self._release.atexit = False
        self.refresh()
        self.restart_average()

    def changes(self, module: nn.Module) -> list[str]:
        """Why the module needs a new plan (frozen, unfrozen, tied, new or lost tensors), or []."""
        return self._bound_to(module).changes()

    def verify(self, module: nn.Module) -> list[str]:
        """Copies tensors that have left their regions back in and rebinds them.

        Returns:
            Their names; nearly always empty.

        Raises:
            RuntimeError: A stranger has another shape or dtype; the module needs a new plan.
        """
        return self._bound_to(module).verify()

    def unbind(self, module: nn.Module) -> None:
        """The module gets its own float32 tensors, its counters, and is free for another task."""
        self._bound_to(module)
        self._unbind()

    @property
    def batches_tracked(self) -> dict[str, int]:
        """``num_batches_tracked`` of the bound module by name."""
        return self._binding.counts() if self._binding is not None else {}

    def set_batches_tracked(self, name: str, value: int) -> None:
        """Sets one of `batches_tracked`."""
        if self._binding is None or name not in self.batches_tracked:
            raise ValueError(f"{name!r} is no counter; these are: {list(self.batches_tracked)}")
        self._binding.set_count(name, value)

    def count_batches_with(self, batches: Callable[[], int]) -> None:
        """Tells how many training forwards ran since binding (S holds it, skipped ones left out).

        `batches_tracked` grows as this does. It is read when a value is asked for.
        """
        if self._binding is None:
            raise RuntimeError("bind a module before its batches are counted")
        self._binding.count_with(batches)

    def close(self) -> None:
        """Unbinds the module, if any, and lets go of the bytes. May be called twice."""
        self._unbind()
        self._arena = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _open(self) -> Arena:
        if self._arena is None:
            raise RuntimeError("this memory is closed; allocate the plan again")
        return self._arena

    def _bound_to(self, module: nn.Module) -> Binding:
        if self._binding is None or self._binding.module is not module:
            raise RuntimeError(f"this {type(module).__name__} is not bound to this memory")
        return self._binding

    def _unbind(self) -> None:
        if self._release is not None:
            self._release()  # runs at most once
        self._binding = self._release = None
