"""Calls that must not happen in the midst of another one: a hook that asks for them is told so."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])

FIT, EVALUATION, PREDICTION = "fit", "an evaluation", "a prediction"
#: Both have the running sums and the streams, and the module then holds averaged weights.
LOOKING = (EVALUATION, PREDICTION)

_WAY_OUT = {
    FIT: "fit works on what it would change; call it when fit has returned, which "
    "task.stop_training = True ends early",
    EVALUATION: "the module may hold averaged weights now, and sums and batches are the "
    "evaluation's; call it afterwards, during fit in on_epoch_end",
    PREDICTION: "the module may hold averaged weights now, and batches are the prediction's; call "
    "it afterwards",
}


class Busy:
    """What a task is in the midst of, outermost first."""

    def __init__(self) -> None:
        self._doing: list[str] = []

    @contextlib.contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Around the whole of it, its hooks too."""
        self._doing.append(what)
        try:
            yield
        finally:
            self._doing.pop()

    def __contains__(self, what: str) -> bool:
        return what in self._doing

    def check(self, call: str, *kinds: str) -> None:
        """RuntimeError when one of these is going on; it names both and says when it works."""
        for what in reversed(self._doing):
            if what in kinds:
                raise RuntimeError(f"{call} inside {what}: {_WAY_OUT[what]}")


def not_inside(*kinds: str, instead: Mapping[str, str] | None = None) -> Callable[[F], F]:
    """For methods of an object with a `Busy` at ``busy``: see `Busy.check`.

    Args:
        *kinds: What they must not be called inside of.
        instead: By arguments that other frameworks have here, what to write: a TypeError says so.
    """
    ways = instead or {}

    def decorate(method: F) -> F:
        @functools.wraps(method)
        def checked(self: Any, *arguments: Any, **options: Any) -> Any:
            self.busy.check(f"task.{method.__name__}", *kinds)
            for name in options:
                if name in ways:
                    raise TypeError(
                        f"task.{method.__name__} has no argument {name!r}: {ways[name]}"
                    )
            return method(self, *arguments, **options)

        return cast(F, checked)

    return decorate
