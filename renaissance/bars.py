"""Bars for work that is done before training: in a terminal or notebook a bar, elsewhere lines."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any, TextIO

from tqdm.std import tqdm as TerminalBar

#: Work that takes less than this shows nothing; in seconds, as the distance of two lines.
DELAY_SECONDS, LINE_SECONDS = 1.0, 10.0


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return type(shell).__name__ == "ZMQInteractiveShell"


def bar_class() -> type[Any]:
    """tqdm's bar for here, without the thread that watches it."""
    base: type[Any] = TerminalBar
    if in_notebook():
        from tqdm.auto import tqdm as notebook_bar

        base = notebook_bar
    return type("Bar", (base,), {"monitor_interval": 0})


class Lines:
    """Stands in for a bar in a file: after a second a line, then one every ten.

    Args:
        total: Pieces of work.
        desc: What is done, such as "decoding".
        unit: What a piece is, such as "files".
        stream: Where to write.
        clock: Seconds, for tests.
    """

    def __init__(
        self,
        total: int,
        desc: str,
        unit: str,
        stream: TextIO,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._total, self._what, self._unit = total, desc, unit
        self._stream, self._clock = stream, clock
        self._done, self._due = 0, clock() + DELAY_SECONDS

    def update(self, count: int) -> None:
        """So many pieces more are done."""
        self._done += count
        if self._clock() >= self._due:
            self._due = self._clock() + LINE_SECONDS
            self._stream.write(f"{self._what}: {self._done:,} of {self._total:,} {self._unit}\n")


def open_bar(total: int, what: str, unit: str = "files", stream: TextIO | None = None) -> Any:
    """A context with ``update(count)``, shown on standard error after a second of work."""
    stream = stream or sys.stderr
    if not (in_notebook() or stream.isatty()):
        return contextlib.nullcontext(Lines(total, what, unit, stream))
    return bar_class()(
        total=total, desc=what, unit=f" {unit}", delay=DELAY_SECONDS, leave=False, file=stream
    )
