"""Other data of the same shapes for a compiled task: stages and folds, without another compile."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small import X, Y, compiled, make
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import renaissance as rn

pytestmark = pytest.mark.timeout(60)


def rows(begin, end, batch_size=8, **options):
    return rn.Loader.from_arrays(
        X[begin:end], Y[begin:end], batch_size=batch_size, workers=0, **options
    )


def linear(**options):
    options = {"train": rows(0, 32), "optimizer": rn.SGD(lr=0.5, momentum=0.9), **options}
    return make(nn.Linear(6, 4), **options)


def by_hand(task, stages, *, forgets=False):
    """torch's loop over the stages, from the weights of a task."""
    net = nn.Linear(6, 4)
    net.load_state_dict(task.state_dict())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    for begin, end, size in stages:
        if forgets:
            optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
        for place in range(begin, end, size):
            x, y = (torch.from_numpy(a[place : min(end, place + size)]) for a in (X, Y))
            optimizer.zero_grad()
            F.cross_entropy(net(x), y).backward()
            optimizer.step()
    return net.weight.detach()


def test_a_fit_of_other_data_keeps_weights_and_moments():
    task = linear().compile(report="none")
    stages = [(0, 32, 8), (32, 64, 8), (8, 58, 16)]
    expected, without = by_hand(task, stages), by_hand(task, stages, forgets=True)
    task.fit(epochs=1, verbose=0)
    task.fit(rows(32, 64), epochs=2, verbose=0)
    history = task.fit(rows(8, 58, 16), validation_data=rows(0, 20), epochs=3, verbose=0)
    torch.testing.assert_close(task.state_dict()["weight"], expected, rtol=1e-5, atol=1e-6)
    assert not torch.allclose(expected, without, atol=1e-2)  # moments count
    assert (task.attempted_steps, task.global_step, history.epoch) == (12, 12, [0, 1, 2])
    assert history.history["val_loss"] == [task.evaluate(rows(0, 20))["loss"]]
    assert task.settings.train.num_samples == 32  # a fit without data has the task's own again


def test_a_compile_with_other_data_keeps_weights_and_not_moments():
    task = linear().compile(report="none")
    stages = [(0, 32, 8), (32, 64, 8)]
    expected = by_hand(task, stages, forgets=True)
    task.fit(epochs=1, verbose=0)
    task.data(rows(32, 64)).compile(report="none").fit(epochs=2, verbose=0)
    torch.testing.assert_close(task.state_dict()["weight"], expected, rtol=1e-5, atol=1e-6)
    assert task.epoch == 2 and task.attempted_steps == 8


def test_a_checkpoint_carries_moments_over_a_compile(tmp_path, caplog):
    task = linear().compile(report="none")
    expected = by_hand(task, [(0, 32, 8), (32, 64, 8)])
    task.fit(epochs=1, verbose=0)
    place, before = task.save(tmp_path / "before"), task.state_hash()
    task.data(rows(32, 64), rows(0, 16)).compile(report="none")
    assert task.state_hash() != before
    with pytest.raises(ValueError, match=r"another data.*allow=\['data'"):
        task.load(place)
    assert task.load(place, allow=["data", "validation"]).state_hash() == before
    assert "resume: another data" in caplog.text
    task.fit(epochs=2, verbose=0)
    torch.testing.assert_close(task.state_dict()["weight"], expected, rtol=1e-5, atol=1e-6)
    assert (task.epoch, task.global_step) == (2, 8)


def test_folds_after_a_reset_have_the_bits_of_new_tasks():
    folds = [(0, 40), (24, 64)]
    task = compiled(train=rows(0, 64))
    found = []
    for begin, end in folds:
        task.reset().fit(rows(begin, end, shuffle=True), epochs=2, verbose=0)
        found.append(task.state_hash())
    for (begin, end), expected in zip(folds, found):
        other = compiled(train=rows(begin, end, shuffle=True))
        other.fit(epochs=2, verbose=0)
        assert other.state_hash() == expected
    assert found[0] != found[1]


def test_what_needs_a_compile_says_so_and_what_does_not():
    task = linear().compile(report="none")
    task.fit(epochs=1, verbose=0)
    before = task.state_hash()
    task.data(rows(32, 64))
    for call in (
        lambda: task.fit(epochs=2),
        lambda: task.evaluate(rows(0, 8)),
        lambda: task.predict(X),
    ):
        with pytest.raises(RuntimeError) as error:
            call()
        text = str(error.value)
        assert "changed after compile, by task.data(...): call task.compile() again" in text
        assert "moments stay, where fit is given it: task.fit(train, validation_data=valid)" in text
    task.optimizer(rn.AdamW(lr=1e-3)).clip(1.0)
    with pytest.raises(RuntimeError, match="by task.data.*, task.optimizer.*, task.clip") as error:
        task.state_hash()
    assert "task.fit(train" not in str(error.value)
    task.compile(report="none")
    assert task.state_hash() != before and task.epoch == 1  # AdamW's moments


def test_inside_fit_the_call_is_named_that_waits(caplog):
    class Change(rn.Callback):
        def on_epoch_begin(self, epoch, logs):
            self.task.data(rows(0, 8))

    linear().compile(report="none").fit(epochs=1, verbose=0, callbacks=[Change()])
    assert "task.data inside fit waits for the next compile" in caplog.text


TORCHS = DataLoader(TensorDataset(torch.from_numpy(X), torch.from_numpy(Y)), batch_size=8)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda t: t.fit(data=rows(0, 8)), "no argument 'data': training data is the first arg"),
        (lambda t: t.fit(train_loader=TORCHS), "'train_loader': training data is the first"),
        (lambda t: t.fit(train_dataset=[]), "'train_dataset': training data is the first"),
        (lambda t: t.fit(val_data=rows(0, 8)), "'val_data': .*fit.train, validation_data=valid"),
        (lambda t: t.fit(val_dataloaders=TORCHS), "'val_dataloaders': validation data is named"),
        (lambda t: t.fit(rows(0, 8), rows(8, 16)), "no second argument by position: validation da"),
        (lambda t: t.fit(rows(0, 8), TORCHS), r"task.fit\(train, validation_data=valid\)"),
        (lambda t: t.fit(X, Y), r"no argument 'y': fit takes a loader: .*from_arrays\(x, y"),
    ],
)
def test_data_by_other_names_is_told_what_to_write(call, text):
    task = linear().compile(report="none")
    with pytest.raises(TypeError, match=text):
        call(task)
    assert task.attempted_steps == 0


def test_data_of_another_shape_is_refused_with_both():
    task = linear().compile(report="none")
    wide = rn.Loader.from_arrays(np.zeros((8, 7), np.float32), Y[:8], batch_size=8, workers=0)
    for call in (lambda: task.fit(wide, epochs=1, verbose=0), lambda: task.evaluate(wide)):
        with pytest.raises(ValueError, match=r"shape \(7,\).*Its training data has \(6,\)"):
            call()
