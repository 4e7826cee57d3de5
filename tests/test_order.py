"""Batches of an epoch as positions of its permutation, for every batch size and rank."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import renaissance as rn
from renaissance.data.order import Order


@settings(max_examples=150, deadline=None)
@given(
    n=st.integers(1, 300), batch=st.integers(1, 40), world=st.integers(1, 7),
    shuffle=st.booleans(), drop_last=st.booleans(), seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 9),
)  # fmt: skip
def test_every_sample_comes_once_in_the_order_of_the_permutation(
    n, batch, world, shuffle, drop_last, seed, epoch
):
    order = Order(n, batch * world, shuffle, drop_last)
    permutation = order.epoch(seed, epoch)
    found = []
    for step in range(order.steps):
        whole = order.ids(permutation, step)
        parts = [order.ids(permutation, step, rank, world) for rank in range(world)]
        assert np.concatenate(parts).tolist() == whole.tolist()
        sizes = [len(part) for part in parts]
        assert max(sizes) - min(sizes) <= 1
        assert len(whole) == batch * world or (step == order.steps - 1 and not drop_last)
        found += whole.tolist()
    expected = rn.Permutation(n, seed, epoch)[:].tolist() if shuffle else list(range(n))
    assert found == expected[: len(found)]
    assert len(found) == (n // (batch * world) * batch * world if drop_last else n)


def test_large_sets_need_no_table():
    order = Order(2**40, 256, True, False)
    ids = order.ids(order.epoch(3, 7), 2**31)
    assert len(set(ids.tolist())) == 256 and ids.max() < 2**40
    assert rn.Permutation(2**40, 3, 7).inverse(int(ids[5])) == 2**31 * 256 + 5
