"""Bars before training: lines in a file, a bar in a terminal, nothing for short work."""

import io

import pytest

from renaissance.bars import Lines, open_bar


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("seconds, lines", [(0.5, 0), (1.0, 1), (10.5, 1), (11.0, 2), (31.0, 4)])
def test_a_line_after_a_second_and_every_ten(seconds, lines):
    stream, now = io.StringIO(), [100.0]
    bar = Lines(1000, "decoding", "files", stream, clock=lambda: now[0])
    for _ in range(round(seconds * 2)):
        now[0] += 0.5
        bar.update(10)
    written = stream.getvalue().splitlines()
    assert len(written) == lines
    assert not lines or written[0] == "decoding: 20 of 1,000 files"


def test_a_file_never_sees_carriage_returns():
    stream = io.StringIO()
    with open_bar(3, "verifying", stream=stream) as bar:
        bar.update(3)
    assert isinstance(bar, Lines) and stream.getvalue() == ""


def test_a_terminal_has_a_bar_without_a_thread():
    stream = Terminal()
    with open_bar(3, "verifying", stream=stream) as bar:
        bar.update(2)
        assert (bar.n, bar.total, bar.monitor_interval) == (2, 3, 0)
