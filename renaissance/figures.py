"""Pictures as PNG files: curves, a matrix, bars, a grid of pictures; drawn with matplotlib.

Figures are made without pyplot, so that neither its current figure nor its backend is touched.
matplotlib is not required to train; what draws without it says how to get it.
"""

from __future__ import annotations

import math
import os
import pathlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

COLOURS = ("#1f6feb", "#e36209", "#2da44e", "#8250df", "#bf8700", "#cf222e", "#57606a", "#1b7c83")
INK, FAINT = "#24292f", "#8c959f"


@dataclass(frozen=True)
class Line:
    """One curve: ``y`` over ``x``. Where ``y`` is NaN there is a gap, marked on the axis.

    ``ends_in_label``: the last value stands behind the label.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    colour: str = COLOURS[0]
    is_dashed: bool = False
    ends_in_label: bool = True


@dataclass(frozen=True)
class Panel:
    """One pair of axes with its lines."""

    title: str
    lines: Sequence[Line]


def new_figure(
    width: float, height: float, *, layout: Literal["constrained"] | None = "constrained"
) -> Any:
    """A matplotlib Figure of so many inches, at 150 dots an inch.

    Args:
        width, height: In inches.
        layout: What makes room for the texts beside the axes. "constrained" measures them, which
            takes longer than to draw them; with None the caller does it.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "pictures are drawn with matplotlib, which is not installed; "
            "pip install 'renaissance[demo]' brings it"
        ) from error
    return Figure(figsize=(width, height), dpi=150, layout=layout, facecolor="white")


def save(figure: Any, path: str | os.PathLike[str]) -> pathlib.Path:
    """Write the figure as PNG, making the folders above it; returns the path."""
    place = pathlib.Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(place, format="png")
    return place


def draw_panels(
    panels: Sequence[Panel], path: str | os.PathLike[str], *, title: str = "", x_label: str = ""
) -> pathlib.Path:
    """Curves in panels, two or three in a row; a line is labelled with its last value."""
    columns = {1: 1, 2: 2, 4: 2}.get(len(panels), 3)
    rows = math.ceil(len(panels) / columns)
    figure = new_figure(max(5.5, 4.6 * columns), 3.3 * rows + (0.32 if title else 0.0), layout=None)
    grid = figure.subplots(rows, columns, squeeze=False, gridspec_kw=_room(figure, rows, columns))
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes, panel in zip(grid.flat, panels):
        _draw_panel(axes, panel, x_label)
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=12, color=INK)
    return save(figure, path)


def _room(figure: Any, rows: int, columns: int) -> dict[str, float]:
    """Where panels lie: numbers of five digits fit at their left, a title and a power of ten above.

    All texts have a known size, so that none needs to be measured.
    """
    left, right, beside = 0.65, 0.15, 0.7  # inches
    below, above, between = 0.5, 0.42, 0.95
    width, height = figure.get_size_inches()
    below_top = above + height - 3.3 * rows
    panel_width = (width - left - right - (columns - 1) * beside) / columns
    panel_height = (height - below - below_top - (rows - 1) * between) / rows
    return {
        "left": left / width,
        "right": 1 - right / width,
        "bottom": below / height,
        "top": 1 - below_top / height,
        "wspace": beside / panel_width,
        "hspace": between / panel_height,
    }


def _draw_panel(axes: Any, panel: Panel, x_label: str) -> None:
    axes.set_title(panel.title, loc="left", y=1.0, fontsize=10.5, color=INK)  # all at one height
    axes.set_xlabel(x_label, fontsize=9, color=INK)
    quieten(axes)
    axes.grid(alpha=0.25, linewidth=0.7)
    for line in panel.lines:
        y = np.asarray(line.y, dtype=np.float64)
        finite = np.isfinite(y)
        few = 1 <= finite.sum() <= 12
        axes.plot(
            line.x,
            np.where(finite, y, np.nan),
            color=line.colour,
            linewidth=1.7,
            linestyle="--" if line.is_dashed else "-",
            marker="o" if few else None,
            markersize=3.5,
            label=_with_last_value(line.label, y) if line.ends_in_label else line.label,
        )
    gaps = sorted(
        {x for line in panel.lines for x, y in zip(line.x, line.y) if not math.isfinite(y)}
    )
    for place in gaps:
        label = "not finite" if place == gaps[0] else None
        axes.axvline(place, color="#cf222e", linewidth=1.0, alpha=0.4, label=label)
    axes.legend(fontsize=8.5, frameon=False, loc="best", labelcolor=INK)
    _ticks(axes)


def _with_last_value(label: str, y: npt.NDArray[np.float64]) -> str:
    return f"{label}  {y[-1]:.4g}"


def quieten(axes: Any) -> None:
    """No frame on top and right, small grey ticks."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.spines[["left", "bottom"]].set_color(FAINT)
    axes.tick_params(labelsize=8.5, colors=INK, color=FAINT)


def _ticks(axes: Any) -> None:
    """Whole numbers below (epochs, steps), a common power of ten for small values at the left."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(
        MaxNLocator(integer=True, nbins=8, steps=[1, 2, 5, 10], min_n_ticks=1)
    )
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 5), useMathText=False)
    axes.yaxis.get_offset_text().set(x=-0.02, fontsize=8.5, ha="right")  # above its numbers


def draw_matrix(
    counts: npt.NDArray[np.int64],
    names: Sequence[str],
    path: str | os.PathLike[str],
    *,
    title: str = "",
) -> pathlib.Path:
    """A confusion matrix: rows are true classes, shaded by share of the row, counts written in."""
    size = len(names)
    side = min(24.0, max(4.8, 0.46 * size + 2.2))
    figure = new_figure(side + 0.8, side)
    axes = figure.add_subplot()
    totals = counts.sum(axis=1, keepdims=True)
    shares = counts / np.maximum(totals, 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    bar = figure.colorbar(image, ax=axes, fraction=0.046, pad=0.02)
    bar.set_label("share of the true class", fontsize=9, color=INK)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8.5, colors=INK)
    if size <= 40:
        for row, column in np.argwhere(counts > 0):
            dark = shares[row, column] > 0.55
            axes.text(
                column,
                row,
                f"{counts[row, column]:,}",
                ha="center",
                va="center",
                fontsize=7.5,
                color="white" if dark else INK,
            )
        if max(map(len, names)) <= 3:
            axes.set_xticks(range(size), names)
        else:
            axes.set_xticks(range(size), names, rotation=45, ha="right", rotation_mode="anchor")
        axes.set_yticks(range(size), names)
    axes.set_xlabel("predicted", fontsize=10, color=INK)
    axes.set_ylabel("true", fontsize=10, color=INK)
    axes.tick_params(labelsize=8.5, colors=INK, length=0)
    axes.spines[:].set_visible(False)
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    return save(figure, path)


def draw_bars(
    values: Sequence[float],
    names: Sequence[str],
    path: str | os.PathLike[str],
    *,
    title: str = "",
    mark: float | None = None,
) -> pathlib.Path:
    """Horizontal bars from 0 to 1, one a name, with the value at the right; ``mark`` is a line."""
    figure = new_figure(7.0, max(2.2, 0.27 * len(names) + 1.0))
    axes = figure.add_subplot()
    places = np.arange(len(names))
    shown = np.nan_to_num(np.asarray(values, dtype=np.float64))
    axes.barh(places, shown, height=0.68, color=COLOURS[0], alpha=0.85)
    for place, value in zip(places, values):
        text = "no samples" if math.isnan(value) else f"{100 * value:.1f} %"
        axes.text(1.02, place, text, va="center", fontsize=8.5, color=INK)
    if mark is not None:
        axes.axvline(mark, color=INK, linewidth=0.9, linestyle=":")
    axes.set_yticks(places, names)
    axes.set(xlim=(0, 1.0), ylim=(len(names) - 0.4, -0.6))
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1.0], ["0", "25 %", "50 %", "75 %", "100 %"])
    axes.set_title(title, loc="left", fontsize=11, color=INK)
    quieten(axes)
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    return save(figure, path)


def draw_pictures(
    pictures: npt.NDArray[Any],
    captions: Sequence[str],
    path: str | os.PathLike[str],
    *,
    columns: int,
    title: str = "",
) -> pathlib.Path:
    """A grid of pictures with a caption under each.

    Args:
        pictures: (N, H, W, C) or (N, H, W), uint8, or float from 0 to 1 (clipped to it).
        captions: N texts; may be empty ones.
        path: The PNG.
        columns: Pictures in a row.
        title: A line above all.
    """
    rows = math.ceil(len(pictures) / columns)
    aspect = pictures.shape[1] / pictures.shape[2]
    caption_lines = max(caption.count("\n") + 1 if caption else 0 for caption in captions)
    cell = 1.25
    height = rows * (cell * aspect + 0.06 + 0.15 * caption_lines) + (0.5 if title else 0.1)
    figure = new_figure(max(3.0, columns * (cell + 0.08)), height)
    figure.get_layout_engine().set(w_pad=0.02, h_pad=0.02, wspace=0.02, hspace=0.02)
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat:
        axes.set_axis_off()
    for axes, picture, caption in zip(grid.flat, pictures, captions):
        flat = picture[..., 0] if picture.ndim == 3 and picture.shape[-1] == 1 else picture
        shown = flat if flat.dtype == np.uint8 else np.clip(flat, 0.0, 1.0)
        axes.imshow(shown, cmap="gray", vmin=0, vmax=255 if flat.dtype == np.uint8 else 1)
        axes.text(0.5, -0.04, caption, ha="center", va="top", fontsize=7, color=INK,
                  transform=axes.transAxes)  # fmt: skip
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=11, color=INK)
    return save(figure, path)
