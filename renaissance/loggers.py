"""Callbacks that write the logs to files: a table of epochs, lines of steps, TensorBoard.

Files are appended to: a resumed run goes on in the same ones. What it does again, because its
checkpoint was older than the last line, it does with the same bits, and a line that is there
already is not written twice. Nothing is taken away but part of a last line, which a killed process
or a full disk left. Where such a line has all its fields it is kept, for it may be one that was
edited by hand, until the same row is written again: half a number can look like a whole one.
"""

from __future__ import annotations

import contextlib
import csv
import json
import math
import os
import pathlib
import time
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from renaissance.hooks import Callback, Phase
from renaissance.logs import Logs
from renaissance.wording import telling_names


class FileLogger(Callback):
    """What the loggers share: a place, in the task's run_dir by default.

    Args:
        path: The file or folder; None puts it under its usual name into the task's run_dir.
    """

    phase = Phase.RECORDS
    main_only = True
    usual_name = ""

    @telling_names(
        filename="write path",
        log_dir="write path",
        save_dir="write path",
        append="files are appended to, never replaced",
        update_freq="fit(log_every=50) says after how many steps",
    )
    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = None if path is None else pathlib.Path(path)

    def place(self) -> pathlib.Path:
        """Where to write.

        Raises:
            RuntimeError: No path was given and the task has no run_dir.
        """
        if self.path is not None:
            return self.path
        if self.task.run_dir is None:
            kind = type(self).__name__
            raise RuntimeError(
                f"{kind}: there is no place to write to; give Task(run_dir=...) or "
                f"{kind}({self.usual_name!r})"
            )
        return pathlib.Path(self.task.run_dir) / self.usual_name


@contextlib.contextmanager
def named_errors(place: pathlib.Path) -> Iterator[None]:
    """Puts the file into an error of writing, which the system leaves out: a full disk, say."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(place)) from error


class CSVLogger(FileLogger):
    """One row an epoch: epoch (from 0), steps (attempted so far), then the epoch's logs by name.

    Numbers keep every bit, NaN is written ``nan``, and what an epoch does not have (``val_loss``
    without validation) stays empty. A name that appears later gets a column of its own.

    Args:
        path: The file; ``metrics.csv`` in the task's run_dir by default.
    """

    usual_name = "metrics.csv"

    def on_train_begin(self, logs: Logs) -> None:
        place = self.place()
        place.parent.mkdir(parents=True, exist_ok=True)
        self._columns, self._rows, self._last = _read_table(place)

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        row = {"epoch": str(epoch), "steps": str(self.task.attempted_steps)}
        row |= {name: repr(float(value)) for name, value in logs.items()}
        if self._rows.get(row["epoch"]) == row:
            return
        expected = {"epoch": "", "steps": ""} | dict.fromkeys(self.params.get("metrics", ()), "")
        columns = list(dict.fromkeys([*self._columns, *expected, *row]))
        place = self.place()
        self._end_last(place, row)
        if columns != self._columns:
            _widen(place, columns)
            self._columns = columns
        with named_errors(place), open(place, "a", newline="", encoding="utf-8") as file:
            csv.DictWriter(file, columns, lineterminator="\n").writerow(row)
        self._rows[row["epoch"]] = row

    def _end_last(self, place: pathlib.Path, row: Mapping[str, str]) -> None:
        """The last line's missing end; if it is part of the row to come, that takes its place."""
        last, self._last = self._last, ""
        with named_errors(place):
            if last and ",".join(row.get(name, "") for name in self._columns).startswith(last):
                os.truncate(place, place.stat().st_size - len(last.encode()))
            elif last:
                with open(place, "a", encoding="utf-8") as file:
                    file.write("\n")
                known = dict(zip(self._columns, last.split(",")))
                self._rows[known["epoch"]] = {name: cell for name, cell in known.items() if cell}


def _read_table(place: pathlib.Path) -> tuple[list[str], dict[str, dict[str, str]], str]:
    """The columns, each epoch's last row without its empty cells, and a whole row without an end.

    A last line that is less than a row is taken away.
    """
    data = place.read_bytes() if place.exists() else b""
    end = data.rfind(b"\n") + 1
    text, whole = data.decode("utf-8", "replace"), data[:end].decode("utf-8", "replace")
    reader = csv.DictReader(whole.splitlines() or text.splitlines())
    columns = list(reader.fieldnames or ())
    if text and columns[:2] != ["epoch", "steps"] and not "epoch,steps".startswith(text):
        raise ValueError(
            f"CSVLogger: {place} is there and is another table (its columns are "
            f"{', '.join(columns)}); a table of epochs begins with epoch, steps. "
            "Give another path or move it away"
        )
    last = data[end:].decode("utf-8", "replace")
    if not whole or not _is_row(last, len(columns)):
        last = ""
        if end < len(data):
            os.truncate(place, end)
    if not whole:
        return [], {}, ""
    rows = ({name: cell for name, cell in row.items() if name and cell} for row in reader)
    return columns, {row["epoch"]: row for row in rows if "epoch" in row}, last


def _is_row(line: str, columns: int) -> bool:
    """Whether a line has all fields of a row, each a number or empty: epoch, steps and the logs."""
    epoch, *cells = line.split(",")
    return (
        len(cells) == columns - 1
        and all(map(str.isdecimal, (epoch, cells[0])))
        and all(map(_is_cell, cells[1:]))
    )


def _is_cell(text: str) -> bool:
    try:
        return text == "" or math.isfinite(float(text)) or text in ("nan", "inf", "-inf")
    except ValueError:
        return False


def _widen(place: pathlib.Path, columns: list[str]) -> None:
    """Write the header anew and the rows as they are below it, in one rename."""
    rows: list[dict[str, str]] = []
    if place.exists():
        with open(place, newline="", encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
    new = place.with_name(place.name + ".new")
    with open(new, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    os.replace(new, place)


class JSONLogger(FileLogger):
    """One JSON object a line for every ``log_every``-th step.

    ``{"step": 50, "epoch": 0, "loss": 0.69, "learning_rate": 0.001, "time": 1764450000.123}``:
    attempted steps so far, the running epoch (from 0), the step's logs, seconds since 1970. Values
    that JSON does not have are the texts "nan", "inf" and "-inf".

    Args:
        path: The file; ``steps.jsonl`` in the task's run_dir by default.
    """

    usual_name = "steps.jsonl"
    _file: TextIO | None = None

    def on_train_begin(self, logs: Logs) -> None:
        place = self.place()
        place.parent.mkdir(parents=True, exist_ok=True)
        self._seen = _read_steps(place)
        self._file = open(place, "a", encoding="utf-8")

    def on_log(self, step: int, logs: Logs) -> None:
        record = {"step": step, "epoch": self.task.epoch}
        record |= {name: json_number(value) for name, value in logs.items()}
        if self._file is None or self._seen.get(step) == record:
            return
        stamp = {"time": round(time.time(), 3)}
        with named_errors(self.place()):
            self._file.write(json.dumps(record | stamp, allow_nan=False) + "\n")
            self._file.flush()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with named_errors(self.place()):
                file.close()


def _read_steps(place: pathlib.Path) -> dict[int, dict[str, Any]]:
    """Each step's last record, without its time; part of a last line is taken away."""
    data = place.read_bytes() if place.exists() else b""
    *lines, last = data.split(b"\n")
    if isinstance(_record(last), dict):
        with named_errors(place), open(place, "ab") as file:
            file.write(b"\n")
        lines.append(last)
    elif last:
        os.truncate(place, len(data) - len(last))
    found: dict[int, dict[str, Any]] = {}
    for record in map(_record, lines):
        if isinstance(record, dict) and isinstance(record.get("step"), int):
            record.pop("time", None)
            found[record["step"]] = record
    return found


def _record(line: bytes) -> Any:
    """What a line holds; None when it is no JSON."""
    try:
        return json.loads(line)
    except ValueError:
        return None


def json_number(value: float) -> float | str:
    """The number as JSON can hold it: "nan", "inf" and "-inf" are texts."""
    value = float(value)
    return value if math.isfinite(value) else repr(value)


class TensorBoard(FileLogger):
    """Scalars for TensorBoard, over attempted steps.

    ``step/loss`` ... at every ``log_every``-th step; ``train/loss``, ``val/loss`` and
    ``train/learning_rate`` ... at the end of each epoch.

    Args:
        path: The folder; ``tensorboard`` in the task's run_dir by default.

    Raises:
        ModuleNotFoundError: tensorboard is not installed.
    """

    usual_name = "tensorboard"

    @telling_names(log_dir="write path", update_freq="fit(log_every=50) says after how many steps")
    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        super().__init__(path)
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError as error:
            raise ModuleNotFoundError(
                "TensorBoard: the tensorboard package is not installed; "
                "pip install 'renaissance[tensorboard]' brings it"
            ) from error
        self._make_writer: Any = SummaryWriter
        self._writer: Any = None

    def on_train_begin(self, logs: Logs) -> None:
        # Events of steps beyond this one belong to a run that was resumed before them.
        steps = self.task.attempted_steps
        self._writer = self._make_writer(self.place(), purge_step=steps + 1 if steps else None)

    def on_log(self, step: int, logs: Logs) -> None:
        self._write({f"step/{name}": value for name, value in logs.items()}, step)

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        tags = {name: f"val/{name[4:]}" for name in logs if name.startswith("val_")}
        self._write(
            {tags.get(name, f"train/{name}"): value for name, value in logs.items()},
            self.task.attempted_steps,
        )

    def _write(self, scalars: Mapping[str, float], step: int) -> None:
        for tag, value in scalars.items():
            self._writer.add_scalar(tag, float(value), step)

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
