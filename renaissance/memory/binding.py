"""The module side of the memory plan: its tensors become views of the regions, and stay so.

A bound tensor has *its own storage* over the region's bytes (DLPack), because views of one shared
storage break ``torch.compile`` as soon as a batch-norm writes one of them. The storage keeps the
arena alive; the arena never keeps the module alive.
"""

from __future__ import annotations

import contextlib
import logging
import weakref
from collections.abc import Callable, Collection, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import _disable_current_modes

from renaissance.memory.arena import Arena
from renaissance.memory.bound import Bound, bits_of
from renaissance.memory.edits import Edits
from renaissance.memory.link import LINK, Link, link_of
from renaissance.memory.segments import Segment
from renaissance.memory.survey import COUNTER, buffers_of, counters_of, parameters_of

logger = logging.getLogger(__name__)


class Binding:
    """A module whose tensors live in the regions, until `release`.

    Args:
        module: The root module; held weakly.
        segments: Of the plan that was built for this module.
        arena: Its regions.
        keep_values: Copy the parameters' values into the regions (buffers always are).
        has_average: There is a region E, which starts anew at what ``load_state_dict`` brings.
    """

    def __init__(
        self,
        module: nn.Module,
        segments: Sequence[Segment],
        arena: Arena,
        keep_values: bool,
        has_average: bool,
    ) -> None:
        self._root, self._wrap = weakref.ref(module), arena.wrap
        self._bound: list[Bound] = []
        self._handles: list[Any] = []
        self._links: dict[int, Link] = {}
        self._batches: Callable[[], int] = int  # 0 until the owner of the counter gives it
        self._counted: list[tuple[str, weakref.ref[nn.Module]]] = []
        self._base: dict[str, int] = {}
        self._still: set[str] = set()  # counters that stay
        self._homes = {name: segment for segment in segments for name in segment.names}
        with torch.no_grad():
            self._take(module, keep_values)
        self._edits = Edits(self._bound, arena)
        self._attach(module, has_average)

    @property
    def module(self) -> nn.Module | None:
        return self._root()

    def counts(self) -> dict[str, int]:
        """``num_batches_tracked`` by name."""
        now = self._batches()
        return {n: base + (0 if n in self._still else now) for n, base in self._base.items()}

    def set_count(self, name: str, value: int) -> None:
        self._base[name] = value - (0 if name in self._still else self._batches())

    def count_with(self, batches: Callable[[], int], still: Collection[nn.Module]) -> None:
        """From now on the counts grow as this counter does, or stay; their values are kept."""
        counts, self._batches = self.counts(), batches
        self._still = {name for name, owner in self._counted if owner() in still}
        for name, value in counts.items():
            self.set_count(name, value)

    # -- binding -------------------------------------------------------------------------------

    def _take(self, module: nn.Module, keep_values: bool) -> None:
        for tensor, places in [*parameters_of(module), *buffers_of(module)]:
            segment = self._homes[places[0].name]
            bound = Bound(segment, tensor, places)
            self._bound.append(bound)
            if keep_values or segment.region == "B":
                self._wrap(segment.region, segment).copy_(tensor)
            if segment.working:
                self._wrap("A", segment).copy_(self._wrap("W", segment))
            self._rebind(bound)
            tensor.grad = None
        for place in counters_of(module):
            counter = place.owner._buffers[COUNTER]
            assert counter is not None
            self._counted.append((place.name, weakref.ref(place.owner)))
            self.set_count(place.name, int(counter))
            place.owner._buffers[COUNTER] = None

    def _rebind(self, bound: Bound) -> None:
        """The region's tensor becomes the data of the parameter, or the buffer."""
        segment = bound.segment
        if segment.count:
            home = self._wrap("A" if segment.working else segment.region, segment)
            if segment.region == "B":
                bound.tensor = home
            else:
                bound.tensor.data = home
            bound.address = home.data_ptr()
        bound.settle()

    def _attach(self, module: nn.Module, has_average: bool) -> None:
        for owner in module.modules():
            link = self._links[id(owner)] = Link(self)
            vars(owner)[LINK] = link
        for bound in self._bound:
            segment, is_weight = bound.segment, bound.segment.region == "W"
            for owner_ref, leaf in bound.places:
                link = self._links[id(owner_ref())]
                if segment.working and (leaf, segment) not in link.working:
                    link.working.append((leaf, segment))
                if has_average and (is_weight or segment.averaged):
                    link.averaged.append((leaf, segment))
        for name, owner_ref in self._counted:
            self._links[id(owner_ref())].counter = name
        for owner in module.modules():
            link = self._links[id(owner)]
            if link.working or link.averaged or link.counter is not None:
                before: Any = owner.register_load_state_dict_pre_hook  # torch leaves it untyped
                after: Any = owner.register_state_dict_post_hook
                self._handles += [before(_load_hook), after(_save_hook)]

    # -- state_dict and load_state_dict --------------------------------------------------------

    def save(self, owner: nn.Module, link: Link, state: dict[str, Any], prefix: str) -> None:
        """Puts float32 masters and ``num_batches_tracked`` into a state dict.

        What was written into 16-bit copies is in it, but not yet in the masters: whoever lends the
        module other weights, and gives the old ones back, finds all their digits again.
        """
        for leaf, segment in link.working:
            state[prefix + leaf] = self._edits.master(segment)
        if link.counter is not None:
            state[prefix + COUNTER] = _counter(owner, self.counts()[link.counter])

    @torch.no_grad()
    def load(
        self, link: Link, state: dict[str, Any], prefix: str, strict: bool, missing: list[str]
    ) -> None:
        """Takes masters and ``num_batches_tracked`` out of a state dict that is being loaded.

        Averages start at what is loaded, as they do at the first weights.
        """
        for leaf, segment in link.averaged:
            given = state.get(prefix + leaf)
            if isinstance(given, torch.Tensor) and given.shape == segment.shape:
                self._wrap("E", segment).copy_(given)
        for leaf, segment in link.working:
            given = state.get(prefix + leaf)
            if isinstance(given, torch.Tensor) and given.shape == segment.shape:
                master, working = self._wrap("W", segment), self._wrap("A", segment)
                master.copy_(given)
                working.copy_(master)
                state[prefix + leaf] = working.clone()  # what torch now writes to the parameter
        if link.counter is not None:
            given = state.pop(prefix + COUNTER, None)
            if given is not None:
                self.set_count(link.counter, int(given))
            elif strict:
                missing.append(prefix + COUNTER)

    # -- strangers -----------------------------------------------------------------------------

    def changes(self) -> list[str]:
        """Why the plan no longer fits the module, one sentence each; empty when it fits."""
        module = self._alive()
        now: dict[str, torch.Tensor] = {}
        for tensor, places in [*parameters_of(module), *buffers_of(module)]:
            now.update({place.name: tensor for place in places})
        found = [f"{name!r} is new" for name in now if name not in self._homes]
        found += [f"{name!r} is gone" for name in self._homes if name not in now]
        owners = {id(bound.tensor): bound for bound in self._bound}
        for bound in self._bound:
            segment = bound.segment
            for name in segment.names:
                other = owners.get(id(now.get(name)), bound)
                if other is not bound:
                    found.append(f"{name!r} is tied to {other.segment.name!r} now")
            current = now.get(segment.name)
            if segment.region == "W" and current is not None:
                planned = segment.trainable or segment.unused
                if current.requires_grad != planned:
                    found.append(f"{segment.name!r} is {'frozen' if planned else 'trainable'} now")
        return found

    def away(self) -> list[str]:
        """Names of tensors that have left their region."""
        return [
            bound.segment.name
            for bound in self._bound
            if any(not bound.is_home(tensor) for tensor in bound.held())
        ]

    def edited(self) -> list[str]:
        """Names of 16-bit copies that somebody has written into, and whose masters differ."""
        return self._edits.names()

    def note_edits(self) -> None:
        """See `Edits.note`."""
        self._edits.note()

    def noted_edits(self) -> bool:
        """See `Edits.noted`."""
        return self._edits.noted()

    def looked_at(self) -> contextlib.AbstractContextManager[None]:
        """Around a state dict of the whole module: edits are looked for once."""
        return self._edits.looked_at()

    @torch.no_grad()
    def take_edits(self) -> None:
        """Masters of what somebody has written into 16-bit copies become that, where it differs."""
        self._edits.take()

    @torch.no_grad()
    def verify(self) -> list[str]:
        """Copies tensors that have left their region back in; returns their names."""
        changes = self.changes()
        if changes:
            more = f" (and {len(changes) - 3} more)" if len(changes) > 3 else ""
            raise RuntimeError(
                f"the module has changed since its plan was made: {'; '.join(changes[:3])}{more}. "
                "Call task.compile() again for a new plan"
            )
        self.take_edits()
        strangers: list[tuple[Bound, torch.Tensor]] = []
        for bound in self._bound:
            held = bound.held()
            away = [tensor for tensor in held if not bound.is_home(tensor)]
            if away:
                for tensor in away:
                    self._check_fits(bound.segment, tensor)
                self._check_agree(bound.segment, away[0], held)
                strangers.append((bound, away[0].detach().clone()))
        for bound, stranger in strangers:
            self._absorb(bound.segment, stranger)
            self._rebind(bound)
        names = [bound.segment.name for bound, _ in strangers]
        if names:
            shown = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
            logger.warning(
                "%d tensors had left their regions (a conversion, an assignment or a flattening) "
                "and were copied back: %s",
                len(names),
                shown,
            )
        return names

    def _dtypes(self, segment: Segment) -> set[torch.dtype]:
        """In which the value of a segment may come."""
        working = {self._wrap("A", segment).dtype} if segment.working else set()
        return {segment.dtype} | working

    def _fits(self, segment: Segment, stranger: torch.Tensor) -> bool:
        return (
            stranger.shape == segment.shape
            and stranger.dtype in self._dtypes(segment)
            and not stranger.is_meta
        )

    def _check_fits(self, segment: Segment, stranger: torch.Tensor) -> None:
        if not self._fits(segment, stranger):
            expected = " or ".join(sorted(map(str, self._dtypes(segment))))
            raise RuntimeError(
                f"{segment.name!r} is now {tuple(stranger.shape)} {stranger.dtype} on "
                f"{stranger.device}; its plan has {segment.shape} {expected}. Undo the conversion "
                "(precision is chosen by Task(precision=...)), or make a new task for the module"
            )

    def _check_agree(
        self, segment: Segment, stranger: torch.Tensor, held: list[torch.Tensor]
    ) -> None:
        if any(not torch.equal(bits_of(stranger), bits_of(t.to(stranger))) for t in held):
            raise RuntimeError(
                f"the tied tensors {', '.join(segment.names)} hold different values now; "
                "assign the same value to all of them"
            )

    def _absorb(self, segment: Segment, stranger: torch.Tensor) -> None:
        master = self._wrap(segment.region, segment)
        if segment.working:
            working = self._wrap("A", segment)
            rounded = stranger.to(working)
            # module.float() or a flattening moves the 16-bit copy unchanged: the master then
            # knows more than the stranger does, and stays.
            same = torch.equal(bits_of(rounded), bits_of(working)) and torch.equal(
                bits_of(rounded.to(stranger.dtype)), bits_of(stranger.to(rounded.device))
            )
            if not same:
                master.copy_(stranger)
                working.copy_(master)
        else:
            master.copy_(stranger)

    # -- the end -------------------------------------------------------------------------------

    def release(self) -> None:
        """As `_release`, whatever is being traced: a collected task may end in the midst of it."""
        with _disable_current_modes():
            self._release()

    @torch.no_grad()
    def _release(self) -> None:
        """Gives what is left of the module its own float32 tensors and removes every trace."""
        self.take_edits()
        for bound in self._bound:
            segment, held = bound.segment, bound.held()
            for tensor in held:
                if not bound.is_home(tensor) and self._fits(segment, tensor):
                    self._absorb(segment, tensor)
            if held:
                own = self._wrap(segment.region, segment).clone()
                if segment.region == "W":
                    bound.tensor.data, bound.tensor.grad = own, None
                else:
                    bound.tensor = own
                bound.settle()
        counts = self.counts()
        for name, owner_ref in self._counted:
            norm = owner_ref()
            if norm is not None:
                norm._buffers[COUNTER] = _counter(norm, counts[name])
        module = self._root()
        for part in module.modules() if module is not None else ():
            vars(part).pop(LINK, None)
        for handle in self._handles:
            handle.remove()
        self._bound, self._handles, self._links, self._counted = [], [], {}, []

    def _alive(self) -> nn.Module:
        module = self._root()
        if module is None:
            raise RuntimeError("the bound module no longer exists")
        return module


def _counter(norm: nn.Module, value: int) -> torch.Tensor:
    """``num_batches_tracked`` as the constructor makes it, beside the running mean."""
    mean = norm._buffers["running_mean"]
    device = mean.device if mean is not None else None
    return torch.tensor(value, dtype=torch.long, device=device)


def _save_hook(module: nn.Module, state: dict[str, Any], prefix: str, metadata: object) -> None:
    link = link_of(module)
    if link is not None and link.binding is not None:
        link.binding.save(module, link, state, prefix)


def _load_hook(
    module: nn.Module,
    state: dict[str, Any],
    prefix: str,
    metadata: object,
    strict: bool,
    missing: list[str],
    *_: object,
) -> None:
    link = link_of(module)
    if link is not None and link.binding is not None:
        link.binding.load(link, state, prefix, strict, missing)
