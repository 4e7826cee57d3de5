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

import contextlib
import weakref
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from typing_extensions import Self

from renaissance.memory.arena import Arena
from renaissance.memory.binding import Binding
from renaissance.memory.layout import Layout
from renaissance.memory.link import check_free
from renaissance.memory.segments import (
    REGION_ALIGNMENT,
    WEIGHTS,
    Segment,
    aligned,
    lay_out,
    place,
    update_ranges,
)
from renaissance.memory.survey import (
    GroupRule,
    Rules,
    WorkingRule,
    buffers_of,
    counters_of,
    parameters_of,
    survey,
)


@dataclass(frozen=True, repr=False)
class MemoryPlan(Layout):
    """The layout of a module and its recipe: build it, look at it, allocate it."""

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
        wanted = {
            "A": working_dtype is not None,
            "M": moments > 0,
            "V": moments > 1,
            "E": ema,
            "N": lars,
        }
        sizes = {name: size for name, size in _sizes(segments).items() if wanted.get(name, True)}
        sizes |= {"S": scalars_bytes, "I": inputs_bytes, "R": results_bytes, "C": int(snapshot)}
        regions, parts = lay_out(sizes, working_dtype)
        counters = tuple(counter.name for counter in counters_of(module))
        return cls(regions, segments, ranges, counters, parts)

    def check_fits(self, module: nn.Module) -> None:
        """ValueError unless the module has exactly the plan's tensors."""
        found = {
            tuple(dict.fromkeys(place.name for place in places)): (tuple(t.shape), t.dtype)
            for t, places in [*parameters_of(module), *buffers_of(module)]
        }
        planned = {segment.names: (segment.shape, segment.dtype) for segment in self.segments}
        for names in sorted(found.keys() | planned.keys()):
            if found.get(names) != planned.get(names):
                raise ValueError(
                    f"the module is not the one this plan was built for: {names[0]!r} differs "
                    f"(planned {planned.get(names)}, found {found.get(names)})"
                )

    def allocate(self, device: str | torch.device) -> Memory:
        """All regions, zeroed, on a CPU or CUDA device.

        Raises:
            ValueError: Another kind of device.
        """
        chosen = torch.device(device)
        if chosen.type not in ("cpu", "cuda"):
            raise ValueError(f"device = {str(device)!r} is not allowed; it takes 'cpu' or 'cuda'")
        return Memory(self, chosen)


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
        arena = Arena(plan.regions, plan.snapshot, device)
        self.plan, self.device = plan, arena.device
        self._arena: Arena | None = arena
        self._binding: Binding | None = None
        self._release: weakref.finalize[..., Memory] | None = None

    # -- regions -------------------------------------------------------------------------------

    def region(self, name: str, saved: bool = False) -> torch.Tensor:
        """All of a region, or of its copy in C when `saved`, 1-D, in the region's dtype."""
        return self._open.region(name, saved)

    def address(self, region: str) -> int:
        """Where a region begins."""
        return self.region(region).data_ptr()

    def view(self, region: str, name: str, saved: bool = False) -> torch.Tensor:
        """A tensor in a region, shaped and strided like the module's.

        Args:
            region: "W", "A", "G", "M", "V" or "E" for a parameter; "B", "B'" or "E" for a buffer.
            name: Any of the tensor's names.
            saved: Look into the region's copy in C.
        """
        return self._open.view(region, self.plan.segment(name), saved)

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
            if self.plan.averaged:
                average[weights.numel() :].copy_(self.region("B")[: self.plan.averaged])

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
        self._unbind()  # of a module that no longer exists
        self._binding = Binding(module, self.plan.segments, arena, keep_values, self.plan.has("E"))
        self._release = weakref.finalize(self, self._binding.release)
        self._release.atexit = False
        self.refresh()
        self.restart_average()

    def changes(self, module: nn.Module) -> list[str]:
        """Why the module needs a new plan (frozen, unfrozen, tied, new or lost tensors), or []."""
        return self._bound_to(module).changes()

    def away(self, module: nn.Module) -> list[str]:
        """Names of tensors that have left their regions; it only looks."""
        return self._bound_to(module).away()

    def edited(self, module: nn.Module) -> list[str]:
        """Names of 16-bit copies that were changed in place, without their masters."""
        return self._bound_to(module).edited()

    def note_edits(self, module: nn.Module) -> None:
        """Note on the device whether 16-bit copies were changed in place: nothing waits for it."""
        self._bound_to(module).note_edits()

    def noted_edits(self, module: nn.Module) -> bool:
        """Whether a `note_edits` since the last call has found any; waits for the device."""
        return self._bound_to(module).noted_edits()

    def looked_at(self, module: nn.Module) -> contextlib.AbstractContextManager[None]:
        """Around a state dict of the whole module: edits are looked for once, not in each layer."""
        return self._bound_to(module).looked_at()

    def take_edits(self, module: nn.Module) -> None:
        """What was changed in place in 16-bit copies reaches their masters."""
        self._bound_to(module).take_edits()

    def verify(self, module: nn.Module) -> list[str]:
        """Copies tensors that have left their regions back in and rebinds them.

        What was changed in place in 16-bit copies reaches their masters.

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

    def count_batches_with(
        self, batches: Callable[[], int], still: Collection[nn.Module] = ()
    ) -> None:
        """Tells how many training forwards ran since binding (S holds it, skipped ones left out).

        `batches_tracked` grows as this does, but for the batch-norms in `still`, which work as in
        evaluation. It is read when a value is asked for or set, so whoever restores the counter
        restores it before ``num_batches_tracked``.
        """
        if self._binding is None:
            raise RuntimeError("bind a module before its batches are counted")
        self._binding.count_with(batches, still)

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


def _sizes(segments: Sequence[Segment]) -> dict[str, int]:
    """Bytes of the regions that follow from the tensors, were all of them wanted."""
    ranges = update_ranges(segments)
    trained = max((r.end for r in ranges), default=0)  # G, M and V end with the last range
    whole = max(s.offset + aligned(s.count) for s in segments if s.region == "W")
    buffers = [s for s in segments if s.region == "B"]
    averaged = sum(aligned(s.count) for s in buffers if s.averaged)
    trusted = sum(s.trainable and s.group == WEIGHTS for s in segments)
    return {
        "B": _end_bytes(buffers),
        "B'": _end_bytes([s for s in buffers if s.kind != "constant"]),
        "W": 4 * whole,
        "A": 2 * whole,
        **dict.fromkeys(("G", "M", "V"), 4 * trained),
        "E": 4 * (whole + averaged),
        "N": 4 * aligned(trusted),
    }


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
