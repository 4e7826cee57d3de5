"""What predict gives where a model gives more than one tensor, or what is no row a sample."""

import numpy as np
import pytest
import torch
from torch import nn

import renaissance as rn

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(20, 4)).astype(np.float32), rng.integers(0, 3, size=20)


def loader(**options):
    return rn.Loader.from_arrays(X, Y, **({"batch_size": 8, "workers": 0} | options))


class Several(nn.Linear):
    """Gives a dict with a tensor, a tuple, whole numbers and None."""

    def forward(self, x):
        scores = super().forward(x)
        return {"scores": scores, "pair": (x, scores.argmax(1)), "mask": None}


def right(output, target):
    return (output["scores"].argmax(1) == target).float().mean()


def several_task(network, **options):
    task = rn.Task(network, seed=1, device="cpu", **options).optimizer(rn.SGD(lr=0.1))
    task.loss(lambda output, target: nn.functional.cross_entropy(output["scores"], target))
    task.metrics(right)
    return task.data(loader(shuffle=True)).compile(report="none")


def test_several_outputs_are_predicted_in_their_structure():
    task = several_task(Several(4, 3))
    history = task.fit(epochs=2, verbose=0, validation_data=loader())
    given = task.predict(loader(shuffle=True))
    plain = task.export_module()(torch.from_numpy(X))["scores"].detach().numpy()
    assert np.allclose(given["scores"], plain, atol=1e-6) and given["scores"].dtype == np.float32
    assert isinstance(given["pair"], tuple) and (given["pair"][0] == X).all()
    assert (given["pair"][1] == plain.argmax(1)).all() and given["pair"][1].dtype == np.int64
    assert given["mask"] is None
    share = float((plain.argmax(1) == Y).mean())
    assert history.history["val_right"][-1] == pytest.approx(share, abs=1e-6)


def test_several_outputs_are_float32_in_mixed_precision():
    given = several_task(Several(4, 3), precision="bf16-mixed").predict(X)
    assert given["scores"].dtype == given["pair"][0].dtype == np.float32


class Odd(nn.Linear):
    """Gives something beside its scores."""

    def __init__(self, beside):
        super().__init__(4, 3)
        self.beside = beside

    def forward(self, x):
        return {"scores": super().forward(x), "beside": self.beside(x)}


@pytest.mark.parametrize(
    ("beside", "error", "text"),
    [
        (
            lambda x: x.sum(),
            ValueError,
            r"shape \(\) for 20 samples; each of its outputs needs a row",
        ),
        (lambda x: x[:2], ValueError, r"shape \(2, 4\) for 20 samples"),
        (lambda x: "word", TypeError, "the model gives str; it takes tensors, and tuples"),
    ],
)
def test_what_has_no_row_for_each_sample_cannot_be_predicted(beside, error, text):
    with pytest.raises(error, match=text):
        several_task(Odd(beside)).predict(X)


@pytest.mark.parametrize(
    ("shape", "unit"), [((4,), "samples"), ((1, 2, 2), "images"), ((2, 2), "samples")]
)
def test_fit_calls_samples_what_they_are(shape, unit, capsys):
    data = rn.Loader.from_arrays(X.reshape(-1, *shape), Y, batch_size=8)
    task = rn.Task(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), seed=1, device="cpu")
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.1)).data(data).compile(report="none")
    task.fit(epochs=1, verbose=2)
    assert f" {unit}/s" in capsys.readouterr().out


def test_batches_that_make_no_one_array_are_told():
    class Products(nn.Linear):
        def forward(self, x):
            found = super().forward(x)
            return {"scores": found, "products": found @ found.T}

    with pytest.raises(ValueError, match=r"a sample \(4,\) in one batch and \(8,\) in another"):
        several_task(Products(4, 3)).predict(loader())


class Passing(nn.Linear):
    """Gives its input, and a part of it, beside a prediction."""

    def forward(self, x):
        return super().forward(x), x, x[:, 1:]


def test_outputs_that_are_the_input_are_those_of_their_own_batch():
    x = np.arange(2000, dtype=np.float32).reshape(500, 4)
    task = rn.Task(Passing(4, 3), seed=1, device="cpu").optimizer(rn.SGD(lr=0.1))
    task.loss(lambda out, y: out[0].square().mean())
    task.data(rn.Loader.from_arrays(x, np.zeros(500), batch_size=10)).compile(report="none")
    _, whole, part = task.predict(rn.Loader.from_arrays(x, batch_size=10))
    assert (whole == x).all() and (part == x[:, 1:]).all()
