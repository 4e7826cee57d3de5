"""A model that fails in the middle: its error stays as it is, with a note of where it was."""

import sys
import traceback

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import renaissance as rn
from renaissance.cli import main

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.skipif(sys.version_info < (3, 11), reason="notes are shown from Python 3.11 on"),
]

N, BAD = 80, 50
X = np.random.default_rng(0).integers(0, 10, (N, 3))
Y = np.arange(N) % 2
WRONG = X.copy()
WRONG[BAD, 1] = 99  # no such row in the table


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.head = nn.Embedding(10, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.table(x).mean(1))


def rows(x=WRONG, **options):
    return rn.Loader.from_arrays(x, Y[: len(x)], **{"batch_size": 8, "workers": 0} | options)


def task_on(train, valid=None, accumulate=1, **options):
    task = rn.Task(Words(), device="cpu", seed=1, **options).accumulate(accumulate)
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.AdamW(lr=1e-2))
    return task.data(train, valid).compile(report="none")


def failing(call, kind=IndexError):
    """The error of a call, whose type is that and no other, and its notes."""
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    return caught.value, getattr(caught.value, "__notes__", [])


class TestFit:
    @pytest.mark.parametrize("accumulate", [1, 3])
    def test_a_step_says_which_and_its_samples(self, accumulate):
        task = task_on(rows(shuffle=True), accumulate=accumulate)
        error, (note,) = failing(lambda: task.fit(epochs=2, verbose=0))
        assert str(error) == "index out of range in self"  # torch's own
        position = task.position
        steps = -(-10 // accumulate)
        assert f"in epoch 1, step {position.step + 1} of {steps} (update " in note
        assert note.startswith("renaissance: ") and f"(update {position.attempted + 1} of" in note

        batches = task.batch_at(0, position.step)
        batches = batches if isinstance(batches, list) else [batches]
        ids = np.concatenate([batch.ids for batch in batches])
        assert BAD in ids and f"task.batch_at(0, {position.step}) gives what it met" in note
        more = f" and {len(ids) - 8} more" if len(ids) > 8 else ""
        assert f", of samples {', '.join(map(str, ids[:8]))}{more};" in note
        lines = traceback.format_exception(error)
        assert lines[-1].strip() == note  # below torch's own words

    def test_a_later_epoch_counts_on(self):
        task = task_on(rows(X))
        task.fit(epochs=1, verbose=0)
        _, (note,) = failing(lambda: task.fit(rows(), epochs=2, verbose=0))
        assert note.endswith("in epoch 2, step 7 of 10 (update 17 of the run), of samples 48 to 55")
        assert "task.batch_at" not in note  # it is of the task's own data

    def test_a_dataloader_does_not_tell_which_samples(self):
        data = TensorDataset(torch.from_numpy(WRONG), torch.from_numpy(Y))
        task = task_on(DataLoader(data, batch_size=8, shuffle=True))
        _, (note,) = failing(lambda: task.fit(epochs=1, verbose=0))
        step = task.position.step
        assert note.endswith(f"of the run); task.batch_at(0, {step}) gives what it met")
        assert (task.batch_at(0, step).x == 99).any()

    def test_data_that_fails_has_its_place_too(self):
        class Broken(torch.utils.data.Dataset):
            def __len__(self):
                return N

            def __getitem__(self, k):
                if k == BAD:
                    raise KeyError("no such file")
                return X[k], Y[k]

        task = task_on(DataLoader(Broken(), batch_size=8))
        _, (note,) = failing(lambda: task.fit(epochs=1, verbose=0), KeyError)
        assert "in epoch 1, step 7 of 10 (update 7 of the run)" in note

    def test_a_validation_says_its_batch_and_the_epoch(self):
        task = task_on(rows(X), rows(batch_size=16))
        _, (first, second) = failing(lambda: task.fit(epochs=3, verbose=0))
        assert first.endswith("in evaluate, batch 4 of 5, of samples 48 to 63")
        assert second.endswith("in the validation of epoch 1, after 10 steps of fit")

    def test_what_is_refused_in_its_place_has_the_note(self):
        task = task_on(rows(X))
        floats = rows(np.ones((8, 3), np.float32))
        error, (note,) = failing(lambda: task.fit(floats, epochs=1, verbose=0), ValueError)
        assert "the model does not take samples of shape (3,) and type float32" in str(error)
        assert isinstance(error.__cause__, RuntimeError) and "epoch 1, step 1 of 1 " in note

    def test_the_run_can_go_on(self):
        task = task_on(rows(X))
        whole = task_on(rows(X))
        whole.fit(epochs=2, verbose=0)
        failing(lambda: task.fit(rows(), epochs=2, verbose=0))
        assert task.position.step == 6  # of the same samples as in X
        task.fit(epochs=2, verbose=0)
        assert task.state_hash() == whole.state_hash()

    def test_what_a_callback_raises_is_of_no_step(self):
        class Stops(rn.Callback):
            def on_train_batch_end(self, batch, logs):
                raise IndexError("mine")

        task = task_on(rows(X))
        error, notes = failing(lambda: task.fit(epochs=1, verbose=0, callbacks=[Stops()]))
        assert str(error) == "mine" and notes == []

    def test_an_exception_that_is_kept_and_raised_again_has_each_note_once(self):
        kept = IndexError("kept")

        class Keeps(Words):
            def forward(self, x):
                if (x == 99).any():
                    raise kept
                return super().forward(x)

        task = rn.Task(Keeps(), device="cpu", seed=1).loss(rn.CrossEntropyLoss())
        task.optimizer(rn.AdamW(lr=1e-2)).data(rows(X)).compile(report="none")
        _, (first,) = failing(lambda: task.fit(rows(), epochs=1, verbose=0))
        _, (again,) = failing(lambda: task.fit(rows(), epochs=1, verbose=0))
        assert again == first and "step 7 of 10" in first
        _, (_, other) = failing(lambda: task.evaluate(rows(batch_size=16)))
        assert other.endswith("in evaluate, batch 4 of 5, of samples 48 to 63")

    def test_what_the_data_raises_when_it_is_asked_what_it_is_has_the_note_too(self):
        class Broken(torch.utils.data.Dataset):
            def __len__(self):
                return N

            def __getitem__(self, k):
                raise RuntimeError("no such disk")

        task = task_on(rows(X))
        error, (note,) = failing(
            lambda: task.fit(DataLoader(Broken(), batch_size=8), epochs=1, verbose=0), RuntimeError
        )
        assert str(error) == "no such disk" and "in epoch 1, step 1 of 10 " in note


class Raises(rn.Callback):
    """Fails in one hook, at one batch."""

    def __init__(self, hook, at):
        def fail(batch, logs):
            if batch == at:
                raise IndexError("mine")

        setattr(self, hook, fail)


@pytest.mark.parametrize("at", [0, 2, 4])
@pytest.mark.parametrize("end", ["begin", "end"])
class TestHooks:
    def test_in_a_validation_they_are_of_no_batch(self, end, at):
        task = task_on(rows(X), rows(X, batch_size=16))
        hooks = [Raises(f"on_test_batch_{end}", at)]
        _, (note,) = failing(lambda: task.fit(epochs=1, verbose=0, callbacks=hooks))
        assert note == "renaissance: in the validation of epoch 1, after 10 steps of fit"

    @pytest.mark.parametrize(("call", "kind"), [("evaluate", "test"), ("predict", "predict")])
    def test_by_themselves_too(self, call, kind, end, at):
        task, hooks = task_on(rows(X)), [Raises(f"on_{kind}_batch_{end}", at)]
        _, notes = failing(lambda: getattr(task, call)(rows(X, batch_size=16), callbacks=hooks))
        assert notes == []


class TestLooking:
    @pytest.mark.parametrize("call", ["evaluate", "predict"])
    def test_a_loader(self, call):
        task = task_on(rows(X))
        _, (note,) = failing(lambda: getattr(task, call)(rows(batch_size=30)))
        assert note == f"renaissance: in {call}, batch 2 of 3, of samples 30 to 59"
        before = task.state_hash()
        assert len(task.predict(rows(X))) == N and task.state_hash() == before

    def test_a_dataloader_and_arrays(self):
        task = task_on(rows(X))
        _, (note,) = failing(lambda: task.predict(DataLoader(WRONG, batch_size=7)))
        assert note == "renaissance: in predict, batch 8 of 12"
        many = np.concatenate([X, X, X, WRONG])
        _, (note,) = failing(lambda: task.predict(many))
        assert note == "renaissance: in predict, batch 2 of 2, of samples 256 to 319"
        _, (note,) = failing(lambda: task.predict((many, None)))
        assert note == "renaissance: in predict, batch 2 of 2"
        for one in (WRONG, (WRONG, Y)):
            assert failing(lambda: task.predict(one))[1] == []  # noqa: B023

    def test_the_average_is_put_back(self):
        task = task_on(rows(X))
        task.ema(0.5).compile(report="none").fit(epochs=1, verbose=0)
        before, weights = task.state_hash(), task.state_dict("raw")
        failing(lambda: task.evaluate(rows()))
        assert task.state_hash() == before
        assert all(torch.equal(t, weights[n]) for n, t in task.state_dict("raw").items())


def test_ids_are_those_of_the_batch_without_reading_it():
    loader = rows(X, shuffle=True, seed=3)
    for epoch, step in [(0, 0), (2, 9), (5, 4)]:
        assert loader.ids_at(epoch, step).tolist() == loader.batch_at(epoch, step).ids.tolist()
    other = rows(X, shuffle=True)
    for seed in (1, 2):
        expected = other.batch_at(1, 3, seed=seed).ids.tolist()
        assert other.ids_at(1, 3, seed=seed).tolist() == expected
    assert other.ids_at(1, 3, seed=1).tolist() != other.ids_at(1, 3, seed=2).tolist()


def test_the_command_line_says_it_too(monkeypatch, capsys):
    def fails(**options):
        task_on(rows(X)).fit(rows(X.astype(np.float32)), epochs=1, verbose=0)

    monkeypatch.setattr(main.cli, "main", fails)
    assert main.main(["train", "a.yaml"]) == 1
    first, second = capsys.readouterr().err.strip().rsplit("\n", 1)
    assert first.startswith("error: the model does not take samples of shape (3,) and type float32")
    assert second.startswith("renaissance: in epoch 1, step 1 of 10 (update 1 of the run), of samp")
