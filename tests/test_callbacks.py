"""Callbacks: hooks and phases in any order given, lazy logs, and a stop at what is no number."""

import itertools
import math

import pytest
from faketask import FakeTask, Recorder, losses

from renaissance.callbacks import (
    Callback,
    CallbackList,
    EarlyStopping,
    LambdaCallback,
    LazyLogs,
    Phase,
    TerminateOnNaN,
)


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


def test_nan_stops_at_the_next_log(caplog):
    task = FakeTask()
    task._read = lambda: {"loss": math.nan if task.attempted_steps > 4 else 1.0}
    task.fit(losses(1.0, 1.0, 1.0), [TerminateOnNaN()])
    assert task.stop_training and "loss = nan at step 6" in caplog.text


def test_nan_of_an_epoch_stops():
    task = FakeTask()
    task.fit([{"loss": 1.0}, {"loss": math.inf}, {"loss": 1.0}], [TerminateOnNaN()])
    assert task.epoch == 2
