"""What a bound module, and each of its parts, knows of its binding."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from torch import nn

from renaissance.memory.segments import Segment
from renaissance.memory.survey import COUNTER

if TYPE_CHECKING:
    from renaissance.memory.binding import Binding

#: Where it stands among a module's attributes.
LINK = "_renaissance_link"


class Link:
    """What a bound (sub)module knows of its binding; a copy or pickle of it knows nothing.

    Where the module's own tensors are not all there is to it, neither can be made.
    """

    def __init__(self, binding: Binding | None = None) -> None:
        self._binding = weakref.ref(binding) if binding is not None else None
        self.working: list[tuple[str, Segment]] = []  # leaf and segment
        self.averaged: list[tuple[str, Segment]] = []
        self.counter: str | None = None

    @property
    def binding(self) -> Binding | None:
        return self._binding() if self._binding is not None else None

    def __deepcopy__(self, memo: object) -> Link:
        self._check_complete()
        return Link()

    def __reduce__(self) -> tuple[type[Link], tuple[()]]:
        self._check_complete()
        return Link, ()

    def _check_complete(self) -> None:
        if self.binding is not None and (self.working or self.counter is not None):
            what = "float32 masters" if self.working else COUNTER
            raise TypeError(
                f"a copy or pickle of this module would lose its {what}, which the task holds; "
                "task.export_module() gives a plain module, task.close() gives this one back"
            )


def link_of(owner: nn.Module) -> Link | None:
    """The link of a module that is bound now, else None."""
    link = vars(owner).get(LINK)
    return link if isinstance(link, Link) and link.binding is not None else None


def check_free(module: nn.Module) -> None:
    """RuntimeError if the module, or a part of it, is bound."""
    for path, owner in module.named_modules():
        if link_of(owner) is not None:
            part = f"its part {path!r}" if path else "it"
            raise RuntimeError(
                f"{type(module).__name__} cannot be planned or bound: {part} belongs to another "
                "task already. Close that task (task.close() gives the module its own tensors "
                "back), or build a second module"
            )
