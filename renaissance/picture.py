"""Pictures of learning-rate schedules, drawn with matplotlib if it is installed."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence

_BLUE = "#1f6feb"


def draw_rates(
    path: pathlib.Path, rates: Sequence[float], steps_per_epoch: int, title: str
) -> pathlib.Path:
    """Draw a learning rate by step into a file, first, highest and last value marked.

    Nothing global is touched: neither pyplot's current figure nor its backend.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            "plot() draws with matplotlib, which is not installed; pip install 'renaissance[demo]' "
            "brings it, and simulate() gives the numbers without it"
        ) from error
    figure = Figure(figsize=(8, 4.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    steps = range(len(rates))
    axes.plot(steps, rates, color=_BLUE, linewidth=1.8, drawstyle="steps-post")
    axes.fill_between(steps, rates, color=_BLUE, alpha=0.08, step="post", linewidth=0)
    highest = max(steps, key=rates.__getitem__)
    for step in sorted({0, highest, steps[-1]}):
        is_right = step > len(rates) / 2
        axes.plot([step], [rates[step]], "o", color=_BLUE, markersize=4, clip_on=False)
        axes.annotate(
            f"{rates[step]:.3g}",
            (step, rates[step]),
            textcoords="offset points",
            xytext=(-7 if is_right else 7, 6),
            ha="right" if is_right else "left",
            fontsize=9,
        )
    axes.set(xlabel="step", ylabel="learning rate", xlim=(0, max(1, steps[-1])))
    axes.set_ylim(0, 1.15 * max(rates) or 1.0)
    axes.set_title(title, fontsize=9, loc="left", wrap=True)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if 1 < steps_per_epoch < len(rates):
        epochs = axes.twiny()
        epochs.set(xlim=[x / steps_per_epoch for x in axes.get_xlim()], xlabel="epoch")
        epochs.xaxis.set_ticks_position("bottom")
        epochs.xaxis.set_label_position("bottom")
        epochs.spines["bottom"].set_position(("outward", 38))
        epochs.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
    return path
