"""Loader: order, batches, position, and settings."""

import json

import numpy as np
import pytest
import torch
from real_data import real_data

import renaissance as rn
from renaissance import _native
from renaissance.datasets import MNIST, Synthetic

pytestmark = pytest.mark.timeout(60)


AUGMENT = (
    rn.Pad(4),
    rn.RandomCrop(32),
    rn.RandomHorizontalFlip(),
    rn.Normalize(mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4)),
    rn.RandomErasing(0.5),
)


@pytest.fixture(scope="module")
def pictures():
    return Synthetic(101, size=32, seed=3)


def loader_of(dataset, **settings):
    defaults = {"batch_size": 8, "shuffle": True, "transforms": AUGMENT, "seed": 5, "workers": 0}
    return rn.Loader(dataset, **(defaults | settings))


def samples(loader, epoch=0):
    """Every sample of an epoch by id: (x bytes, label)."""
    return {
        int(id): (x.tobytes(), int(y))
        for batch in loader.epoch(epoch)
        for x, y, id in zip(*batch, strict=True)
    }


def same(a, b):
    assert [batch.ids.tolist() for batch in a] == [batch.ids.tolist() for batch in b]
    for first, second in zip(a, b, strict=True):
        assert first.x.tobytes() == second.x.tobytes()
        assert first.y.tobytes() == second.y.tobytes()


@pytest.mark.parametrize("workers", [0, 1, 2, 7])
@pytest.mark.parametrize("prefetch", [0, 1, 5])
def test_workers_and_prefetch_change_nothing(pictures, workers, prefetch):
    expected = list(loader_of(pictures).epoch(1))
    same(list(loader_of(pictures, workers=workers, prefetch=prefetch).epoch(1)), expected)


def test_vector_kernels_change_nothing(pictures):
    usual = _native.use_simd(True)
    expected = list(loader_of(pictures).epoch(1))
    try:
        assert not _native.use_simd(False)
        same(list(loader_of(pictures, workers=2).epoch(1)), expected)
    finally:
        assert _native.use_simd(True) == usual


@pytest.mark.parametrize("batch_size", [1, 3, 8])
def test_batch_size_changes_no_sample(pictures, batch_size):
    expected = samples(loader_of(pictures, batch_size=101))
    assert samples(loader_of(pictures, batch_size=batch_size, workers=2)) == expected


def test_two_hundred_threads_give_the_same_bytes(pictures):
    same(list(loader_of(pictures, workers=200).epoch(0)), list(loader_of(pictures).epoch(0)))


def test_every_sample_comes_once(pictures):
    ids = np.concatenate([batch.ids for batch in loader_of(pictures).epoch(0)])
    assert ids.dtype == np.int64
    assert sorted(ids) == list(range(101))
    assert ids.tolist() != list(range(101))


def test_order_is_the_keyed_permutation(pictures):
    order = rn.Permutation(101, 5, 2)
    for step, batch in enumerate(loader_of(pictures).epoch(2)):
        assert batch.ids.tolist() == order[step * 8 : step * 8 + 8].tolist()


def test_without_shuffle_the_order_is_the_data_sets(pictures):
    ids = [int(i) for batch in loader_of(pictures, shuffle=False).epoch(3) for i in batch.ids]
    assert ids == list(range(101))


@pytest.mark.parametrize("other", [{"seed": 6}, {"seed": 7}, {"seed": 5 + 2**32}, {"epoch": 1}])
def test_seeds_and_epochs_differ_in_order_and_pixels(pictures, other):
    epoch = other.pop("epoch", 0)
    a, b = loader_of(pictures), loader_of(pictures, **other)
    first, second = next(a.epoch(0)), next(b.epoch(epoch))
    assert first.ids.tolist() != second.ids.tolist()
    x, y = samples(a, 0), samples(b, epoch)
    equal = sum(x[i][0] == y[i][0] for i in x)
    assert equal <= 1  # two draws of 81 positions, a flip and an erasing may coincide


def test_resume_at_any_batch(pictures):
    loader = loader_of(pictures, workers=2)
    whole = list(loader.epoch(4))
    for start in range(loader.steps_per_epoch):
        with loader.stream(epoch=4, start_step=start) as stream:
            rest = [(batch.x.clone(), batch.ids) for batch in stream]
        assert [ids.tolist() for _, ids in rest] == [b.ids.tolist() for b in whole[start:]]
        for (x, _), batch in zip(rest, whole[start:], strict=True):
            assert x.numpy().tobytes() == batch.x.tobytes()


def test_batch_at_is_the_batch_whatever_came_before(pictures):
    loader = loader_of(pictures)
    whole = list(loader.epoch(7))
    for step in (12, 0, 5):
        same([loader.batch_at(7, step)], [whole[step]])
        assert loader.state() == (7, 13)  # where the last iteration ended
    with pytest.raises(IndexError, match="step 13 does not exist; an epoch has 13 batches"):
        loader.batch_at(0, 13)


def test_state_counts_batches_handed_out(pictures):
    loader = loader_of(pictures, workers=2, prefetch=4)
    assert loader.state() == (0, 0)
    with loader.stream(epoch=2, start_step=3) as stream:
        assert stream.state() == loader.state() == (2, 3)
        next(stream)
        next(stream)
        assert stream.state() == loader.state() == (2, 5)


def test_rewind_keeps_ring_and_threads(pictures):
    loader = loader_of(pictures, workers=2)
    with loader.stream(epoch=0) as stream:
        next(stream)
        addresses = {x.data_ptr() for x, _ in stream._ring.tensors}
        for epoch in (3, 1):
            got = [
                (batch.x.numpy().tobytes(), batch.ids.tolist()) for batch in stream.rewind(epoch)
            ]
            assert got == [(b.x.tobytes(), b.ids.tolist()) for b in loader.epoch(epoch)]
        assert {x.data_ptr() for x, _ in stream._ring.tensors} == addresses


def test_steps_cuts_the_epoch(pictures):
    loader = loader_of(pictures)
    with loader.stream(epoch=1, start_step=2, steps=5) as stream:
        assert len(stream) == 3
        got = [batch.ids.tolist() for batch in stream]
    assert got == [batch.ids.tolist() for batch in loader.epoch(1)][2:5]


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_share_the_global_batch(pictures, world):
    loader = loader_of(pictures)
    parts = []
    for rank in range(world):
        with loader.stream(epoch=1, rank=rank, world=world) as stream:
            parts.append([(batch.x.clone().numpy(), batch.ids) for batch in stream])
    for step, batch in enumerate(loader.epoch(1)):
        assert np.concatenate([part[step][1] for part in parts]).tolist() == batch.ids.tolist()
        together = np.concatenate([part[step][0] for part in parts])
        assert together.tobytes() == batch.x.tobytes()


def test_ranks_that_do_not_fit_are_refused(pictures):
    with pytest.raises(ValueError, match="batch_size = 8 is the size over all ranks"):
        loader_of(pictures).stream(rank=0, world=3)
    with pytest.raises(ValueError, match="rank = 2 of 2"):
        loader_of(pictures).stream(rank=2, world=2)


def test_partial_batch_and_drop_last(pictures):
    kept, dropped = loader_of(pictures), loader_of(pictures, drop_last=True)
    assert (kept.steps_per_epoch, dropped.steps_per_epoch) == (13, 12)
    sizes = [len(batch) for batch in kept.epoch(0)]
    assert sizes == [8] * 12 + [5]
    assert [len(batch) for batch in dropped.epoch(0)] == [8] * 12
    small = rn.Loader.from_arrays(np.zeros((5, 2), np.float32), batch_size=8, workers=0)
    assert [b.x.shape for b in small.epoch(0)] == [(5, 2)]


def test_layouts_and_dtypes_hold_the_same_numbers(pictures):
    loader = loader_of(pictures)
    expected = loader.batch_at(0, 1).x
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        for layout in ("nchw", "nhwc"):
            with loader.stream(start_step=1, layout=layout, dtype=dtype, channels=4) as stream:
                x = next(stream).x
                assert x.shape == (8, 4, 32, 32)
                order = torch.channels_last if layout == "nhwc" else torch.contiguous_format
                assert x.is_contiguous(memory_format=order)
                assert torch.equal(x[:, :3], torch.from_numpy(expected).to(dtype))
                assert not x[:, 3].any()


def test_pictures_in_planes_give_the_same_batches_without_a_copy(pictures):
    x, y = pictures.as_arrays()
    planes = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    settings = {"batch_size": 8, "shuffle": True, "transforms": AUGMENT, "seed": 5, "workers": 1}
    loader = rn.Loader.from_arrays(planes.transpose(0, 2, 3, 1), y, **settings)
    same(list(loader.epoch(0)), list(loader_of(pictures).epoch(0)))
    assert np.shares_memory(loader.dataset.as_arrays()[0], planes)
    assert loader.resident().x.flags.c_contiguous
    strided = np.repeat(x, 2, axis=0)[::2]  # neither: copied
    same(list(rn.Loader.from_arrays(strided, y, **settings).epoch(0)), list(loader.epoch(0)))


def test_inputs_are_not_modified(pictures):
    x, y = pictures.as_arrays()
    before = x.tobytes(), y.tobytes()
    list(loader_of(pictures, workers=2).epoch(0))
    assert (x.tobytes(), y.tobytes()) == before


def test_one_loader_serves_two_streams_at_once(pictures):
    loader = loader_of(pictures, workers=1)
    expected = [[b.ids.tolist() for b in loader.epoch(e)] for e in (0, 1)]
    with loader.stream(epoch=0) as first, loader.stream(epoch=1) as second:
        got = [(a.ids.tolist(), b.ids.tolist()) for a, b in zip(first, second, strict=True)]
    assert [list(part) for part in zip(*got, strict=True)] == expected


def test_the_loaders_own_seed_wins(pictures):
    own, free = loader_of(pictures), loader_of(pictures, seed=None)
    assert own.batch_at(0, 0, seed=9).ids.tolist() == own.batch_at(0, 0).ids.tolist()
    assert free.batch_at(0, 0, seed=5).ids.tolist() == own.batch_at(0, 0).ids.tolist()


def test_seed_zero_is_said_once(pictures, caplog):
    loader = loader_of(pictures, seed=None)
    loader.batch_at(0, 0)
    loader.batch_at(0, 1)
    assert [r.getMessage() for r in caplog.records] == [
        "the loader has no seed and no task gives one: 0 is used"
    ]


def test_global_generators_are_left_alone(pictures):
    torch.manual_seed(1)
    np.random.seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1].tobytes()
    list(loader_of(pictures, workers=2).epoch(0))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.random.get_state()[1].tobytes() == before[1]


def test_identity_is_json_and_tells_data_apart(pictures):
    identity = loader_of(pictures).identity()
    assert json.loads(json.dumps(identity)) == identity
    assert identity["num_samples"] == 101 and identity["transforms"][0] == "Pad(4)"
    assert loader_of(Synthetic(101, seed=4)).identity() != identity
    x = np.zeros((4, 2), np.float32)
    first = rn.Loader.from_arrays(x, batch_size=2).identity()
    x = x.copy()
    x[3, 1] = 1
    assert rn.Loader.from_arrays(x, batch_size=2).identity() != first


def test_resident_gives_data_program_and_order(pictures):
    loader = loader_of(pictures)
    resident = loader.resident()
    assert resident.x.shape == (101, 32, 32, 3) and resident.x.dtype == np.uint8
    assert resident.program.shape == (3, 32, 32)
    assert [resident.order(5, 1, k).tolist() for k in range(13)] == [
        batch.ids.tolist() for batch in loader.epoch(1)
    ]
    assert rn.Loader.from_arrays(np.zeros((4, 2), np.float32), batch_size=2).resident() is None


def test_a_loader_is_not_iterated_itself(pictures):
    with pytest.raises(TypeError, match="loader.epoch"):
        iter(loader_of(pictures))


def test_repr_reads_as_code(pictures):
    assert repr(loader_of(pictures, transforms=())) == (
        "Loader(Synthetic(101, split='train', seed=3), batch_size=8, shuffle=True, "
        "workers=0, transforms=(), seed=5)"
    )


def test_normalised_mnist_has_mean_zero_and_deviation_one():
    mnist = MNIST(real_data("mnist"), "train")
    loader = rn.Loader(mnist, batch_size=1000, transforms=[rn.Normalize("mnist")], workers=2)
    total = square = 0.0
    for batch in loader.epoch(0):
        x = batch.x.astype(np.float64)
        total, square = total + x.sum(), square + (x * x).sum()
    count = len(mnist) * 28 * 28
    assert abs(total / count) < 1e-3  # the preset's figures have four digits
    assert abs(square / count - 1) < 1e-3
