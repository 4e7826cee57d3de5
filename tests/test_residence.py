"""The order of data that lives on a device: what is sent when, here to a device that is the CPU."""

import numpy as np
import pytest
import torch

import renaissance as rn
from renaissance.data.resident import ResidentData
from renaissance.random import AUGMENT, derive
from renaissance.step import residence
from renaissance.step.residence import Residence


def home(shuffle=True, n=23):
    x = np.arange(n * 16, dtype=np.uint8).reshape(n, 4, 4, 1)
    loader = rn.Loader.from_arrays(x, np.arange(n) % 3, batch_size=5, shuffle=shuffle)
    found = loader.resident()
    data = ResidentData.load(found.program, torch.from_numpy(found.x), torch.from_numpy(found.y))
    return Residence(loader, data)


def ids_on_device(one):
    return one._ids[: one.loader.num_samples].numpy()


def run(one, epoch, *, start=0, steps=None, most=None):
    """Ids of an epoch's batches, each as it was when it was handed out."""
    places = one.epoch(seed=7, epoch=epoch, start_step=start, steps=steps)
    order = ids_on_device(one).copy()
    words = np.array([derive(7, AUGMENT), epoch, 5 * start, 0], np.uint64)
    assert (one._state.numpy().view(np.uint64) == words).all()
    found = []
    for place in places:
        found.append(place)
        assert (ids_on_device(one) == order).all()  # the next order is not sent before its time
        if len(found) == most:
            break
    return [place.ids.copy() for place in found], order


def test_every_epoch_has_its_own_order_on_the_device_and_in_the_places():
    one = home()
    for epoch in (0, 1, 2, 9, 1):
        found, order = run(one, epoch)
        expected = rn.Permutation(23, 7, epoch)[:]
        assert (order == expected).all() and (np.concatenate(found) == expected).all()
        assert [len(ids) for ids in found] == [5, 5, 5, 5, 3]


def test_an_epoch_that_is_left_and_continued():
    one = home()
    for most in (1, 2, 4):
        run(one, 3, most=most)
        found, _ = run(one, 3, start=2, steps=4)
        assert (np.concatenate(found) == rn.Permutation(23, 7, 3)[10:20]).all()
    one.loader.batch_at(0, 0, seed=1)
    assert (np.concatenate(run(one, 0)[0]) == rn.Permutation(23, 7, 0)[:]).all()


def test_the_next_order_is_made_in_the_middle(monkeypatch):
    one, made = home(), []

    def permutation(n, seed, epoch):
        made.append(epoch)
        return rn.Permutation(n, seed, epoch)

    monkeypatch.setattr(residence, "Permutation", permutation)
    places = one.epoch(seed=7, epoch=0, start_step=0, steps=None)
    seen = []
    for _ in places:
        seen.append(list(made))
    assert seen == [[0], [0], [0], [0, 1], [0, 1]]
    one.epoch(seed=7, epoch=1, start_step=0, steps=None)
    assert made == [0, 1]
    one.epoch(seed=8, epoch=1, start_step=0, steps=None)
    assert made == [0, 1, 1]


@pytest.mark.parametrize("epoch", [0, 4])
def test_data_in_order_stay_in_order(monkeypatch, epoch):
    one = home(shuffle=False)
    monkeypatch.setattr(residence, "Permutation", None)
    for _ in range(2):
        found, order = run(one, epoch)
        assert (np.concatenate(found) == np.arange(23)).all() and (order == np.arange(23)).all()
