"""ReduceLROnPlateau in fit: which epochs it sees, and that it ends nowhere."""

import pytest
from small import loader, make

import renaissance as rn


def plateau(**options):
    task = make(optimizer=rn.SGD(), valid=loader(16, shuffle=False))
    schedule = rn.ReduceLROnPlateau(base_lr=0.1, patience=0, threshold=1.0, factor=0.5, **options)
    return task.scheduler(schedule).compile(report="none")


@pytest.mark.parametrize("freq, seen", [(1, 6), (2, 3), (("step", 20), 2)])
def test_an_epoch_without_validation_is_not_observed(freq, seen):
    task, values = plateau(), []
    observe = task.rates.observe
    task.rates.observe = lambda value: values.append(value) or observe(value)
    task.fit(epochs=6, validation_freq=freq, verbose=0)
    assert len(values) == seen and task.epoch == 6
    rows = [v for v in task.history.history["val_loss"] if v == v]  # NaN where there was none
    assert values == rows


def test_an_unknown_monitor_is_an_error_in_the_first_epoch():
    with pytest.raises(ValueError, match="watches 'val_losses'"):
        plateau(monitor="val_losses", mode="min").fit(epochs=4, validation_freq=2, verbose=0)
    task = plateau()
    task.data(loader()).compile(report="none")
    with pytest.raises(ValueError, match="watches 'val_loss'"):
        task.fit(epochs=1, verbose=0)


def test_going_on_longer_needs_no_word_on_the_horizon():
    whole = plateau()
    whole.fit(epochs=4, verbose=0)
    parts = plateau()
    for epochs in (1, 3, 4):
        parts.fit(epochs=epochs, verbose=0)
    assert parts.history.history == whole.history.history
    assert parts.state_hash() == whole.state_hash()
