"""Loggers: exact files, appended on resume with whole lines only, NaN kept, TensorBoard's tags."""

import itertools
import json
import math
import sys

import pytest
from faketask import FakeTask

from renaissance.loggers import CSVLogger, JSONLogger, TensorBoard


def epochs(count, **more):
    return [{"loss": 1.0 / (e + 1), "learning_rate": 0.1, **more} for e in range(count)]


def interrupted(tmp_path, logger_class, logs, before, after):
    """Two runs of the same epochs: in one piece, and cut in two with a checkpoint that is older
    than the last line written (``before`` epochs saved, ``after`` epochs logged)."""
    whole = FakeTask(tmp_path / "whole")
    whole.fit(logs, [logger_class()])
    part = FakeTask(tmp_path / "part")
    part.fit(logs[:before], [logger_class()])
    part.save(tmp_path / "state")
    part.fit(logs[:after], [logger_class()])
    resumed = FakeTask(tmp_path / "part")
    resumed.fit(logs, [logger_class()], resume=tmp_path / "state")
    name = logger_class.usual_name
    return (tmp_path / "whole" / name).read_text(), (tmp_path / "part" / name).read_text()


# CSVLogger


def test_the_table_letter_by_letter(tmp_path):
    logs = [{"loss": 0.1 + 0.2}, {"loss": math.nan, "val_loss": math.inf}, {"loss": 1e-30}]
    FakeTask(tmp_path).fit(logs, [CSVLogger()], params={"metrics": ["loss", "val_loss"]})
    assert (tmp_path / "metrics.csv").read_text() == (
        "epoch,steps,loss,val_loss\n0,4,0.30000000000000004,\n1,8,nan,inf\n2,12,1e-30,\n"
    )


def test_a_name_that_appears_later_gets_a_column(tmp_path):
    path = tmp_path / "deep" / "table.csv"
    FakeTask().fit([{"loss": 1.0}, {"loss": 2.0, "own": 3.0}, {"loss": 4.0}], [CSVLogger(path)])
    assert path.read_text() == "epoch,steps,loss,own\n0,4,1.0,\n1,8,2.0,3.0\n2,12,4.0,\n"
    assert [p.name for p in path.parent.iterdir()] == ["table.csv"]


@pytest.mark.parametrize("before,after", [(1, 1), (1, 2), (2, 4)])
def test_resumed_tables_equal_uninterrupted_ones(tmp_path, before, after):
    whole, part = interrupted(tmp_path, CSVLogger, epochs(5), before, after)
    assert whole == part and whole.count("\n") == 6


def test_nothing_that_was_written_is_removed(tmp_path):
    for scale in (1.0, 2.0):  # a new run, with other numbers, in the same folder
        FakeTask(tmp_path).fit([{"loss": scale}, {"loss": 2 * scale}], [CSVLogger()])
    assert (tmp_path / "metrics.csv").read_text().splitlines()[1:] == [
        *("0,4,1.0", "1,8,2.0", "0,4,2.0", "1,8,4.0")
    ]


TABLE = "epoch,steps,loss,own\n0,4,1.0,\n1,8,0.5,1e-05\n"
LOGS = [{"loss": 1.0}, {"loss": 0.5, "own": 1e-5}, {"loss": 0.25, "own": math.nan}]


@pytest.mark.parametrize("cut", range(len(TABLE) + 1))
def test_a_row_cut_short_gives_way_to_the_same_row(tmp_path, cut):
    """``1,8,0.`` would be read as a row with a loss of 0."""
    path, params = tmp_path / "metrics.csv", {"metrics": ["loss", "own"]}
    path.write_text(TABLE[:cut])
    FakeTask(tmp_path).fit(LOGS[:2], [CSVLogger()], params=params)
    assert path.read_text() == TABLE


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_last_row_without_an_end_is_kept_where_it_is_whole(tmp_path, end):
    path, params = tmp_path / "metrics.csv", {"metrics": ["loss", "own"]}
    task = FakeTask(tmp_path)
    task.fit(LOGS[:2], [CSVLogger()], params=params)
    path.write_text(TABLE.rstrip("\n") + end)
    task.fit(LOGS, [CSVLogger()], params=params)
    assert path.read_text() == TABLE + "2,12,0.25,nan\n"
    path.write_text(path.read_text().rstrip("\n") + end)
    task.fit([*LOGS, {"new": 2.0}], [CSVLogger()], params=params)
    assert path.read_text().splitlines()[-2:] == ["2,12,0.25,nan,", "3,16,,,2.0"]


@pytest.mark.parametrize("cut", range(TABLE.index("1,8"), len(TABLE)))
def test_what_is_left_of_a_row_that_does_not_come_again(tmp_path, cut):
    path = tmp_path / "metrics.csv"
    path.write_text(TABLE[:cut])
    FakeTask(tmp_path).fit([{"loss": 2.0, "own": 3.0}], [CSVLogger()])
    kept = {"1,8,0.5,": True, "1,8,0.5,1": True, "1,8,0.5,1e-0": True, "1,8,0.5,1e-05": True}
    last = TABLE[TABLE.index("1,8") : cut]
    rows = [*TABLE.splitlines()[:2], *([last] if last in kept else []), "0,4,2.0,3.0"]
    assert path.read_text().splitlines() == rows


def test_a_hand_edited_row_that_comes_again_with_other_numbers_stays(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text("epoch,steps,loss\n0,4,9.0")
    FakeTask(tmp_path).fit([{"loss": 1.0}], [CSVLogger()])
    assert path.read_text() == "epoch,steps,loss\n0,4,9.0\n0,4,1.0\n"


def test_a_full_disk_is_told_with_the_file(tmp_path):
    full, path = open("/dev/full", "w"), tmp_path / "steps.jsonl"

    class Full(JSONLogger):
        def on_train_begin(self, logs):
            super().on_train_begin(logs)
            self._file.close()
            self._file = full

    with pytest.raises(OSError, match="No space left on device: '.*/steps.jsonl'"):
        FakeTask(tmp_path).fit(epochs(2), [Full()])
    assert path.read_text() == ""


def test_another_table_is_left_alone(tmp_path):
    path = tmp_path / "metrics.csv"
    for text in ("name,price\napple,3\n", "name,price\napple,3", "name,price"):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"another table \(its columns are name, price\)"):
            FakeTask(tmp_path).fit(epochs(1), [CSVLogger()])
        assert path.read_text() == text


def test_a_logger_needs_a_place():
    with pytest.raises(RuntimeError, match=r"Task\(run_dir=...\) or CSVLogger\('metrics.csv'\)"):
        FakeTask().fit(epochs(1), [CSVLogger()])


# JSONLogger


def without_time(text):
    records = [json.loads(line) for line in text.splitlines()]
    assert all(record.pop("time") > 1.7e9 for record in records)
    return records


def test_steps_at_the_log_cadence(tmp_path):
    FakeTask(tmp_path).fit(epochs(2), [JSONLogger()])
    assert without_time((tmp_path / "steps.jsonl").read_text()) == [
        {"step": step, "epoch": (step - 1) // 4, "loss": 1 / step, "learning_rate": 0.1}
        for step in (2, 4, 6, 8)
    ]


def test_what_json_does_not_have_is_text(tmp_path):
    task = FakeTask(tmp_path)
    task._read = lambda: {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.1}
    task.fit(epochs(1), [JSONLogger()])
    record = without_time((tmp_path / "steps.jsonl").read_text())[0]
    assert [record[name] for name in "abcd"] == ["nan", "inf", "-inf", 0.1]


@pytest.mark.parametrize("before,after", [(1, 1), (1, 3)])
def test_resumed_lines_equal_uninterrupted_ones(tmp_path, before, after):
    whole, part = interrupted(tmp_path, JSONLogger, epochs(4), before, after)
    assert without_time(whole) == without_time(part)
    assert len(without_time(whole)) == 8


def test_a_line_cut_short_is_taken_away(tmp_path):
    place = tmp_path / "steps.jsonl"
    place.write_text('{"step": 2, "ep')
    FakeTask(tmp_path).fit(epochs(1), [JSONLogger()])
    assert [record["step"] for record in without_time(place.read_text())] == [2, 4]
    place.write_bytes(place.read_bytes() + b"\0\0\xff")  # a file that lost power
    FakeTask(tmp_path).fit(epochs(1), [JSONLogger()])
    assert [record["step"] for record in without_time(place.read_text())] == [2, 4]


def test_a_last_line_without_an_end_is_kept_where_it_is_whole(tmp_path, monkeypatch):
    ticks = itertools.count(1_800_000_000)  # a record that is written again has another time
    monkeypatch.setattr("renaissance.loggers.time.time", lambda: float(next(ticks)))
    place = tmp_path / "steps.jsonl"
    FakeTask(tmp_path).fit(epochs(1), [JSONLogger()])
    written = place.read_text()
    for cut in range(len(written.splitlines()[0]) + 1, len(written) + 1):
        place.write_text(written[:cut])
        logger = JSONLogger()
        FakeTask(tmp_path).fit(epochs(1), [logger])
        assert [record["step"] for record in without_time(place.read_text())] == [2, 4], cut
        is_kept = cut >= len(written) - 1
        assert (place.read_text() == written) is is_kept


def test_files_are_closed_after_an_error(tmp_path):
    logger = JSONLogger()

    def fail():
        raise FloatingPointError("here")

    task = FakeTask(tmp_path)
    task._read = fail
    with pytest.raises(FloatingPointError):
        task.fit(epochs(1), [logger])
    assert logger._file is None


# TensorBoard


def test_tensorboard_scalars(tmp_path):
    pytest.importorskip("tensorboard")
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    task = FakeTask(tmp_path)
    task.fit(epochs(2, val_loss=0.25), [TensorBoard()])
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert sorted(events.Tags()["scalars"]) == [
        *("step/learning_rate", "step/loss", "train/learning_rate", "train/loss", "val/loss")
    ]
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(4, 1.0), (8, 0.5)]
    assert [e.step for e in events.Scalars("step/loss")] == [2, 4, 6, 8]


def test_tensorboard_of_a_resumed_run_shows_each_step_once(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    task = FakeTask(tmp_path)
    task.fit(epochs(1), [TensorBoard()])
    task.save(tmp_path / "state")
    task.fit(epochs(3), [TensorBoard()])
    FakeTask(tmp_path).fit(epochs(3), [TensorBoard()], resume=tmp_path / "state")
    events = accumulator.EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [e.step for e in events.Scalars("train/loss")] == [4, 8, 12]


def test_tensorboard_that_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'renaissance\[tensorboard\]'"):
        TensorBoard()
