"""Batches of a torch DataLoader that hold several inputs: dicts, tuples, and what is refused."""

import collections

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, default_collate

import renaissance as rn
from renaissance.data.foreign import TorchLoader
from renaissance.describe import notes

pytestmark = [pytest.mark.timeout(60), pytest.mark.usefixtures("one_thread")]

N, LENGTH, WORDS = 22, 6, 12
draws = np.random.default_rng(0)
TOKENS = draws.integers(1, WORDS, (N, LENGTH))
LENGTHS = draws.integers(2, LENGTH + 1, N)
LABELS = torch.from_numpy((TOKENS[:, 0] > WORDS // 2).astype(np.int64))


class Sentences(torch.utils.data.Dataset):
    """As a tokenizer leaves them: dicts of lists, each of its own length."""

    def __init__(self, label="labels", more=()):
        self.label, self.more = label, dict(more)

    def __len__(self):
        return N

    def __getitem__(self, k):
        ids = TOKENS[k, : LENGTHS[k]].tolist()
        given = {"input_ids": ids, "attention_mask": [1] * len(ids), **self.more}
        return given | ({self.label: int(LABELS[k])} if self.label else {})


class Encoding(collections.UserDict):
    """A mapping that is no dict, as tokenizers return it."""


def padded(samples, length=None):
    length = length or max(len(sample["input_ids"]) for sample in samples)
    fill = {"input_ids": 0, "attention_mask": 0}
    rows = [
        {
            name: value + [fill[name]] * (length - len(value)) if name in fill else value
            for name, value in sample.items()
        }
        for sample in samples
    ]
    return Encoding({name: torch.tensor([row[name] for row in rows]) for name in rows[0]})


class Encoder(nn.Module):
    """Takes its inputs by name, and gives scores in a structure of its own."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, 2)
        self.drop = nn.Dropout(0.2)

    def forward(self, input_ids, attention_mask=None):
        kept = attention_mask[..., None].float()
        pooled = (self.words(input_ids) * kept).sum(1) / kept.sum(1)
        return {"logits": self.head(self.drop(pooled))}


class Classifier(nn.Module):
    def __init__(self, drops=True):
        super().__init__()
        self.net = Encoder()
        if not drops:
            self.net.drop = nn.Identity()

    def forward(self, x):
        return self.net(**x)["logits"]


def batches(shuffle=True, collate=padded, **options):
    return DataLoader(Sentences(), batch_size=4, shuffle=shuffle, collate_fn=collate, **options)


def task_on(train, valid=None, net=None, **settings):
    task = rn.Task(net or Classifier(), device="cpu", seed=3, threads=1, **settings)
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.5, momentum=0.9))
    return task.data(train, valid).compile(report="none")


def by_hand(net, order, epochs):
    """The loop that one would write; `order` gives an epoch's batches."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5, momentum=0.9)
    for epoch in range(epochs):
        for batch in order(epoch):
            x = {name: torch.as_tensor(batch.x[name]) for name in batch.x}
            optimizer.zero_grad()
            F.cross_entropy(net(x), torch.as_tensor(batch.y)).backward()
            optimizer.step()
    return net


def test_a_dict_reaches_the_model_as_a_loop_by_hand_would_give_it():
    net = Classifier(drops=False)
    task = task_on(batches(), batches(shuffle=False), net=net)
    start = {name: tensor.clone() for name, tensor in task.state_dict().items()}
    history = task.fit(epochs=3, verbose=0)
    other = Classifier(drops=False)
    other.load_state_dict(start)
    loader = TorchLoader(batches(), seed=3)
    by_hand(other, loader.epoch, epochs=3)
    for name, tensor in other.state_dict().items():
        assert torch.allclose(task.state_dict()[name], tensor, rtol=1e-5, atol=1e-6), name
        assert not torch.allclose(start[name], tensor, atol=1e-2)  # it was trained

    rows = padded([Sentences()[k] for k in range(N)])
    with torch.no_grad():
        scores = other({name: rows[name] for name in ("input_ids", "attention_mask")})
    logs = task.evaluate(batches(shuffle=False))
    assert logs["loss"] == pytest.approx(F.cross_entropy(scores, LABELS).item(), rel=1e-5)
    assert logs["loss"] == pytest.approx(history.history["val_loss"][-1])
    assert np.allclose(task.predict(batches(shuffle=False)), scores, rtol=1e-4, atol=1e-5)
    without = DataLoader(Sentences(label=None), batch_size=5, collate_fn=padded)
    assert np.allclose(task.predict(without), scores, rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match="evaluate: the data has no targets"):
        task.evaluate(without)


class StopAt(rn.Callback):
    def __init__(self, step):
        self.step = step

    def on_train_batch_end(self, batch, logs):
        self.task.stop_training = self.task.attempted_steps == self.step


@pytest.mark.parametrize("workers", [0, 2])
def test_two_runs_and_a_resumed_one_have_the_same_bits(workers, tmp_path):
    whole = task_on(batches(num_workers=workers))
    whole.fit(epochs=2, verbose=0)
    first = task_on(batches(num_workers=workers), run_dir=tmp_path)
    first.fit(epochs=2, verbose=0, checkpoint=4, callbacks=[StopAt(8)])
    assert first.attempted_steps == 8 != whole.attempted_steps == 12
    again = task_on(batches(num_workers=workers), run_dir=tmp_path)
    again.fit(epochs=2, verbose=0, resume="auto")
    assert again.state_hash() == whole.state_hash() != first.state_hash()


def share(outputs, targets):
    return (outputs.argmax(1) == targets).float().mean()


def test_everything_that_looks_at_batches_takes_dicts():
    task = task_on(batches(), batches(shuffle=False))
    before = task.state_hash()
    seen = task.batch_at(0, 1)
    assert list(seen.x) == ["input_ids", "attention_mask"] and type(seen.x) is dict
    assert seen.x["input_ids"].shape == seen.x["attention_mask"].shape and len(seen.y) == 4
    assert task.dry_run()["loss"] > 0 and task.state_hash() == before
    value = rn.Score(share).measure(batches(shuffle=False), task=task)
    assert value == pytest.approx(task.evaluate(batches(shuffle=False))["accuracy"])
    assert task.train_on_batch(seen.x, seen.y)["loss"] > 0
    assert task.test_on_batch(dict(padded([Sentences(None)[0]])), LABELS[:1])["loss"] > 0
    spec = TorchLoader(batches(collate=lambda rows: padded(rows, LENGTH))).sample_spec()
    assert spec.shape == {"input_ids": (LENGTH,), "attention_mask": (LENGTH,)}
    assert spec.dtype == {"input_ids": torch.int64, "attention_mask": torch.int64}


class Rows(torch.utils.data.Dataset):
    def __init__(self, sample):
        self.sample = sample

    def __len__(self):
        return 6

    def __getitem__(self, k):
        return self.sample(k)


def first_of(sample, **options):
    return TorchLoader(DataLoader(Rows(sample), batch_size=3, **options)).batch_at(0, 0)


Pair = collections.namedtuple("Pair", "left right")
ROW = torch.ones(2)
ROWS = torch.ones(N, 2)


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        (lambda k: ((ROW, ROW * k), k), [(3, 2), (3, 2)]),
        (lambda k: (Pair(ROW, k), k), Pair((3, 2), (3,))),
        (lambda k: ({"a": ROW, "b": {"c": k}}, k), {"a": (3, 2), "b": {"c": (3,)}}),
        (lambda k: {"features": ROW, "label": k}, (3, 2)),
        (lambda k: {"image": ROW, "path": "a.png", "label": k}, (3, 2)),
        (lambda k: {"pixel_values": ROW, "labels": k}, (3, 2)),
        (
            lambda k: {"pixel_values": ROW, "mask": ROW, "labels": k, "label": k},
            {"pixel_values": (3, 2), "mask": (3, 2)},
        ),
    ],
)
def test_what_of_a_batch_is_the_input(sample, expected):
    batch = first_of(sample)
    assert batch.y.tolist() == [0, 1, 2] and len(batch) == 3
    assert shapes(batch.x) == expected and type(shapes(batch.x)) is type(expected)


def shapes(x):
    if isinstance(x, dict):
        return {name: shapes(part) for name, part in x.items()}
    if isinstance(x, (tuple, list)):
        parts = [shapes(part) for part in x]
        return Pair(*parts) if isinstance(x, Pair) else parts
    return tuple(x.shape)


def test_what_is_left_out_is_said_once(caplog):
    sample = {"image": ROW, "label": 1, "index": 4, "path": "a"}
    loader = TorchLoader(DataLoader(Rows(lambda k: sample), batch_size=2))
    assert all(batch.x.shape == (2, 2) for _ in range(2) for batch in loader.epoch(0))
    (record,) = caplog.records
    assert "entries are left out: 'index', 'path' (a collate_fn" in record.getMessage()


def test_of_many_parts_the_lines_to_write_are_said_and_work():
    rows = TensorDataset(torch.from_numpy(TOKENS), torch.ones(N, LENGTH), LABELS)
    with pytest.raises(TypeError, match="has 3 parts, and which are inputs is not known") as error:
        TorchLoader(DataLoader(rows, batch_size=4)).batch_at(0, 0)
    task_of_lines = lines_of(error)["collate"]
    x, y = task_of_lines([rows[0], rows[1]])
    assert (
        list(x) == ["a", "b"] and torch.equal(x["a"], rows[:2][0]) and y.tolist() == [*LABELS[:2]]
    )
    task_on(DataLoader(rows, batch_size=4, collate_fn=task_of_lines), net=ByName("a", "b"))
    with pytest.raises(TypeError, match=r"has 9 parts, .*a collate_fn returns \(x, y\) of stac"):
        first_of(lambda k: k, collate_fn=lambda rows: [ROW] * 9)


class ByName(Classifier):
    def __init__(self, *names):
        super().__init__()
        self.names = names

    def forward(self, x):
        return self.net(*(x[name] for name in self.names))["logits"]


def lines_of(error):
    """The code in a message, run."""
    code = [line[4:] for line in str(error.value).splitlines() if line.startswith("    ")]
    found = {"torch": torch, "rn": rn, "DataLoader": lambda *_, **__: None}
    exec("\n".join(code), found)
    return found


@pytest.mark.parametrize("kind", [dict, tuple])
def test_of_many_targets_the_lines_to_write_are_said_and_work(kind):
    def sample(k):
        y = {"kind": k, "box": torch.full((4,), float(k))}
        return ROW, y if kind is dict else tuple(y.values())

    with pytest.raises(
        TypeError, match="y of the DataLoader's batch is a (dict|list).*Several"
    ) as e:
        first_of(sample)
    collate = lines_of(e)["collate"]
    batch = first_of(sample, collate_fn=collate)
    found = lines_of(e)["targets"].unpack(torch.from_numpy(batch.y))
    kinds, boxes = found.values()
    assert kinds.tolist() == [0, 1, 2] and boxes.tolist() == [[k] * 4 for k in range(3)]


@pytest.mark.parametrize(
    ("batch", "error", "text"),
    [
        (
            ({"a": ["one", "two"]}, ROW),
            TypeError,
            r"x\['a'\] of .* a list of str; it takes tensors",
        ),
        (({"a": None}, ROW), TypeError, r"x\['a'\] of the DataLoader's batch is None"),
        (("text", ROW), TypeError, "x of the DataLoader's batch is a str"),
        ((ROW, ["a", "b"]), TypeError, "y of the DataLoader's batch is a list of text; numb"),
        ((ROW, (ROW, ["a", "b"])), TypeError, "it takes one tensor. Several targets of a sample"),
        (({}, ROW), ValueError, "x of the DataLoader's batch is an empty container"),
        ({"labels": ROW}, ValueError, "x of the DataLoader's batch is an empty container"),
        ((), ValueError, "a batch of the DataLoader is empty"),
        (({"a": ROW, "b": torch.ones(3)}, ROW), ValueError, r"x\['a'\] \(2,\), x\['b'\] \(3,\), y"),
        ((ROW, torch.tensor(1.0)), ValueError, r"shapes x \(2,\), y \(\);.* a row for every"),
        ((torch.ones(0, 3), torch.ones(0)), ValueError, "0 samples; it takes at least 1"),
        ((torch.eye(2).to_sparse(), ROW), TypeError, r"sparse.* dense ones: tensor.to_dense\(\)"),
        ((np.array(["a", "b"]), ROW), TypeError, "x of .* is an array of <U1; it takes numbers"),
        ((ROW, torch.ones(2, dtype=torch.complex64)), TypeError, "y of .* is complex"),
        (
            (nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)]), ROW),
            TypeError,
            "is a PackedSequence, .*give the padded tensor and the lengths",
        ),
        (
            (torch.nested.nested_tensor([ROW, ROW[:1]], layout=torch.jagged), ROW),
            TypeError,
            "a nested .*: pad them",
        ),
        ((torch.empty(2, 2, device="meta"), ROW), TypeError, "x of .* the meta device"),
        ((np.ma.masked_equal([[1.0, 0.0]] * 2, 0), ROW), ValueError, "x of .* a masked array"),
        (
            (ROW, np.array([0, 2**63 + 1], np.uint64)),
            ValueError,
            "y of .* holds 9223372036854775809",
        ),
    ],
)
def test_refusals_say_what_came(batch, error, text):
    with pytest.raises(error, match=text):
        first_of(lambda k: k, collate_fn=lambda rows: batch)


def test_numbers_in_lists_and_arrays_are_taken():
    def collate(rows):
        return np.ones((3, 2), ">f8"), [0, 1, 2]

    batch = first_of(lambda k: k, collate_fn=collate)
    assert batch.x.dtype == np.float32 and batch.x.tolist() == [[1, 1]] * 3
    assert batch.y.dtype == np.int64 and batch.y.tolist() == [0, 1, 2]
    long = np.full((2, 2), 1.5, np.longdouble)
    batch = first_of(lambda k: k, collate_fn=lambda rows: (long, long))
    assert batch.x.dtype == batch.y.dtype == np.float32 and (batch.y == 1.5).all()
    halves = first_of(lambda k: k, collate_fn=lambda rows: (default_collate([ROW]), [0.5]))
    assert halves.y.dtype == np.float32 and halves.y.tolist() == [0.5]


@pytest.mark.filterwarnings("error")
def test_arrays_that_cannot_be_written_are_taken_and_stay_as_they_are():
    given = np.arange(6, dtype=np.float32).reshape(2, 3)
    given.flags.writeable = False
    labels = np.array([0, 2**63 - 1], np.uint64)
    rows = DataLoader(Rows(int), collate_fn=lambda _: ({"a": given, "b": given[::-1]}, labels))
    with TorchLoader(rows).stream() as stream:
        batch = next(stream)
    assert np.array_equal(batch.x["a"], given) and np.array_equal(batch.x["b"], given[::-1])
    assert batch.y.tolist() == [0, 2**63 - 1]
    batch.x["a"].fill_(7)
    assert given[0, 0] == 0


def test_a_model_that_does_not_take_a_dict_says_what_it_got():
    class Wrong(Encoder):
        pass

    with pytest.raises(ValueError) as error:
        task_on(batches(), net=Wrong())
    assert "a dict of tensors {'input_ids': (2, 6), 'attention_mask': (2, 6)}: " in str(error.value)
    assert "forward gets it as its one argument x: self.net(**x)" in str(error.value)


def test_a_report_says_that_several_inputs_are_not_captured():
    task = task_on(batches())
    said = "the step runs eagerly on CUDA too: several inputs (dict) in the batches of the data"
    assert any(note.startswith(said) for note in notes(task, task.require()))
    one = task_on(DataLoader(TensorDataset(ROWS, LABELS), batch_size=4), net=nn.Linear(2, 2))
    assert not any("eagerly" in note for note in notes(one, one.require()))
