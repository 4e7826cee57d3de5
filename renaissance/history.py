"""What training has measured, epoch by epoch: the object that `fit` returns."""

from __future__ import annotations

import csv
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from renaissance.figures import COLOURS, Line, Panel, draw_panels


class History:
    """The epochs of a run, under Keras' names; a resumed run appends to it.

    Attributes:
        epoch: Index of each closed epoch, from 0.
        steps: Attempted steps at the end of each.
        params: What fit was told: epochs, steps, metrics ...

    Example:
        >>> history = task.fit(epochs=10)
        >>> history.history["val_accuracy"][-1]
    """

    def __init__(self) -> None:
        self.epoch: list[int] = []
        self.steps: list[int] = []
        self.params: dict[str, Any] = {}
        self._rows: list[dict[str, float]] = []

    def __len__(self) -> int:
        return len(self.epoch)

    def __repr__(self) -> str:
        return f"History({len(self)} epochs: {', '.join(self.names()) or 'nothing yet'})"

    def append(self, epoch: int, steps: int, logs: Mapping[str, float]) -> None:
        """One closed epoch.

        Args:
            epoch: Its index, from 0.
            steps: Attempted steps at its end.
            logs: Its values by name; NaN is kept.
        """
        if self.epoch and epoch <= self.epoch[-1]:
            raise RuntimeError(
                f"history: epoch {epoch} is there already (the last one is {self.epoch[-1]}); "
                "task.reset() starts a new history"
            )
        self._rows.append({str(name): float(value) for name, value in logs.items()})
        self.epoch.append(int(epoch))
        self.steps.append(int(steps))

    def names(self) -> list[str]:
        """Every name that has a value in some epoch, in order of appearance."""
        return list(dict.fromkeys(name for row in self._rows for name in row))

    @property
    def history(self) -> dict[str, list[float]]:
        """Name -> its values, one for each epoch that has one (``val_*``: those validated)."""
        return {name: [r[name] for r in self._rows if name in r] for name in self.names()}

    def epochs_of(self, name: str) -> list[int]:
        """The epochs of the values ``history[name]``."""
        return [epoch for epoch, row in zip(self.epoch, self._rows) if name in row]

    def rows(self) -> list[dict[str, float]]:
        """One mapping an epoch: ``{"epoch": 0, "steps": 469, "loss": ...}``."""
        return [
            {"epoch": epoch, "steps": steps, **row}
            for epoch, steps, row in zip(self.epoch, self.steps, self._rows)
        ]

    def to_csv(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Write a table, one row an epoch; numbers keep every bit, what is absent stays empty."""
        place = pathlib.Path(path)
        place.parent.mkdir(parents=True, exist_ok=True)
        with open(place, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, ["epoch", "steps", *self.names()], lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows())
        return place

    def plot(self, path: str | os.PathLike[str], *, title: str = "") -> pathlib.Path:
        """Draw every value by epoch as a PNG: training and validation in one panel.

        Raises:
            RuntimeError: No epoch has ended yet.
            ModuleNotFoundError: matplotlib is not installed.
        """
        if not self._rows:
            raise RuntimeError("history.plot: no epoch has ended yet, there is nothing to draw")
        bare = dict.fromkeys(name.removeprefix("val_") for name in self.names())
        last = [name for name in bare if name == "learning_rate"]
        names = [name for name in bare if name not in last] + last
        panels = [Panel(name.replace("_", " "), self._lines(name)) for name in names]
        return draw_panels(panels, path, title=title, x_label="epoch")

    def _lines(self, name: str) -> list[Line]:
        values = self.history
        alone = name == "learning_rate"
        pair = [
            (name, "last" if alone else "train", COLOURS[2] if alone else COLOURS[0]),
            (f"val_{name}", "validation", COLOURS[1]),
        ]
        return [
            Line(label, [epoch + 1 for epoch in self.epochs_of(key)], values[key], colour)
            for key, label, colour in pair
            if key in values
        ]

    def state_dict(self) -> dict[str, Any]:
        """Everything, in lists and numbers; `load_state_dict` gives an equal history."""
        return {"params": dict(self.params), "rows": self.rows()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Replace what is here by what `state_dict` gave."""
        rows: Sequence[Mapping[str, float]] = state["rows"]
        self.params = dict(state["params"])
        self.epoch = [int(row["epoch"]) for row in rows]
        self.steps = [int(row["steps"]) for row in rows]
        self._rows = [
            {name: float(value) for name, value in row.items() if name not in ("epoch", "steps")}
            for row in rows
        ]
