"""One batch given by hand to evaluate and predict: dicts, tuples, `Batch`, and what is refused."""

import collections
import logging

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

import renaissance as rn

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("one_thread")]

N = 300  # more than go through the model at a time
draws = np.random.default_rng(0)
IDS, MASK = draws.integers(0, 12, (N, 5)), draws.integers(0, 2, (N, 5))
LABELS = (IDS[:, 0] > 5).astype(np.int64)
INPUTS = {"input_ids": IDS, "attention_mask": MASK}


class Sentences(torch.utils.data.Dataset):
    def __len__(self):
        return N

    def __getitem__(self, k):
        return {"input_ids": IDS[k], "attention_mask": MASK[k], "labels": LABELS[k]}


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(12, 8), nn.Linear(8, 2)
        self.sizes = []

    def forward(self, x):
        self.sizes.append(len(x["input_ids"]))
        return self.head((self.words(x["input_ids"]) * x["attention_mask"][..., None]).sum(1))


@pytest.fixture(scope="module")
def task():
    task = rn.Task(Classifier(), device="cpu", seed=3).loss(rn.CrossEntropyLoss())
    task.optimizer(rn.SGD(lr=0.1)).data(DataLoader(Sentences(), batch_size=50))
    task.compile(report="none").fit(epochs=1, verbose=0)
    return task


@pytest.fixture(scope="module")
def scores(task):
    """By hand, of all rows at once."""
    with torch.no_grad():
        return task.model({name: torch.from_numpy(rows) for name, rows in INPUTS.items()})


def tensors(given):
    return {name: torch.from_numpy(rows) for name, rows in given.items()}


WITH = {**INPUTS, "labels": LABELS}
BATCHES = {
    "tensors": tensors(WITH),
    "arrays": WITH,
    "lists": {name: rows.tolist() for name, rows in WITH.items()},
    "of a tokenizer": collections.UserDict(tensors(WITH)),
    "a dict and targets": (tensors(INPUTS), torch.from_numpy(LABELS)),
    "a list of both": [INPUTS, LABELS],
    "Batch": rn.Batch(INPUTS, LABELS, np.arange(N)),
}


@pytest.mark.parametrize("kind", BATCHES)
def test_a_batch_is_taken_as_a_dataloader_gives_it(task, scores, kind):
    before = task.state_hash()
    task.model.sizes.clear()
    found = task.predict(BATCHES[kind])
    assert task.model.sizes == [256, 44]  # one batch, in parts that fit
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, scores.numpy(), rtol=1e-5, atol=1e-6)
    logs, loss = task.evaluate(BATCHES[kind]), F.cross_entropy(scores, torch.from_numpy(LABELS))
    assert logs["loss"] == pytest.approx(float(loss), rel=1e-5)
    right = (scores.argmax(1).numpy() == LABELS).mean()
    assert logs["accuracy"] == pytest.approx(float(right))
    assert logs == pytest.approx(task.evaluate(DataLoader(Sentences(), batch_size=50)))
    assert task.state_hash() == before


def test_batches_of_a_dataloader_make_up_the_whole(task, scores):
    parts = [task.predict(batch) for batch in DataLoader(Sentences(), batch_size=64)]
    assert [len(part) for part in parts] == [64, 64, 64, 64, 44]
    np.testing.assert_allclose(np.concatenate(parts), scores.numpy(), rtol=1e-5, atol=1e-6)
    one = {name: rows[7:8] for name, rows in INPUTS.items()}
    np.testing.assert_allclose(task.predict(one), scores[7:8].numpy(), rtol=1e-5, atol=1e-6)
    other = {**INPUTS, "attention_mask": 1 - MASK}
    assert not np.allclose(task.predict(other), scores.numpy(), atol=1e-2)  # each entry counts


def test_arrays_and_averages_too():
    rows = draws.normal(size=(20, 3))  # float64
    labels = np.arange(20) % 2
    task = rn.Task(nn.Linear(3, 2), device="cpu", seed=3).loss(rn.CrossEntropyLoss()).ema(0.5)
    data = rn.Loader.from_arrays(rows.astype(np.float32), labels, batch_size=10)
    task.optimizer(rn.SGD(lr=0.5)).data(data).compile(report="none").fit(epochs=2, verbose=0)
    for weights in (None, "raw", "ema"):
        expected = task.predict(data, weights)
        for given in ((rows, labels), {"x": rows, "y": labels}, (rows,), task.batch_at(0, 0)):
            found = task.predict(given, weights)
            np.testing.assert_allclose(found, expected[: len(found)], rtol=1e-5, atol=1e-6)
        assert task.evaluate((rows, labels), weights) == pytest.approx(task.evaluate(data, weights))
    assert task.evaluate((rows, labels), "raw") != task.evaluate((rows, labels))


def test_what_is_left_out_is_said_once_for_each_kind_of_batch(caplog):
    rows = draws.normal(size=(20, 3)).astype(np.float32)
    task = rn.Task(nn.Linear(3, 2), device="cpu", seed=3).compile(report="none")
    with caplog.at_level(logging.WARNING, "renaissance"):
        for begin in range(0, 20, 5):
            part = slice(begin, begin + 5)
            batch = {"x": rows[part], "number": np.arange(20)[part]}
            assert task.predict(batch).shape == (5, 2)
            assert task.predict({**batch, "weight": rows[part, 0]}).shape == (5, 2)
    first, second = caplog.messages
    assert "entries are left out: 'number' (" in first
    assert "entries are left out: 'number', 'weight' (" in second


class Sum(nn.Module):
    """Takes two inputs in a tuple or a list."""

    def __init__(self):
        super().__init__()
        self.left, self.right = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x):
        return self.left(x[0]) + self.right(x[1])


def test_several_inputs_in_a_tuple():
    a, b = draws.normal(size=(2, N, 3)).astype(np.float32)
    samples = [((a[k], b[k]), LABELS[k]) for k in range(N)]
    task = rn.Task(Sum(), device="cpu", seed=3).loss(rn.CrossEntropyLoss())
    task.optimizer(rn.SGD(lr=0.1)).data(DataLoader(samples, batch_size=50)).compile(report="none")
    expected = task.predict(DataLoader(samples, batch_size=50))
    for batch in (((a, b), LABELS), [[a, b], LABELS], ((a, b),), rn.Batch((a, b), None, [])):
        np.testing.assert_allclose(task.predict(batch), expected, rtol=1e-5, atol=1e-6)
    loss = task.evaluate(DataLoader(samples, batch_size=50))["loss"]
    assert task.evaluate(((a, b), LABELS))["loss"] == pytest.approx(loss)
    with pytest.raises(ValueError, match="each of its outputs needs a row"):
        task.predict((a, b))  # b is the target then


@pytest.mark.parametrize(
    ("call", "batch", "error", "text"),
    [
        ("evaluate", INPUTS, ValueError, "the dict has 'input_ids', 'attention_mask', and no tar"),
        ("evaluate", INPUTS, ValueError, r"one of y, label, labels, .* or as \(\{\.\.\.\}, y\)"),
        ("evaluate", (INPUTS,), ValueError, r"the batch has no targets, .* give \(x, y\)"),
        ("evaluate", rn.Batch(INPUTS, None, np.arange(N)), ValueError, "no targets"),
        ("predict", {**INPUTS, "input_ids": IDS[:9]}, ValueError, r"x\['input_ids'\] \(9, 5\), x"),
        ("predict", {"input_ids": [[1, 2], [3]], "b": 1}, ValueError, "unequal length need padd"),
        ("predict", {"labels": LABELS}, ValueError, "x of .* is an empty container"),
        ("predict", {**INPUTS, "path": ["a"] * N}, TypeError, r"x\['path'\] .* a list of str"),
        ("predict", [INPUTS, INPUTS], TypeError, r"task.predict\(.*default_collate\(samples\)\)"),
        ("evaluate", (IDS, MASK, LABELS), TypeError, "has 3 parts, and which are inputs is not"),
        ("predict", IDS.tolist(), TypeError, "received list; .*from_arrays"),
        ("predict", [], TypeError, "received list"),
        ("evaluate", IDS, TypeError, r"received ndarray, .* no targets; write task.evaluate\(\(x"),
        ("evaluate", torch.from_numpy(IDS), TypeError, "received Tensor, which .*from_arrays"),
        ("evaluate", (IDS.tolist(), LABELS.tolist()), TypeError, "received tuple; .*from_arrays"),
    ],
)
def test_refusals_say_what_came_and_what_to_write(task, call, batch, error, text):
    with pytest.raises(error, match=text):
        getattr(task, call)(batch)


def test_fit_does_not_take_a_batch_and_says_what_makes_data_of_it(task, scores):
    with pytest.raises(TypeError, match="received dict; .* each sample a dict: ") as error:
        task.fit(WITH, epochs=2)
    assert str(error.value).endswith("torch.utils.data.StackDataset(**data)")
    samples = torch.utils.data.StackDataset(**WITH)
    found = task.predict(DataLoader(samples, batch_size=50))
    np.testing.assert_allclose(found, scores.numpy(), rtol=1e-5, atol=1e-6)


def test_what_cannot_be_read_is_said_to_be_a_batch(task):
    with pytest.raises(TypeError, match="^predict takes one batch as a DataLoader gives it, and"):
        task.predict({**INPUTS, "more": None})
    with pytest.raises(KeyError, match="attention_mask"):  # the model's own word for it
        task.predict({"input_ids": IDS, "other": IDS})
