"""SIGINT and SIGTERM during fit: finish the step, then leave in order.

Only the main thread sees signals. The first one is noted and raised after the step (and after a
checkpoint, when there is a run folder); a second Ctrl-C raises at once.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class Interrupted(BaseException):
    """SIGTERM arrived; like KeyboardInterrupt it passes through ``except Exception``."""


class Interrupts:
    """Context manager that notes signals and restores the handlers that were there."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._previous: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous.clear()

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and self.received == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = number

    def raise_received(self) -> None:
        """KeyboardInterrupt for SIGINT, Interrupted for SIGTERM, nothing when none came."""
        if self.received == signal.SIGINT:
            raise KeyboardInterrupt
        if self.received is not None:
            raise Interrupted(f"stopped by signal {signal.Signals(self.received).name}")
