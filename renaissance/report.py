"""What a trained network gets right and wrong, and how runs compare: tables and pictures.

Everything here takes arrays and tables and knows nothing of tasks.
"""

from __future__ import annotations

import csv
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from renaissance.figures import (
    COLOURS,
    Line,
    Panel,
    draw_bars,
    draw_matrix,
    draw_panels,
    draw_pictures,
)

Rows = Sequence[Mapping[str, float]]
Path = str | os.PathLike[str]


class ClassReport:
    """Predictions against truth, class by class.

    The predicted class is the highest score, of equal ones the first; a sample with a NaN among
    its scores is wrong, whatever the others are. That is the definition of accuracy everywhere.

    Args:
        targets: True classes, (N,) integers from 0.
        scores: Raw outputs or probabilities, (N, K).
        classes: K names; numbers by default.

    Attributes:
        counts: (K, K) int64, row: true class, column: predicted one; NaN samples are in none.
        totals: (K,) int64, samples of each true class.
        predicted: (N,) int64, -1 where a score is NaN.

    Raises:
        ValueError: shapes that do not fit, or a target outside of 0 to K-1.
    """

    def __init__(
        self,
        targets: npt.ArrayLike,
        scores: npt.ArrayLike,
        classes: Sequence[str] | None = None,
    ) -> None:
        truth, outputs = np.asarray(targets), np.asarray(scores, dtype=np.float64)
        if outputs.ndim != 2 or truth.shape != outputs.shape[:1] or len(truth) == 0:
            raise ValueError(
                f"class report: targets {truth.shape} and scores {outputs.shape} do not fit; "
                "they must be (N,) and (N, K), N at least 1"
            )
        size = outputs.shape[1]
        if truth.min() < 0 or truth.max() >= size:
            raise ValueError(
                f"class report: targets go from {truth.min()} to {truth.max()}, but there are "
                f"scores for {size} classes, 0 to {size - 1}"
            )
        self.classes = [str(k) for k in range(size)] if classes is None else list(classes)
        if len(self.classes) != size:
            raise ValueError(f"class report: {len(self.classes)} names for {size} classes")
        self.targets = truth.astype(np.int64)
        self.scores = outputs
        self.predicted = np.where(np.isnan(outputs).any(axis=1), -1, outputs.argmax(axis=1)).astype(
            np.int64
        )
        valid = self.predicted >= 0
        pairs = self.targets[valid] * size + self.predicted[valid]
        self.counts = np.bincount(pairs, minlength=size * size).reshape(size, size)
        self.totals = np.bincount(self.targets, minlength=size)

    @property
    def accuracy(self) -> float:
        """Share of samples predicted right."""
        return float(self.counts.trace() / len(self.targets))

    @property
    def per_class(self) -> npt.NDArray[np.float64]:
        """Share predicted right of each class, (K,); NaN for one without samples."""
        share = self.counts.diagonal() / np.maximum(self.totals, 1)
        return np.where(self.totals > 0, share, math.nan)

    def mistakes(self) -> npt.NDArray[np.int64]:
        """Samples predicted wrong, those with the surest wrong answers first; NaN ones last."""
        wrong = np.flatnonzero(self.predicted != self.targets)
        sureness = np.nan_to_num(self.confidence()[wrong], nan=-1.0)
        return wrong[np.argsort(-sureness, kind="stable")]

    def confidence(self) -> npt.NDArray[np.float64]:
        """Softmax probability of the predicted class, (N,)."""
        shifted = np.exp(self.scores - self.scores.max(axis=1, keepdims=True))
        return np.asarray(shifted.max(axis=1) / shifted.sum(axis=1))

    def to_text(self) -> str:
        """A table: samples, accuracy and the most frequent wrong answer of each class."""
        rows = [["class", "samples", "accuracy", "most often taken for"]]
        for k, name in enumerate(self.classes):
            share = f"{100 * self.per_class[k]:.2f} %" if self.totals[k] else "-"
            wrong = self.counts[k].copy()
            wrong[k] = 0
            other = f"{self.classes[wrong.argmax()]} ({wrong.max():,})" if wrong.any() else ""
            rows.append([name, f"{self.totals[k]:,}", share, other])
        rows.append(["all", f"{len(self.targets):,}", f"{100 * self.accuracy:.2f} %", ""])
        return table(rows, left=(0, 3))

    def plot_confusion(self, path: Path) -> pathlib.Path:
        """The confusion matrix as a PNG."""
        title = f"{100 * self.accuracy:.2f} % of {len(self.targets):,} right"
        return draw_matrix(self.counts, self.classes, path, title=title)

    def plot_per_class(self, path: Path) -> pathlib.Path:
        """Accuracy of each class as bars, a PNG; the line is the accuracy over all."""
        title = f"accuracy of each class ({100 * self.accuracy:.2f} % over all)"
        return draw_bars(
            self.per_class.tolist(), self.classes, path, title=title, mark=self.accuracy
        )

    def plot_mistakes(
        self,
        pictures: Any,
        path: Path,
        *,
        count: int = 25,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> pathlib.Path:
        """The surest mistakes as a PNG: picture, true class, predicted class and probability.

        Args:
            pictures: All N pictures in the order of the targets, as `plot_pictures` takes them.
            path: The PNG.
            count: How many at most.
            mean, std: As `plot_pictures`.
        """
        chosen = self.mistakes()[:count]
        if len(chosen) == 0:
            raise ValueError(f"class report: all {len(self.targets):,} are right; nothing to draw")
        sure = self.confidence()
        captions = [
            f"{self.classes[self.targets[i]]}, not\n{self._answer(int(i))} ({100 * sure[i]:.0f} %)"
            for i in chosen
        ]
        wrong = int((self.predicted != self.targets).sum())
        title = f"{len(chosen)} of {wrong:,} mistakes, the surest first"
        shown = np.asarray(pictures)[chosen]
        return plot_pictures(shown, path, captions=captions, title=title, mean=mean, std=std)

    def _answer(self, index: int) -> str:
        return self.classes[self.predicted[index]] if self.predicted[index] >= 0 else "NaN"


def plot_pictures(
    pictures: Any,
    path: Path,
    *,
    captions: Sequence[str] | None = None,
    columns: int | None = None,
    title: str = "",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> pathlib.Path:
    """A grid of pictures as a PNG.

    Args:
        pictures: (N, H, W), (N, H, W, C) or (N, C, H, W) with 1 or 3 channels, NumPy or torch;
            uint8, or floats as the network sees them.
        path: The PNG.
        captions: N texts.
        columns: Pictures in a row; as square as possible by default.
        title: A line above all.
        mean, std: What `Normalize` took, to undo it. Floats without them are stretched from their
            smallest to their largest value, over all pictures together.
    """
    shown = as_pictures(pictures, mean, std)
    texts = list(captions) if captions is not None else [""] * len(shown)
    if len(texts) != len(shown):
        raise ValueError(f"pictures: {len(texts)} captions for {len(shown)} pictures")
    columns = columns or min(len(shown), max(4, math.ceil(math.sqrt(len(shown)))))
    return draw_pictures(shown, texts, path, columns=columns, title=title)


def as_pictures(
    pictures: Any, mean: Sequence[float] | None = None, std: Sequence[float] | None = None
) -> npt.NDArray[Any]:
    """(N, H, W, C) as it is when uint8, else floats from 0 to 1; see `plot_pictures`."""
    if hasattr(pictures, "detach"):
        pictures = pictures.detach().float().cpu() if pictures.is_floating_point() else pictures
    array = np.asarray(pictures)
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim == 4 and array.shape[-1] not in (1, 3) and array.shape[1] in (1, 3):
        array = array.transpose(0, 2, 3, 1)
    if array.ndim != 4 or array.shape[-1] not in (1, 3) or len(array) == 0:
        raise ValueError(
            f"pictures: an array of shape {np.shape(pictures)} is not allowed; it must be "
            "(N, H, W), (N, H, W, C) or (N, C, H, W) with 1 or 3 channels, N at least 1"
        )
    if array.dtype == np.uint8:
        return array
    array = array.astype(np.float64)
    if mean is not None and std is not None:
        return np.asarray(np.clip(array * np.asarray(std) + np.asarray(mean), 0.0, 1.0))
    low, high = np.nanmin(array), np.nanmax(array)
    return np.asarray((array - low) / max(float(high - low), 1e-12))


def read_metrics(path: Path) -> list[dict[str, float]]:
    """The rows of a ``metrics.csv``, one an epoch; of rows for the same epoch the last counts.

    Part of a last row, which a killed process left, is passed over.
    """
    text = pathlib.Path(path).read_text(encoding="utf-8")
    found = list(csv.DictReader(text.splitlines()))
    if found and not text.endswith("\n") and not _is_whole(found[-1]):
        found.pop()
    rows = [{name: float(cell) for name, cell in row.items() if name and cell} for row in found]
    by_epoch = {row["epoch"]: row for row in rows if "epoch" in row}
    return [by_epoch[epoch] for epoch in sorted(by_epoch)]


def _is_whole(row: Mapping[str, str | None]) -> bool:
    """Whether a row has all its fields, each a number or empty."""
    try:
        for cell in row.values():
            float(cell or 0)
    except ValueError:
        return False
    return None not in row.values()


def compare(runs: Mapping[str, Rows]) -> str:
    """A table of runs: epochs, the best of what is judged by, and each last value.

    Args:
        runs: Name -> one mapping an epoch with "epoch" and values, as `History.rows` gives.

    ``*`` marks the best run of a column; accuracies count upwards, everything else downwards.
    """
    names = _metric_names(runs)
    judge = next((n for n in ("val_accuracy", "val_loss", "accuracy", "loss") if n in names), None)
    head = ["run", "epochs"]
    columns: list[tuple[str, dict[str, float], dict[str, str]]] = []
    if judge is not None:
        head.append(f"best {judge} (epoch)")
        columns.append(_best_column(runs, judge))
    for name in names:
        head.append(name)
        last = {run: _last(rows, name) for run, rows in runs.items()}
        columns.append((name, last, {run: _cell(value) for run, value in last.items()}))
    winners = [_winners(name, values) for name, values, _ in columns]
    rows = [head]
    for run, epochs in runs.items():
        cells = [
            texts[run] + (" *" if run in best else "  ")
            for (_, _, texts), best in zip(columns, winners)
        ]
        rows.append([run, str(len(epochs)), *cells])
    return table(rows, left=(0,))


def plot_compare(runs: Mapping[str, Rows], path: Path, *, title: str = "") -> pathlib.Path:
    """The values of several runs by epoch, one colour a run, as a PNG."""
    panels = []
    for name in _metric_names(runs):
        lines = []
        for number, (run, rows) in enumerate(runs.items()):
            having = [row for row in rows if name in row]
            if having:
                epochs = [row["epoch"] + 1 for row in having]
                colour = COLOURS[number % len(COLOURS)]
                dashed = number >= len(COLOURS)
                lines.append(Line(run, epochs, [row[name] for row in having], colour, dashed))
        words = name.removeprefix("val_").replace("_", " ")
        panels.append(Panel(f"validation {words}" if name.startswith("val_") else words, lines))
    if not panels:
        raise ValueError("compare: none of the runs has an epoch; nothing to draw")
    return draw_panels(panels, path, title=title, x_label="epoch")


def _metric_names(runs: Mapping[str, Rows]) -> list[str]:
    """Names with a value in some run, validation first; epoch, steps, learning rate left out."""
    names = dict.fromkeys(name for rows in runs.values() for row in rows for name in row)
    bare = [name for name in names if name not in ("epoch", "steps", "learning_rate")]
    return sorted(bare, key=lambda name: not name.startswith("val_"))


def _last(rows: Rows, name: str) -> float:
    return next((float(row[name]) for row in reversed(rows) if name in row), math.nan)


def _cell(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4f}"


def _rises(name: str) -> bool:
    return "loss" not in name and "error" not in name


def _best_column(
    runs: Mapping[str, Rows], name: str
) -> tuple[str, dict[str, float], dict[str, str]]:
    values, texts = {}, {}
    for run, rows in runs.items():
        found = [
            (row[name], row["epoch"]) for row in rows if not math.isnan(row.get(name, math.nan))
        ]
        pick = (max if _rises(name) else min)(found, key=lambda pair: pair[0], default=None)
        values[run] = math.nan if pick is None else float(pick[0])
        texts[run] = "-" if pick is None else f"{_cell(pick[0])} ({pick[1] + 1:.0f})"
    return name, values, texts


def _winners(name: str, values: Mapping[str, float]) -> set[str]:
    """The runs with the best value, when more than one has a value."""
    finite = {run: value for run, value in values.items() if not math.isnan(value)}
    if len(finite) < 2:
        return set()
    best = (max if _rises(name) else min)(finite.values())
    return {run for run, value in finite.items() if value == best}


def table(rows: Sequence[Sequence[str]], left: Sequence[int] = ()) -> str:
    """Rows of cells in columns, the first row underlined; numbers to the right, ``left`` not."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column in left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ]
        lines.append("  ".join(cells).rstrip())
    lines.insert(1, "-" * (sum(widths) + 2 * len(widths) - 2))
    return "\n".join(lines) + "\n"
