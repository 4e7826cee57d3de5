"""Errors in the middle of a step, and modules that change under it: a fit that follows is equal."""

import numpy as np
import pytest
import torch
from small import Net, X, Y, compiled, loader, make
from torch import nn

import renaissance as rn


class Boom(nn.Module):
    """Passes its input on, but for the one training forward that raises."""

    def __init__(self):
        super().__init__()
        self.left = 0

    def forward(self, x):
        if self.training and self.left:
            self.left -= 1
            if not self.left:
                raise RuntimeError("boom")
        return x


def exploding(accumulate, at=0):
    net = Net()
    net.drop = nn.Sequential(nn.Dropout(0.3), Boom())
    task = make(net).accumulate(accumulate).ema(0.9).compile(report="none")
    net.drop[1].left = at
    return task


@pytest.mark.parametrize("accumulate, at", [(1, 6), (3, 4), (3, 5), (3, 6), (3, 7), (3, 8)])
def test_a_retry_after_an_error_in_the_module_is_exact(accumulate, at):
    whole = exploding(accumulate)
    whole.fit(epochs=2, verbose=0)
    task = exploding(accumulate, at)
    with pytest.raises(RuntimeError, match="boom"):
        task.fit(epochs=2, verbose=0)
    assert task.attempted_steps == (at - 1) // accumulate
    task.fit(epochs=2, verbose=0)
    assert task.history.history == whole.history.history
    assert task.state_hash() == whole.state_hash()


def test_an_error_of_the_data_leaves_the_state_before_its_step():
    class Data:
        """64 samples, one of which cannot be read once."""

        num_classes, classes, fails = 4, None, False

        def __len__(self):
            return 64

        def read(self, index):
            if self.fails and index == 44:
                raise OSError("disk")
            return X[index], int(Y[index])

    data = Data()
    train = rn.Loader(data, batch_size=8, shuffle=False, workers=0)
    task = make(Net(), train=train).accumulate(4).compile(report="none")
    data.fails = True
    with pytest.raises(ValueError, match="disk"):
        task.fit(epochs=1, verbose=0)
    other = make(Net(), train=rn.Loader(Data(), batch_size=8, shuffle=False, workers=0))
    other.accumulate(4).compile(report="none").fit(max_steps=1, verbose=0)
    assert task.attempted_steps == 1 and task.state_hash() == other.state_hash()
    tally = task.executor.tally
    assert tally.values("window") == [0.0] * len(tally.values("window"))


def test_a_batch_that_fails_changes_nothing():
    task = compiled()
    start = task.state_hash()
    with pytest.raises(ValueError, match=r"samples of shape \(5,\) .* training data has \(6,\)"):
        task.train_on_batch(np.zeros((8, 5), np.float32), Y[:8])
    assert task.state_hash() == start and task.attempted_steps == 0


def test_a_dry_run_that_fails_changes_nothing():
    task = exploding(1, at=2)
    start = task.state_hash()
    with pytest.raises(RuntimeError, match="boom"):
        task.dry_run(3)
    assert task.state_hash() == start and task.global_step == 0


@pytest.mark.parametrize("hook", ["on_train_batch_begin", "on_train_batch_end", "on_epoch_end"])
def test_an_evaluation_mode_set_in_a_callback_does_not_last(hook):
    def look(task):
        with torch.no_grad():
            task.model.eval()(torch.zeros(2, 6))

    plain, task = compiled(), compiled()
    plain.fit(epochs=2, verbose=0)
    callback = rn.LambdaCallback(**{hook: lambda *_: look(task)})
    task.fit(epochs=2, verbose=0, callbacks=[callback])
    assert task.state_hash() == plain.state_hash()
    assert task.history.history == plain.history.history


def test_a_frozen_part_stays_as_a_callback_set_it():
    """Only the whole module's mode is the task's: a part may be frozen on purpose."""
    task, means = compiled(), []

    def freeze(*_):
        means.append(task.model.norm.running_mean.clone())
        task.model.norm.eval()

    task.fit(epochs=1, verbose=0, callbacks=[rn.LambdaCallback(on_train_batch_end=freeze)])
    assert len(means) == 8 and torch.equal(means[0], means[-1]) and float(means[0].abs().max()) > 0


class Reassigning(Net):
    """Assigns its buffer instead of writing into it, from one forward on."""

    def __init__(self, after=0):
        super().__init__()
        self.left = after

    def forward(self, x):
        out = super().forward(x)
        if self.training:
            self.left -= 1
            if self.left < 0:
                self.mean = self.mean * 0.9
        return out


@pytest.mark.parametrize("after, steps", [(0, 0), (5, 7)])
def test_a_buffer_that_is_assigned_anew_is_an_error(after, steps):
    task = compiled(Reassigning(after))
    with pytest.raises(RuntimeError, match=r"mean: assigned anew .* self\.mean\.mul_\("):
        task.fit(epochs=3, verbose=0)
    assert task.attempted_steps <= steps + 1 and task.epoch == 0


def test_a_parameter_that_a_callback_assigns_is_an_error():
    def swap(task):
        task.model.first.weight = nn.Parameter(torch.zeros(8, 6))

    task = compiled(train=loader())
    callback = rn.LambdaCallback(on_train_batch_end=lambda *_: swap(task))
    with pytest.raises(RuntimeError, match=r"first\.weight: assigned anew"):
        task.fit(epochs=1, verbose=0, callbacks=[callback])


def test_what_a_hook_loads_between_epochs_is_taken_in():
    def fit(assign):
        task = compiled()
        start = task.state_dict()

        def load(*_):
            task.model.load_state_dict(start, assign=assign)

        task.fit(epochs=3, verbose=0, callbacks=[rn.LambdaCallback(on_epoch_end=load)])
        return task

    assert fit(True).history.history == fit(False).history.history
