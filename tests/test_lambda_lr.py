"""A curve of the learning rate of one's own; what else would move it within fit waits."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import renaissance as rn

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(20, 4)).astype(np.float32), rng.integers(0, 3, size=20)


def halves(epoch):
    return 0.5**epoch


def made(schedule, **options):
    task = rn.Task(nn.Linear(4, 3), seed=1, device="cpu", **options).optimizer(rn.SGD())
    task.loss(rn.CrossEntropyLoss()).scheduler(schedule)
    return task.data(rn.Loader.from_arrays(X, Y, batch_size=5)).compile(report="none")


class StopAtFive(rn.Callback):
    def on_train_batch_end(self, batch, logs):
        self.task.stop_training = self.task.attempted_steps == 5


@pytest.mark.parametrize("factor", [halves, lambda s: 1 + math.sin(s), lambda s: np.float32(0.25)])
@pytest.mark.parametrize("by", ["step", "epoch"])
def test_it_is_torchs(factor, by):
    sgd = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.2)
    theirs = torch.optim.lr_scheduler.LambdaLR(sgd, factor)
    expected = []
    for _ in range(12 if by == "step" else 3):
        expected += [sgd.param_groups[0]["lr"]] * (1 if by == "step" else 4)
        sgd.step(), theirs.step()
    schedule = rn.LambdaLR(factor, base_lr=0.2, by=by)
    assert schedule.simulate(12, 4) == pytest.approx(expected, rel=1e-12)
    warm = schedule.warmup(3, unit="step").simulate(12, 4)
    if by == "step":
        assert warm[:3] == pytest.approx([0.2 / 3, 0.4 / 3, 0.2]) and warm[3:] == expected[3:]


def test_it_trains_and_keras_writes_the_rate_itself():
    task = made(rn.LambdaLR(lambda epoch: 0.1 / (1 + epoch), base_lr=1.0, by="epoch"))
    rates = task.fit(epochs=3, verbose=0).history["learning_rate"]
    assert rates == pytest.approx([0.1, 0.05, 0.1 / 3], rel=1e-6)


def test_a_resumed_run_goes_on_with_a_function_of_that_name(tmp_path):
    whole = made(rn.LambdaLR(halves, base_lr=0.1, by="step"))
    whole.fit(epochs=3, verbose=0)
    first = made(rn.LambdaLR(halves, base_lr=0.1, by="step"), run_dir=tmp_path)
    first.fit(epochs=3, verbose=0, checkpoint=1, callbacks=[StopAtFive()])
    assert first.attempted_steps == 5

    def same(step):
        return 0.5**step

    same.__name__ = "halves"
    again = made(rn.LambdaLR(same, base_lr=0.1, by="step"), run_dir=tmp_path)
    again.fit(epochs=3, verbose=0, resume="auto")
    assert again.state_hash() == whole.state_hash()
    other = made(rn.LambdaLR(math.exp, base_lr=0.1, by="step"), run_dir=tmp_path)
    with pytest.raises(ValueError, match="halves"):
        other.fit(epochs=4, verbose=0, resume="auto", horizon="keep")


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf, None, "x"])
def test_what_is_no_rate_is_refused_with_its_place(wrong):
    def factor(step):
        return 1.0 if step < 3 else wrong

    schedule = rn.LambdaLR(factor, base_lr=0.1, by="step")
    with pytest.raises(ValueError, match=r"LambdaLR\(factor.* the factor at step 3 is"):
        schedule.simulate(5)


def test_what_is_missing_is_said():
    assert repr(rn.LambdaLR(halves, by="step")) == "LambdaLR(halves, by='step')"
    with pytest.raises(ValueError, match="by"):
        made(rn.LambdaLR(halves, base_lr=0.1))
    with pytest.raises(ValueError, match="factor"):
        made(rn.LambdaLR(base_lr=0.1, by="step"))
    with pytest.raises(TypeError, match="factor = 0.5"):
        rn.LambdaLR(0.5)


@pytest.mark.parametrize(
    "change",
    [
        lambda task: task.optimizer(rn.SGD(lr=1e-4)),
        lambda task: task.scheduler(rn.ConstantLR(base_lr=1e-4)),
        lambda task: task.clip(1.0),
        lambda task: task.freeze("weight"),
    ],
)
def test_what_is_told_within_fit_is_said_to_wait(change, caplog):
    class Change(rn.Callback):
        def on_epoch_begin(self, epoch, logs):
            change(self.task)

    task = made(rn.ConstantLR(base_lr=0.1))
    task.fit(epochs=1, verbose=0, callbacks=[Change()])
    assert "inside fit waits for the next compile; for a learning rate that moves" in caplog.text
    caplog.clear()
    change(task)
    assert caplog.text == ""
