"""Updates that meet infinities or NaN: skipped, counted, said, and after many the end."""

import numpy as np
import pytest
import torch
from twelve import Normed, X, Y, make

import renaissance as rn


def test_skipped_step_changes_nothing_but_is_counted():
    task = make(Normed(), valid=False).ema(0.9).clip(1.0)
    task.compile(report="none")
    task.train_on_batch(X[:32], Y[:32])
    before = {n: task.executor.memory.region(n).clone() for n in ("W", "M", "V", "E", "B")}
    bad = X[:32].copy()
    bad[3, 4] = np.inf
    task.train_on_batch(bad, Y[:32])
    for name, region in before.items():
        assert torch.equal(region, task.executor.memory.region(name)), name
    assert (task.global_step, task.skipped_steps, task.attempted_steps) == (1, 1, 2)
    assert task.state_dict()["norm.num_batches_tracked"] == 1


def test_many_skips_in_a_row_stop_the_run_and_name_the_parameter():
    x = X.copy()
    x[:, 0] = np.nan
    task = make(valid=False).data(rn.Loader.from_arrays(x, Y, batch_size=4))
    task.compile(report="none")
    weights = task.state_dict()
    with pytest.raises(rn.NonFiniteError, match=r"50 .*weight|50 .*bias"):
        task.fit(epochs=3, verbose=0)
    assert all(torch.equal(t, task.state_dict()[n]) for n, t in weights.items())


def test_the_samples_of_the_last_skipped_step_are_named():
    task = make(valid=False).data(rn.Loader.from_arrays(X * np.nan, Y, batch_size=4))
    task.accumulate(2).compile(report="none")
    # Step 50 is the 21st of the second epoch of 29, two batches each.
    ids = ", ".join(str(i) for i in range(160, 168))
    with pytest.raises(rn.NonFiniteError, match=f"its samples were {ids}\\."):
        task.fit(epochs=3, verbose=0)


def test_skipped_updates_are_said(caplog):
    x = X[:64].copy()
    x[5] = np.nan
    task = make(valid=False)
    task.data(rn.Loader.from_arrays(x, Y[:64], batch_size=16, shuffle=True, seed=1))
    task.compile(report="none").fit(epochs=2, verbose=0)
    said = [r.getMessage() for r in caplog.records if "skipped" in r.getMessage()]
    assert len(said) == 2 and "epoch 2: 1 of 4 updates met infinities or NaN" in said[1]
    assert task.skipped_steps == 2
