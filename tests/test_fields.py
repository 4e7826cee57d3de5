"""Several arrays of a sample as one: packed, taken apart, trained with."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays_of
from torch import nn

import renaissance as rn

rng = np.random.default_rng(0)
N = 40
ARRAYS = {
    "label": rng.integers(0, 3, N),
    "box": rng.normal(size=(N, 2, 2)).astype(np.float32),
    "weight": rng.random(N).astype(np.float32),
    "tokens": rng.integers(-5, 2**24, (N, 4)),
}


@pytest.mark.parametrize("kind", [np.asarray, torch.as_tensor])
def test_what_is_packed_comes_back_with_every_bit(kind):
    fields = rn.Fields.of(**{name: kind(array) for name, array in ARRAYS.items()})
    packed = fields.pack(**{name: kind(array) for name, array in ARRAYS.items()})
    assert packed.dtype == np.float32 and packed.shape == (N, fields.size) == (N, 10)
    for found in (fields.unpack(packed), fields.unpack(torch.from_numpy(packed))):
        assert list(found) == list(ARRAYS)
        for name, array in ARRAYS.items():
            assert found[name].shape == array.shape
            assert np.array_equal(np.asarray(found[name]), array)
            assert np.asarray(found[name]).dtype == array.dtype
    assert repr(fields) == "Fields(label=(int,), box=(2, 2), weight=(), tokens=(4, int))"


def test_one_sample_is_a_row_of_many():
    fields = rn.Fields(label=int, box=(2, 2), weight=float, tokens=(4, int))
    rows = [fields.pack_one(**{name: a[k] for name, a in ARRAYS.items()}) for k in range(N)]
    assert np.array_equal(np.stack(rows), fields.pack(**ARRAYS))
    assert (
        fields.pack_one(label=1, box=[[1, 2], [3, 4]], weight=0.5, tokens=[1, 2, 3, 4]).size == 10
    )


def test_whole_numbers_by_themselves_have_no_limit():
    fields = rn.Fields(a=(2, int), b=int)
    packed = fields.pack(a=[[1, 2**40]], b=[-(2**50)])
    assert packed.dtype == np.int64 and packed.tolist() == [[1, 2**40, -(2**50)]]
    assert fields.unpack(packed)["a"].tolist() == [[1, 2**40]]


WHOLE = ["?", "i1", "u1", "<i2", ">u2", "i4", "u4", ">i8", "u8"]


@st.composite
def packables(draw):
    """(fields, arrays) of any dtypes, orders in memory, byte orders and shapes; 0 rows too."""
    count = draw(st.integers(0, 3))
    arrays, told = {}, {}
    only_whole = draw(st.booleans())
    for name in draw(st.lists(st.sampled_from("abcs"), min_size=1, max_size=3, unique=True)):
        shape = draw(st.lists(st.integers(1, 3), max_size=2))
        is_whole = only_whole or draw(st.booleans())
        dtype = np.dtype(draw(st.sampled_from(WHOLE if is_whole else ["f2", "<f4", ">f4"])))
        top = 2**63 - 1 if only_whole else 2**24
        numbers = arrays_of.from_dtype(dtype)
        if dtype.kind in "iu":
            low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
            numbers = st.integers(max(-top - only_whole, low), min(top, high))
        array = draw(arrays_of.arrays(dtype, (count, *shape), elements=numbers))
        arrays[name] = np.asfortranarray(array) if draw(st.booleans()) else array
        told[name] = (*shape, int) if is_whole else tuple(shape)
    return rn.Fields(**told), arrays


@settings(max_examples=150, deadline=None)
@given(packables())
def test_any_arrays_come_back(drawn):
    fields, arrays = drawn
    packed = fields.pack(**arrays)
    assert packed.shape == (len(next(iter(arrays.values()))), fields.size)
    for found in (fields.unpack(packed), fields.unpack(torch.from_numpy(packed))):
        for name, array in arrays.items():
            back = np.asarray(found[name])
            assert back.dtype == (np.float32 if array.dtype.kind == "f" else np.int64)
            assert np.array_equal(back, array, equal_nan=array.dtype.kind == "f")


def test_names_may_be_any():
    fields = rn.Fields(self=int, fields=(2,))
    packed = fields.pack(self=[1], fields=[[2, 3]])
    assert fields.unpack(packed.tolist())["self"] == [1]
    assert fields.pack_one(self=1, fields=[2, 3]).tolist() == packed[0].tolist()
    assert repr(rn.Fields(a=(np.int64(2),))) == "Fields(a=(2,))"


class Multi(nn.Module):
    """Numbers and tokens in; classes and a box out."""

    fields = rn.Fields(numbers=(3,), tokens=(4, int))

    def __init__(self):
        super().__init__()
        self.words, self.body = nn.Embedding(20, 5), nn.Linear(8, 16)
        self.label, self.box = nn.Linear(16, 3), nn.Linear(16, 4)

    def forward(self, x):
        x = self.fields.unpack(x)
        hidden = self.body(torch.cat([x["numbers"], self.words(x["tokens"]).mean(1)], 1)).relu()
        return {"label": self.label(hidden), "box": self.box(hidden).view(-1, 2, 2)}


TARGETS = rn.Fields(label=int, box=(2, 2), weight=float)


def weighted(output, target):
    t = TARGETS.unpack(target)
    by_label = F.cross_entropy(output["label"], t["label"], reduction="none")
    by_box = (output["box"] - t["box"]).abs().mean((1, 2))
    return (t["weight"] * (by_label + 0.5 * by_box)).mean()


def accuracy(output, target):
    return (output["label"].argmax(1) == TARGETS.unpack(target)["label"]).float().mean()


INPUTS = {"numbers": rng.normal(size=(N, 3)), "tokens": rng.integers(0, 20, (N, 4))}
PACKED = Multi.fields.pack(**INPUTS), TARGETS.pack(**{n: ARRAYS[n] for n in TARGETS._fields})


class Rows(torch.utils.data.Dataset):
    """The same, as a data set that packs its samples."""

    def __len__(self):
        return N

    def __getitem__(self, k):
        x = Multi.fields.pack_one(**{name: a[k] for name, a in INPUTS.items()})
        return x, TARGETS.pack_one(**{name: ARRAYS[name][k] for name in ("label", "box", "weight")})


@pytest.mark.parametrize("kind", ["arrays", "data set"])
def test_training_equals_a_loop_by_hand(kind):
    options = {"batch_size": 16, "shuffle": True}
    data = rn.Loader.from_arrays(*PACKED, **options)
    if kind == "data set":
        data = rn.Loader(Rows(), **options)
    torch.manual_seed(0)
    model = Multi()
    plain = Multi()
    plain.load_state_dict(model.state_dict())
    task = rn.Task(model, seed=1, device="cpu").init("keep").metrics(accuracy)
    task.loss(weighted).optimizer(rn.Adam(lr=1e-2)).data(data).compile(report="none")
    order = [torch.as_tensor(task.batch_at(e, s).ids) for e in range(3) for s in range(3)]
    history = task.fit(epochs=3, verbose=0).history
    adam = torch.optim.Adam(plain.parameters(), lr=1e-2)
    x, y = (torch.from_numpy(packed) for packed in PACKED)
    losses = []
    for ids in order:
        loss = weighted(plain(x[ids]), y[ids])
        adam.zero_grad()
        loss.backward()
        adam.step()
        losses.append((loss.item(), len(ids)))
    mean = sum(loss * n for loss, n in losses[6:]) / N
    assert history["loss"][-1] == pytest.approx(mean, rel=1e-5)
    for name, tensor in plain.state_dict().items():
        assert torch.allclose(task.state_dict()[name], tensor, rtol=1e-4, atol=1e-6), name
    found = task.predict(data)
    assert np.allclose(found["box"], plain(x)["box"].detach(), atol=1e-5)


def test_whole_numbers_stay_exact_in_mixed_precision():
    class Same(nn.Linear):
        def forward(self, x):
            return {"tokens": fields.unpack(x)["tokens"], "scores": super().forward(x)}

    fields = rn.Fields(tokens=(2, int), one=float)
    tokens = rng.integers(2**23, 2**24, (8, 2))
    x = fields.pack(tokens=tokens, one=np.ones(8))
    task = rn.Task(Same(3, 1), seed=1, device="cpu", precision="bf16-mixed").loss(
        lambda output, target: (output["scores"] - target).square().mean()
    )
    task.optimizer(rn.SGD(lr=1e-20)).data(rn.Loader.from_arrays(x, np.ones((8, 1)), batch_size=4))
    assert (task.compile(report="none").predict(x)["tokens"] == tokens).all()


PAIR = rn.Fields(a=(2,), b=int)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: rn.Fields(), ValueError, "there are none; name at least one"),
        (lambda: rn.Fields(a="x"), TypeError, "a = 'x' is not allowed; it takes float, int, or a"),
        (lambda: rn.Fields(a=(2, -1)), TypeError, r"a = \(2, -1\) is not allowed"),
        (lambda: rn.Fields.of(a=3), ValueError, r"a is a single number; it takes \(N, ...\)"),
        (lambda: PAIR.pack(a=np.ones((3, 2))), TypeError, "got no b; it takes all fields"),
        (lambda: PAIR.pack(a=[[1, 2]], b=[1], c=[1]), TypeError, "no setting 'c'"),
        (lambda: PAIR.pack(a=[[1, 2, 3]], b=[1]), ValueError, r"a has shape \(1, 3\); it takes"),
        (lambda: PAIR.pack(a=[[1, 2]], b=[1, 2]), ValueError, "'a': 1, 'b': 2} samples"),
        (lambda: PAIR.pack(a=[[1, 2]], b=[0.5]), TypeError, "b has dtype float64; it takes whole"),
        (lambda: PAIR.pack(a=[[1, 2]], b=[2**24 + 1]), ValueError, "b holds 16777217; beside"),
        (
            lambda: PAIR.pack(a=[[1, 2]], b=[-(2**63)]),
            ValueError,
            "b holds -9223372036854775808; b",
        ),
        (
            lambda: PAIR.pack(a=[[1, 2]], b=np.array([-(2**31)], np.int32)),
            ValueError,
            "b holds -2147483648; beside",
        ),
        (
            lambda: rn.Fields(n=int).pack(n=np.array([1, 2**63], np.uint64)),
            ValueError,
            "n holds 9223372036854775808; it takes int64, up to 9223372036854775807",
        ),
        (
            lambda: PAIR.pack(a=[[np.inf, -1e39]], b=[1]),
            ValueError,
            r"a holds 1e\+39 .*, which float32 makes infinite; it takes up to 3.403e\+38",
        ),
        (
            lambda: PAIR.unpack(np.ones((3, 4))),
            ValueError,
            r"3 numbers a sample, received \(3, 4\)",
        ),
    ],
)
def test_what_is_wrong_is_said(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: rn.Loader.from_arrays(np.ones((4, 3)), {"a": np.ones(4)}, batch_size=2),
        lambda: rn.Loader.from_arrays((np.ones((4, 3)), np.ones(4)), np.ones(4), batch_size=2),
        lambda: rn.Loader([((np.ones(3), 1.0), 0)] * 4, batch_size=2),
        lambda: rn.Loader([(np.ones(3), {"a": 1})] * 4, batch_size=2),
        lambda: rn.Loader([(np.ones(3), 1, 0.5)] * 4, batch_size=2),
        lambda: rn.Loader([((np.ones(3), np.ones(3)), 1)] * 4, batch_size=2),
        lambda: rn.Loader([(np.ones(3), (torch.tensor(1), torch.tensor(0.5)))] * 4, batch_size=2),
    ],
)
def test_several_arrays_are_refused_with_the_way_out(call):
    with pytest.raises((TypeError, ValueError), match="see rn.Fields") as caught:
        call()
    assert str(caught.value).count("rn.Fields") == 1
