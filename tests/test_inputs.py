"""Host memory of a batch is given back when its copy has run, and not before."""

import pytest

from renaissance.inputs import copied_in_time


class Events:
    """A stream of 5 batches, copies of them, and their marks, all in one list in order."""

    def __init__(self, batches=5):
        self.log, self.left, self.held, self.most_held = [], list(range(batches)), 0, 0

    def next(self):
        if not self.left:
            return None
        self.held += 1
        self.most_held = max(self.most_held, self.held)
        return self.left.pop(0)

    def release(self, batch):
        self.held -= 1
        self.log.append(("release", batch))

    def place(self, batch):
        self.log.append(("copy", batch))
        self.last = batch
        return batch * 10

    def mark(self):
        events, batch = self, self.last

        class Copied:
            def synchronize(self):
                events.log.append(("wait", batch))

        return Copied()


@pytest.fixture
def events():
    return Events()


def test_every_batch_is_waited_for_before_its_release(events):
    assert list(copied_in_time(events, events.place, events.mark)) == [0, 10, 20, 30, 40]
    for batch in range(5):
        order = [kind for kind, which in events.log if which == batch]
        assert order == ["copy", "wait", "release"]
    assert (events.held, events.most_held) == (0, 2)


def test_the_next_copy_is_queued_before_the_last_one_is_waited_for(events):
    batches = copied_in_time(events, events.place, events.mark)
    assert next(batches) == 0 and events.log == [("copy", 0)]
    assert next(batches) == 10
    assert events.log == [("copy", 0), ("copy", 1), ("wait", 0), ("release", 0)]


def test_an_epoch_left_in_its_middle_gives_everything_back(events):
    batches = copied_in_time(events, events.place, events.mark)
    next(batches), next(batches)
    batches.close()
    assert events.held == 0 and events.log[-2:] == [("wait", 1), ("release", 1)]
