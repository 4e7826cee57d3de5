"""EarlyStopping: patience, directions, the best weights put back, and a run that goes on."""

import math

import pytest
from faketask import FakeTask, losses

from renaissance.callbacks import EarlyStopping, LambdaCallback, Phase


def stopped_after(values, **options):
    task = FakeTask()
    stop = EarlyStopping(**{"patience": 2, **options})
    task.fit(losses(*values, name=options.get("monitor", "val_loss")), [stop])
    return task.epoch, stop


def test_patience_counts_epochs_without_improvement():
    epochs, stop = stopped_after([5.0, 4.0, 4.5, 4.0, 3.0])
    assert epochs == 4 and stop.stopped_epoch == 3 and stop.wait == 2
    assert stop.best == 4.0 and stop.best_epoch == 1
    assert stopped_after([5.0, 4.0, 4.5, 3.0, 3.5, 2.0])[0] == 6
    assert stopped_after([5.0, 6.0], patience=1)[0] == 2


def test_min_delta_is_exceeded_not_met():
    assert stopped_after([4.0, 3.5, 3.5, 3.5], min_delta=0.5)[0] == 3
    assert stopped_after([4.0, 3.25, 2.5, 1.75], min_delta=0.5)[0] == 4


def test_directions():
    assert stopped_after([0.1, 0.2, 0.3, 0.4], monitor="val_accuracy")[0] == 4
    assert stopped_after([0.4, 0.3, 0.2, 0.1], monitor="val_accuracy")[0] == 3
    assert stopped_after([0.4, 0.3, 0.2, 0.1], monitor="val_accuracy", mode="min")[0] == 4
    assert stopped_after([0.1, 0.2, 0.3, 0.4], monitor="val_top5", mode="auto")[0] == 4
    with pytest.raises(ValueError, match="'weight_norm' should fall or rise; say mode='min'"):
        EarlyStopping("weight_norm", patience=1)
    with pytest.raises(ValueError, match="mode = 'down' is not allowed; it takes auto, min or max"):
        EarlyStopping(patience=1, mode="down")


def test_nan_is_no_improvement():
    epochs, stop = stopped_after([math.nan, math.nan, 1.0])
    assert epochs == 2 and stop.best is None
    assert stopped_after([1.0, math.nan, math.nan])[0] == 3
    assert stopped_after([math.inf, 2.0, 1.0])[0] == 3


def test_epochs_without_validation_do_not_count():
    task, stop = FakeTask(), EarlyStopping(patience=1)
    logs = [{"loss": 1.0}, *losses(2.0), {"loss": 1.0}, {"loss": 1.0}, *losses(3.0), {"loss": 1.0}]
    task.fit(logs, [stop])
    assert stop.stopped_epoch == 4


def test_unknown_monitors():
    known = {"metrics": ["loss", "accuracy", "learning_rate"]}
    task = FakeTask()
    with pytest.raises(ValueError, match="'acuracy' is not in the logs; did you mean 'accuracy'"):
        task.fit(losses(1.0), [EarlyStopping("acuracy", mode="max", patience=1)], params=known)
    with pytest.raises(ValueError, match=r"there is no validation data: task.data\(train, valid\)"):
        task.fit(losses(1.0), [EarlyStopping(patience=1)], params=known)
    assert task.attempted_steps == 0, "known before the first step"
    with pytest.raises(ValueError, match="'val_los' is not in the logs; did you mean 'val_loss'"):
        task.fit(losses(1.0), [EarlyStopping("val_los", mode="min", patience=1)])


@pytest.mark.parametrize(
    "options,error,message",
    [
        ({"patience": 0}, ValueError, "patience = 0 is not allowed; it must be 1 or more epochs"),
        ({"patience": 1.5}, TypeError, r"patience = 1.5 \(float\)"),
        ({"patience": True}, TypeError, "patience = True"),
        ({"patience": 1, "min_delta": -1}, ValueError, "min_delta = -1 is not allowed"),
        ({"patience": 1, "min_delta": math.nan}, ValueError, "min_delta = nan"),
        ({"patience": 1, "min_delta": "1"}, TypeError, "min_delta = '1'"),
        ({"patience": 1, "monitor": 3}, TypeError, "monitor = 3"),
        ({}, TypeError, "patience"),
    ],
)
def test_early_stopping_refuses(options, error, message):
    with pytest.raises(error, match=message):
        EarlyStopping(**options)


@pytest.mark.parametrize("on_disk", [False, True])
def test_restore_best_whoever_ends_the_run(tmp_path, on_disk):
    for values in ([3.0, 1.0, 2.0, 2.0, 9.0], [3.0, 1.0, 2.0]):  # stopped early; out of epochs
        task = FakeTask(tmp_path / str(len(values)) if on_disk else None)
        task.fit(losses(*values), [EarlyStopping(patience=2, restore_best=True)])
        assert task.weight == 8.0, "4 steps an epoch, the second is the best"
    folders = sorted(p.name for p in tmp_path.rglob("step-*"))
    assert folders == (["step-00000008"] * 2 if on_disk else [])


def test_restore_best_leaves_the_last_weights_when_not_asked_or_in_the_middle():
    task = FakeTask()
    task.fit(losses(3.0, 1.0, 2.0, 2.0), [EarlyStopping(patience=2)])
    assert task.weight == 16.0
    task = FakeTask()
    task.fit(losses(3.0, 1.0, 2.0), [EarlyStopping(patience=2, restore_best=True)], stop_at=10)
    assert task.weight == 10.0


@pytest.mark.parametrize("kill_after", [1, 2, 3])
def test_resumed_stopping_is_uninterrupted_stopping(tmp_path, kill_after):
    values = [3.0, 1.0, 1.5, 2.0, 2.0, 0.0]
    whole = FakeTask(tmp_path / "whole")
    first = EarlyStopping(patience=3, restore_best=True)
    whole.fit(losses(*values), [first])
    # An interrupted run: the weights as they were at the end of its last epoch, and its folder.
    part = FakeTask(tmp_path / "part")
    part.fit(losses(*values[:kill_after]), [EarlyStopping(patience=3, restore_best=True)])
    part.weight = float(part.attempted_steps)
    part.save(tmp_path / "state")
    resumed = FakeTask(tmp_path / "part")
    stop = EarlyStopping(patience=3, restore_best=True)
    resumed.fit(losses(*values), [stop], resume=tmp_path / "state")
    assert stop.state_dict() == first.state_dict()
    assert (resumed.epoch, resumed.weight) == (whole.epoch, whole.weight) == (5, 8.0)


def test_a_run_that_had_stopped_stays_stopped_on_resume(tmp_path, caplog):
    task = FakeTask(tmp_path)
    periodic = LambdaCallback(
        phase=Phase.CHECKPOINTS, on_epoch_end=lambda epoch, logs: task.save(tmp_path / "state")
    )
    task.fit(losses(1.0, 2.0, 0.5), [periodic, EarlyStopping(patience=1, restore_best=True)])
    resumed = FakeTask(tmp_path)
    stop = EarlyStopping(patience=1, restore_best=True)
    resumed.fit(losses(1.0, 2.0, 0.5, 0.25), [stop], resume=tmp_path / "state")
    assert task.epoch == resumed.epoch == 2 and resumed.weight == 4.0
    assert "had already stopped after epoch 2" in caplog.text


@pytest.mark.parametrize("same_object", [True, False])
def test_another_fit_of_the_same_task_gets_its_patience_anew(same_object):
    task, stop = FakeTask(), EarlyStopping(patience=1, restore_best=True)
    states = task.fit(losses(1.0, 2.0, 0.5, 3.0), [stop]).state_dict()
    assert task.epoch == 2 and stop.stopped_epoch == 1
    stop = stop if same_object else EarlyStopping(patience=1, restore_best=True)
    task.fit(losses(1.0, 2.0, 0.5, 3.0, 4.0), [stop], states=states)
    assert task.epoch == 4 and stop.best == 0.5 and stop.stopped_epoch == 3


def test_best_weights_in_memory_outlive_a_second_fit():
    task, stop = FakeTask(), EarlyStopping(patience=1, restore_best=True)
    states = task.fit(losses(1.0, 2.0), [stop]).state_dict()
    assert task.weight == 4.0
    task.fit(losses(1.0, 2.0, 3.0), [stop], states=states)
    assert task.epoch == 3 and task.weight == 4.0


def test_the_same_object_in_a_new_run_forgets_the_old_one():
    stop = EarlyStopping(patience=1)
    for _ in range(2):
        task = FakeTask()
        task.fit(losses(1.0, 2.0, 0.5), [stop])
        assert task.epoch == 2 and stop.best == 1.0


def test_best_weights_lost_with_their_process_are_said(tmp_path, caplog):
    task = FakeTask()
    task.fit(losses(1.0, 2.0), [EarlyStopping(patience=3, restore_best=True)])
    task.save(tmp_path / "state")
    resumed = FakeTask()
    resumed.fit(
        losses(1.0, 2.0, 3.0),
        [EarlyStopping(patience=3, restore_best=True)],
        resume=tmp_path / "state",
    )
    assert resumed.weight == 12.0
    assert "the weights of the best epoch 1 are gone (they were in memory" in caplog.text
