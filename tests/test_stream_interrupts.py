"""Streams that a signal or a fork comes upon: no batch is lost, and nobody waits for ever."""

import gc
import os
import signal
import time

import numpy as np
import pytest

import renaissance as rn
from renaissance.datasets import Synthetic

pytestmark = pytest.mark.timeout(60)


def loader_of(dataset=None, **settings):
    pictures = Synthetic(64, size=16, seed=1) if dataset is None else dataset
    return rn.Loader(pictures, **({"batch_size": 8, "shuffle": True, "seed": 5} | settings))


class Interrupt(BaseException):
    """What a signal raises."""


def test_a_batch_that_an_interrupt_kept_from_arriving_comes_again():
    """The ring has handed it out, and the exception came before the consumer counted it."""
    loader = loader_of(workers=2, prefetch=2)
    expected = [batch.x.tobytes() for batch in loader.epoch(0)]
    with loader.stream() as stream:
        for step, one in enumerate(expected):
            stream._take(stream.position.step, 2)
            assert stream.state() == (0, step)
            assert next(stream).x.numpy().tobytes() == one
        for _ in range(20):  # nor does its slot stay away
            stream._take(stream.rewind(0).position.step, 4)
        assert next(stream.rewind(0)).x.numpy().tobytes() == expected[0]


def test_signals_lose_no_batch():
    class Slow:
        def __len__(self):
            return 160

        def read(self, index):
            time.sleep(0.0004)
            return np.array([index], np.float32), 0

    def interrupt(*_):
        raise Interrupt

    loader = loader_of(Slow(), batch_size=4, workers=1, prefetch=2, shuffle=False)
    before = signal.signal(signal.SIGALRM, interrupt)
    lost = interrupts = 0
    try:
        with loader.stream() as stream:
            while interrupts < 12:  # the clock decides how many an epoch sees
                step = stream.state()[1]
                if step == len(loader):
                    stream.rewind(0)
                    continue
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.0005 * (1 + interrupts % 7))
                    batch = next(stream)
                    signal.setitimer(signal.ITIMER_REAL, 0)
                except Interrupt:
                    interrupts += 1
                    lost += stream.state()[1] != step  # between next and the line behind it
                    continue
                assert int(batch.ids[0]) == 4 * step and stream.state()[1] == step + 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert lost < 12


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 warns of threads and forks
def test_a_child_of_a_fork_may_forget_a_stream():
    """Its threads wait in the parent alone; the child must not wait for them."""
    stream = loader_of(workers=2).stream()
    next(stream)
    time.sleep(0.05)  # the ring is full: the workers wait
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        del stream
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    stream.close()
