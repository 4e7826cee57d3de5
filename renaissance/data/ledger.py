"""What a loader's streams have met and spent: damaged samples and counters."""

from __future__ import annotations

import threading

from renaissance import _native


class Ledger:
    """Entries of all streams of one loader, open and closed; safe from any thread.

    Attributes:
        damaged: id -> (what is wrong, id that took its place or -1), of batches handed out.
    """

    def __init__(self) -> None:
        self.damaged: dict[int, tuple[str, int]] = {}
        self._lock = threading.RLock()  # a stream may be collected while its own thread holds it
        self._open: list[_native.Feed] = []
        self._closed: dict[str, float] = {}

    def enter(self, damages: list[tuple[int, int, str]]) -> None:
        """Damage of one batch: (id, replacement or -1, text)."""
        with self._lock:
            for index, replacement, text in damages:
                self.damaged.setdefault(index, (text, replacement))

    def opened(self, feed: _native.Feed) -> None:
        with self._lock:
            self._open.append(feed)

    def closed(self, feed: _native.Feed) -> None:
        with self._lock:
            if feed in self._open:
                self._open.remove(feed)
                self._closed = _sum(self._closed, feed.stats())

    def totals(self) -> dict[str, float]:
        """Sums of `Feed.stats` over all streams."""
        with self._lock:
            total = dict(self._closed)
            for feed in list(self._open):
                total = _sum(total, feed.stats())
        return total


def _sum(a: dict[str, float], b: dict[str, float]) -> dict[str, float]:
    return {name: a.get(name, 0) + value for name, value in b.items()}


def per_image(totals: dict[str, float]) -> dict[str, float]:
    """The counters as a user reads them, see `Loader.stats`."""
    images = totals.get("samples", 0)
    busy, decode = totals.get("busy_seconds", 0.0), totals.get("decode_seconds", 0.0)
    each = 1000.0 / images if images else 0.0
    return {
        "images": images,
        "waits": totals.get("waits", 0),
        "wait_seconds": totals.get("wait_seconds", 0.0),
        "block_seconds": totals.get("idle_seconds", 0.0),
        "decode_ms": decode * each,
        "augment_ms": (busy - decode) * each,
    }
