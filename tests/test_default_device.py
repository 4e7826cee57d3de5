"""torch.set_default_device and set_default_dtype are the user's; host memory stays where it is."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import renaissance as rn

pytestmark = pytest.mark.timeout(60)

rng = np.random.default_rng(0)
X = rng.integers(0, 256, size=(20, 6, 6, 3), dtype=np.uint8)
Y = rng.integers(0, 3, size=20)
ROWS = rng.normal(size=(20, 6)).astype(np.float32)


@pytest.fixture
def elsewhere():
    """Sets other defaults; on "meta" whatever is allocated by default holds no numbers."""

    def enter():
        torch.set_default_device("meta")
        torch.set_default_dtype(torch.float64)

    yield enter
    torch.set_default_device(None)
    torch.set_default_dtype(torch.float32)


class Pictures:
    """A data set in Python."""

    num_classes = 3

    def __len__(self):
        return len(X)

    def read(self, index):
        return X[index], int(Y[index])


def loaders(kind):
    """(training, validation) of one kind."""
    if kind == "rows":
        return tuple(rn.Loader.from_arrays(ROWS, Y, batch_size=8, shuffle=s) for s in (True, False))
    if kind == "torch":
        rows = TensorDataset(torch.from_numpy(ROWS), torch.from_numpy(Y))
        return tuple(DataLoader(rows, batch_size=8, shuffle=s) for s in (True, False))
    data = rn.data.dataset.ArrayDataset(X, Y) if kind == "pictures" else Pictures()
    pad = (rn.Pad(1), rn.RandomCrop(6), rn.Normalize(mean=(0.5,) * 3, std=(0.2,) * 3))
    return tuple(
        rn.Loader(data, batch_size=8, transforms=pad if s else pad[2:], shuffle=s, workers=1)
        for s in (True, False)
    )


def module(kind):
    torch.manual_seed(0)
    if kind in ("rows", "torch"):
        return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Dropout(0.2), nn.Linear(8, 3))
    body = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)
    return nn.Sequential(*body)


def everything(kind, model, folder):
    """All that one does with a task, and what comes of it."""
    train, valid = loaders(kind)
    task = rn.Task(model, seed=1, device="cpu", threads=1).ema(0.9)
    loss = rn.CrossEntropyLoss(class_weights=[1, 2, 3], label_smoothing=0.1)
    task.loss(loss).optimizer(rn.LARS(lr=0.1)).data(train, valid).metrics("top2")
    task.compile(report="none")
    task.dry_run(1)
    task.fit(epochs=2, verbose=0)
    inputs = ROWS if kind in ("rows", "torch") else X.transpose(0, 3, 1, 2).astype(np.float32)
    means = task.train_on_batch(inputs, Y) | task.evaluate(valid)
    task.test_on_batch(inputs, Y.tolist())
    task.batch_at(0, 1)
    task.save(folder / "saved")
    task.fit(epochs=3, verbose=0)
    first = task.state_hash(), means, task.predict(inputs).tolist()
    task.load(folder / "saved")
    task.fit(epochs=3, verbose=0)
    assert task.state_hash() == first[0]
    task.reset()
    task.close()
    return first


@pytest.mark.parametrize("kind", ["rows", "pictures", "python", "torch"])
def test_a_default_of_the_users_changes_nothing(kind, elsewhere, tmp_path):
    expected, model = everything(kind, module(kind), tmp_path), module(kind)
    elsewhere()
    assert everything(kind, model, tmp_path) == expected


def test_loaders_fill_host_memory(elsewhere):
    expected = [batch.x.tobytes() for batch in loaders("pictures")[0].epoch(0)]
    elsewhere()
    for kind in ("pictures", "python"):
        loader = loaders(kind)[0]
        assert [batch.x.tobytes() for batch in loader.epoch(0)] == expected
        with loader.stream(layout="nhwc") as stream:
            batch = stream.next()
            assert batch.x.device.type == batch.y.device.type == "cpu"
