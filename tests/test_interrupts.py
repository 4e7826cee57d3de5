"""Signals are noted, handlers restored, and a second Ctrl-C is at once."""

import os
import signal
import threading

import pytest

from renaissance.interrupts import Interrupted, Interrupts


def test_nothing_came():
    before = signal.getsignal(signal.SIGTERM)
    with Interrupts() as interrupts:
        interrupts.raise_received()
        assert signal.getsignal(signal.SIGTERM) != before
    assert signal.getsignal(signal.SIGTERM) == before


@pytest.mark.parametrize(
    "number, error", [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, Interrupted)]
)
def test_noted_and_raised_when_asked(number, error):
    with Interrupts() as interrupts:
        os.kill(os.getpid(), number)
        assert interrupts.received == number
        with pytest.raises(error):
            interrupts.raise_received()


def test_second_interrupt_raises_at_once():
    with Interrupts():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_other_threads_leave_handlers_alone():
    before, seen = signal.getsignal(signal.SIGINT), []

    def enter():
        with Interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join(timeout=10)
    assert seen == [before]
