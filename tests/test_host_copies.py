"""Checkpoints of a fit: copies on the host, in whose order, and what training waits for."""

import threading

import numpy as np
import pytest
import torch
from torch import nn

import renaissance as rn
from renaissance.checkpoint import read_checkpoint, write_encoded
from renaissance.fit.snapshot import HostCopy
from renaissance.saver import step_name

pytestmark = pytest.mark.timeout(60)


def linear_task(place):
    """A compiled task of four steps, and its loader's data set."""
    x = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    train = rn.Loader.from_arrays(x, np.arange(32) % 2, num_classes=2, batch_size=8)
    task = rn.Task(nn.Linear(4, 2), seed=1, run_dir=place)
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.1)).data(train)
    return task.compile(report="none"), train.dataset


def test_data_are_digested_before_the_first_step(tmp_path, monkeypatch):
    """Not in the first step that saves, which would wait for it."""
    task, data = linear_task(tmp_path)
    seen, identity = [], data.identity

    class Watch(rn.Callback):
        def on_train_batch_end(self, batch, logs):
            seen.append("step")

    monkeypatch.setattr(data, "identity", lambda: seen.append("digest") or identity())
    task.fit(max_steps=4, checkpoint=2, verbose=0, callbacks=[Watch()])
    assert seen == ["digest", *["step"] * 4]


def test_a_disk_that_is_slow_once_holds_nobody_up(tmp_path, monkeypatch):
    """The first write ends only after the second copy was taken; each has its own step's bits."""
    second, kept = threading.Event(), {}

    def slow(place, files, state):
        assert place.name != step_name(1) or second.wait(30)
        write_encoded(place, files, state)

    class Watch(rn.Callback):
        def on_train_batch_end(self, batch, logs):
            step = self.task.attempted_steps
            kept[step] = self.task.state_dict()["weight"].clone()
            if step == 3:
                second.set()

    monkeypatch.setattr("renaissance.saver.write_encoded", slow)
    task, _ = linear_task(tmp_path)
    task.fit(max_steps=4, checkpoint=1, keep=9, verbose=0, callbacks=[Watch()])
    for step in (1, 2, 3, 4):
        place = tmp_path / "checkpoints" / step_name(step)
        assert torch.equal(read_checkpoint(place).file("model").read_all()["weight"], kept[step])


def test_a_state_that_cannot_be_told_leaves_the_copies_in_their_order(tmp_path, monkeypatch):
    """Else the next save would write into a copy that is still being read."""
    second, kept, written = threading.Event(), {}, []

    def slow(place, files, state):
        assert second.wait(30)
        written.append(files["model"]["weight"].clone())
        write_encoded(place, files, state)

    class Watch(rn.Callback):
        def on_train_batch_end(self, batch, logs):
            kept[self.task.attempted_steps] = self.task.state_dict()["weight"].clone()

        def on_train_end(self, logs):
            saves = self.task.running_checkpoints
            with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="just now"):
                patch.setattr(saves._callbacks, "state_dict", self.refuse)
                saves.save()
            with torch.no_grad():
                self.task.model.weight.fill_(9)
            saves.save()
            second.set()

        def refuse(self):
            raise RuntimeError("not just now")

    monkeypatch.setattr("renaissance.saver.write_encoded", slow)
    task, _ = linear_task(tmp_path)
    task.fit(max_steps=1, checkpoint=1, keep=9, verbose=0, callbacks=[Watch()])
    assert torch.equal(written[0], kept[1])
    assert written[1].eq(9).all() and not kept[1].eq(9).any()


def test_a_save_of_ones_own_waits_for_those_of_fit(tmp_path, monkeypatch):
    """Both may mean the same folder."""
    busy = []

    class Watch(rn.Callback):
        def on_train_batch_end(self, batch, logs):
            task = self.task
            task.save(tmp_path / "checkpoints" / step_name(task.attempted_steps - 1))
            busy.append(task.running_checkpoints._saver.is_writing)

    def slow(place, files, state):
        threading.Event().wait(0.05)
        write_encoded(place, files, state)

    monkeypatch.setattr("renaissance.saver.write_encoded", slow)
    task, _ = linear_task(tmp_path)
    task.fit(max_steps=4, checkpoint=1, keep=9, verbose=0, callbacks=[Watch()])
    assert busy == [False] * 4 and task.running_checkpoints is None


def test_one_host_copy_serves_every_checkpoint(tmp_path):
    """Its memory stays, its content is that of the call, and strides and ties do not matter."""
    weight = torch.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)
    files = {"model": {"a": weight, "tied": weight}, "optimizer": {"M/a": torch.zeros(3)}}
    memory = HostCopy(files)
    first = memory.take(files)()
    addresses = [t.data_ptr() for part in first.values() for t in part.values()]
    kept = {name: t.clone() for name, t in first["model"].items()}
    weight.mul_(2)
    assert all(torch.equal(first["model"][name], t) for name, t in kept.items())
    second = memory.take(files)()
    assert torch.equal(second["model"]["tied"], 2 * kept["a"])
    assert second["model"]["a"].is_contiguous()
    assert addresses == [t.data_ptr() for part in second.values() for t in part.values()]
    assert len(set(addresses)) == 3
