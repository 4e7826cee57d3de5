"""The learning-rate sweep: finds where the loss falls, and leaves nothing behind."""

import math

import numpy as np
import pytest
import torch

import renaissance as rn
from renaissance.lrfinder import Sweep, sweep
from renaissance.models import mlp


def task(**told):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(96, 6)).astype(np.float32)
    loader = rn.Loader.from_arrays(x, (x[:, 0] > 0).astype(int), batch_size=16, shuffle=True)
    made = rn.Task(mlp([8], num_classes=2, in_features=6), seed=1, device="cpu", threads=1)
    made.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.1, momentum=0.9)).data(loader)
    for name, value in told.items():
        getattr(made, name)(value)
    return made.compile(report="none")


@pytest.mark.parametrize("told", [{}, {"ema": 0.9}, {"accumulate": 4}])
def test_leaves_every_bit(told):
    swept, plain = task(**told), task(**told)
    swept.fit(epochs=1, verbose=0)
    plain.fit(epochs=1, verbose=0)
    before = swept.state_hash()
    sweep(swept, steps=20)
    assert swept.state_hash() == before
    swept.fit(epochs=2, verbose=0)
    plain.fit(epochs=2, verbose=0)
    assert swept.state_hash() == plain.state_hash()
    assert swept.history.history == plain.history.history


def test_rises_and_ends_where_it_diverges():
    found = sweep(task(), low=1e-4, high=1e4, steps=60)
    ratios = [b / a for a, b in zip(found.rates, found.rates[1:])]
    assert ratios == pytest.approx([10 ** (8 / 59)] * len(ratios))
    assert found.rates[0] == 1e-4 and len(found.rates) < 60
    assert 1e-3 < found.suggestion < 10 and all(map(math.isfinite, found.losses))


def test_suggests_the_steepest_fall():
    assert Sweep((1.0, 2.0, 4.0, 8.0, 16.0), (5.0, 4.9, 2.0, 1.99, 9.0)).suggestion == 2.0
    assert Sweep((1.0, 2.0, 4.0), (1.0, 2.0, 3.0)).suggestion is None


def test_draws(tmp_path):
    path = Sweep((1.0, 2.0, 4.0, 8.0), (5.0, 4.0, 1.0, 9.0)).plot(tmp_path / "sweep.png")
    assert path.stat().st_size > 1000


@pytest.mark.parametrize("range_", [{"low": 0}, {"low": 2}, {"high": math.inf}, {"steps": 9}])
def test_wrong_ranges(range_):
    with pytest.raises(ValueError, match="is not allowed; it takes"):
        sweep(task(), **range_)


def test_a_loss_that_is_never_finite():
    made = task()
    with torch.no_grad():
        made.model[1].weight.fill_(math.nan)
    with pytest.raises(RuntimeError, match="not finite at the lowest rate"):
        sweep(made)
