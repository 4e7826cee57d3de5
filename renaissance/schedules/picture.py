"""The picture of a learning-rate schedule."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence

from renaissance.figures import COLOURS, INK, new_figure, quieten, save


def draw_rates(
    path: str | os.PathLike[str], rates: Sequence[float], steps_per_epoch: int, title: str
) -> pathlib.Path:
    """Draw a learning rate by step into a PNG, first, highest and last value marked.

    Raises:
        ModuleNotFoundError: matplotlib is not installed.
    """
    figure, colour = new_figure(8.0, 4.2), COLOURS[0]
    axes = figure.add_subplot()
    steps = range(len(rates))
    axes.plot(steps, rates, color=colour, linewidth=1.8, drawstyle="steps-post")
    axes.fill_between(steps, rates, color=colour, alpha=0.08, step="post", linewidth=0)
    highest = max(steps, key=rates.__getitem__)
    for step in sorted({0, highest, steps[-1]}):
        is_right = step > len(rates) / 2
        axes.plot([step], [rates[step]], "o", color=colour, markersize=4, clip_on=False)
        axes.annotate(
            f"{rates[step]:.3g}",
            (step, rates[step]),
            textcoords="offset points",
            xytext=(-7 if is_right else 7, 6),
            ha="right" if is_right else "left",
            fontsize=9,
            color=INK,
        )
    axes.set(xlabel="step", ylabel="learning rate", xlim=(0, max(1, steps[-1])))
    axes.set_ylim(0, 1.15 * max(rates) or 1.0)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 5), useMathText=True)
    axes.set_title(title, fontsize=9, loc="left", wrap=True, color=INK)
    axes.grid(alpha=0.25, linewidth=0.7)
    quieten(axes)
    if 1 < steps_per_epoch < len(rates):
        epochs = axes.twiny()
        epochs.set(xlim=[x / steps_per_epoch for x in axes.get_xlim()], xlabel="epoch")
        epochs.xaxis.set_ticks_position("bottom")
        epochs.xaxis.set_label_position("bottom")
        epochs.spines["bottom"].set_position(("outward", 38))
        quieten(epochs)
    return save(figure, path)
