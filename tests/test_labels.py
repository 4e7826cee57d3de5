"""Samples and labels of a data set in Python, which come one by one and need not be alike."""

import numpy as np
import pytest
import torch

import renaissance as rn

pytestmark = pytest.mark.timeout(60)


class Rows:
    """A row for each of some labels."""

    def __init__(self, labels):
        self.given = labels

    def __len__(self):
        return len(self.given)

    def read(self, index):
        return np.full(2, index, np.float32), self.given[index]


class MapStyle(Rows, torch.utils.data.Dataset):
    read = None

    def __getitem__(self, index):
        return Rows.read(self, index)


def labels_of(rows, workers=0):
    (batch,) = rn.Loader(rows, batch_size=len(rows), workers=workers).epoch(0)
    return batch.y


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", [Rows, MapStyle])
def test_whole_numbers_among_floats_are_numbers(kind, workers):
    given = [0.5, 1, np.int64(3), True, np.float64(-2), torch.tensor(7)]
    found = labels_of(kind(given), workers)
    assert (found.dtype, found.tolist()) == (np.float32, [0.5, 1.0, 3.0, 1.0, -2.0, 7.0])


@pytest.mark.parametrize("kind", [Rows, MapStyle])
def test_a_float_among_whole_numbers_is_refused(kind):
    assert labels_of(kind([0, np.uint8(200), True])).tolist() == [0, 200, 1]
    for odd in (0.5, 2.0, torch.tensor(1.0)):
        with pytest.raises(ValueError, match="sample 2: has the label .*; the first one was a wh"):
            labels_of(kind([0, 1, odd, 1]))


@pytest.mark.parametrize("kind", ["pair", "dict", "lone", "tuple of one"])
def test_a_part_of_a_map_style_data_set_has_its_samples(kind):
    class Any(torch.utils.data.Dataset):
        def __len__(self):
            return 10

        def __getitem__(self, index):
            x = torch.full((2,), float(index))
            return {
                "pair": (x, index),
                "dict": {"image": x, "label": index, "name": "a"},
                "lone": x,
                "tuple of one": (x,),
            }[kind]

    parts = rn.split(Any(), 0.3, seed=1)
    found = []
    for part in parts:
        (batch,) = rn.Loader(part, batch_size=10).epoch(0)
        assert batch.x[:, 0].tolist() == part.indices.tolist()
        assert batch.y is None or batch.y.tolist() == part.indices.tolist()
        assert (batch.y is None) == (kind in ("lone", "tuple of one"))
        found += part.indices.tolist()
    assert sorted(found) == list(range(10))
