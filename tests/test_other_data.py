"""A run that goes on with other data than it had: refused with what differs, or said."""

import json
import logging

import numpy as np
import pytest
import torch
from small import X, Y, compiled, loader, make
from torch.utils.data import DataLoader, TensorDataset

import renaissance as rn
from renaissance.checkpoint import read_checkpoint, write_checkpoint


def valid(x=X[:32], y=Y[:32], *, batch_size=8, **options):
    return rn.Loader.from_arrays(x, y, batch_size=batch_size, workers=0, **options)


def dataless(**options):
    task = rn.Task(make().model, seed=1, device="cpu", **options)
    return task.loss(rn.CrossEntropyLoss()).optimizer(rn.AdamW(lr=1e-2)).compile(report="none")


OTHERS = {
    "samples": (lambda: valid(X[:32] + 1), r"validation \(dataset\.x\.sha256"),
    "labels": (lambda: valid(y=(Y[:32] + 1) % 4), r"validation \(dataset\.y\.sha256"),
    "fewer": (lambda: valid(X[:24], Y[:24]), r"validation \(num_samples: 32 then, 24 now"),
    "batches": (lambda: valid(batch_size=16), r"validation \(batch_size: 8 then, 16 now\)"),
    "theirs": (
        lambda: DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), 8),
        "another validation",
    ),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The folder of a run with validation data, and the checkpoint of one without."""
    folder = tmp_path_factory.mktemp("runs")
    compiled(valid=valid(), run_dir=folder / "a").fit(epochs=1, verbose=0)
    bare = compiled()
    bare.fit(epochs=1, verbose=0)
    return folder / "a", bare.save(folder / "bare")


def more(task, place, **options):
    return task.fit(epochs=2, verbose=0, resume=place, horizon="keep", **options)


class TestValidation:
    @pytest.mark.parametrize("kind", OTHERS)
    def test_of_other_data_is_another_run(self, runs, kind):
        other, text = OTHERS[kind]
        task = compiled(valid=other())
        before = task.state_hash()
        for call in (lambda: task.load(runs[0]), lambda: more(task, runs[0])):
            with pytest.raises(ValueError, match=text) as error:
                call()
            assert "allow=['validation']" in str(error.value)
            assert "Resuming would lose comparison with what was measured" in str(error.value)
        assert task.state_hash() == before and task.attempted_steps == 0
        for call in (
            lambda: more(compiled(), runs[0], validation_data=other()),
            lambda: compiled().load(runs[0]).fit(epochs=2, validation_data=other(), verbose=0),
            lambda: dataless().load(runs[0]).fit(loader(), epochs=2, validation_data=other()),
        ):
            with pytest.raises(ValueError, match=text):
                call()

    def test_with_other_transforms_is_another_run(self, tmp_path):
        pictures = np.zeros((8, 6, 6), np.uint8)

        def task(mean):
            data = rn.Loader.from_arrays(pictures, Y[:8], batch_size=4, workers=0)
            look = rn.Loader.from_arrays(
                pictures,
                Y[:8],
                batch_size=4,
                workers=0,
                transforms=[rn.Normalize(mean=mean, std=0.5)],
            )
            model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(36, 4))
            return compiled(model, train=data, valid=look)

        first = task(0.5)
        first.fit(epochs=1, verbose=0)
        place = first.save(tmp_path / "c")
        task(0.5).load(place)
        with pytest.raises(ValueError, match=r"another validation \(transforms: .*0\.25"):
            task(0.25).load(place)

    def test_that_is_allowed_is_said(self, runs, caplog):
        task = compiled(valid=valid(batch_size=16)).load(runs[0], allow=["validation"])
        assert "resume: another validation (batch_size: 8 then, 16 now)" in caplog.text
        task.fit(epochs=2, verbose=0, horizon="keep")
        assert task.epoch == 2

    def test_that_is_the_same_is_silent(self, runs, caplog):
        with caplog.at_level(logging.WARNING):
            more(compiled(valid=valid()), runs[0])
            compiled(valid=valid()).load(runs[0]).fit(epochs=2, verbose=0, horizon="keep")
            more(compiled(), runs[0], validation_data=valid())
            more(compiled(), runs[1])
        assert caplog.text == ""

    def test_that_begins_or_ends_is_said(self, runs, caplog):
        more(compiled(), runs[0])
        assert "had validation data, and has none" in caplog.text
        caplog.clear()
        compiled().load(runs[0]).fit(epochs=2, verbose=0, horizon="keep")
        assert "had validation data, and has none" in caplog.text
        caplog.clear()
        more(compiled(valid=valid()), runs[1])
        assert "had no validation data so far" in caplog.text

    def test_of_a_checkpoint_from_before_it_was_kept_is_not_known(self, runs, tmp_path, caplog):
        checkpoint = read_checkpoint(read_checkpoint(runs[1]).path)
        state = json.loads(json.dumps(checkpoint.state))
        del state["identity"]["validation"]
        files = {name: file.read_all() for name, file in checkpoint.files.items()}
        old = write_checkpoint(tmp_path / "old", files, state)
        for task in (compiled(), compiled(valid=valid())):
            more(task, old)
        dataless().load(old).fit(loader(), epochs=2, validation_data=valid(), horizon="keep")
        assert "validation" not in caplog.text


class TestDataThatComesAfterTheCheckpoint:
    def test_is_compared_when_it_comes(self, runs):
        task = dataless().load(runs[1])
        before = task.state_hash()
        for _ in range(2):
            with pytest.raises(ValueError, match=r"another data \(num_samples: 64 then, 32 now"):
                task.fit(loader(32), epochs=2, verbose=0)
        assert task.state_hash() == before and task.attempted_steps == 8
        task.fit(loader(), epochs=2, verbose=0, horizon="keep")
        task.fit(loader(32), epochs=3, verbose=0, horizon="keep")  # within a process one may

    def test_goes_on_to_the_same_bits(self, runs):
        whole = compiled()
        whole.fit(epochs=2, verbose=0, horizon="keep")
        task = dataless().load(runs[1])
        task.fit(loader(), epochs=2, verbose=0, horizon="keep")
        assert task.state_hash() == whole.state_hash()

    @pytest.mark.parametrize("where", ["load", "fit"])
    def test_may_be_allowed(self, runs, caplog, where):
        allow = {where: ["data"]}
        task = dataless().load(runs[1], allow=allow.get("load", ()))
        task.fit(loader(32), epochs=2, verbose=0, horizon="keep", allow=allow.get("fit", ()))
        assert ("another data" in caplog.text) is (where == "fit")
        assert task.epoch == 2

    def test_is_compared_though_told_in_between(self, runs):
        task = dataless().load(runs[1]).data(loader(32)).compile(report="none")
        with pytest.raises(ValueError, match="another data"):
            task.fit(epochs=2, verbose=0)

    def test_is_kept_by_a_checkpoint_in_between(self, runs, tmp_path):
        place = dataless().load(runs[1]).save(tmp_path / "again")
        compiled().load(place)
        with pytest.raises(ValueError, match="another data"):
            compiled(train=loader(32)).load(place)

    def test_is_that_of_the_last_checkpoint(self, runs, tmp_path):
        other = compiled(train=loader(32))
        other.fit(epochs=1, verbose=0)
        task = dataless().load(runs[1]).load(other.save(tmp_path / "other"))
        with pytest.raises(ValueError, match="32 then, 64 now"):
            task.fit(loader(), epochs=2, verbose=0)
        task.fit(loader(32), epochs=2, verbose=0, horizon="keep")

    @pytest.mark.parametrize("is_reset", [False, True])
    def test_is_of_no_matter_to_a_fresh_start_or_to_weights_alone(self, runs, is_reset):
        task = dataless().load(runs[1], weights_only=not is_reset)
        if is_reset:
            task.reset()
        task.fit(loader(32), epochs=1, verbose=0)
        assert task.epoch == 1

    def test_a_refusal_leaves_the_task_its_data(self, runs, tmp_path):
        task = compiled()
        task.fit(epochs=1, verbose=0)
        with pytest.raises(ValueError, match="another data"):
            more(task, runs[1], train=loader(32))
        compiled().load(task.save(tmp_path / "c"))
