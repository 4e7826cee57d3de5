"""Odd data: each kind trains, evaluates and predicts as plain arrays do, or is refused by name."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import renaissance as rn

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("one_thread")]

DATA = torch.utils.data
N = 12
draws = np.random.default_rng(0)
X = draws.normal(size=(N, 4)).astype(np.float16).astype(np.float32)  # exact in any type of floats
Y = draws.integers(0, 3, N)
TX, TY = torch.from_numpy(X), torch.from_numpy(Y)
PICTURES = draws.integers(0, 256, (N, 6, 6, 3)).astype(np.uint8)
ROWS = TensorDataset(TX, TY)


def arrays(x=X, y=Y, **options):
    return rn.Loader.from_arrays(x, y, batch_size=4, **options)


def result(data, net=None):
    """What training, evaluation and prediction give: (state, loss, accuracy, outputs)."""
    task = rn.Task(net or nn.Linear(4, 3), seed=1, device="cpu", threads=1)
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.1)).data(data)
    task.compile(report="none").fit(epochs=2, verbose=0)
    means = task.evaluate(data)
    return task.state_hash(), means["loss"], means["accuracy"], task.predict(data).tobytes()


@pytest.fixture(scope="module")
def plain():
    return result(arrays())


class Table:
    """As a data frame: items are columns, and NumPy makes an array of it."""

    def __init__(self, values):
        self.values, self.shape = values, values.shape

    def __len__(self):
        return len(self.values)

    def __getitem__(self, name):
        raise KeyError(name)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)


def read_only():
    x = X.copy()
    x.flags.writeable = False
    return x


@pytest.mark.parametrize(
    "make",
    [
        lambda: (np.repeat(X, 2, axis=1)[:, ::2], Y),
        lambda: (X[::-1].copy()[::-1], Y[::-1].copy()[::-1]),
        lambda: (np.asfortranarray(X), Y),
        lambda: (read_only(), Y),
        lambda: (X.astype(">f4"), Y.astype(">i8")),
        lambda: (X.astype(">f8"), Y.astype(">u2")),
        lambda: (X.astype(np.longdouble), Y.astype(np.uint8)),
        lambda: (X.astype(np.float16), Y.astype(np.int8)),
        lambda: (torch.tensor(X, requires_grad=True), TY),
        lambda: (TX.double(), TY.int()),
        lambda: (torch._neg_view(-TX), TY),
        lambda: (np.ma.masked_array(X), Y),
        lambda: (Table(X), Table(Y)),
        lambda: (X.tolist(), Y.tolist()),
        lambda: (list(TX), tuple(TY)),
        lambda: (tuple(map(tuple, X)), Y),
    ],
)
def test_arrays_of_any_make_train_as_plain_ones(make, plain):
    assert result(arrays(*make())) == plain


def test_files_in_memory_maps(tmp_path, plain):
    np.save(tmp_path / "x.npy", X), np.save(tmp_path / "y.npy", Y)
    np.save(tmp_path / "pictures.npy", PICTURES)
    x, y, pictures = (
        np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in ("x", "y", "pictures")
    )
    assert result(arrays(x, y)) == plain
    plain_pictures = arrays(PICTURES).batch_at(0, 1).x
    for given in (pictures, np.asfortranarray(PICTURES), np.flip(PICTURES[:, ::-1], axis=1)):
        assert np.array_equal(arrays(given).batch_at(0, 1).x, plain_pictures)


def test_one_sample_and_one_number_a_sample():
    assert result(arrays(X[:1], Y[:1]))[1] > 0
    net = nn.Sequential(nn.Unflatten(0, (-1, 1)), nn.Linear(1, 3))
    numbers = rn.Loader([(x, int(y)) for x, y in zip(X[:, 0], Y)], batch_size=4)
    other = nn.Sequential(nn.Unflatten(0, (-1, 1)), nn.Linear(1, 3))
    assert result(numbers, net) == result(arrays(X[:, 0]), other)


class Stream(IterableDataset):
    def __init__(self, length=N):
        self.length = length

    def __len__(self):
        return self.length

    def __iter__(self):
        return iter(zip(TX, TY))


class Batched(torch.utils.data.Dataset):
    def __len__(self):
        return 3

    def __getitem__(self, k):
        return TX[4 * k : 4 * k + 4], TY[4 * k : 4 * k + 4]


def of_numpy(rows):
    return np.stack([x.numpy() for x, _ in rows]), np.array([int(y) for _, y in rows])


def of_lists(rows):
    return [x.tolist() for x, _ in rows], [int(y) for _, y in rows]


@pytest.mark.parametrize(
    "make",
    [
        lambda: DataLoader(ROWS, batch_sampler=[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]),
        lambda: DataLoader(ROWS, batch_size=4, drop_last=True),
        lambda: DataLoader(Stream(), batch_size=4),
        lambda: DataLoader(DATA.ChainDataset([Stream()]), batch_size=4),
        lambda: DataLoader(Batched(), batch_size=None),
        lambda: DataLoader(
            ROWS,
            batch_size=None,
            sampler=DATA.BatchSampler(DATA.SequentialSampler(ROWS), 4, drop_last=False),
        ),
        lambda: DataLoader(ROWS, batch_size=4, collate_fn=of_numpy),
        lambda: DataLoader(ROWS, batch_size=4, collate_fn=of_lists),
        lambda: DataLoader(ROWS, batch_size=4, num_workers=2),
        lambda: DataLoader(TensorDataset(TX.double(), TY.int()), batch_size=4),
        lambda: DataLoader(TensorDataset(TX.half(), TY.to(torch.uint8)), batch_size=4),
        lambda: DataLoader([(x.clone().requires_grad_(), int(y)) for x, y in ROWS], batch_size=4),
        lambda: DataLoader(DATA.Subset(ROWS, range(-N, 0)), batch_size=4),
        lambda: DataLoader([{"features": x, "label": y} for x, y in ROWS], batch_size=4),
        lambda: rn.Loader(ROWS, batch_size=4),
        lambda: rn.Loader(list(zip(X, Y)), batch_size=4),
        lambda: rn.Loader([{"features": x, "label": y} for x, y in zip(X, Y)], batch_size=4),
        lambda: rn.Loader(rn.Subset(ROWS, range(-N, 0)), batch_size=4),
    ],
)
def test_data_sets_and_data_loaders_train_as_plain_arrays(make, plain):
    assert result(make()) == plain


def test_16_bit_floats_of_a_data_loader_reach_a_model_of_16_bits():
    loader = DataLoader(TensorDataset(TX.bfloat16(), TY), batch_size=4)
    task = rn.Task(nn.Linear(4, 3), seed=1, device="cpu", threads=1, precision="bf16-mixed")
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.1)).data(loader).compile(report="none")
    assert task.batch_at(0, 0).x.dtype == torch.bfloat16
    assert task.fit(epochs=1, verbose=0).history["loss"][0] > 0


WORDS = "number them: classes, y = np.unique"
BIG = np.full(N, 2**63 + 1, np.uint64)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: arrays(X[:0], Y[:0]), ValueError, r"the data is empty: x has shape \(0, 4\)"),
        (lambda: arrays(None), TypeError, "x is None; it takes an array, a tensor or lists"),
        (lambda: arrays("photos"), TypeError, "x is text, such as 'photos'; it takes"),
        (lambda: arrays(3.0), ValueError, "x is one number, 3.0; it takes an array of samples"),
        (lambda: arrays(row for row in X), TypeError, "x is a generator; it takes an array"),
        (lambda: arrays(zip(X, Y)), TypeError, "x is a zip; it takes an array"),
        (lambda: arrays(X, set(Y.tolist())), TypeError, "y is a set; it takes an array"),
        (lambda: arrays(X, 5), ValueError, "y is one number, 5; it takes a target for each"),
        (lambda: arrays(X, Y[:5]), ValueError, "x has 12 samples and y has 5 labels"),
        (lambda: arrays(X.astype(object)), TypeError, r"are numbers; .* np.asarray\(x, np.float32"),
        (lambda: arrays([[1, None]]), TypeError, "of objects, a NoneType among them, None; it tak"),
        (lambda: arrays(X, ["cat"] * N), TypeError, f"y is text, such as 'cat'; .*{WORDS}"),
        (lambda: arrays(X, np.array(["a"] * N, object)), TypeError, f"a str among .*{WORDS}"),
        (lambda: arrays([[1.0], [1, 2]], [0, 1]), ValueError, "unequal length need padding"),
        (lambda: arrays(X.astype("c8")), TypeError, "x is an array of complex64; it takes uint8"),
        (lambda: arrays(np.zeros(N, "M8[s]")), TypeError, "x is an array of datetime64"),
        (lambda: arrays(X, BIG), ValueError, "y holds 9223372036854775809; it takes int64, up to"),
        (lambda: rn.Loader([(X[0], BIG[0])], batch_size=1), ValueError, "y holds 92233720368547"),
        (
            lambda: arrays(X.astype(float) * 1e300),
            ValueError,
            r"e\+300 .*, which float32 makes infinite",
        ),
        (lambda: arrays(X, -1e39 * np.ones(N)), ValueError, r"y holds 1e\+39 \(or its negative"),
        (
            lambda: arrays(np.ma.masked_greater(X, 0)),
            ValueError,
            r"numbers under the mask would count; fill them in: x.filled\(0\)",
        ),
        (lambda: arrays(TX.to_sparse()), TypeError, r"sparse_coo tensor; .* dense ones: .to_den"),
        (lambda: arrays(TX.to("meta")), TypeError, "on the meta device, which has no numbers"),
        (lambda: rn.Loader(Table(X), batch_size=4), TypeError, r"such as table\[names\].to_numpy"),
        (lambda: rn.Loader((X, Y), batch_size=4), TypeError, r"here Loader.from_arrays\(\*data\)"),
        (lambda: rn.Loader({"x": X}, batch_size=4), TypeError, "under 'x', say which are x and y"),
        (lambda: rn.Loader("photos", batch_size=4), TypeError, "renaissance.datasets.ImageFolder"),
        (lambda: rn.Loader(Stream(), batch_size=4), TypeError, "goes into a torch DataLoader, whi"),
        (
            lambda: rn.Loader(DataLoader(ROWS), batch_size=4),
            TypeError,
            "takes this loader as it is",
        ),
        (lambda: rn.Loader(arrays(), batch_size=4), TypeError, "A task takes this loader as it is"),
        (lambda: result(DataLoader(arrays(), batch_size=4)), TypeError, "around an rn.Loader, whi"),
        (
            lambda: result(DataLoader(arrays().dataset, batch_size=4)),
            TypeError,
            r"around ArrayDataset, which has no .*; write rn.Loader\(dataset, batch_size",
        ),
        (lambda: result({"x": X}), TypeError, "received dict; .* each sample a dict"),
        (
            lambda: result(DataLoader(Stream(20), batch_size=4)),
            RuntimeError,
            "ended after 3 batches; its length said 5; give its data set the right __len__",
        ),
        (
            lambda: result(DataLoader([(X[0].tolist(), 0)] * 4, batch_size=2)),
            ValueError,
            r"(?s)a list of tensors \[\(2,\).*default_collate makes such a list of samples whose",
        ),
        (
            lambda: result(DataLoader(ROWS, batch_size=2, collate_fn=lambda rows: zip(*rows))),
            TypeError,
            "x of the DataLoader's batch is a zip; it takes tensors",
        ),
        (
            lambda: result(DataLoader(ROWS, batch_size=4, collate_fn=list)),
            TypeError,
            r"has 4 parts, .*a collate_fn returns \(x, y\) of stacked samples",
        ),
        (
            lambda: result(DataLoader([(x, "cat") for x in TX], batch_size=4)),
            TypeError,
            f"y of the DataLoader's batch is a tuple of text; {WORDS}",
        ),
        (
            lambda: result(
                DataLoader(ROWS, batch_size=4, collate_fn=lambda rows: tuple(map(list, zip(*rows))))
            ),
            TypeError,
            r"y of .* is a list; .* torch.stack\(y\) in the collate_fn",
        ),
    ],
)
def test_what_is_refused_says_what_came_and_what_to_do(make, error, text):
    with pytest.raises(error, match=text):
        make()


@pytest.mark.parametrize(
    ("data", "net", "dtype"),
    [
        (lambda: arrays(X > 0), nn.Linear(4, 3), "bool"),
        (lambda: arrays(PICTURES > 9), nn.Sequential(nn.Flatten(), nn.LazyLinear(3)), "bool"),
        (lambda: arrays(Y[:, None].repeat(4, 1)), nn.Linear(4, 3), "int64"),
        (lambda: DataLoader(TensorDataset(TX > 0, TY), batch_size=4), nn.Linear(4, 3), "bool"),
    ],
)
def test_a_model_of_floats_is_not_given_other_numbers(data, net, dtype):
    with pytest.raises(ValueError, match=f"and type {dtype}: .* give x as float32"):
        result(data(), net)


@pytest.mark.parametrize("kind", ["arrays", "DataLoader"])
def test_fit_on_other_data_says_what_the_model_was_given(kind):
    task = rn.Task(nn.Linear(4, 3), seed=1, device="cpu", threads=1).data(arrays())
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.1)).compile(report="none")
    wide = np.ones((3, 7), np.float32)
    data = arrays(wide, [0, 1, 2])
    if kind == "DataLoader":
        data = DataLoader(TensorDataset(torch.from_numpy(wide), TY[:3]), batch_size=4)
    before = task.state_hash()
    with pytest.raises(ValueError, match=r"shape \(7,\) and type float32: .* data has \(4,\) and"):
        task.fit(data, epochs=1, verbose=0)
    assert task.state_hash() == before and task.fit(epochs=1, verbose=0).history["loss"][0] > 0
