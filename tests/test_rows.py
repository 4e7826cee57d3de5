"""Rows in index order, out of batches in any order."""

import numpy as np
import pytest

import renaissance as rn
from renaissance.data.rows import in_order, targets_of

X = np.arange(22, dtype=np.float32).reshape(11, 2)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("y", [np.arange(11) * 3, X[:, :1] / 7, X[:, None, :] * 2])
def test_targets_are_those_of_the_data(y, shuffle):
    loader = rn.Loader.from_arrays(X, y, batch_size=4, shuffle=shuffle, workers=0)
    found = targets_of(loader, seed=3)
    assert found.dtype == y.dtype and np.array_equal(found, y)
    order = np.concatenate([batch.ids for batch in loader.epoch(0, seed=3)])
    assert (order.tolist() == list(range(11))) is not shuffle


def test_rows_find_their_places():
    parts = [np.array([[5.0], [1.0]]), np.array([[3.0]]), np.array([[0.0], [2.0], [4.0]])]
    ids = [np.array([5, 1]), np.array([3]), np.array([0, 2, 4])]
    assert in_order(parts, ids, "it").ravel().tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_rows_of_several_shapes_make_no_array():
    with pytest.raises(
        ValueError, match=r"of them gives a sample \(2,\) in one batch and \(3,\) in another"
    ):
        in_order(
            [np.zeros((2, 2)), np.zeros((1, 3))], [np.array([0, 1]), np.array([2])], "one of them"
        )


def test_data_without_targets_has_none():
    with pytest.raises(ValueError, match="the data has no targets; give them"):
        targets_of(rn.Loader.from_arrays(X, batch_size=4), seed=0)
