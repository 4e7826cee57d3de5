"""When a waiting consumer is woken: for two batches where they follow quickly, else for each."""

import threading
import time

import numpy as np
import pytest

import renaissance as rn
from renaissance.datasets import Synthetic

pytestmark = pytest.mark.timeout(60)


def waits_of(loader, epochs):
    """(batches, how often a consumer that does nothing else waited for one)."""
    with loader.stream() as stream:
        count = sum(1 for epoch in range(epochs) for _ in stream.rewind(epoch))
        return count, stream.stats()["waits"]


@pytest.mark.parametrize("workers", [1, 2])
def test_quick_batches_wake_it_for_two(workers):
    loader = rn.Loader(
        Synthetic(4096, size=16), batch_size=16, shuffle=True, seed=1, workers=workers,
        transforms=[rn.RandomHorizontalFlip(), rn.Normalize("cifar10")],
    )  # fmt: skip
    batches, waits = waits_of(loader, epochs=4)
    assert batches == 1024
    assert 0 < waits < 0.8 * batches


class Timed:
    """Samples of one number each, read by `wait(index)`."""

    num_classes = 2

    def __init__(self, samples, wait):
        self.samples, self.wait = samples, wait

    def __len__(self):
        return self.samples

    def read(self, index):
        self.wait(index)
        return np.full((1, 1, 1), index % 256, np.uint8), 0


def loader_of(samples, wait):
    return rn.Loader(
        Timed(samples, wait), batch_size=1, workers=1, transforms=[rn.Normalize("mnist")]
    )


def test_slow_batches_wake_it_for_each():
    batches, waits = waits_of(loader_of(50, lambda _: time.sleep(0.004)), epochs=1)
    assert batches == 50
    assert waits > 0.8 * batches


def test_a_batch_is_not_held_back_for_one_that_does_not_come():
    """Quick batches, and every seventh is made only when the one before it has arrived."""
    arrived, changed, missing = [0], threading.Condition(), []

    def wait(index):
        with changed:
            if index % 7 == 0 and not changed.wait_for(lambda: arrived[0] >= index, 5):
                missing.append(index - 1)

    with loader_of(350, wait).stream() as stream:
        for _ in stream.rewind(0):
            with changed:
                arrived[0] += 1
                changed.notify()
    assert arrived[0] == 350
    assert not missing
