"""What somebody has written into 16-bit copies, and the masters that follow.

Whatever the task itself writes leaves every copy in region A equal to its float32 master in W,
rounded to nearest even. A copy that is not was written by somebody else: through the parameter, or
through its ``.data``, which moves no version counter. So the two are compared, bit by bit.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import torch

from renaissance.memory.arena import Arena
from renaissance.memory.bound import Bound
from renaissance.memory.segments import Segment, aligned

#: Elements compared at once: what they take as rounded values is all the memory that is needed.
_PIECE = 1 << 24


class Edits:
    """Looks for edits of a module's 16-bit copies.

    Args:
        bounds: The tensors of the module.
        arena: Their regions, with A where one of them is 16-bit.
    """

    def __init__(self, bounds: Sequence[Bound], arena: Arena) -> None:
        self._arena = arena
        self._is_clean = False  # known of all copies, for now
        self._bounds = {bound.segment.name: bound for bound in bounds if bound.segment.working}
        self._spans = _spans([bound.segment for bound in self._bounds.values()])
        self._noted: torch.Tensor | None = None

    @contextlib.contextmanager
    def looked_at(self) -> Iterator[None]:
        """Inside, nobody writes: one look at all of A serves every `master`."""
        self._is_clean = self._is_untouched()
        try:
            yield
        finally:
            self._is_clean = False

    def names(self) -> list[str]:
        """Of the copies that differ from their masters."""
        return [bound.segment.name for bound, _ in self._found()]

    def note(self) -> None:
        """Note whether copies that the next update rounds anew were written by now.

        Four kernels a piece, and no wait for the device: `noted` has the answer.
        """
        masters, copies = (self._arena.region(name) for name in ("W", "A"))
        for begin, end in self._spans:
            pieces = zip(masters[begin:end].split(_PIECE), copies[begin:end].split(_PIECE))
            for some, written in pieces:
                rounded = some.to(copies.dtype)
                differs = (rounded != written) & (rounded == rounded)  # not NaN; zero has two signs
                found = differs.any()
                self._noted = found if self._noted is None else self._noted | found

    def noted(self) -> bool:
        """Whether a `note` since the last call has found anything; waits for the device."""
        found, self._noted = self._noted, None
        return found is not None and bool(found)

    def take(self) -> None:
        """Masters become what was written, where it differs; elsewhere they keep all digits."""
        if self._is_untouched():
            return
        for bound, same in self._found():
            self._arena.view("W", bound.segment).copy_(self._merged(bound.segment, same))
        self._arena.region("A").copy_(self._arena.region("W"))  # also where nobody looks

    def master(self, segment: Segment) -> torch.Tensor:
        """A view of the master, or what `take` would make of it."""
        same = None if self._is_clean else self._compared(self._bounds[segment.name])
        return self._arena.wrap("W", segment) if same is None else self._merged(segment, same)

    def _found(self) -> Iterator[tuple[Bound, torch.Tensor]]:
        """Edited tensors, with where they still are their rounded masters."""
        if self._is_untouched():
            return
        for bound in self._bounds.values():
            same = self._compared(bound)
            if same is not None:
                yield bound, same

    def _is_untouched(self) -> bool:
        """Whether all of A is W rounded: two kernels a piece, and one answer from the device."""
        if not self._bounds:
            return True
        masters, copies = self._arena.region("W"), self._arena.region("A")
        differs = torch.zeros((), dtype=torch.bool, device=copies.device)
        for some, written in zip(masters.split(_PIECE), copies.split(_PIECE)):
            differs |= (_bits(some.to(copies.dtype)) != _bits(written)).any()
        return not differs

    def _compared(self, bound: Bound) -> torch.Tensor | None:
        """Where a copy is its rounded master; None when it is everywhere, or not at home."""
        segment = bound.segment
        if not bound.is_home(bound.tensor):
            return None
        part = slice(segment.offset, segment.offset + segment.count)
        master, copy = self._arena.region("W")[part], self._arena.region("A")[part]
        if torch.equal(_bits(master.to(copy.dtype)), _bits(copy)):
            return None
        copy = self._arena.view("A", segment)
        rounded = self._arena.view("W", segment).to(copy.dtype)
        same = (copy == rounded) | (copy.isnan() & rounded.isnan())
        return None if same.all() else same

    def _merged(self, segment: Segment, same: torch.Tensor) -> torch.Tensor:
        """A master, with the copy's values where that is not the same."""
        master, copy = self._arena.view("W", segment), self._arena.view("A", segment)
        return torch.where(same, master, copy.float())


def _spans(segments: Sequence[Segment]) -> list[tuple[int, int]]:
    """Elements of trained tensors, as few (begin, end) as they make; what is between is padding."""
    found: list[tuple[int, int]] = []
    for segment in sorted((s for s in segments if s.trainable), key=lambda s: s.offset):
        begin, end = segment.offset, segment.offset + segment.count
        is_next = bool(found) and aligned(found[-1][1]) == begin
        found[-1:] = [(found[-1][0], end)] if is_next else [*found[-1:], (begin, end)]
    return found


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.int16)
