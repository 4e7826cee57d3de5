"""Data that does not fit a compiled task: what came and what is taken."""

import contextlib
import types

import numpy as np
import pytest
import torch
from small import X, Y, make

import renaissance as rn


@pytest.fixture
def task():
    task = make().compile(report="none")
    yield task
    task.close()


def of(x=X, y=Y):
    return rn.Loader.from_arrays(x, y, batch_size=16, workers=0)


WIDE = np.zeros((64, 9), np.float32)
TARGETS = [
    (None, "the data has no targets, which the loss needs; give them"),
    (Y + 1, r"target\[1\] = 4 is no class: the model gives 4, numbered 0 to 3"),
    (Y.astype(np.float32), r"cannot compare outputs \(2, 4\) with targets \(2,\) of type float32"),
]


@pytest.mark.parametrize(("y", "text"), TARGETS)
def test_targets_of_other_data(task, y, text):
    with pytest.raises(ValueError, match=f"evaluate: .*{text}"):
        task.evaluate(of(y=y))
    with pytest.raises(ValueError, match=f"fit: .*{text}"):
        task.fit(of(y=y), epochs=1, verbose=0)
    with pytest.raises(ValueError, match=f"fit: .*{text}"):
        task.fit(epochs=1, verbose=0, validation_data=of(y=y))
    assert task.attempted_steps == 0
    assert set(task.evaluate(of())) == {"loss", "accuracy"}  # the task works on


def test_data_to_compile_with_needs_targets():
    with pytest.raises(ValueError, match="training data: the data has no targets"):
        make(train=of(y=None)).compile(report="none")
    with pytest.raises(ValueError, match="validation data: the data has no targets"):
        make(valid=of(y=None)).compile(report="none")


def test_a_data_loader_without_targets_is_read_once_and_said(task):
    class Read(torch.utils.data.Dataset):
        read = 0

        def __len__(self):
            return 8

        def __getitem__(self, index):
            Read.read += 1
            return (X[index],)

    data = Read()
    with pytest.raises(ValueError, match="evaluate: the data has no targets"):
        task.evaluate(torch.utils.data.DataLoader(data, batch_size=4))
    assert Read.read <= 8


def test_a_fused_head_gets_no_ignored_labels_from_a_data_loader(task, monkeypatch):
    rows = torch.utils.data.TensorDataset(torch.as_tensor(X[:8]), torch.full((8,), -100))
    monkeypatch.setattr(task._built.executor.passes, "head", lambda *_: None)
    with pytest.raises(ValueError, match="some labels are -100, which does not count"):
        task.evaluate(torch.utils.data.DataLoader(rows, batch_size=4))


def test_predict_needs_none(task):
    assert task.predict(of(y=None)).shape == (64, 4)


def test_samples_of_another_shape_or_type(task):
    text = r"shape \(9,\) and type float32: .*Its training data has \(6,\) and float32"
    for look in (task.evaluate, task.predict):
        with pytest.raises(ValueError, match=text):
            look(of(WIDE))
    with pytest.raises(ValueError, match=r"and type int64: .*data has \(6,\) and float32"):
        task.predict(np.zeros((3, 6), np.int64))


def test_a_batch_by_hand(task):
    before = task.state_hash()
    for use in (task.train_on_batch, task.test_on_batch):
        with pytest.raises(ValueError, match=r"shape \(9,\) and type float32"):
            use(WIDE[:4], Y[:4])
        with pytest.raises(ValueError, match=r"target\[0\] = 7 is no class: the model gives 4"):
            use(X[:4], np.full(4, 7))
    assert task.state_hash() == before


GIVEN = [
    (
        X[:4],
        None,
        "y is None, but a loss compares outputs with targets; give .* task.predict takes",
    ),
    (None, Y[:4], "x is None; it takes an array, a tensor or a list of numbers"),
    ((X[:4], None), Y[:4], r"x\[1\] is None; it takes"),
    ({"a": X[:4], "b": "text"}, Y[:4], r"x\['b'\] is a str; it takes"),
    (X[:4], [0, None, 1, 2], "y is a list; it takes .*NoneType"),
    (X[:4], np.array([None] * 4), "y is an array of object; it takes"),
    (X[:4], 3, "y is one number; it takes one array or tensor with a target for each sample"),
    (X[:4], {"y": Y[:4]}, "y is a dict; it takes one array or tensor"),
    (X[:4], (Y[:4], Y[:4]), "y is a tuple; it takes one array or tensor"),
]


@pytest.mark.parametrize(("x", "y", "text"), GIVEN)
def test_what_is_given_by_hand_is_a_batch(task, x, y, text):
    before = task.state_hash()
    for use in (task.train_on_batch, task.test_on_batch):
        with pytest.raises((ValueError, TypeError), match=text):
            use(x, y)
    assert task.state_hash() == before
    task.train_on_batch(X[:4], Y[:4].tolist())  # a list of numbers is


@pytest.mark.parametrize("kind", ["missing", "None", "later"])
def test_a_data_loader_whose_batches_have_no_targets_is_said_in_fit(task, kind):
    def collate(rows):
        x, y = (torch.stack(part) for part in zip(*rows))
        has = kind == "later" and int(y[0]) == int(Y[0])
        return (x, y if has else None) if kind != "missing" else x

    rows = torch.utils.data.TensorDataset(
        torch.as_tensor(X[:8]), torch.as_tensor(np.where(np.arange(8) < 4, Y[0], Y[0] + 1) % 4)
    )
    data = torch.utils.data.DataLoader(rows, batch_size=4, collate_fn=collate)
    with pytest.raises(ValueError, match="the data has no targets, which the loss needs; give"):
        task.fit(data, epochs=1, verbose=0)
    assert task.attempted_steps == (kind == "later")
    assert np.isfinite(task.test_on_batch(X, Y)["loss"])


def test_yes_and_no_by_hand_are_classes(task):
    expected = task.test_on_batch(X[:16], (Y[:16] > 1).astype(np.int64))
    for y in (Y[:16] > 1, (Y[:16] > 1).tolist(), torch.as_tensor(Y[:16] > 1)):
        assert task.test_on_batch(X[:16], y) == expected


def test_an_error_of_the_models_own_stays_what_it_is(task):
    def fails(module, inputs):
        raise RuntimeError("of my own")

    hook = task.model.first.register_forward_pre_hook(fails)
    for use in (lambda: task.predict(X), lambda: task.train_on_batch(X, Y)):
        with pytest.raises(RuntimeError, match=r"^of my own$"):
            use()
    hook.remove()
    assert task.predict(X).shape == (64, 4)


def test_half_precision_arrays_become_float32(caplog):
    half = X.astype(np.float16)
    loader = of(half)
    assert "x is float16 and becomes float32" in caplog.text
    assert loader.sample_spec().dtype == torch.float32
    assert np.array_equal(loader.batch_at(0, 0).x, half[:16].astype(np.float32))


def test_what_data_says_of_itself():
    whole = "ArrayDataset(float32 (64, 6), int64 (64,))"
    assert repr(of()) == f"Loader({whole}, batch_size=16, workers=0)"
    rest, part = rn.split(of().dataset, 0.25, seed=1)
    assert (repr(rest), repr(part)) == tuple(
        f"Subset({whole}, {n} of 64 samples)" for n in (48, 16)
    )


class Read:
    """A data set whose labels nobody knows before they are read; the one of sample 40 is wrong."""

    def __len__(self):
        return 64

    def read(self, index):
        return X[index], 4 if index == 40 else int(Y[index])


def torch_data():
    labels = torch.from_numpy(Y).clone()
    labels[40] = 4
    return torch.utils.data.TensorDataset(torch.from_numpy(X), labels)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_class_that_there_is_not_in_data_that_are_read(workers):
    """On the host, before a GPU meets it; the rest is trained on."""
    loaders = [
        rn.Loader(Read(), batch_size=16, workers=workers),
        torch.utils.data.DataLoader(torch_data(), batch_size=16),
    ]
    for loader in loaders:
        task = make(train=loader).compile(report="none")
        text = r"batch 2 of epoch 0, from 0 on: target\[8\] = 4 is no class: the model gives 4"
        with pytest.raises(ValueError, match=text):
            task.fit(epochs=1, verbose=0)
        assert task.attempted_steps == 2
        with pytest.raises(ValueError, match=text):
            task.evaluate(loader)
        with pytest.raises(ValueError, match=r"target\[0\] = 4 is no class"):
            task.train_on_batch(X[:2], np.array([4, 0]))
        task.close()


def test_labels_that_are_known_are_not_looked_at_again(task, monkeypatch):
    def judge(batch):
        raise AssertionError("a batch was looked at")

    monkeypatch.setattr(task._built.executor, "judge", judge)
    task.fit(epochs=1, verbose=0)
    loader = rn.Loader(Read(), batch_size=16, workers=0)
    with pytest.raises(AssertionError, match="looked at"):  # it would be
        task.evaluate(loader)


def test_what_an_executor_reads_from_is_its_own(task, monkeypatch):
    """Data on the GPU are places in it: but for ids, nobody except the step looks into a batch."""
    executor = task._built.executor
    batches, step = executor.test_batches, executor.test_step
    expected = task.evaluate(of())

    @contextlib.contextmanager
    def places(loader, **more):
        with batches(loader, **more) as found:
            yield (types.SimpleNamespace(ids=batch.ids, own=batch) for batch in found)

    monkeypatch.setattr(executor, "test_batches", places)
    monkeypatch.setattr(executor, "test_step", lambda place: step(place.own))
    assert task.evaluate(of()) == expected
