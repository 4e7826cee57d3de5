"""Calls inside torch.no_grad() and torch.inference_mode()."""

import numpy as np
import pytest
import torch
from torch import nn

import renaissance as rn
from renaissance.lrfinder import sweep

X = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32)
Y = np.arange(16) % 2
MODES = {"no_grad": torch.no_grad, "inference_mode": torch.inference_mode}


def untold():
    task = rn.Task(nn.Linear(3, 2), device="cpu", seed=1).loss(rn.CrossEntropyLoss())
    return task.optimizer(rn.SGD(lr=0.1)).data(rn.Loader.from_arrays(X, Y, batch_size=8))


@pytest.fixture
def task():
    return untold().compile(report="none")


TRAINING = {
    "fit": lambda task: task.fit(epochs=1, verbose=0),
    "train_on_batch": lambda task: task.train_on_batch(X, Y),
    "dry_run": lambda task: task.dry_run(1),
    "sweep": lambda task: sweep(task, steps=10),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("call", TRAINING)
def test_what_trains_is_refused_at_once(task, call, mode):
    before = task.state_hash()
    with (
        MODES[mode](),
        pytest.raises(RuntimeError, match=rf"{call} inside torch.{mode}\(\): .*; call it outside"),
    ):
        TRAINING[call](task)
    assert task.state_hash() == before and task.attempted_steps == 0
    task.fit(epochs=1, verbose=0)
    whole = untold().compile(report="none")
    whole.fit(epochs=1, verbose=0)
    assert task.state_hash() == whole.state_hash()


def test_gradients_switched_on_inside_are_enough_but_in_inference_mode(task):
    with torch.no_grad(), torch.enable_grad():
        task.fit(epochs=1, verbose=0)
    with torch.inference_mode(), torch.enable_grad(), pytest.raises(RuntimeError, match="infere"):
        task.fit(epochs=2, verbose=0)


@pytest.mark.parametrize("mode", MODES)
def test_what_looks_is_taken_and_training_goes_on(task, mode):
    expected = task.predict(X), task.evaluate((X, Y))
    with MODES[mode]():
        assert (task.predict(X) == expected[0]).all() and task.evaluate((X, Y)) == expected[1]
        task.evaluate(task.settings.train)
        task.test_on_batch(X, Y)
    task.fit(epochs=1, verbose=0)


def test_a_task_that_trains_is_not_compiled_in_inference_mode():
    task = untold()
    with torch.inference_mode(), pytest.raises(RuntimeError, match="task.compile inside torch.inf"):
        task.compile(report="none")
    with torch.no_grad():
        task.compile(report="none")
    task.fit(epochs=1, verbose=0)
    with torch.inference_mode():
        only = rn.Task(nn.Linear(3, 2), device="cpu", seed=1).compile(report="none")
        assert only.predict(X).shape == (16, 2)
