"""After a run was stopped for infinities or NaN: it is said once, and the task is of use again."""

import numpy as np
import pytest
from small import X, Y, compiled

import renaissance as rn

BAD, CLASSES = np.full((160, 6), np.nan, np.float32), np.resize(Y, 160)


def bad_loader():
    return rn.Loader.from_arrays(BAD, CLASSES, batch_size=2, workers=0)


def stopped(folder=None):
    """A task, saved after its first epoch if a folder is given, that then met 50 bad updates."""
    task = compiled(optimizer=rn.SGD(lr=0.1))
    task.fit(epochs=1, verbose=0)
    if folder is not None:
        task.save(folder)
    with pytest.raises(rn.NonFiniteError, match="50 updates in a row"):
        task.fit(bad_loader(), epochs=2, verbose=0)
    assert task.executor.updater.scalars["stop"] == 1
    return task


@pytest.mark.parametrize("weights_only", [False, True])
def test_a_loaded_checkpoint_trains_on(tmp_path, weights_only):
    task = stopped(tmp_path / "good").load(tmp_path / "good", weights_only=weights_only)
    fields = task.executor.updater.scalars
    assert fields["stop"] == fields["bad"] == 0
    before = task.global_step
    task.fit(max_steps=task.attempted_steps + 5, verbose=0)
    assert task.global_step == before + 5


def test_after_a_load_training_is_as_if_nothing_had_been(tmp_path):
    task = stopped(tmp_path / "good").load(tmp_path / "good")
    task.load(task.save(tmp_path / "again"))  # saved as the run of the task's own data
    task.fit(epochs=3, verbose=0)
    other = compiled(optimizer=rn.SGD(lr=0.1))
    other.fit(epochs=3, verbose=0)
    assert task.state_hash() == other.state_hash()


def test_a_fit_and_a_single_batch_go_on_without_a_load():
    task = stopped()
    task.fit(max_steps=task.attempted_steps + 5, verbose=0)
    assert task.global_step == 8 + 5
    task = stopped()
    task.train_on_batch(X[:8], Y[:8])
    assert task.global_step == 8 + 1


def test_too_many_skips_are_said_at_the_end_of_a_fit_that_never_logs():
    task = compiled(optimizer=rn.SGD(lr=0.1))
    with pytest.raises(rn.NonFiniteError, match="50 updates in a row"):
        task.fit(bad_loader(), max_steps=60, log_every=1000, verbose=0)
