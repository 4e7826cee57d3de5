"""Callbacks: phases in any order given, lazy logs, stopping, saving the best, state on resume."""

import itertools
import logging
import math

import pytest
from faketask import FakeTask

from renaissance.callbacks import (
    Callback,
    CallbackList,
    EarlyStopping,
    LambdaCallback,
    LazyLogs,
    ModelCheckpoint,
    Phase,
    TerminateOnNaN,
)
from renaissance.saver import Saver, read_pointer


def losses(*values, name="val_loss"):
    return [{"loss": 1.0, "learning_rate": 0.1, name: value} for value in values]


class Recorder(Callback):
    """Writes down every hook."""

    def __init__(self):
        self.seen = []

    def on_train_begin(self, logs):
        self.seen.append("train_begin")

    def on_epoch_begin(self, epoch, logs):
        self.seen.append(f"epoch_begin {epoch}")

    def on_train_batch_begin(self, batch, logs):
        self.seen.append(f"batch_begin {batch}")

    def on_train_batch_end(self, batch, logs):
        self.seen.append(f"batch_end {batch}")

    def on_log(self, step, logs):
        self.seen.append(f"log {step} loss {logs['loss']}")

    def on_epoch_end(self, epoch, logs):
        self.seen.append(f"epoch_end {epoch} {logs['val_loss']}")

    def on_train_end(self, logs):
        self.seen.append("train_end")

    def close(self):
        self.seen.append("close")


# Hooks and logs


def test_hooks_are_called_in_order():
    recorder = Recorder()
    FakeTask(steps=2).fit(losses(0.5), [recorder])
    assert recorder.seen == [
        "train_begin",
        "epoch_begin 0",
        "batch_begin 0",
        "batch_end 0",
        "batch_begin 1",
        "batch_end 1",
        "log 2 loss 0.5",
        "epoch_end 0 0.5",
        "train_end",
        "close",
    ]


def test_phases_decide_whatever_the_order_given():
    seen = []
    callbacks = {
        phase: LambdaCallback(
            phase=phase, on_epoch_end=lambda epoch, logs, phase=phase: seen.append(phase)
        )
        for phase in Phase
    }
    for order in itertools.permutations(Phase):
        seen.clear()
        FakeTask().fit(losses(0.5), [callbacks[phase] for phase in order])
        assert seen == sorted(Phase)


def test_one_phase_keeps_the_order_given():
    seen = []
    callbacks = [
        LambdaCallback(on_epoch_end=lambda epoch, logs, name=name: seen.append(name))
        for name in "cab"
    ]
    FakeTask().fit(losses(0.5), callbacks)
    assert seen == ["c", "a", "b"]


def test_the_record_is_written_after_values_were_added_and_before_decisions():
    class Twice(Callback):
        provides = ("twice",)

        def on_epoch_end(self, epoch, logs):
            logs["twice"] = 2 * logs["val_loss"]

    task = FakeTask()
    stop = EarlyStopping("twice", patience=1, mode="min")
    task.fit(losses(0.5, 0.6, 0.7), [stop, Twice()], params={"metrics": ["val_loss"]})
    assert [row["twice"] for row in task.history] == [1.0, 1.2]
    assert stop.stopped_epoch == 1


def test_logs_of_a_step_are_read_once_and_only_when_touched():
    task = FakeTask()
    task.fit(losses(0.5), [LambdaCallback(on_train_batch_end=lambda batch, logs: None)])
    assert task.reads == 0

    def touch(batch, logs):
        assert logs["loss"] > 0 and len(logs) == 2 and "learning_rate" in logs and dict(logs)

    task = FakeTask()
    task.fit(losses(0.5), [LambdaCallback(on_train_batch_end=touch) for _ in range(3)])
    assert task.reads == 4


def test_logs_of_a_step_that_is_over_do_not_show_another_one():
    kept = []
    task = FakeTask()
    task.fit(
        losses(0.5), [LambdaCallback(on_train_batch_end=lambda batch, logs: kept.append(logs))]
    )
    assert repr(kept[0]) == "LazyLogs(over, never read)"
    for logs in kept:
        with pytest.raises(RuntimeError, match="belong to a step that is over"):
            logs["loss"]


def test_what_was_read_stays_and_can_be_written():
    logs = LazyLogs(lambda: {"loss": 1.0, "accuracy": 0.5})
    assert repr(logs) == "LazyLogs(not read yet)"
    logs["loss"] = 3.0
    logs["own"] = 2.0
    assert dict(logs) == {"loss": 3.0, "accuracy": 0.5, "own": 2.0}
    logs.expire()
    assert logs["accuracy"] == 0.5
    del logs["own"]
    assert repr(logs) == "{'loss': 3.0, 'accuracy': 0.5}"


def test_listens_only_where_something_is_overridden():
    running = CallbackList([EarlyStopping(patience=1)], FakeTask())
    assert running.listens("on_epoch_end") and not running.listens("on_train_batch_end")
    assert not CallbackList([], FakeTask()).listens("on_epoch_end")
    assert len(CallbackList(Recorder(), FakeTask())) == 1


def test_callbacks_of_the_main_process_only():
    class Writer(Callback):
        main_only = True

    everyone = [Writer(), Recorder()]
    assert list(CallbackList(everyone, FakeTask(), is_main=False)) == everyone[1:]
    assert len(CallbackList(everyone, FakeTask(), is_main=True)) == 2


def test_close_reaches_everyone_after_an_error():
    recorder = Recorder()

    def fail():
        raise OSError("disk full")

    failing = Recorder()
    failing.close = fail
    with pytest.raises(OSError, match="disk full"):
        FakeTask().fit(losses(0.5), [failing, recorder])
    assert recorder.seen[-1] == "close"


@pytest.mark.parametrize(
    "callbacks,error,message",
    [
        ([EarlyStopping], TypeError, r"received the class EarlyStopping; write EarlyStopping\("),
        ([print], TypeError, r"LambdaCallback\(on_epoch_end=f\) takes a function"),
    ],
)
def test_what_is_no_callback_is_refused(callbacks, error, message):
    with pytest.raises(error, match=message):
        CallbackList(callbacks, FakeTask())


def test_the_same_object_twice_is_refused():
    callback = Recorder()
    with pytest.raises(ValueError, match="the same Recorder is given twice"):
        CallbackList([callback, callback], FakeTask())


def test_misspelt_hooks_are_refused():
    class Wrong(Callback):
        def on_epoch_ends(self, epoch, logs):
            """Never called."""

    class Legacy(Callback):
        def on_batch_end(self, batch, logs):
            """Keras' old name."""

    with pytest.raises(ValueError, match="no hook 'on_epoch_ends'; did you mean 'on_epoch_end'"):
        CallbackList([Wrong()], FakeTask())
    with pytest.raises(ValueError, match="'on_batch_end'; did you mean 'on_train_batch_end'"):
        CallbackList([Legacy()], FakeTask())
    with pytest.raises(ValueError, match="LambdaCallback: there is no hook 'on_epoch'"):
        LambdaCallback(on_epoch=print)
    with pytest.raises(TypeError, match="on_epoch_end = 3 .* must be a function"):
        LambdaCallback(on_epoch_end=3)


def test_a_callback_knows_where_its_task_is():
    callback = Recorder()
    with pytest.raises(RuntimeError, match="Recorder belongs to no task yet"):
        callback.task  # noqa: B018
    with pytest.raises(AttributeError, match="self.task.stop_training = True"):
        callback.model  # noqa: B018
    task = FakeTask()
    running = CallbackList([callback], task, params={"epochs": 3, "metrics": ["loss"]})
    assert callback.task is task and callback.params == {"epochs": 3, "metrics": ["loss"]}
    assert list(running) == [callback]


# EarlyStopping


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


# State on resume


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


# ModelCheckpoint


def kept(root):
    return sorted(path.name for path in root.iterdir())


def test_the_best_is_kept_and_named(tmp_path):
    task = FakeTask(tmp_path)
    task.fit(losses(3.0, 1.0, 2.0, math.nan), [ModelCheckpoint("val_loss")])
    root = tmp_path / "checkpoints"
    assert kept(root) == ["best", "step-00000008"]
    assert read_pointer(root / "best").name == "step-00000008"


def test_the_best_three_are_kept_in_order(tmp_path):
    task = FakeTask()
    checkpoint = ModelCheckpoint("val_accuracy", keep=3, folder=tmp_path)
    task.fit(losses(0.1, 0.5, 0.3, 0.5, 0.2, name="val_accuracy"), [checkpoint])
    assert kept(tmp_path) == ["best", "best-2", "best-3"] + [
        f"step-000000{n}" for n in ("08", 12, 16)
    ]
    named = [read_pointer(tmp_path / name).name[-2:] for name in ("best", "best-2", "best-3")]
    assert named == ["08", "16", "12"], "of equal ones the earlier is the better"


def test_what_fell_out_is_left_to_the_tasks_own_rotation(tmp_path):
    (tmp_path / "latest").write_text("step-00000001\n")
    FakeTask().fit(losses(3.0, 2.0), [ModelCheckpoint(folder=tmp_path)])
    assert kept(tmp_path) == ["best", "latest", "step-00000004", "step-00000008"]


@pytest.mark.timeout(60)
def test_the_tasks_rotation_spares_the_best_ones(tmp_path):
    task = FakeTask(tmp_path)
    with Saver(tmp_path / "checkpoints", keep=1) as saver:

        def save(epoch, logs):
            saver.save(task.attempted_steps, {}, {})
            saver.wait()

        periodic = LambdaCallback(phase=Phase.CHECKPOINTS, on_epoch_end=save)
        values = losses(3.0, 1.0, 2.0, 4.0, 5.0)
        task.fit(values, [ModelCheckpoint(keep=2), periodic])
    steps = [name for name in kept(tmp_path / "checkpoints") if name.startswith("step")]
    assert steps == ["step-00000008", "step-00000012", "step-00000020"]


def test_a_checkpoint_contains_the_decisions_and_the_record_of_its_epoch(tmp_path):
    order = [ModelCheckpoint(), EarlyStopping(patience=5)]
    for callbacks in (order, order[::-1]):
        task = FakeTask(tmp_path)
        task.fit(losses(1.0), callbacks)
        resumed = FakeTask(tmp_path)
        stop, checkpoint = EarlyStopping(patience=5), ModelCheckpoint()
        resumed.fit(losses(1.0), [stop, checkpoint], resume=tmp_path / "checkpoints/step-00000004")
        assert stop.best == 1.0 and checkpoint.saved == [(1.0, "step-00000004")]
        assert len(resumed.history) == 1


def test_a_resumed_checkpoint_knows_the_best(tmp_path):
    task = FakeTask(tmp_path)
    task.fit(losses(1.0), [ModelCheckpoint()])
    task.save(tmp_path / "state")
    resumed = FakeTask(tmp_path)
    resumed.fit(losses(1.0, 2.0), [ModelCheckpoint()], resume=tmp_path / "state")
    assert kept(tmp_path / "checkpoints") == ["best", "step-00000004"]


def test_a_checkpoint_needs_a_place():
    with pytest.raises(RuntimeError, match=r"give Task\(run_dir=...\) or ModelCheckpoint\(folder"):
        FakeTask().fit(losses(1.0), [ModelCheckpoint()])
    with pytest.raises(ValueError, match="keep = 0 is not allowed"):
        ModelCheckpoint(keep=0)


# TerminateOnNaN


def test_nan_stops_at_the_next_log(caplog):
    task = FakeTask()
    task._read = lambda: {"loss": math.nan if task.attempted_steps > 4 else 1.0}
    task.fit(losses(1.0, 1.0, 1.0), [TerminateOnNaN()])
    assert task.stop_training and "loss = nan at step 6" in caplog.text


def test_nan_of_an_epoch_stops():
    task = FakeTask()
    task.fit([{"loss": 1.0}, {"loss": math.inf}, {"loss": 1.0}], [TerminateOnNaN()])
    assert task.epoch == 2
