"""Runs that died early, met a full disk, or were saved in the middle of an epoch's end."""

import itertools
import os
import shutil
import socket
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

import renaissance as rn
from renaissance import saver
from renaissance.checkpoint import read_checkpoint, write_checkpoint
from renaissance.fit import snapshot
from renaissance.saver import step_name

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(24, 4)).astype(np.float32), rng.integers(0, 3, size=24)


def make(run_dir=None, model=None, callbacks=()):
    train = rn.Loader.from_arrays(X, Y, batch_size=8, shuffle=True, workers=0)
    task = rn.Task(
        nn.Linear(4, 3) if model is None else model,
        name="t",
        seed=7,
        device="cpu",
        threads=1,
        run_dir=run_dir,
    )
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.05)).data(train, train)
    return task.callbacks(*callbacks).compile(report="none")


def facts(task):
    return task.state_hash(), task.history.rows(), task.best, task.attempted_steps


def test_auto_after_a_death_before_the_first_checkpoint_is_a_fresh_start(tmp_path, caplog):
    half = tmp_path / "checkpoints" / ".step-00000003.new-elsewhere-1-0"
    half.mkdir(parents=True)
    task = make(tmp_path)
    with pytest.raises(rn.CheckpointError, match="none is there; resume='auto' starts such a run"):
        task.fit(epochs=1, verbose=0, resume=tmp_path)
    task.fit(epochs=1, verbose=0, resume="auto")
    assert "no checkpoint in" in caplog.text and task.epoch == 1


def test_a_picture_that_cannot_be_drawn_does_not_undo_a_training(tmp_path, caplog, curves):
    pytest.importorskip("matplotlib")
    (tmp_path / "curves.png").mkdir()
    history = make(tmp_path).fit(epochs=1, verbose=0)
    assert len(history) == 1 and "curves.png could not be drawn" in caplog.text


class Remembers(nn.Module):
    """Forward depends on buffers that it changes, and that no state dict has."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("mean", torch.zeros(4), persistent=False)
        self.register_buffer("count", torch.zeros((), dtype=torch.int64), persistent=False)
        self.register_buffer("turn", torch.ones(2, dtype=torch.complex64), persistent=False)

    def forward(self, x):
        if self.training:
            self.mean.lerp_(x.detach().mean(0), 0.1)
            self.count += 1
            self.turn *= 1j
        return self.layer(x - self.mean) + self.count / 10 + self.turn.real[0]


@pytest.mark.parametrize("stop", [1, 3, 4])
def test_buffers_of_no_state_dict_are_part_of_a_resume(tmp_path, stop):
    unbroken = make(model=Remembers())
    unbroken.fit(epochs=2, verbose=0)
    first = make(tmp_path, Remembers())
    first.fit(max_steps=stop, verbose=0)
    assert "mean" not in first.model.state_dict()
    resumed = make(tmp_path, Remembers())
    resumed.fit(epochs=2, verbose=0, resume="auto")
    assert int(resumed.model.count) == 6 and facts(resumed) == facts(unbroken)
    weights = make(model=Remembers()).load(tmp_path, weights_only=True).model
    assert int(weights.count) == 0  # it is the module's own business beside a state dict


def test_a_checkpoint_from_before_such_buffers_were_kept_goes_on_without(tmp_path, caplog):
    first = make(model=Remembers())
    first.fit(max_steps=3, verbose=0)
    checkpoint = read_checkpoint(first.save(tmp_path / "c"))
    del checkpoint.files["buffers"]
    other = make(model=Remembers())
    snapshot.restore(other, checkpoint, ())
    assert "from before buffers of no state dict were kept" in caplog.text
    assert other.attempted_steps == 3 and int(other.model.count) == 0


def test_a_state_dict_of_other_things_than_tensors_is_refused_at_once(tmp_path):
    class Extra(nn.Linear):
        def get_extra_state(self):
            return {"seen": 3}

        def set_extra_state(self, state):
            pass

    make(model=Extra(4, 3)).fit(epochs=1, verbose=0)
    with pytest.raises(TypeError, match="'_extra_state' is {'seen': 3} .dict., and only tensors"):
        make(tmp_path, Extra(4, 3)).fit(epochs=1, verbose=0)


class SaveThenDie(rn.Callback):
    """Dies between its own checkpoint of an epoch's end and the one of fit."""

    phase = rn.Phase.CHECKPOINTS

    def __init__(self, folder, epoch):
        self.folder, self.epoch = folder, epoch

    def on_epoch_end(self, epoch, logs):
        if epoch == self.epoch:
            self.task.save(self.folder)
            raise KeyboardInterrupt


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_checkpoint_of_a_callback_knows_the_best_epoch(tmp_path, epoch):
    unbroken = make(tmp_path / "whole")
    unbroken.fit(epochs=2, verbose=0)
    dying = SaveThenDie(tmp_path / "saved", epoch)
    with pytest.raises(KeyboardInterrupt):
        make(tmp_path / "run", callbacks=[dying]).fit(epochs=2, verbose=0)
    resumed = make(tmp_path / "run")
    resumed.fit(epochs=2, verbose=0, resume=tmp_path / "saved")
    assert unbroken.best["epoch"] == 1 and facts(resumed) == facts(unbroken)


def test_epochs_of_another_length_are_said(tmp_path, caplog):
    make(tmp_path).fit(max_steps=2, verbose=0)
    make(tmp_path).fit(epochs=1, verbose=0, resume="auto", horizon="keep")
    assert "epochs have" not in caplog.text
    task = make(tmp_path)
    task.fit(epochs=2, verbose=0, resume="auto", horizon="keep", steps_per_epoch=2)
    assert "resume: epochs have 2 steps now, they had 3; lost: equality" in caplog.text


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("change", [{"shuffle": False}, {"drop_last": True}, {"generator": 3}])
def test_a_dataloader_of_another_order_is_another_run(tmp_path, change):
    def run(resume=False, **more):
        data = torch.utils.data.TensorDataset(torch.from_numpy(X), torch.from_numpy(Y))
        if "generator" in more:
            more["generator"] = torch.Generator().manual_seed(more["generator"])
        loader = torch.utils.data.DataLoader(data, batch_size=8, **{"shuffle": True, **more})
        make(tmp_path).fit(loader, epochs=2, verbose=0, resume=resume, horizon="keep")

    run()
    run(resume="auto")
    with pytest.raises(
        ValueError, match=r"another data \((sampler|drop_last|seeds): .* then, .* now"
    ):
        run(resume="auto", **change)


def test_what_a_killed_save_left_goes_with_the_next_one(tmp_path):
    """Of a callback's own folder too; each was as large as a checkpoint."""
    dead = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpid())"], stdout=subprocess.PIPE
    )
    best, host = tmp_path / "best-val_loss", socket.gethostname()
    left = best / f".step-00000003.new-{host}-{int(dead.stdout)}-0"
    ours, foreign = best / f".x.new-{host}-{os.getpid()}-0", best / ".x.new-elsewhere-1-0"
    for place in (left, ours, foreign):
        place.mkdir(parents=True)
        (place / "model.safetensors").write_bytes(b"half")
    stopping = rn.EarlyStopping(patience=5, restore_best=True)
    make(tmp_path, callbacks=[stopping]).fit(epochs=1, verbose=0)
    assert not left.exists() and ours.exists() and foreign.exists()


def test_the_working_directory_may_change_in_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    leave = rn.LambdaCallback(on_epoch_begin=lambda epoch, logs: os.chdir(tmp_path / "elsewhere"))
    make("run", callbacks=[leave]).fit(epochs=1, verbose=0)
    assert (tmp_path / "run" / "metrics.csv").exists()
    assert (tmp_path / "run" / "checkpoints" / "latest").exists()
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_reader_beside_a_running_saver_finds_a_checkpoint(tmp_path, monkeypatch):
    """Each one that it looks at is removed before it can read it, for a while."""
    write_checkpoint(tmp_path / step_name(1), {"model": {}}, {"step": 1})
    original, steps = saver.read_checkpoint, itertools.count(2)

    def read(place):
        step = next(steps)
        if step < 5:
            write_checkpoint(tmp_path / step_name(step), {"model": {}}, {"step": step})
            shutil.rmtree(place)
        return original(place)

    monkeypatch.setattr(saver, "read_checkpoint", read)
    found, rejected = saver.newest_intact(tmp_path)
    assert found.state == {"step": 4} and rejected == []


def test_data_given_to_fit_is_what_a_resume_compares(tmp_path):
    other = rn.Loader.from_arrays(X + 1, Y, batch_size=8, shuffle=True, workers=0)
    make(tmp_path).fit(other, epochs=1, verbose=0)
    with pytest.raises(ValueError, match=r"another data \(dataset\.x\.sha256: "):
        make(tmp_path).fit(epochs=2, verbose=0, resume="auto", horizon="keep")
    task = make(tmp_path)
    task.fit(other, epochs=2, verbose=0, resume="auto", horizon="keep")
    place = task.save(tmp_path / "after")
    make(tmp_path / "b").fit(other, epochs=3, verbose=0, resume=place, horizon="keep")
    with pytest.raises(ValueError, match="another data"):
        make().load(place)
