"""The look at a module before its first step: unused, random, and repeated layers."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from small import X, Y, loader, make
from torch import nn

import renaissance as rn
from renaissance.assembly import scan


class Experts(nn.Module):
    """Two layers, of which a sample takes one, by the sign of its first number."""

    def __init__(self):
        super().__init__()
        self.experts = nn.ModuleList([nn.Linear(2, 3) for _ in range(2)])

    def forward(self, x):
        out = torch.zeros(len(x), 3)
        for k, expert in enumerate(self.experts):
            rows = ((x[:, 0] > 0) == bool(k)).nonzero()[:, 0]
            if len(rows):
                out = out.index_add(0, rows, expert(x[rows]))
        return out


def experts_task(first_positive):
    x = np.full((16, 2), -1.0, np.float32)
    x[first_positive:, 0] = 1.0
    task = rn.Task(Experts(), device="cpu", seed=1, threads=1).loss(rn.CrossEntropyLoss())
    task.optimizer(rn.SGD(lr=0.1))
    return task.data(rn.Loader.from_arrays(x, np.arange(16) % 3, batch_size=8))


def test_what_two_samples_do_not_reach_is_trained_when_the_first_batch_does():
    task = experts_task(first_positive=4).compile(report="none")
    before = [expert.weight.detach().clone() for expert in task.model.experts]
    task.fit(epochs=1, verbose=0)
    assert all(not torch.equal(a, e.weight) for a, e in zip(before, task.model.experts))


def test_a_batch_that_reaches_what_was_unused_is_an_error():
    task = experts_task(first_positive=8).compile(report="none")
    assert task.executor._idle.keys() == {"experts.1.weight", "experts.1.bias"}
    with pytest.raises(RuntimeError, match="reaches experts.1.weight, experts.1.bias, which"):
        task.fit(epochs=1, verbose=0)


def test_attention_without_dropout_draws_nothing():
    class Attends(nn.Module):
        def __init__(self, p):
            super().__init__()
            self.p, self.first, self.last = p, nn.Linear(X.shape[1], 8), nn.Linear(8, 4)

        def forward(self, x):
            h = self.first(x.flatten(1))[:, None]
            h = F.scaled_dot_product_attention(h, h, h, dropout_p=self.p if self.training else 0.0)
            return self.last(h[:, 0])

    make(Attends(0.0)).compile(report="none")
    with pytest.raises(RuntimeError, match="draw from torch's own generators"):
        make(Attends(0.1)).compile(report="none")


def operations_that_can_drop():
    """torch's operations that draw where a rate of dropout, or a switch of training, says so."""
    for name in torch._C._dispatch_get_all_op_names():
        space, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        found = getattr(getattr(torch.ops, space), packet, None)
        operation = getattr(found, overload or "default", None)
        if space == "aten" and torch.Tag.nondeterministic_seeded in getattr(operation, "tags", ()):
            for argument in operation._schema.arguments:
                is_switch = str(argument.type) in ("float", "bool")
                if is_switch and argument.name.startswith(("dropout", "train")):
                    yield operation, argument.name


def test_whatever_can_drop_draws_by_its_rate():
    """On a GPU, an LSTM is one operation that has both, whether it drops or not."""
    names = set()
    for operation, argument in operations_that_can_drop():
        names.add(operation.overloadpacket.__name__)
        on = {name: 1 for name in scan._SWITCHES}
        assert scan._draws(operation, (), on), operation
        assert not scan._draws(operation, (), {**on, argument: 0}), (operation, argument)
    assert {"_cudnn_rnn", "_scaled_dot_product_flash_attention", "rrelu"} <= names


def test_a_dropout_that_runs_twice_is_said(capsys):
    class Twice(nn.Module):
        def __init__(self, drops):
            super().__init__()
            self.first, self.last = nn.Linear(X.shape[1], 16), nn.Linear(16, 4)
            self.drops = nn.ModuleList([nn.Dropout(0.5) for _ in range(drops)])

        def forward(self, x):
            x = self.drops[0](self.first(x.flatten(1)))
            return self.last(self.drops[-1](x))

    for drops, is_said in ((1, True), (2, False)):
        make(Twice(drops)).compile()
        said = "drops.0 runs more than once in a forward and draws the same mask"
        assert (said in capsys.readouterr().out) == is_said


class Uncertain(nn.Module):
    """A loss with a parameter of its own."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(2, 1))

    def forward(self, output, target):
        return F.cross_entropy(output, target) * self.scale.exp().mean()


class Unlisted(nn.Sequential):
    """Has a layer that is none of its modules."""

    def __init__(self):
        super().__init__(nn.Flatten(), nn.LazyLinear(3))
        self.hidden = [nn.Linear(3, 3)]

    def forward(self, x):
        return self.hidden[0](super().forward(x))


class Gradient(nn.Sequential):
    """Gives the gradient by its input, as networks of energies do."""

    def forward(self, x):
        with torch.enable_grad():
            total = super().forward(x.requires_grad_()).square().sum()
            return torch.autograd.grad(total, x, create_graph=True)[0]


def test_what_the_loss_depends_on_beside_the_model_is_said(caplog):
    weights = torch.ones((), requires_grad=True)
    for loss, model, shapes in (
        (Uncertain(), None, "1 tensors .* stay as they are: (2, 1). Make"),
        (lambda o, y: F.cross_entropy(o * weights, y), None, "1 tensors .* stay as they are: ()"),
        (rn.CrossEntropyLoss(), Unlisted(), "2 tensors .* stay as they are: (3, 3), (3,). Make"),
        (torch.nn.CrossEntropyLoss(), None, ""),
        (rn.CrossEntropyLoss(), Gradient(nn.Linear(2, 3)), ""),
    ):
        caplog.clear()
        task = rn.Task(model or nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), seed=1, device="cpu")
        x = np.zeros((8, 2), np.float32)
        task.loss(loss).optimizer(rn.SGD(lr=0.1))
        task.data(rn.Loader.from_arrays(x, np.arange(8) % 2, batch_size=4)).compile(report="none")
        found = "".join(r.getMessage() for r in caplog.records if "stay as they" in r.getMessage())
        assert all(part in found for part in shapes.split(" .* ")) and bool(found) == bool(shapes)


def test_a_class_of_pictures_beyond_the_first_batch_is_found_at_compile():
    x, y = np.zeros((20, 1, 2, 2), np.float32), np.zeros((20, 2, 2), np.int64)
    y[17, 1, 0] = 255
    for index, valid in ((-100, y), (-100, y[:17]), (255, y)):
        task = rn.Task(nn.Conv2d(1, 3, 1), seed=1, device="cpu").optimizer(rn.SGD(lr=0.1))
        task.loss(rn.CrossEntropyLoss(ignore_index=index))
        train = y if index == 255 else y[:17]
        task.data(
            rn.Loader.from_arrays(x[: len(train)], train, batch_size=4),
            rn.Loader.from_arrays(x[: len(valid)], valid, batch_size=4),
        )
        if valid is y and index == -100:
            with pytest.raises(ValueError, match="validation data: target.* = 255 is no class"):
                task.compile(report="none")
        else:
            task.compile(report="none").close()


def test_sparse_gradients_are_refused():
    task = rn.Task(nn.Sequential(nn.EmbeddingBag(9, 3, sparse=True)), seed=1, device="cpu")
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.1))
    task.data(rn.Loader.from_arrays(np.zeros((8, 2), np.int64), np.arange(8) % 3, batch_size=4))
    with pytest.raises(ValueError, match=r"0 \(EmbeddingBag\) has sparse=True"):
        task.compile()


class Draws(nn.Module):
    """Batch-norm, and dropout from torch's generator where `p` says so."""

    def __init__(self, p):
        super().__init__()
        self.p, self.norm, self.last = p, nn.BatchNorm1d(6), nn.Linear(6, 4)

    def forward(self, x):
        return self.last(F.dropout(self.norm(x.flatten(1)), self.p, self.training and self.p > 0))


def without_data(p, seed=1):
    """A task that compile could not look at."""
    task = rn.Task(Draws(p), seed=seed, device="cpu", threads=1).loss(rn.CrossEntropyLoss())
    return task.optimizer(rn.SGD(lr=0.1)).compile(report="none")


@pytest.mark.parametrize("call", ["fit", "train_on_batch"])
def test_without_data_at_compile_the_first_pass_tells_what_it_draws(call):
    def train(task):
        if call == "fit":
            return task.fit(loader(), epochs=2, verbose=0)
        return [task.train_on_batch(X[:8], Y[:8]) for _ in range(2)]

    task = without_data(0.5)
    state, torchs = task.state_hash(), torch.get_rng_state()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="a seeded task neither reads.*\n.*in the model"):
            train(task)
    assert task.state_hash() == state and torch.equal(torch.get_rng_state(), torchs)
    train(late := without_data(0.5, seed=None))
    late.reset(seed=1)
    with pytest.raises(RuntimeError, match="a seeded task neither reads"):
        train(late)
    hashes = []
    for task in (without_data(0.0), without_data(0.0, seed=None).reset(seed=1)):
        train(task)
        assert task.executor.train_pass == task.executor.passes.train  # looked at once
        hashes.append(task.state_hash())
    assert hashes[0] == hashes[1]
