"""A torch DataLoader in a loader's place."""

import random

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import renaissance as rn
from renaissance.data.foreign import TORCH_NOTE, TorchLoader, as_loader
from renaissance.datasets import Digits

pytestmark = pytest.mark.timeout(60)

DATA = torch.utils.data
X, Y = torch.arange(20.0).reshape(10, 2), torch.arange(10)


class Noisy(torch.utils.data.Dataset):
    """Draws from every global generator, as users' data sets do."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return {
            "image": torch.rand(3, 4, 4) + np.random.rand() + random.random(),
            "label": torch.tensor(index),
        }


def everything(stream):
    return [(batch.x.clone(), None if batch.y is None else batch.y.clone()) for batch in stream]


def test_batches_as_they_come():
    loader = as_loader(DataLoader(TensorDataset(X, Y), batch_size=4))
    assert (loader.steps_per_epoch, loader.num_samples, loader.batch_size) == (3, 10, 4)
    batches = list(loader.epoch(0))
    assert [len(batch) for batch in batches] == [4, 4, 2]
    assert np.concatenate([batch.y for batch in batches]).tolist() == list(range(10))
    assert np.concatenate([batch.ids for batch in batches]).tolist() == list(range(10))
    assert loader.batch_at(0, 2).y.tolist() == [8, 9]
    spec = loader.sample_spec()
    assert (spec.shape, spec.dtype, spec.label.shape) == ((2,), torch.float32, ())
    assert TORCH_NOTE in loader.report()


def test_it_is_said_once_that_promises_do_not_hold(caplog):
    def said():
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return found.count(TORCH_NOTE)

    rows = TensorDataset(X, Y % 3)
    train, valid, other = (DataLoader(rows, batch_size=5) for _ in range(3))
    task = task_on(train, valid)
    assert said() == 1
    task.fit(train, validation_data=valid, epochs=1, verbose=0)
    task.evaluate(valid), task.predict(other), task.evaluate(other)
    assert said() == 0
    task.fit(other, epochs=2, verbose=0)
    assert said() == 1


def test_a_loader_passes_as_it_is():
    loader = rn.Loader.from_arrays(np.zeros((4, 2), np.float32), batch_size=2)
    assert as_loader(loader) is loader


def test_order_and_noise_are_keyed_and_global_generators_left_alone():
    loader = TorchLoader(DataLoader(Noisy(), batch_size=4, shuffle=True))
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1].tobytes(), random.getstate()
    first = everything(loader.stream(seed=3, epoch=1))
    torch.rand(5)  # what others draw in between changes nothing
    again = everything(loader.stream(seed=3, epoch=1))
    other = everything(loader.stream(seed=3, epoch=2))
    assert all(torch.equal(a, b) for (a, _), (b, _) in zip(first, again, strict=True))
    assert not torch.equal(first[0][0], other[0][0])
    torch.set_rng_state(before[0])
    everything(loader.stream(seed=9))
    after = torch.get_rng_state(), np.random.get_state()[1].tobytes(), random.getstate()
    assert torch.equal(after[0], before[0]) and after[1:] == before[1:]


def test_workers_that_stay_serve_one_reader_at_a_time():
    rows = DataLoader(
        TensorDataset(X, Y), batch_size=2, shuffle=True, num_workers=1, persistent_workers=True
    )
    loader, other = TorchLoader(rows, seed=1), TorchLoader(rows, seed=1)
    expected = [batch.y.tolist() for batch in loader.epoch(1)]
    assert sorted(sum(expected, [])) == list(range(10))
    workers = rows._iterator
    with loader.stream(epoch=1) as stream:
        found = [next(stream).y.tolist() for _ in range(2)]
        assert [batch.y.tolist() for batch in other.epoch(1)] == expected  # it looks, from the side
        assert loader.batch_at(1, 4).y.tolist() == expected[4]
        found += [batch.y.tolist() for batch in stream]
    assert found == expected
    assert rows._iterator is workers  # training has kept them


def test_a_reader_at_the_side_keeps_its_workers_too():
    rows = DataLoader(TensorDataset(X, Y), batch_size=2, num_workers=1, persistent_workers=True)
    loader, other = TorchLoader(rows, seed=1), TorchLoader(rows, seed=1)
    with loader.stream() as stream, other.stream() as aside:
        next(stream)
        seen = []
        for epoch in range(3):
            aside.rewind(epoch)
            assert sum(len(batch) for batch in aside) == 10
            seen.append(aside.apart._iterator._workers[0].pid)
        assert len(set(seen)) == 1
        assert sum(len(batch) for batch in stream) == 8
        aside.rewind(3)  # the first one has ended: still its own
        assert aside.apart._iterator._workers[0].pid == seen[-1]
        assert rows._iterator._workers[0].pid not in seen
        worker = aside.apart._iterator._workers[0]
    worker.join(timeout=10)
    assert worker.exitcode is not None and aside.apart is None


class Mixed(torch.utils.data.Sampler):
    """Has a generator, by a name of its own."""

    def __init__(self, own):
        self.dice = own

    def __iter__(self):
        return iter(torch.randperm(10, generator=self.dice).tolist())

    def __len__(self):
        return 10


@pytest.mark.parametrize("kind", ["loader", "sampler", "both", "users"])
def test_generators_of_its_own_are_keyed_by_epoch_and_left_alone(kind):
    def loader(seed):
        own = torch.Generator().manual_seed(seed)
        sampler = torch.utils.data.RandomSampler(range(10), generator=own)
        options = {
            "loader": {"shuffle": True, "generator": own},
            "sampler": {"sampler": sampler},
            "users": {"sampler": Mixed(own)},
            "both": {"sampler": sampler, "generator": torch.Generator().manual_seed(9)},
        }[kind]
        return TorchLoader(DataLoader(TensorDataset(X, Y), batch_size=4, **options), seed=1), own

    def order(one, epoch):
        return np.concatenate([batch.y for batch in one.epoch(epoch)]).tolist()

    one, own = loader(5)
    before = own.get_state()
    found = [order(one, epoch) for epoch in (0, 1, 0)]
    assert found[0] == found[2] != found[1] and sorted(found[1]) == list(range(10))
    assert one.batch_at(1, 1).y.tolist() == found[1][4:8]
    assert torch.equal(own.get_state(), before) and not one.is_in_order
    assert order(loader(5)[0], 1) == found[1] != order(loader(6)[0], 1)


def test_resuming_reads_the_batches_before():
    loader = TorchLoader(DataLoader(Noisy(), batch_size=3, shuffle=True), seed=2)
    whole = everything(loader.stream(epoch=4))
    for start in range(4):
        with loader.stream(epoch=4, start_step=start) as stream:
            assert stream.state() == (4, start)
            rest = everything(stream)
        assert [y.tolist() for _, y in rest] == [y.tolist() for _, y in whole[start:]]
        assert all(torch.equal(a, b) for (a, _), (b, _) in zip(rest, whole[start:], strict=True))


def test_a_batch_sampler_numbers_samples_on():
    loader = TorchLoader(DataLoader(TensorDataset(X, Y), batch_sampler=[[0, 1, 2], [3], [4, 5]]))
    assert [batch.ids.tolist() for batch in loader.epoch(0)] == [[0, 1, 2], [3], [4, 5]]
    assert loader.batch_at(0, 2).ids.tolist() == [4, 5]


def test_form_of_pictures():
    loader = TorchLoader(DataLoader(Noisy(), batch_size=5))
    with loader.stream(layout="nhwc", channels=8) as stream:
        batch = stream.next()
        assert not stream.closed
    assert stream.closed
    assert batch.x.shape == (5, 8, 4, 4)
    assert batch.x.is_contiguous(memory_format=torch.channels_last)
    assert batch.x[:, :3].abs().sum() > 0 and not batch.x[:, 3:].any()


@pytest.mark.parametrize("is_within", [False, True])
def test_a_sampler_is_told_the_epoch(is_within):
    sampler = torch.utils.data.distributed.DistributedSampler(
        TensorDataset(X, Y), num_replicas=2, rank=1, seed=0
    )
    given = {"batch_size": 5, "sampler": sampler}
    if is_within:
        given = {"batch_sampler": DATA.BatchSampler(sampler, 5, False)}
    loader = TorchLoader(DataLoader(TensorDataset(X, Y), **given))
    orders = [loader.batch_at(epoch, 0).y.tolist() for epoch in (0, 1, 0)]
    assert orders[0] == orders[2] != orders[1]


def test_a_batch_sampler_says_how_many_samples_there_are():
    batches = DATA.BatchSampler(DATA.SubsetRandomSampler(range(3, 10)), 3, drop_last=True)
    loader = TorchLoader(DataLoader(TensorDataset(X, Y), batch_sampler=batches))
    assert (loader.num_samples, loader.steps_per_epoch, loader.drop_last) == (7, 2, True)


class StopAtFive(rn.Callback):
    def on_train_batch_end(self, batch, logs):
        self.task.stop_training = self.task.attempted_steps == 5


def task_on(data, valid, **settings):
    task = rn.Task(torch.nn.Linear(2, 3), device="cpu", seed=5, threads=1, **settings)
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.AdamW(lr=0.1)).metrics("accuracy")
    return task.data(data, valid).compile(report="none")


def test_a_task_takes_it_wherever_it_takes_a_loader(tmp_path):
    rows = TensorDataset(torch.randn(10, 2), torch.arange(10) % 3)

    def loaders():
        return DataLoader(rows, batch_size=4, shuffle=True), DataLoader(rows, batch_size=5)

    whole = task_on(*loaders())
    history = whole.fit(epochs=3, verbose=0)
    assert whole.attempted_steps == 9
    assert whole.evaluate(loaders()[1])["loss"] == pytest.approx(history.history["val_loss"][-1])
    assert whole.predict(loaders()[1]).shape == (10, 3)

    first = task_on(*loaders(), run_dir=tmp_path)
    first.fit(epochs=3, verbose=0, checkpoint=1, callbacks=[StopAtFive()])
    assert first.attempted_steps == 5
    again = task_on(*loaders(), run_dir=tmp_path)
    again.fit(epochs=3, verbose=0, resume="auto")
    assert again.state_hash() == whole.state_hash()


class Every(torch.utils.data.Sampler):
    """Indices as they are told; batches of two of them as a batch sampler."""

    def __init__(self, indices, batches=False):
        self.given = [indices[k : k + 2] for k in range(0, 10, 2)] if batches else indices

    def __iter__(self):
        return iter(self.given)

    def __len__(self):
        return len(self.given)


UP, DOWN = list(range(10)), list(range(10))[::-1]


@pytest.mark.parametrize(
    "options, is_in_order",
    [
        ({"batch_size": 4}, True),
        ({"batch_size": 4, "sampler": Every(UP)}, True),
        ({"batch_sampler": Every(UP, batches=True)}, True),
        ({"batch_size": 4, "shuffle": True}, False),
        ({"batch_size": 4, "sampler": DATA.SubsetRandomSampler(range(10))}, False),
        ({"batch_size": 4, "sampler": DATA.WeightedRandomSampler([1.0] * 10, 10)}, False),
        ({"batch_size": 4, "sampler": Every(DOWN)}, False),
        ({"batch_sampler": Every(DOWN, batches=True)}, False),
        ({"batch_sampler": DATA.BatchSampler(DATA.SequentialSampler(UP), 4, False)}, True),
        ({"batch_sampler": DATA.BatchSampler(DATA.RandomSampler(UP), 4, False)}, False),
        ({"batch_size": 4, "sampler": DATA.DistributedSampler(UP, 1, 0, seed=1)}, False),
    ],
)
def test_predict_takes_samples_in_index_order(options, is_in_order):
    rows = TensorDataset(torch.randn(10, 2), torch.arange(10) % 3)
    task, loader = task_on(DataLoader(rows, batch_size=4), None), DataLoader(rows, **options)
    before = torch.get_rng_state()
    if is_in_order:
        assert np.array_equal(task.predict(loader), task.predict(rows.tensors[0]))
    else:
        with pytest.raises(ValueError, match=r"in index order.*use DataLoader\(..., shuffle=False"):
            task.predict(loader)
    assert torch.equal(torch.get_rng_state(), before)
    assert task.evaluate(loader)["loss"] > 0  # a mean, whatever the order


def test_refusals():
    class Endless(torch.utils.data.IterableDataset):
        def __iter__(self):
            yield torch.zeros(2)

    with pytest.raises(TypeError, match="has no length"):
        TorchLoader(DataLoader(Endless()))
    with pytest.raises(ValueError, match="the DataLoader is empty"):
        TorchLoader(DataLoader(TensorDataset(X), batch_size=20, drop_last=True))
    with pytest.raises(TypeError, match=r"received list; .*write rn.Loader\(dataset"):
        as_loader([1, 2])
    for given, what in (((X, Y), "tuple"), (X, "Tensor"), (None, "NoneType"), ([[1.0]], "list")):
        with pytest.raises(TypeError, match=rf"received {what}; .*write rn.Loader.from_arrays\(x"):
            as_loader(given)
    with pytest.raises(TypeError, match=r"received Digits; .*write rn.Loader\(dataset, batch"):
        as_loader(Digits(split="test"))
    with pytest.raises(TypeError, match=r"received str; .*ImageFolder\('photos/train'\), batch_"):
        as_loader("photos/train")
    loader = TorchLoader(DataLoader(TensorDataset(X, X, Y), batch_size=2))
    with pytest.raises(TypeError, match="a batch of the DataLoader has 3 parts"):
        loader.batch_at(0, 0)


class Two(torch.utils.data.Dataset):
    """Two inputs of different shapes, and a class."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return (torch.zeros(2, 3), torch.zeros(5)), index % 2


def test_two_inputs_need_a_data_loader_or_one_array():
    x = TorchLoader(DataLoader(Two(), batch_size=2)).batch_at(0, 0).x
    assert [part.shape for part in x] == [(2, 2, 3), (2, 5)]
    with pytest.raises(
        TypeError, match="tuple of 2 arrays in the .*forward takes .*DataLoader may"
    ):
        rn.Loader(Two(), batch_size=2)
