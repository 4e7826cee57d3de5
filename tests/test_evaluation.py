"""Evaluation and prediction: the hooks that are called, in which order, and what is shown."""

import gc
import pathlib

import numpy as np
import pytest
import torch
from torch import nn

import renaissance as rn
from renaissance.fit import evaluation

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(20, 4)).astype(np.float32), rng.integers(0, 3, size=20)


class Recorder(rn.Callback):
    """Every hook by name, with the batch where there is one."""

    def __init__(self):
        self.heard, self.logs = [], {}

    def on_test_begin(self, logs):
        self.heard.append("test begin")

    def on_test_batch_begin(self, batch, logs):
        self.heard.append(f"begin {batch}")

    def on_test_batch_end(self, batch, logs):
        self.heard.append(f"end {batch}")

    def on_test_end(self, logs):
        self.heard.append("test end")
        self.logs = dict(logs)

    def on_predict_begin(self, logs):
        self.heard.append("predict begin")

    def on_predict_batch_begin(self, batch, logs):
        self.heard.append(f"begin {batch}")

    def on_predict_batch_end(self, batch, logs):
        self.heard.append(f"end {batch}")

    def on_predict_end(self, logs):
        self.heard.append("predict end")


def heard(kind, batches=3):
    return [
        f"{kind} begin",
        *(f"{w} {b}" for b in range(batches) for w in ("begin", "end")),
        f"{kind} end",
    ]


def loader(**options):
    return rn.Loader.from_arrays(X, Y, **({"batch_size": 8, "workers": 0} | options))


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def task(recorder):
    task = rn.Task(nn.Linear(4, 3), seed=1, device="cpu", threads=1).callbacks(recorder)
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.1)).data(loader(), loader())
    return task.compile(report="none")


class TestHooks:
    def test_evaluate(self, task, recorder):
        means = task.evaluate(loader())
        assert recorder.heard == heard("test") and recorder.logs == means
        assert recorder.params["steps"] == 3

    def test_predict(self, task, recorder):
        task.predict(X)
        assert recorder.heard == heard("predict", batches=1)
        recorder.heard.clear()
        task.predict(loader())
        assert recorder.heard == heard("predict")

    def test_validation(self, task, recorder):
        task.fit(epochs=2, verbose=0)
        assert recorder.heard == heard("test") * 2
        assert set(recorder.logs) == {"val_loss", "val_accuracy"}

    def test_callbacks_of_the_call(self, task, recorder):
        other = Recorder()
        task.evaluate(loader(), callbacks=[other])
        assert other.heard == recorder.heard == heard("test")
        task.predict(loader(), callbacks=[other])
        assert other.heard == heard("test") + heard("predict")
        with pytest.raises(TypeError, match="received 3"):
            task.evaluate(loader(), callbacks=[3])

    def test_a_callback_that_evaluates_does_not_hear_itself(self, task, recorder):
        class Asks(Recorder):
            def on_epoch_end(self, epoch, logs):
                logs["other_loss"] = self.task.evaluate(loader())["loss"]

        asks = Asks()
        history = task.fit(epochs=1, callbacks=[asks], verbose=0).history
        assert asks.heard == recorder.heard == heard("test")  # the validation alone
        assert history["other_loss"] == history["val_loss"]
        assert asks.params["epochs"] == 1

    def test_a_batch_begins_before_it_is_run(self, task, monkeypatch):
        order = []
        run = task.executor.test_step
        monkeypatch.setattr(
            task.executor, "test_step", lambda batch: (order.append("run"), run(batch))
        )
        hooks = {
            f"on_test_batch_{w}": lambda b, logs, w=w: order.append(w) for w in ("begin", "end")
        }
        task.evaluate(loader(), callbacks=[rn.LambdaCallback(**hooks)])
        assert order == ["begin", "run", "end"] * 3


class TestProgress:
    def test_a_short_one_is_silent_and_standard_output_always(self, task, capsys, monkeypatch):
        monkeypatch.setattr(evaluation, "PATIENCE_SECONDS", 3600.0)
        task.evaluate(loader()), task.predict(X)
        assert capsys.readouterr() == ("", "")

    @pytest.mark.parametrize("verbose", ["auto", 2])
    def test_a_long_one_or_one_asked_for_is_a_line(self, task, capsys, monkeypatch, verbose):
        monkeypatch.setattr(evaluation, "PATIENCE_SECONDS", 0.0 if verbose == "auto" else 3600.0)
        loss = task.evaluate(loader(), verbose=verbose)["loss"]
        task.predict(X, verbose=verbose)
        out, err = capsys.readouterr()
        first, second = err.splitlines()
        assert out == "" and first.startswith("evaluate  ") and f"loss {loss:.4f}" in first
        assert second.startswith("predict  ") and "samples/s" in second

    def test_silence_and_a_bar(self, task, capsys):
        task.evaluate(loader(), verbose=0)
        assert capsys.readouterr().err == ""
        task.evaluate(loader(), verbose=1)
        assert "3/3" in capsys.readouterr().err
        with pytest.raises(ValueError, match="verbose = 3"):
            task.predict(X, verbose=3)


def test_predict_gives_every_sample_or_says_which_it_cannot(task):
    whole = task.predict(X)
    assert np.allclose(task.predict(loader(shuffle=True)), whole, atol=1e-6)
    assert task.predict(loader(drop_last=True, batch_size=10)).shape == (20, 3)
    with pytest.raises(ValueError, match="leaves out 4 of 20 samples"):
        task.predict(loader(drop_last=True))


def short(kind):
    """Data of which the last 4 of 20 samples are left out."""
    if kind == "rn":
        return loader(drop_last=True)
    rows = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
    return torch.utils.data.DataLoader(rows, batch_size=8, drop_last=True)


@pytest.mark.parametrize("kind", ["rn", "torch"])
def test_evaluation_and_validation_are_of_all_samples(task, recorder, kind):
    told = rn.Task(nn.Linear(4, 3), seed=1, device="cpu", threads=1).data(loader(), short(kind))
    told.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.1)).compile(report="none")
    calls = {
        "evaluate": lambda: task.evaluate(short(kind)),
        "predict": lambda: task.predict(short(kind)),
        "validation data": lambda: task.fit(epochs=1, validation_data=short(kind), verbose=0),
        "validation data:": lambda: told.fit(epochs=1, verbose=0),
    }
    for what, call in calls.items():
        text = f"{what}:? drop_last=True leaves out 4 of 20 samples; it takes a loader without"
        with pytest.raises(ValueError, match=text):
            call()
    assert task.attempted_steps == told.attempted_steps == 0 and "begin 0" not in recorder.heard
    assert task.evaluate(loader(drop_last=True, batch_size=10)) == pytest.approx(
        task.evaluate(loader()), rel=1e-6
    )


@pytest.mark.parametrize(
    "loss", [rn.MSELoss(), rn.BCEWithLogitsLoss(), nn.L1Loss()], ids=lambda v: type(v).__name__
)
def test_data_that_would_broadcast_is_refused_after_compile_too(loss):
    y = (Y > 0).astype(np.float32)
    task = rn.Task(nn.Linear(4, 1), seed=1, device="cpu", threads=1).loss(loss)
    task.optimizer(rn.SGD(lr=0.1)).data(rn.Loader.from_arrays(X, y[:, None], batch_size=8))
    task.compile(report="none")
    flat = rn.Loader.from_arrays(X, y, batch_size=8)
    calls = [
        lambda: task.evaluate(flat),
        lambda: task.fit(flat, epochs=1, verbose=0),
        lambda: task.train_on_batch(X, y),
        lambda: task.test_on_batch(X, y),
    ]
    for call in calls:
        with pytest.raises(ValueError, match=r"outputs \(\d+, 1\), received \(\d+,\)"):
            call()
    assert task.fit(epochs=1, verbose=0).history["loss"][0] > 0


def workers():
    """Threads of streams."""
    names = [task / "comm" for task in pathlib.Path("/proc/self/task").iterdir()]
    return sum(name.read_text() == "rn-worker\n" for name in names if name.exists())


class Broken:
    """Rows of which one cannot be read while `is_broken`."""

    num_classes = 3

    def __init__(self, is_broken=True):
        self.is_broken = is_broken

    def __len__(self):
        return len(X)

    def read(self, index):
        if self.is_broken and index == 12:
            raise OSError("the disk is gone")
        return X[index], int(Y[index])


class Looks(rn.Callback):
    """Evaluates what is trained on, and something else, in the middle of training."""

    def __init__(self, *loaders):
        self.loaders = loaders

    def on_train_batch_end(self, batch, logs):
        for loader in self.loaders:
            self.task.evaluate(loader)


@pytest.mark.timeout(60)
class TestStreams:
    @pytest.fixture(autouse=True)
    def nothing_is_left_open(self, task):
        gc.collect()
        task.evaluate(task.settings.valid)  # the task's own streams stay open
        threads, streams = workers(), len(task.executor._streams)
        yield
        gc.collect()
        assert (workers(), len(task.executor._streams)) == (threads, streams)

    def test_data_that_is_the_tasks_keeps_its_stream(self, task):
        streams = dict(task.executor._streams)
        task.evaluate(task.settings.valid), task.predict(task.settings.valid)
        assert task.executor._streams == streams != {}

    def test_guests_are_closed(self, task):
        guest = loader(workers=2)
        for _ in range(3):
            task.evaluate(guest), task.predict(guest), task.predict(X)

    def test_guests_are_closed_after_an_error(self, task):
        guest = rn.Loader(Broken(), batch_size=8, workers=2)
        for look in (task.evaluate, task.predict):
            with pytest.raises(ValueError, match="the disk is gone"):
                look(guest)
            with pytest.raises(ValueError, match=r"of shape \(2,\).*mat1.*data has \(4,\)"):
                look(rn.Loader.from_arrays(X[:, :2], Y, batch_size=8, workers=2))

    def test_guests_of_fit_are_closed(self, task):
        own = rn.Loader.from_arrays(X, Y, batch_size=8, workers=2)
        for _ in range(2):
            done = rn.Task(nn.Linear(4, 3), seed=1, device="cpu", threads=1)
            done.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.1)).data(own)
            done.compile(report="none").fit(own, epochs=1, validation_data=loader(workers=1))
            assert len(done.executor._streams) == 1
            done.close()

    def test_looking_at_what_a_fit_reads_leaves_it_open(self, task):
        plain, looking = (
            rn.Task(nn.Linear(4, 3), seed=1, device="cpu", threads=1) for _ in range(2)
        )
        for one, looks in ((plain, False), (looking, True)):
            one.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.1)).compile(report="none")
            train, other = loader(batch_size=4, shuffle=True), loader()
            callbacks = [Looks(train, other)] if looks else []
            one.fit(train, epochs=2, validation_data=other, callbacks=callbacks, verbose=0)
            one.close()
        assert plain.history.history == looking.history.history


@pytest.mark.timeout(60)
@pytest.mark.parametrize("count", [0, 2])
def test_a_read_error_does_not_end_the_loader(count):
    data = Broken()
    train = rn.Loader(data, batch_size=4, workers=count)
    task = rn.Task(nn.Linear(4, 3), seed=1, device="cpu", threads=1).data(train, train)
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.1)).compile(report="none")
    for call in (lambda: task.fit(epochs=1, verbose=0), lambda: task.evaluate(train)):
        for _ in range(2):
            with pytest.raises(ValueError, match="sample 12: the disk is gone"):
                call()
    data.is_broken = False
    task.reset()
    task.fit(epochs=2, verbose=0)
    whole = rn.Task(nn.Linear(4, 3), seed=1, device="cpu", threads=1)
    whole.data(rn.Loader(Broken(False), batch_size=4, workers=count))
    whole.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.1)).compile(report="none")
    whole.fit(epochs=2, verbose=0)
    assert task.state_hash() == whole.state_hash()
    assert task.evaluate(train) == whole.evaluate(train)
    task.close(), whole.close()
