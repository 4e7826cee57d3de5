"""What a user writes into a compiled task's module: it counts, in every copy that there is."""

import numpy as np
import pytest
import torch
from torch import nn

import renaissance as rn

pytestmark = pytest.mark.timeout(60)

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(24, 6)).astype(np.float32), rng.integers(0, 3, size=24)
VALID = rn.Loader.from_arrays(X, Y, batch_size=24)


def network():
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))


def compiled(precision="32-true", module=None, **recipe):
    task = rn.Task(module or network(), seed=1, device="cpu", precision=precision)
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.1))
    task.data(rn.Loader.from_arrays(X, Y, batch_size=8), VALID)
    if "ema" in recipe:
        task.ema(recipe["ema"])
    return task.compile(report="none")


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("steps", [0, 2])
def test_an_average_starts_at_weights_that_are_loaded(precision, steps):
    source = {name: tensor.clone() for name, tensor in network().state_dict().items()}
    source["1.running_mean"].fill_(0.5)
    with compiled(precision, ema=0.9) as task, compiled(precision) as plain:
        for _ in range(steps):
            task.train_on_batch(X[:8], Y[:8])
        other = task.evaluate(VALID)
        for one in (task, plain):
            one.model.load_state_dict(source)
        assert task.evaluate(VALID) == plain.evaluate(VALID) != other
        memory = task.require().memory
        for name in ("0.weight", "1.weight", "1.running_mean"):
            assert torch.equal(memory.view("E", name), source[name])


def test_an_average_starts_anew_at_what_is_loaded_alone():
    with compiled(ema=0.9) as task:
        task.fit(epochs=2, verbose=0)
        memory, head = task.require().memory, {"weight": torch.ones(3, 8)}
        before = {name: memory.view("E", name).clone() for name in ("0.weight", "3.bias")}
        task.model[3].load_state_dict(head, strict=False)
        assert torch.equal(memory.view("E", "3.weight"), head["weight"])
        assert all(torch.equal(memory.view("E", name), before[name]) for name in before)


def written(task):
    """A new head and one element of another layer, by torch's usual means."""
    nn.init.constant_(task.model[3].weight, 1.001)
    with torch.no_grad():
        task.model[0].weight[2, 3] = -2.0


@pytest.mark.parametrize("use", ["state_dict", "fit", "close"])
def test_what_is_written_into_16_bit_copies_reaches_the_masters(use):
    with compiled("bf16-mixed") as task:
        masters = {name: tensor.clone() for name, tensor in task.state_dict().items()}
        written(task)
        if use == "fit":  # with nothing to learn from
            task.optimizer(rn.SGD(lr=0.0)).compile(report="none")
            written(task)
            task.fit(epochs=1, verbose=0)
        elif use == "close":
            task.close()
        found = task.model.state_dict()
        assert found["3.weight"].unique().tolist() == [1.0]  # 1.001 in bfloat16
        assert found["0.weight"][2, 3] == -2.0
        found["0.weight"][2, 3] = masters["0.weight"][2, 3]
        assert torch.equal(found["0.weight"], masters["0.weight"])  # to all its digits


def test_weights_that_are_lent_and_taken_back_keep_all_digits():
    """As averages of one's own are: put in, saved, and the old weights put back."""
    with compiled("bf16-mixed") as task:
        task.fit(epochs=1, verbose=0)
        before, own = task.state_dict(), [p.detach().clone() for p in task.model.parameters()]
        before = {name: tensor.clone() for name, tensor in before.items()}
        written(task)
        assert task.model.state_dict()["3.weight"].unique().tolist() == [1.0]
        with torch.no_grad():
            for parameter, value in zip(task.model.parameters(), own, strict=True):
                parameter.copy_(value)
        task.evaluate(VALID)
        assert all(torch.equal(tensor, before[name]) for name, tensor in task.state_dict().items())


class Limited(nn.Module):
    """Writes its weights in forward."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x):
        with torch.no_grad():
            self.layer.weight.clamp_(-0.01, 0.01)
        return self.layer(x)


def test_a_forward_that_writes_weights_is_refused_where_that_would_be_lost():
    with compiled(module=Limited()) as task:
        task.fit(epochs=1, verbose=0)
    with pytest.raises(RuntimeError, match="layer.weight: changed in place by the .* '32-true'"):
        compiled("bf16-mixed", module=Limited())


def test_a_callback_may_write_weights_between_epochs():
    class Zero(rn.Callback):
        def on_epoch_begin(self, epoch, logs):
            nn.init.zeros_(self.task.model[3].weight)

    class Each(rn.Callback):
        def on_train_batch_end(self, batch, logs):
            nn.init.ones_(self.task.model[3].weight)

    with compiled("bf16-mixed") as task:
        task.optimizer(rn.SGD(lr=0.0)).compile(report="none")
        task.fit(epochs=2, verbose=0, callbacks=[Zero()])
        assert not task.state_dict()["3.weight"].any()
        with pytest.raises(RuntimeError, match="3.weight: changed in place during training"):
            task.fit(epochs=3, verbose=0, callbacks=[Each()])


class Follower(nn.Module):
    """A frozen layer that a callback draws after a trained one, as momentum encoders are."""

    def __init__(self):
        super().__init__()
        self.lead, self.behind = nn.Linear(6, 3), nn.Linear(6, 3).requires_grad_(False)

    def forward(self, x):
        return self.lead(x) + self.behind(x)


def test_a_callback_may_write_frozen_weights_at_any_time():
    class Follow(rn.Callback):
        def on_train_batch_end(self, batch, logs):
            module = self.task.model
            with torch.no_grad():
                module.behind.weight.copy_(module.lead.weight)

    with compiled("bf16-mixed", module=Follower()) as task:
        task.fit(epochs=2, verbose=0, callbacks=[Follow()])
        found = task.state_dict()
        assert torch.equal(found["behind.weight"], found["lead.weight"].bfloat16().float())
