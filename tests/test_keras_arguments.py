"""Arguments that Keras has and this does not: each is told what to write."""

import numpy as np
import pytest
from torch import nn

import renaissance as rn

X, Y = np.zeros((8, 4), np.float32), np.arange(8) % 3


@pytest.fixture(scope="module")
def task():
    made = rn.Task(nn.Linear(4, 3), seed=1, device="cpu").loss(rn.CrossEntropyLoss())
    made.optimizer(rn.SGD(lr=0.1)).data(rn.Loader.from_arrays(X, Y, batch_size=4))
    return made.compile(report="none")


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (
            lambda t: t.compile(optimizer=rn.SGD()),
            r"task.compile has no argument 'optimizer': it is",
        ),
        (lambda t: t.compile(loss="mse"), r"'loss': it is told before: task.loss\("),
        (lambda t: t.compile(metrics=["accuracy"]), r"'metrics': they are told before"),
        (
            lambda t: t.predict(X, batch_size=4),
            r"task.predict has no argument 'batch_size': it bel",
        ),
        (lambda t: t.evaluate(x=X, y=Y), r"task.evaluate has no argument 'x': the data is the fi"),
        (
            lambda t: t.fit(batch_size=4),
            r"fit has no argument 'batch_size': the batch size belongs",
        ),
        (lambda t: t.fit(class_weight={0: 1.0}), r"rn.CrossEntropyLoss\(class_weights="),
        (lambda t: t.fit(sample_weight=X), "it travels with the target.* see rn.Fields"),
        (lambda t: t.compile(repotr="none"), "repotr"),
    ],
)
def test_it_is_told_what_to_write(task, call, text):
    with pytest.raises(TypeError, match=text):
        call(task)


def test_what_there_is_still_works(task):
    assert task.predict(X, weights="raw").shape == (8, 3)
    assert set(task.evaluate(rn.Loader.from_arrays(X, Y, batch_size=4), verbose=0)) == {
        "loss",
        "accuracy",
    }
