"""The state of callbacks in a checkpoint: what is stored, matched, and refused."""

import logging

import pytest
from faketask import FakeTask, Recorder, kept, losses

from renaissance.callbacks import Callback, CallbackList, EarlyStopping, ModelCheckpoint


def test_state_is_stored_by_class_name_and_index_and_empty_ones_are_not():
    class Counter(Callback):
        def __init__(self):
            self.count = 0

        def on_epoch_end(self, epoch, logs):
            self.count += 1

        def state_dict(self):
            return {"count": self.count} if self.count else {}

        def load_state_dict(self, state):
            self.count = state["count"]

    task = FakeTask()
    first, second = Counter(), Counter()
    running = task.fit(losses(1.0), [first, Recorder(), second])
    second.count = 7
    states = running.state_dict()
    assert states == [
        {"class": "Counter", "index": 0, "state": {"count": 1}},
        {"class": "Counter", "index": 1, "state": {"count": 7}},
    ]
    new = [Counter(), Counter()]
    CallbackList([Recorder(), *new], FakeTask()).load_state_dict(states)
    assert [c.count for c in new] == [1, 7]
    first.count = second.count = 0
    assert running.state_dict() == []


def test_a_mismatch_on_resume_is_one_line(caplog):
    task = FakeTask()
    stored = CallbackList([EarlyStopping(patience=1)], task).state_dict()
    with caplog.at_level(logging.WARNING, "renaissance"):
        task.attempted_steps = 8
        CallbackList([ModelCheckpoint("loss")], task).load_state_dict(stored)
        CallbackList([ModelCheckpoint("loss")], FakeTask()).load_state_dict([])
    assert caplog.messages == [
        "callbacks: ModelCheckpoint 0 starts afresh, it has no state so far; "
        "the state of EarlyStopping 0 has no callback here"
    ]


def test_the_state_of_another_monitor_is_not_taken(caplog):
    state = EarlyStopping("val_loss", patience=1).state_dict() | {"best": 0.1}
    stop = EarlyStopping("val_accuracy", patience=1)
    stop.load_state_dict(state)
    assert stop.best is None
    assert "the checkpoint watched val_loss, this one val_accuracy" in caplog.text


def test_a_state_that_is_no_dict_is_refused():
    callback = Recorder()
    callback.state_dict = lambda: [1]
    with pytest.raises(TypeError, match=r"Recorder.state_dict\(\) gave \[1\] \(list\)"):
        CallbackList([callback], FakeTask()).state_dict()


STOPPING = EarlyStopping(patience=1).state_dict()
KEEPING = {"monitor": "val_loss", "best": 1.0, "best_epoch": 0, "saved": [[1.0, "step-00000004"]]}


@pytest.mark.parametrize(
    ("callback", "change"),
    [
        (EarlyStopping(patience=1), STOPPING | {"wait": "3"}),
        (EarlyStopping(patience=1), STOPPING | {"wait": -1}),
        (EarlyStopping(patience=1), STOPPING | {"best": "x", "best_epoch": 0}),
        (EarlyStopping(patience=1), STOPPING | {"best": 0.5}),
        (EarlyStopping(patience=1), STOPPING | {"is_stopping": "no"}),
        (EarlyStopping(patience=1), STOPPING | {"best_steps": "../../home"}),
        (ModelCheckpoint(), KEEPING | {"saved": [["x", "step-00000004"]]}),
        (ModelCheckpoint(), KEEPING | {"saved": [[1.0, 4]]}),
        (ModelCheckpoint(), KEEPING | {"saved": [[1.0, "../../home"]]}),
        (ModelCheckpoint(), KEEPING | {"saved": [[1.0, "step-00000004/../../home"]]}),
    ],
)
def test_a_state_that_no_run_wrote_is_refused(callback, change):
    name = type(callback).__name__
    running = CallbackList([callback], FakeTask())
    with pytest.raises(ValueError, match=f"the stored state of {name} 0 does not fit it"):
        running.load_state_dict([{"class": name, "index": 0, "state": change}])


def test_a_stored_name_removes_no_other_folder(tmp_path):
    """What falls out of the best ones is removed: the names come from a file."""
    victim = tmp_path / "victim"
    victim.mkdir()
    callback = ModelCheckpoint(folder=tmp_path / "best")
    state = {"class": "ModelCheckpoint", "index": 0, "state": KEEPING}
    task = FakeTask()
    task.fit(losses(0.5), [callback], states=[state])
    assert kept(tmp_path / "best") == ["best", "step-00000004"]
    callback = ModelCheckpoint(folder=tmp_path / "best")
    forged = state | {"state": KEEPING | {"saved": [[1.0, "../victim"]]}}
    with pytest.raises(ValueError, match="names no checkpoint"):
        FakeTask().fit(losses(0.5), [callback], states=[forged])
    assert victim.is_dir()
