"""What C++ workers leave to Python: own data sets, and pictures that are no JPEG.

An errand names one place in one batch. Whoever takes it, a helper thread or the consumer itself,
reads the sample, decodes it (GIL-free where the decoder allows) and hands it to the C++ program, so
that results do not depend on who did it or when.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy.typing as npt

from renaissance import _native
from renaissance.data.images import decode, format_of
from renaissance.data.supply import Supply

#: (slot, position in the batch, sample id, id to read, attempt)
Errand = tuple[int, int, int, int, int]

TURN_SECONDS = 0.2  # how long a helper waits before it looks whether the feed is closed


class Errands:
    """Does the errands of one feed.

    ``causes`` keeps the exceptions of a user's data set by sample id, for the error's traceback.
    """

    def __init__(self, feed: _native.Feed, supply: Supply) -> None:
        self._feed, self._supply = feed, supply
        self.causes: dict[int, Exception] = {}
        self._threads: list[threading.Thread] = []

    def start(self, helpers: int) -> None:
        """Starts helper threads; later calls do nothing."""
        if self._threads:
            return
        self._feed.expect_helpers()
        for number in range(helpers):
            thread = threading.Thread(
                target=_serve, args=(self._feed, self), name=f"reader-{number}", daemon=True
            )
            self._threads.append(thread)
            thread.start()

    def join(self) -> None:
        """Waits for the helpers of a closed feed."""
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()
        self._threads.clear()

    def run(self, errand: Errand, bench: _native.Workbench) -> None:
        """Reads one sample and finishes its place, or fails it with the reason."""
        read = errand[3]
        try:
            if self._supply.form == "files":
                self._run_file(errand, bench)
            else:
                self._run_python(errand, bench)
        except Exception as error:  # noqa: BLE001  a user's data set may raise anything
            if self._supply.form != "files":
                self.causes[read] = error
            kind = "" if isinstance(error, (ValueError, OSError)) else f"{type(error).__name__}: "
            self._feed.fail(errand, f"{kind}{error}", bench)

    def _run_file(self, errand: Errand, bench: _native.Workbench) -> None:
        assert self._supply.paths is not None
        with open(self._supply.paths[errand[3]], "rb") as file:
            data = file.read()
        self._finish_picture(errand, decode(data, self._supply.channels), 0, bench)

    def _run_python(self, errand: Errand, bench: _native.Workbench) -> None:
        x, label = self._supply.read(errand[3])
        label_address = 0 if label is None else label.ctypes.data
        if not self._supply.is_picture:
            self._feed.finish_row(errand, x.ctypes.data, label_address)
        elif not isinstance(x, bytes):
            self._finish_picture(errand, x, label_address, bench)
        elif _native.has_jpeg() and format_of(x) == "JPEG":
            self._feed.finish_jpeg(errand, x, self._supply.channels, label_address, bench)
        else:
            picture = decode(x, self._supply.channels)
            self._finish_picture(errand, picture, label_address, bench)

    def _finish_picture(
        self, errand: Errand, picture: npt.NDArray[Any], label: int, bench: _native.Workbench
    ) -> None:
        height, width, channels = picture.shape
        self._feed.finish_picture(
            errand, picture.ctypes.data, height, width, channels, label, bench
        )


def _serve(feed: _native.Feed, errands: Errands) -> None:
    """Body of a helper thread: until the feed is closed."""
    bench = _native.Workbench()
    while not feed.is_closed:
        errand = feed.take_errand(TURN_SECONDS)
        if errand is not None:
            errands.run(errand, bench)
