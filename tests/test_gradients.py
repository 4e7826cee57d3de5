"""`Task.gradients`: what ``loss.backward()`` leaves in ``.grad``, whatever a step is scaled by."""

import copy

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import renaissance as rn

pytestmark = pytest.mark.timeout(60)

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(20, 6)).astype(np.float32), rng.integers(0, 3, size=20)
SOME = np.where(np.arange(20) % 4 == 1, -100, Y)
WEIGHTS = (1.0, 2.0, 0.5)


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def make(*, has_data=True, loss=None, y=Y, **options):
    task = rn.Task(network(), seed=1, device="cpu", threads=1).init("keep")
    task.loss(loss or rn.CrossEntropyLoss()).optimizer(rn.AdamW(lr=0.1))
    if has_data:
        task.data(rn.Loader.from_arrays(X, y, batch_size=8, workers=0))
    for name, value in options.items():
        getattr(task, name)(value)
    return task.compile(report="none")


def check(task, before, mean_loss):
    """The gradients of a mean loss, by torch, of the weights before the step."""
    mean_loss(before).backward()
    found = task.gradients()
    assert found.keys() == dict(before.named_parameters()).keys()
    for name, parameter in before.named_parameters():
        assert float(parameter.grad.abs().max()) > 0
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-5, atol=1e-7)


def cross_entropy(x=X, y=Y, **options):
    return lambda net: F.cross_entropy(net(torch.from_numpy(x)), torch.from_numpy(y), **options)


@pytest.mark.parametrize("size", [8, 5, 20])
@pytest.mark.parametrize("has_data", [True, False])
@pytest.mark.parametrize("scale", [1.0, 1024.0])
def test_a_batch_of_any_size_and_scale(size, has_data, scale):
    task = make(has_data=has_data, clip=1e-3)  # before clipping
    task.executor.updater.scalars.write(loss_scale=scale)
    assert not any(g.any() for g in task.gradients().values())
    before = copy.deepcopy(network())
    task.train_on_batch(X[:size], Y[:size])
    check(task, before, cross_entropy(X[:size], Y[:size]))


def test_class_weights_and_targets_that_do_not_count():
    task = make(loss=rn.CrossEntropyLoss(class_weights=WEIGHTS), y=SOME)
    before = copy.deepcopy(network())
    task.train_on_batch(X, SOME)
    check(task, before, cross_entropy(y=SOME, weight=torch.tensor(WEIGHTS)))


def test_a_function_that_gives_a_mean():
    def loss(output, target):
        return (output - target).square().mean()

    task, y = make(has_data=False, loss=loss), rng.normal(size=(20, 3)).astype(np.float32)
    before = copy.deepcopy(network())
    task.train_on_batch(X, y)
    check(task, before, lambda net: loss(net(torch.from_numpy(X)), torch.from_numpy(y)))


def test_a_window_is_one_batch_of_its_samples():
    task = make(accumulate=3)  # 8 + 8 + 4 samples
    before = copy.deepcopy(network())
    task.fit(epochs=1, verbose=0)
    check(task, before, cross_entropy())


def test_they_are_copies_and_a_step_without_loss_has_none():
    task = make()
    task.train_on_batch(X, Y)
    for gradient in task.gradients().values():
        gradient.fill_(7.0)
    assert not any((g == 7.0).any() for g in task.gradients().values())
    task.train_on_batch(X, np.full(20, -100))
    assert not any(g.any() for g in task.gradients().values())
