"""Progress: exact plain lines, bars that end with the epoch's numbers, silence, and who decides."""

import io
import re
import sys

import pytest

from renaissance.progress import duration, make_progress, number_text, resolve_verbose


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def run_epochs(progress, clock, epochs=2, first_step=0, validate=True):
    for epoch in range(epochs):
        progress.start_epoch(epoch, first_step if epoch == 0 else 0)
        for _ in range(first_step if epoch == 0 else 0, 4):
            clock.now += 0.5
            progress.step(1000)
            if progress.wants_logs:
                progress.logs({"loss": 1.0, "learning_rate": 1e-3})
        logs = {"loss": 0.5 / (epoch + 1), "accuracy": 0.75, "learning_rate": 9.5e-4}
        if validate:
            progress.start_test("validation", 2)
            clock.now += 3.0
            progress.test_step(100)
            progress.end_test("validation", {"loss": 0.4})
            logs |= {"val_loss": 0.4}
        progress.end_epoch(logs)
    progress.close()


def test_the_plain_lines_letter_by_letter():
    stream, clock = io.StringIO(), Clock()
    progress = make_progress(2, epochs=3, steps_per_epoch=4, stream=stream, clock=clock)
    run_epochs(progress, clock, epochs=3)
    assert stream.getvalue() == (
        "epoch 1/3  5.0 s  loss 0.5000  accuracy 0.7500  val_loss 0.4000  lr 0.00095  "
        "2,000 images/s  left 0:10\n"
        "epoch 2/3  5.0 s  loss 0.2500  accuracy 0.7500  val_loss 0.4000  lr 0.00095  "
        "2,000 images/s  left 0:05\n"
        "epoch 3/3  5.0 s  loss 0.1667  accuracy 0.7500  val_loss 0.4000  lr 0.00095  "
        "2,000 images/s\n"
    )


def test_lines_without_a_last_epoch_and_of_a_continued_epoch():
    stream, clock = io.StringIO(), Clock()
    progress = make_progress(2, epochs=None, unit="samples", stream=stream, clock=clock)
    run_epochs(progress, clock, epochs=1, first_step=3, validate=False)
    assert stream.getvalue() == (
        "epoch 1  0.5 s  loss 0.5000  accuracy 0.7500  lr 0.00095  2,000 samples/s\n"
    )


def test_a_line_a_minute_within_a_long_epoch_and_a_long_evaluation():
    stream, clock = io.StringIO(), Clock()
    progress = make_progress(2, epochs=2, steps_per_epoch=1200, stream=stream, clock=clock)
    progress.start_epoch(0, 1000)
    for _ in range(200):
        clock.now += 0.5
        progress.step(64)
        if progress.wants_logs:
            progress.logs({"loss": 2.5, "learning_rate": 0.1})
    progress.start_test("validation", 3)
    for _ in range(3):
        clock.now += 61.0
        progress.test_step(64)
    progress.end_test("validation", {"loss": 2.0})
    progress.step(64)  # validation within an epoch leaves its count
    progress.logs({"loss": 2.5})
    progress.end_epoch({"loss": 2.25})
    assert stream.getvalue().splitlines() == [
        "epoch 1/2  step 1,120/1,200  loss 2.5000  lr 0.1  128 images/s  left 0:40 of the epoch",
        "epoch 1/2  validation  batch 1/3  left 2:02",
        "epoch 1/2  validation  batch 2/3  left 1:01",
        "epoch 1/2  step 1,201/1,200  loss 2.5000  129 images/s",
        "epoch 1/2  4:43  loss 2.2500  129 images/s  left 4:43",
    ]
    unknown = make_progress(2, stream=(stream := io.StringIO()), clock=clock)
    unknown.start_epoch(0)
    clock.now += 60.0
    unknown.step(64)
    assert unknown.wants_logs
    unknown.logs({"loss": 1.0})
    assert stream.getvalue() == "epoch 1  step 1  loss 1.0000  1.1 images/s\n"
    assert not unknown.wants_logs


@pytest.mark.parametrize("verbose", [1, 2])
def test_what_is_said_has_a_line_of_its_own_below_an_open_bar(verbose):
    stream = Terminal()
    progress = make_progress(verbose, epochs=1, steps_per_epoch=4, stream=stream, clock=Clock())
    progress.start_epoch(0)
    progress.say("stopped", "no better")
    progress.say()
    assert stream.getvalue().endswith("\nstopped; no better\n"[verbose - 1 :])
    progress.close()


def test_lines_of_an_evaluation_alone():
    stream, clock = io.StringIO(), Clock()
    progress = make_progress(2, stream=stream, clock=clock)
    for what, logs in (("evaluate", {"loss": float("nan")}), ("predict", {})):
        progress.start_test(what, 1)
        clock.now += 120.0
        progress.test_step(600)
        progress.end_test(what, logs)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "evaluate  2:00  loss nan  5.0 images/s"
    assert lines[1].startswith("predict  2:00  ")


@pytest.mark.timeout(60)
def test_bars_end_with_the_numbers_of_the_epoch():
    stream, clock = Terminal(), Clock()
    progress = make_progress(1, epochs=2, steps_per_epoch=4, stream=stream, clock=clock)
    run_epochs(progress, clock)
    shown = stream.getvalue().rstrip("\n").split("\n")
    lines = [line.split("\r")[-1] for line in shown]
    assert len(lines) == 2, "one line stays for each epoch"
    assert re.match(r"epoch 1/2: 100%\|.{10}\| 4/4 \[\d\d:\d\d<\d\d:\d\d, loss 0.5000  ", lines[0])
    assert "accuracy 0.7500  val_loss 0.4000  lr 0.00095  2,000 images/s  left 0:05]" in lines[0]
    assert "validation ..." in stream.getvalue()
    assert lines[1].startswith("epoch 2/2: 100%") and "left" not in lines[1]


@pytest.mark.timeout(60)
def test_a_bar_of_a_continued_epoch_starts_where_it_stopped():
    stream, clock = Terminal(), Clock()
    progress = make_progress(1, epochs=1, steps_per_epoch=4, stream=stream, clock=clock)
    progress.start_epoch(0, 3)
    progress.close()
    assert "75%" in stream.getvalue() and "3/4" in stream.getvalue()


@pytest.mark.timeout(60)
def test_a_bar_of_an_evaluation_alone():
    stream = Terminal()
    progress = make_progress(1, stream=stream)
    progress.start_test("evaluate", 2)
    for _ in range(2):
        progress.test_step(10)
    progress.end_test("evaluate", {"loss": 0.25})
    assert re.search(r"evaluate: 100%\|.{10}\| 2/2 .*loss 0.2500", stream.getvalue())


@pytest.mark.timeout(60)
@pytest.mark.parametrize("verbose", [1, 2])
def test_a_short_evaluation_says_nothing(verbose):
    stream, clock = Terminal(), Clock()
    progress = make_progress(verbose, stream=stream, clock=clock, patience=1.0)
    progress.start_test("evaluate", 4)
    for _ in range(4):
        clock.now += 0.2
        progress.test_step(10)
    progress.end_test("evaluate", {"loss": 0.25})
    assert stream.getvalue() == ""


@pytest.mark.timeout(60)
def test_a_bar_appears_where_a_long_evaluation_stands():
    stream, clock = Terminal(), Clock()
    progress = make_progress(1, stream=stream, clock=clock, patience=1.0)
    progress.start_test("predict", 4)
    seen = []
    for _ in range(4):
        clock.now += 0.6
        progress.test_step(10)
        seen.append(stream.getvalue())
    progress.end_test("predict", {})
    assert seen[0] == "" and "predict:  50%" in seen[1] and "2/4" in seen[1]
    assert "predict: 100%" in stream.getvalue() and "4/4" in stream.getvalue()


@pytest.mark.timeout(60)
def test_a_bar_in_a_file_is_no_flood():
    stream = io.StringIO()
    progress = make_progress(1, epochs=1, steps_per_epoch=10_000, stream=stream)
    progress.start_epoch(0)
    for _ in range(10_000):
        progress.step(1)
    progress.end_epoch({"loss": 1.0})
    assert stream.getvalue().count("\r") <= 4


@pytest.mark.timeout(60)
def test_bars_start_no_thread():
    import threading

    before = threading.enumerate()
    progress = make_progress(1, epochs=1, steps_per_epoch=2, stream=Terminal())
    progress.start_epoch(0)
    assert set(threading.enumerate()) <= set(before)
    progress.close()


def test_numbers_are_wanted_ten_times_a_second_at_most_and_only_by_a_bar():
    clock = Clock()
    bar = make_progress(1, epochs=1, steps_per_epoch=2, stream=Terminal(), clock=clock)
    bar.start_epoch(0)
    assert bar.wants_logs
    bar.logs({"loss": 1.0})
    clock.now += 0.05
    assert not bar.wants_logs
    clock.now += 0.06
    assert bar.wants_logs
    bar.close()
    assert not make_progress(2).wants_logs and not make_progress(0).wants_logs


def test_silence():
    stream, clock = Terminal(), Clock()
    run_epochs(make_progress(0, epochs=2, stream=stream, clock=clock), clock)
    assert stream.getvalue() == ""


def test_auto_is_a_bar_on_a_terminal_and_in_a_notebook(monkeypatch):
    assert resolve_verbose("auto", Terminal()) == 1
    assert resolve_verbose("auto", io.StringIO()) == 2

    class ZMQInteractiveShell:
        pass

    class IPython:
        get_ipython = staticmethod(lambda: ZMQInteractiveShell())

    monkeypatch.setitem(sys.modules, "IPython", IPython)
    assert resolve_verbose("auto", io.StringIO()) == 1


@pytest.mark.parametrize("verbose", [3, -1, True, None, "bar", 1.0])
def test_other_verbosities_are_refused(verbose):
    with pytest.raises(ValueError, match=r"verbose = .* is not allowed; it takes 0 \(silent\)"):
        resolve_verbose(verbose)


@pytest.mark.parametrize("verbose", [0, 1, 2])
def test_numbers_stand_for_themselves(verbose):
    assert resolve_verbose(verbose) == verbose


@pytest.mark.parametrize(
    "value,text",
    [(0, "0.0000"), (0.12345, "0.1235"), (1e-4, "1.000e-04"), (123456.0, "1.235e+05")]
    + [(float("inf"), "inf"), (float("nan"), "nan"), (-2.5, "-2.5000")],
)
def test_numbers(value, text):
    assert number_text(value) == text


@pytest.mark.parametrize("seconds,text", [(0.4, "0:00"), (86, "1:26"), (7387, "2:03:07")])
def test_durations(seconds, text):
    assert duration(seconds) == text
