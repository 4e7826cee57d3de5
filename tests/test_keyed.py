"""Draws of many at once give the words, orders and pictures of one by one, AVX2 or not."""

import threading
import time

import numpy as np
import pytest

import renaissance as rn
from renaissance import _native
from renaissance.data.order import EpochOrders, Order
from renaissance.datasets import Synthetic
from renaissance.random import AUGMENT, ORDER, derive

LARGE = 2**23 + 5  # no table


@pytest.fixture(params=[True, False], ids=["avx2", "portable"])
def simd(request):
    yield _native.use_simd(request.param)
    _native.use_simd(True)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 7, 8, 9, 16, 37])
def test_words_of_many_ids_are_those_of_each(simd, count):
    rng = np.random.default_rng(count)
    ids = rng.integers(0, 2**64, count, np.uint64)
    key, stream, when = 0x9ABCDEF012345678, 0xF8400003, 0xFFFFFFFF
    words = _native.keyed_words(key, stream, when, ids)
    expected = [
        _native.philox(stream, when, int(i) % 2**32, int(i) >> 32, key % 2**32, key >> 32)
        for i in ids
    ]
    assert words.shape == (count, 4) and words.tolist() == [list(block) for block in expected]


@pytest.mark.parametrize("n", [0, 1, 2, 63, 64, 65, 66, 1000])
def test_a_permutation_is_fisher_and_yates_shuffle(simd, n):
    key = derive(5, ORDER, 2)
    expected = list(range(n))
    for i in range(n, 1, -1):
        j = _native.below_unbiased(key, i - 1, i)
        expected[i - 1], expected[j] = expected[j], expected[i - 1]
    assert rn.Permutation(n, 5, 2)[:].tolist() == expected
    assert _native.EpochOrder(n, True, key).ids(0, n).tolist() == expected


@pytest.mark.parametrize(("n", "shuffles"), [(500, True), (500, False), (LARGE, True)])
def test_an_order_gives_any_stretch(n, shuffles):
    order = Order(n, 10, shuffles, drop_last=False).epoch(3, 1)
    for first, count in ((0, 0), (0, 10), (477, 23), (n - 4, 4)):
        expected = np.arange(n)[first:][:count]
        if shuffles:
            expected = rn.Permutation(n, 3, 1)[first : first + count]
        assert order.ids(first, count).tolist() == expected.tolist()


@pytest.mark.timeout(30)
def test_threads_that_ask_at_once_get_one_order():
    for epoch in range(20):
        order, gate, found = Order(5000, 8, True, False).epoch(0, epoch), threading.Barrier(6), []

        def ask(order=order, gate=gate, found=found):
            gate.wait()
            found.append(order.ids(0, 5000).tobytes())

        threads = [threading.Thread(target=ask) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(found) == {rn.Permutation(5000, 0, epoch)[:].tobytes()} and len(found) == 6


def test_two_orders_are_kept():
    orders = EpochOrders(Order(50, 5, True, False))
    first, second = orders(1, 0), orders(1, 1)
    assert orders(1, 0) is first and orders(1, 1) is second
    orders(1, 2)
    assert orders(1, 1) is second and orders(1, 0) is not first
    assert orders(2, 1).ids(0, 50).tolist() != second.ids(0, 50).tolist()


def test_a_worker_makes_the_next_order_when_the_last_batch_is_ordered():
    loader = rn.Loader(Synthetic(64, size=8), batch_size=8, shuffle=True, seed=2, workers=1)
    with loader.stream() as stream:
        following = stream._order_of(1)
        next(stream)
        assert not following.is_prepared  # six batches are not even ordered
        assert len(list(stream)) == 7
        until = time.monotonic() + 20
        while not following.is_prepared and time.monotonic() < until:
            time.sleep(0.001)
        assert following.is_prepared
        assert next(stream.rewind(1)).ids.tolist() == rn.Permutation(64, 2, 1)[:8].tolist()


CHAINS = {
    "crop, flip, erase": (
        rn.Pad(4), rn.RandomCrop(32), rn.RandomHorizontalFlip(),
        rn.Normalize(mean=[0.5] * 3, std=[0.25] * 3), rn.RandomErasing(0.9, scale=(0.3, 0.9)),
    ),
    "two of a kind": (
        rn.RandomHorizontalFlip(), rn.RandomVerticalFlip(), rn.RandomHorizontalFlip(),
        rn.RandomCrop(20), rn.Cutout(7), rn.Cutout(5),
    ),
    "many words": (rn.RandomResizedCrop(24), rn.TrivialAugmentWide(), rn.RandAugment(2)),
    "colour": (rn.ColorJitter(0.4, 0.4, 0.4, 0.1), rn.RandomGrayscale(0.5), rn.RandomRotation(20)),
}  # fmt: skip


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("batch_size", [1, 3, 5, 64, 100])
def test_pictures_are_those_of_a_program_that_draws_one_by_one(simd, name, batch_size):
    data = Synthetic(100, size=32)
    loader = rn.Loader(
        data, batch_size=batch_size, shuffle=True, seed=9, transforms=CHAINS[name], workers=2
    )
    pictures, _ = data.as_arrays()
    program, made = loader._program, 0
    with loader.stream(epoch=3) as stream:
        for batch in stream:
            expected = np.empty(batch.x.shape, np.float32)
            program.native.run(
                pictures.ctypes.data, list(pictures.shape[1:]), list(pictures.strides),
                batch.ids.ctypes.data, len(batch), derive(9, AUGMENT), 3, expected.ctypes.data,
                0, 0, 0, _native.Scratch(),
            )  # fmt: skip
            assert batch.x.numpy().tobytes() == expected.tobytes()
            made += len(batch)
    assert made == 100
