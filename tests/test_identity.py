"""What a resume refuses, and what it does when a difference is allowed by name."""

import numpy as np
import pytest
import torch
from torch import nn

import renaissance as rn
from renaissance.callbacks import EarlyStopping
from renaissance.checkpoint import read_checkpoint, write_checkpoint

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(48, 6)).astype(np.float32), rng.integers(0, 3, size=48)


class Net(nn.Module):
    def __init__(self, classes=3, bias=True):
        super().__init__()
        self.first, self.norm = nn.Linear(6, 8), nn.BatchNorm1d(8)
        self.last = nn.Linear(8, classes, bias=bias)

    def forward(self, x):
        return self.last(torch.relu(self.norm(self.first(x))))


def make(model=None, *, optimizer=None, ema=0.9, metrics=(), x=X, y=Y, **options):
    loader = rn.Loader.from_arrays(x, y, batch_size=8, shuffle=True, workers=0)
    task = rn.Task(model or Net(), name="t", seed=7, device="cpu", threads=1, **options)
    task.loss(rn.CrossEntropyLoss()).optimizer(optimizer or rn.AdamW(lr=0.01))
    task.metrics("accuracy", *metrics).data(loader, loader)
    if ema:
        task.ema(ema)
    return task.compile(report="none")


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A checkpoint in the middle of the first epoch."""
    task = make()
    task.fit(max_steps=4, verbose=0)
    return task.save(tmp_path_factory.mktemp("run") / "c")


def average(task):
    """The first layer's averaged weights."""
    return task.require().memory.view("E", "first.weight")


class TestRefusals:
    @pytest.mark.parametrize(
        ("other", "what"),
        [
            ({"x": X[:40], "y": Y[:40]}, r"another data \(num_samples: 48 then, 40 now; dataset"),
            ({"x": X * 2}, r"another data \(dataset\.x\.sha256: '[0-9a-f]{64}' then, "),
            ({"optimizer": rn.SGD(lr=0.1)}, r"another recipe \(optimizer: 'AdamW\(lr=0.01\)' then"),
            ({"ema": None}, r"another recipe \(ema: 'Ema\(0.9\)' then, 'None' now"),
            ({"metrics": ["top2"]}, r"another recipe \(metrics: .*'top2_accuracy'\] now"),
            (
                {"precision": "bf16-mixed"},
                r"another plan .*precision: '32-true' then, 'bf16-mixed'",
            ),
        ],
    )
    def test_name_what_differs_and_change_nothing(self, saved, other, what):
        task = make(**other)
        before = task.state_hash()
        with pytest.raises(ValueError, match=what):
            task.load(saved)
        assert task.state_hash() == before and task.attempted_steps == 0

    @pytest.mark.parametrize("name", ["optimizer", "ema"])
    def test_a_file_too_many(self, tmp_path, name):
        task = make(optimizer=rn.SGD(lr=0.1), ema=None)
        checkpoint = read_checkpoint(task.save(tmp_path / "c"))
        files = {name: {"a": torch.zeros(1)}, "model": checkpoint.files["model"].read_all()}
        more = write_checkpoint(tmp_path / "more", files, checkpoint.state)
        with pytest.raises(
            rn.CheckpointError, match=rf"{name}\.safetensors is not part of this run"
        ):
            task.load(more)

    def test_all_differences_come_at_once_with_the_way_out(self, saved):
        task = make(optimizer=rn.SGD(lr=0.1), x=X * 2)
        match = "another data .*another validation .*another recipe"
        with pytest.raises(ValueError, match=match) as error:
            task.load(saved, allow=["plan"])
        assert "allow=['plan', 'data', 'validation', 'recipe']" in str(error.value)
        task.load(saved, allow=["plan", "data", "validation", "recipe"])

    def test_weights_alone_are_all_or_nothing(self, saved):
        for model in (Net(classes=5), Net(bias=False)):
            task = make(model)
            before = task.state_hash()
            with pytest.raises(rn.CheckpointError, match=r"model\.safetensors: 'last\."):
                task.load(saved, weights_only=True)
            assert task.state_hash() == before


class TestAllowed:
    ALLOW = ("recipe", "plan")

    def test_other_moments_start_afresh(self, saved, caplog):
        task = make(optimizer=rn.SGD(lr=0.1, momentum=0.9))
        task.fit(max_steps=2, verbose=0)
        task.load(saved, allow=self.ALLOW)
        assert "other moments" in caplog.text and task.attempted_steps == 4
        assert not task.require().memory.region("M").any()
        assert torch.equal(average(task), read_checkpoint(saved).files["ema"].read("first.weight"))
        task.fit(epochs=1, verbose=0)
        assert task.attempted_steps == 6

    def test_an_average_that_is_not_there_starts_at_the_weights(self, tmp_path, caplog):
        without = make(ema=None)
        without.fit(max_steps=4, verbose=0)
        task = make().load(without.save(tmp_path / "c"), allow=self.ALLOW)
        assert "other averages" in caplog.text
        assert torch.equal(average(task), task.model.first.weight)
        scalars = task.executor.updater.scalars
        assert (scalars["applied"], scalars["averaged"]) == (4, 0)
        moments = task.require().memory.region("M")
        assert torch.equal(moments, without.require().memory.region("M"))

    def test_what_this_run_has_no_use_for_is_left_out(self, saved, caplog):
        task = make(optimizer=rn.SGD(lr=0.1), ema=None).load(saved, allow=self.ALLOW)
        assert "moments are left out" in caplog.text and "averages are left out" in caplog.text
        assert task.attempted_steps == 4

    def test_a_new_metric_starts_in_this_epoch(self, saved, caplog):
        task = make(metrics=["top2"]).load(saved, allow=self.ALLOW)
        assert "those of this epoch start here" in caplog.text
        sums = task.executor.tally.values("epoch")
        assert sums[1] == sums[3] == 32 and sums[5] == 0
        task.fit(epochs=1, verbose=0)
        assert task.history.history["top2_accuracy"][0] >= task.history.history["accuracy"][0] - 0.5

    def test_another_precision_keeps_everything(self, saved):
        task = make(precision="bf16-mixed")
        task.load(saved, allow=["plan", "environment"])
        same = make().load(saved)
        assert task.executor.updater.scalars["averaged"] == 4
        for region in ("W", "M", "V", "E"):
            assert torch.equal(
                task.require().memory.region(region), same.require().memory.region(region)
            )

    def test_the_model_must_fit_in_any_case(self, saved):
        with pytest.raises(rn.CheckpointError, match="'last.bias' is not part of this run"):
            make(Net(bias=False)).load(saved)
        with pytest.raises(rn.CheckpointError, match="'last.weight' is float32"):
            make(Net(classes=5)).load(saved, allow=self.ALLOW)


class TestAverages:
    """Evaluation uses averages, so whoever takes weights takes their averages too."""

    def test_weights_only_takes_both(self, saved):
        whole, weights = make().load(saved), make().load(saved, weights_only=True)
        loader = whole.settings.valid
        assert weights.evaluate(loader) == whole.evaluate(loader)
        assert weights.evaluate(loader, "raw") == whole.evaluate(loader, "raw")
        assert weights.evaluate(loader) != weights.evaluate(loader, "raw")
        assert weights.attempted_steps == weights.global_step == 0

    @pytest.mark.parametrize("on_disk", [False, True])
    def test_restore_best_brings_back_what_was_measured(self, tmp_path, on_disk):
        task = make(optimizer=rn.SGD(lr=3.0), run_dir=tmp_path / "run" if on_disk else None)
        stop = EarlyStopping(patience=3, restore_best=True)
        history = task.fit(epochs=8, callbacks=[stop], verbose=0, checkpoint=None).history
        assert stop.best == min(history["val_loss"]) < history["val_loss"][-1]
        assert task.evaluate(task.settings.valid)["loss"] == stop.best


def test_a_data_set_is_asked_once_who_it_is(tmp_path):
    class Asked:
        asked = 0

        def __len__(self):
            return 16

        def read(self, index):
            return X[index], int(Y[index])

        def identity(self):
            self.asked += 1
            return {"type": "asked"}

    data = Asked()
    loader = rn.Loader(data, batch_size=8, workers=0)
    task = rn.Task(Net(), seed=1, device="cpu", run_dir=tmp_path / "run", threads=1)
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.1)).data(loader)
    task.compile(report="none").fit(epochs=3, verbose=0, checkpoint=1)
    task.load(tmp_path / "run")
    assert data.asked == 1
