"""What a task refuses says what came, what is allowed, and what to do."""

import numpy as np
import pytest
import torch
from torch import nn
from twelve import Normed, Pair, X, Y, loader, make, quiet, small

import renaissance as rn
from renaissance.models import mlp


def frozen():
    return small().requires_grad_(False)


@pytest.mark.parametrize(
    "use, error, text",
    [
        (lambda: make(frozen()).compile(), ValueError, "nothing to train: .* none of the model's"),
        (lambda: make(Pair()).compile(), TypeError, "gives tuple, CrossEntropyLoss takes one"),
        (
            lambda: make().data(loader(200, 20), rn.Loader.from_arrays(X, Y + 1, batch_size=9))
            .compile(),
            ValueError,
            r"validation data: target\[1\] = 4 is no class: the model gives 4",
        ),
        (
            lambda: make().optimizer(torch.optim.SGD(small().parameters(), lr=1.0)),
            TypeError,
            r"optimizer: torch.optim.sgd.SGD is not allowed; write task.optimizer\(rn.AdamW",
        ),
        (
            lambda: make().scheduler("cosine"),
            TypeError,
            r"scheduler: 'cosine' is not allowed; write task.scheduler\(rn.Cosine",
        ),
        (
            lambda: quiet(make(), epochs=1).predict(np.zeros((3, 12), np.uint8)),
            ValueError,
            r"uint8 pictures need the transforms of their data; write",
        ),
    ],
)  # fmt: skip
def test_what_a_task_does_not_take(use, error, text):
    with pytest.raises(error, match=text):
        use()


def test_what_is_called_is_not_assigned():
    task = make()
    with pytest.raises(AttributeError, match=r"called, not assigned to: task.optimizer\(SGD\(lr"):
        task.optimizer = rn.SGD(lr=0.5)
    assert task.settings.optimizer != rn.SGD(lr=0.5)
    task.stop_training = True  # what is an attribute stays one
    assert task.stop_training
    with pytest.raises(AttributeError, match=r"task.scheduler\(rn.ConstantLR\(base_lr=0.1\)\)"):
        task.learning_rate = 0.1


def test_not_compiled_or_incomplete():
    task = rn.Task(small(), seed=1)
    with pytest.raises(RuntimeError, match="compile"):
        task.fit(epochs=1)
    with pytest.raises(RuntimeError, match=r"task\.optimizer"):
        task.compile(report="none").fit(epochs=1)
    with pytest.raises(RuntimeError, match=r"task\.loss"):
        task.optimizer(rn.SGD(lr=1.0)).compile()
    task.loss(rn.MSELoss()).compile(report="none")
    with pytest.raises(RuntimeError, match=r"task\.data"):
        task.fit(epochs=1)


@pytest.mark.parametrize(
    "make_it, error, match",
    [
        (lambda: rn.Task(nn.Linear), TypeError, "torch.nn.Module"),
        (lambda: rn.Task(small(), device="cuda:99"), ValueError, "cuda:99"),
        (lambda: rn.Task(small(), device="gpu"), ValueError, "'auto', 'cpu', 'cuda'"),
        (lambda: rn.Task(small(), precision="fp16"), ValueError, "16-mixed"),
        (lambda: rn.Task(small(), seed=-1), ValueError, "seed"),
        (lambda: rn.Task(small()).optimizer("adam"), TypeError, r"write task.optimizer\(rn.AdamW"),
        (lambda: rn.Task(small()).accumulate(0), ValueError, "1 or more"),
        (lambda: rn.Task(small()).init("kaiming"), TypeError, "keep"),
        (lambda: make().compile(report="everything"), ValueError, "summary"),
        (lambda: make().compile(capture="yes"), ValueError, "'auto' or 'off'"),
    ],
)
def test_wrong_arguments(make_it, error, match):
    with pytest.raises(error, match=match):
        make_it()


@pytest.mark.parametrize(
    "options, error, match",
    [
        ({"batch_size": 32}, TypeError, "Loader"),
        ({"validation_split": 0.1}, TypeError, r"rn\.split"),
        ({"epochs": 0}, ValueError, "epochs"),
        ({"epohcs": 3}, TypeError, "did you mean 'epochs'"),
        ({"epochs": 1, "steps_per_epoch": 9}, ValueError, "1 to 8"),
        ({"epochs": 1, "checkpoint": "often"}, ValueError, "10min"),
        ({"epochs": 1, "validation_freq": 0}, ValueError, "validation_freq"),
        ({"epochs": 1, "resume": "auto"}, ValueError, "run_dir"),
    ],
)
def test_wrong_arguments_of_fit(options, error, match):
    task = make()
    task.compile(report="none")
    with pytest.raises(error, match=match):
        task.fit(verbose=0, **options)


def test_arrays_in_fit_say_what_to_write():
    task = make()
    task.compile(report="none")
    with pytest.raises(TypeError, match=r"rn\.Loader\.from_arrays"):
        task.fit(X, Y)


def test_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match=r"\(2, 12\)"):
        make(mlp([8], num_classes=4, in_features=13)).compile(report="none")
    with pytest.raises(ValueError, match="3 is no class: the model gives 3"):
        make(mlp([8], num_classes=3, in_features=12)).compile(report="none")


def test_longer_epochs_need_a_word_on_the_horizon():
    task = make().scheduler(rn.CosineAnnealingLR(base_lr=1e-2)).optimizer(rn.AdamW())
    quiet(task, epochs=2)
    with pytest.raises(ValueError, match="keep.*stretch"):
        task.fit(epochs=3, verbose=0)
    task.fit(epochs=3, horizon="keep", verbose=0)
    assert task.history.history["learning_rate"][-1] == 0.0


def test_batch_norm_and_a_last_batch_of_one():
    task = make(Normed(), n=225, batch_size=32)
    with pytest.raises(ValueError, match="batch of one"):
        task.compile(report="none")


def test_leftover_randomness_is_an_error_with_a_seed():
    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(12, 4)

        def forward(self, x):
            return nn.functional.dropout(self.inner(x), 0.5, self.training)

    with pytest.raises(RuntimeError, match="Noisy"):
        make(Noisy()).compile(report="none")
    make(Noisy(), seed=None).compile(report="none")
