"""Host memory is given back when its copy has run, and not before; numbers go in few copies."""

import pytest
import torch
import torch.utils._pytree

from renaissance.data.batch import to_device
from renaissance.step.inputs import LateNumber, RateFeed, copied_in_time


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


class Marks:
    """Events of copies: which were waited for, and which have run."""

    def __init__(self):
        self.made, self.waited, self.has_run = 0, [], True

    def __call__(self):
        marks, number = self, self.made
        self.made += 1

        class Copied:
            def synchronize(self):
                marks.waited.append(number)

            def query(self):
                return marks.has_run

        return Copied()


def table_of(rates):
    next_one, count = rates[:2].tolist()
    return next_one, rates[2:].view(torch.float64)[:count].tolist()


def test_rates_go_in_one_copy_and_a_slot_waits_for_its_copy_a_round_ago():
    table, marks = torch.zeros(2 + 4, dtype=torch.int64), Marks()
    feed = RateFeed(table, pin=False, mark=marks)
    assert feed.room == 4
    for turn in range(RateFeed.SLOTS + 2):
        feed.write([0.5, 0.25 * turn, 1e-300])
        assert table_of(table) == (0, [0.5, 0.25 * turn, 1e-300])
        table[0] = 3  # the device has used them
    assert marks.made == RateFeed.SLOTS + 2 and marks.waited == [0, 1]


def test_a_rate_that_stays_is_written_once():
    table, marks = torch.zeros(2 + 4, dtype=torch.int64), Marks()
    feed = RateFeed(table, pin=False, mark=marks)
    for rates in ([0.5], [0.5, 0.5], [0.5, 0.5, 0.5]):
        feed.write(rates)
    assert marks.made == 1 and table_of(table) == (0, [0.5])
    feed.write([0.5, 0.4])
    feed.write([0.4])  # two are not used up: the last one is not known to be there
    assert marks.made == 3 and table_of(table) == (0, [0.4])
    feed.forget()
    feed.write([0.4])
    assert marks.made == 4


def test_a_late_number_is_that_of_the_last_copy_that_has_run():
    source, marks = torch.tensor(0, dtype=torch.int32), Marks()
    late = LateNumber(source, pin=False, mark=marks)
    assert late.look() == 0
    source.fill_(1)
    assert late.look() == 0  # the copy of before
    marks.has_run = False
    assert late.look() == 0 and marks.made == 2  # nothing new, and nothing more is queued
    marks.has_run = True
    assert late.look() == 1


@pytest.mark.parametrize("shape", ["alone", "none", "tuple", "dict", "nested"])
def test_every_form_of_a_batch_reaches_the_device(shape):
    one = torch.ones(3)
    forms = {
        "alone": one, "none": None, "tuple": (one, one), "dict": {"a": one, "b": None},
        "nested": [{"a": (one, None)}],
    }  # fmt: skip
    given = forms[shape]
    moved = to_device(given, torch.device("meta"))
    leaves, form = torch.utils._pytree.tree_flatten(given)
    there, found = torch.utils._pytree.tree_flatten(moved)
    assert form == found
    assert [x if x is None else x.device.type for x in there] == [
        x if x is None else "meta" for x in leaves
    ]
