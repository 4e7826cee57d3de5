"""What one sees while training: a bar in a terminal or notebook, one plain line an epoch elsewhere.

    epoch 3/10: 100%|##########| 300/300 [00:12<00:00, loss 0.2345  accuracy 0.9321  lr 0.00095]
    epoch 3/10  12.3 s  loss 0.2345  accuracy 0.9321  lr 0.00095  4,878 images/s  left 1:26

Of an epoch that takes minutes a line each minute says how far it is:

    epoch 3/10  step 1,200/10,009  loss 2.3456  lr 0.1  640 images/s  left 12:45 of the epoch

Progress only looks: it keeps host clocks and is told numbers that were read anyway. Images a second
are those of training alone, validation not counted; the time left is that of all epochs.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, TextIO

from renaissance.bars import bar_class, in_notebook

#: A bar redraws at most this often, in seconds; in a file (verbose=1 there) it is a line each time.
REDRAW_SECONDS, REDRAW_SECONDS_IN_FILE = 0.1, 10.0
#: Plain lines within an epoch, or an evaluation, are so many seconds apart.
LINE_SECONDS = 60.0


def resolve_verbose(verbose: object, stream: TextIO | None = None) -> int:
    """0 silent, 1 a bar, 2 a line an epoch; "auto" is 1 on a terminal or in a notebook, else 2.

    Args:
        verbose: 0, 1, 2 or "auto".
        stream: Where it would be written; standard output by default.
    """
    if verbose == "auto":
        return 1 if in_notebook() or (stream or sys.stdout).isatty() else 2
    if isinstance(verbose, int) and not isinstance(verbose, bool) and verbose in (0, 1, 2):
        return verbose
    raise ValueError(
        f"verbose = {verbose!r} is not allowed; it takes 0 (silent), 1 (a bar), 2 (a line an "
        "epoch) or 'auto'"
    )


def make_progress(
    verbose: int,
    *,
    epochs: int | None = None,
    steps_per_epoch: int | None = None,
    unit: str = "images",
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.perf_counter,
    patience: float = 0.0,
) -> Progress:
    """The progress of one fit, evaluation or prediction.

    Args:
        verbose: As `resolve_verbose` gives it.
        epochs: The final epoch; None when only steps are limited.
        steps_per_epoch: Steps of an epoch; None when that is unknown.
        unit: What a sample is called in "images/s".
        stream: Where to write; standard output by default.
        clock: Seconds, for tests.
        patience: Seconds for which an evaluation of its own says nothing.
    """
    kind = {0: Progress, 1: BarProgress, 2: LineProgress}[verbose]
    progress = kind(epochs, steps_per_epoch, unit, stream or sys.stdout, clock)
    progress.patience = patience
    return progress


class Progress:
    """Says nothing; keeps the times that the other two show."""

    patience = 0.0

    def __init__(
        self,
        epochs: int | None,
        steps_per_epoch: int | None,
        unit: str,
        stream: TextIO,
        clock: Callable[[], float],
    ) -> None:
        self.epochs, self.steps_per_epoch, self.unit = epochs, steps_per_epoch, unit
        self._stream, self._clock = stream, clock
        self._began = self._fit_began = clock()
        self._trained_seconds: float | None = None
        self._samples = self._epochs_seen = self._epoch = 0
        self._has_epoch = False
        self._last_logs = -math.inf

    @property
    def wants_logs(self) -> bool:
        """Whether numbers would be shown now; reading them costs a wait for the device."""
        return False

    def start_epoch(self, epoch: int, step: int = 0) -> None:
        """An epoch starts, or is continued at a step of it (both from 0)."""
        self._epoch, self._samples, self._trained_seconds = epoch, 0, None
        self._has_epoch = True
        self._began = self._clock()

    def step(self, samples: int) -> None:
        """A step over so many samples was launched."""
        self._samples += samples

    def logs(self, logs: Mapping[str, float]) -> None:
        """Means over the epoch so far."""

    def start_test(self, what: str, batches: int | None) -> None:
        """An evaluation starts: "validation", "evaluate" or "predict"."""
        if self._has_epoch and self._trained_seconds is None:
            self._trained_seconds = self._clock() - self._began
        if not self._has_epoch:
            self._began = self._clock()

    def test_step(self, samples: int) -> None:
        """A batch of the evaluation is done."""
        if not self._has_epoch:
            self._samples += samples

    def end_test(self, what: str, logs: Mapping[str, float]) -> None:
        """The evaluation is over, with its means."""

    def end_epoch(self, logs: Mapping[str, float]) -> None:
        """The epoch and its validation are over."""
        if self._trained_seconds is None:
            self._trained_seconds = self._clock() - self._began
        self._epochs_seen += 1
        self._has_epoch = False

    def say(self, *parts: str) -> None:
        """A line of its own, below a bar that is open; nothing for no parts, or when silent."""

    def close(self) -> None:
        """Leave the terminal as a program should; after an error too."""

    def is_due(self) -> bool:
        """Whether an evaluation of its own has taken long enough to be shown."""
        return not self._has_epoch and self._clock() - self._began >= self.patience

    def epoch_name(self) -> str:
        """'epoch 3/10'."""
        return f"epoch {self._epoch + 1}" + (f"/{self.epochs}" if self.epochs else "")

    def rate(self) -> str:
        """Samples a second of this epoch's training so far: '4,878 images/s'."""
        seconds = self._trained_seconds
        if seconds is None:
            seconds = self._clock() - self._began
        if seconds <= 0 or self._samples == 0:
            return ""
        rate = self._samples / seconds
        return f"{rate:,.0f} {self.unit}/s" if rate >= 100 else f"{rate:.1f} {self.unit}/s"

    def time_left(self) -> str:
        """'left 1:26', from the mean epoch of this fit; empty when nothing is left."""
        left = 0 if self.epochs is None else self.epochs - self._epoch - 1
        if left <= 0 or self._epochs_seen == 0:
            return ""
        mean = (self._clock() - self._fit_began) / self._epochs_seen
        return f"left {duration(left * mean)}"


class _Speaking(Progress):
    """What a line and a bar have in common: what is said stands in a line of its own."""

    def say(self, *parts: str) -> None:
        if parts:
            self.close()
            self._write("; ".join(parts))

    def _write(self, *parts: str) -> None:
        self._stream.write("  ".join(part for part in parts if part) + "\n")
        self._stream.flush()


class _Count:
    """How far an epoch, or an evaluation, is.

    Args:
        unit: "step" or "batch".
        first: How many of them were done before.
        total: How many there are, if that is known.
        now: Seconds.
    """

    def __init__(self, unit: str, first: int, total: int | None, now: float) -> None:
        self.unit, self.first, self.done, self.total, self.began = unit, first, first, total, now

    def __str__(self) -> str:
        """'step 1,200/10,009'."""
        return f"{self.unit} {self.done:,}" + (f"/{self.total:,}" if self.total else "")

    def left(self, now: float) -> str:
        """'left 12:45', from the mean since the count began; empty when that is not known."""
        done = self.done - self.first
        if not self.total or not done or self.done >= self.total:
            return ""
        return f"left {duration((now - self.began) / done * (self.total - self.done))}"


class LineProgress(_Speaking):
    """One line an epoch, and one a minute within it, without control codes."""

    _steps: _Count | None = None
    _batches: _Count | None = None  # of the evaluation
    _what = ""  # is evaluated
    _line_at = math.inf  # seconds, when the last line was written

    @property
    def wants_logs(self) -> bool:
        return self._is_late(self._steps)

    def start_epoch(self, epoch: int, step: int = 0) -> None:
        super().start_epoch(epoch, step)
        self._steps = _Count("step", step, self.steps_per_epoch, self._began)
        self._line_at = self._began

    def step(self, samples: int) -> None:
        super().step(samples)
        if self._steps is not None:
            self._steps.done += 1

    def logs(self, logs: Mapping[str, float]) -> None:
        self._line_at = self._clock()
        left = "" if self._steps is None else self._steps.left(self._line_at)
        left += " of the epoch" if left else ""
        self._write(self.epoch_name(), str(self._steps), *values(logs), self.rate(), left)

    def end_epoch(self, logs: Mapping[str, float]) -> None:
        super().end_epoch(logs)
        taken = seconds_text(self._clock() - self._began)
        self._write(self.epoch_name(), taken, *values(logs), self.rate(), self.time_left())

    def start_test(self, what: str, batches: int | None) -> None:
        super().start_test(what, batches)
        self._line_at = self._clock()
        self._what, self._batches = what, _Count("batch", 0, batches, self._line_at)

    def test_step(self, samples: int) -> None:
        super().test_step(samples)
        if self._batches is None:
            return
        self._batches.done += 1
        if self._is_late(self._batches):
            self._line_at = self._clock()
            epoch = self.epoch_name() if self._has_epoch else ""
            left = self._batches.left(self._line_at)
            self._write(epoch, self._what, str(self._batches), left)

    def end_test(self, what: str, logs: Mapping[str, float]) -> None:
        if self.is_due():
            taken = seconds_text(self._clock() - self._began)
            self._write(what, taken, *values(logs), self.rate())

    def _is_late(self, count: _Count | None) -> bool:
        """Whether a line is due before the one at the end."""
        is_last = count is None or count.done == count.total
        return not is_last and self._clock() - self._line_at >= LINE_SECONDS


class BarProgress(_Speaking):
    """A tqdm bar an epoch; the finished ones stay above."""

    _bar: Any = None
    _shown = ""
    _test: tuple[str, int | None] = ("", None)  # what is evaluated, and its batches
    _tested = 0

    @property
    def wants_logs(self) -> bool:
        return self._clock() - self._last_logs >= REDRAW_SECONDS

    def start_epoch(self, epoch: int, step: int = 0) -> None:
        super().start_epoch(epoch, step)
        self._open(self.epoch_name(), self.steps_per_epoch, step)

    def step(self, samples: int) -> None:
        super().step(samples)
        self._bar.update()

    def logs(self, logs: Mapping[str, float]) -> None:
        self._last_logs = self._clock()
        self._show(*values(logs), self.rate())

    def start_test(self, what: str, batches: int | None) -> None:
        super().start_test(what, batches)
        if self._has_epoch:
            self._bar.set_postfix_str(f"{self._shown}  {what} ...".strip(), refresh=True)
        else:
            self._test, self._tested = (what, batches), 0
            self._show_test()

    def test_step(self, samples: int) -> None:
        super().test_step(samples)
        if not self._has_epoch:
            self._tested += 1
            self._show_test()

    def _show_test(self) -> None:
        """Bring the bar of an evaluation up to date; it appears once that is due."""
        if self._bar is None and self.is_due():
            what, batches = self._test
            self._open(what, batches, self._tested)
        elif self._bar is not None:
            self._bar.update(self._tested - self._bar.n)

    def end_test(self, what: str, logs: Mapping[str, float]) -> None:
        if not self._has_epoch and self._bar is not None:
            self._show(*values(logs), self.rate())
            self.close()

    def end_epoch(self, logs: Mapping[str, float]) -> None:
        super().end_epoch(logs)
        self._show(*values(logs), self.rate(), self.time_left())
        self.close()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def _open(self, what: str, total: int | None, done: int) -> None:
        self.close()
        self._shown = ""
        alive = in_notebook() or self._stream.isatty()
        self._bar = bar_class()(
            desc=what,
            total=total,
            initial=done,
            file=self._stream,
            unit="step",
            dynamic_ncols=True,
            miniters=1,
            mininterval=REDRAW_SECONDS if alive else REDRAW_SECONDS_IN_FILE,
            bar_format="{desc}: {percentage:3.0f}%|{bar:10}| {n_fmt}/{total_fmt} "
            "[{elapsed}<{remaining}{postfix}]",
        )

    def _show(self, *parts: str) -> None:
        self._shown = "  ".join(part for part in parts if part)
        self._bar.set_postfix_str(self._shown, refresh=False)


def values(logs: Mapping[str, float]) -> list[str]:
    """['loss 0.2345', 'accuracy 0.9321', 'lr 0.00095']: the learning rate last."""
    names = [name for name in logs if name != "learning_rate"]
    texts = [f"{name} {number_text(logs[name])}" for name in names]
    if "learning_rate" in logs:
        texts.append(f"lr {float(logs['learning_rate']):.3g}")
    return texts


def number_text(value: float) -> str:
    """Four decimals where they say something, else four digits and a power of ten."""
    value = float(value)
    plain = value == 0 or not math.isfinite(value) or 1e-3 <= abs(value) < 1e5
    return f"{value:.4f}" if plain else f"{value:.3e}"


def seconds_text(seconds: float) -> str:
    """'12.3 s' below 100 seconds, else '2:05'."""
    return f"{seconds:.1f} s" if seconds < 100 else duration(seconds)


def duration(seconds: float) -> str:
    """Hours, minutes and seconds: '1:26' or '2:03:07'."""
    whole = round(seconds)
    minutes, rest = divmod(whole, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
