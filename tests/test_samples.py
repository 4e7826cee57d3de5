"""Samples of a user's own data set, in Python or torch: their bits, shapes and errors."""

import threading

import numpy as np
import odd_pictures as odd
import pytest
import torch
from PIL import Image

import renaissance as rn

pytestmark = pytest.mark.timeout(60)


class Own:
    """A user's data set: arrays, labels, and a note of which threads read it."""

    num_classes = 5

    def __init__(self, n=30, height=12):
        self.pictures = [odd.scene(height, 10, seed=k) for k in range(n)]
        self.threads = set()

    def __len__(self):
        return len(self.pictures)

    def read(self, index):
        self.threads.add(threading.current_thread())
        return self.pictures[index], index % 5


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_python_data_sets_give_the_bits_of_arrays(workers):
    own = Own()
    transforms = (rn.Pad(2), rn.RandomCrop((12, 10)), rn.RandomHorizontalFlip())
    arrays = rn.Loader.from_arrays(
        np.stack(own.pictures), np.arange(30) % 5, batch_size=7, shuffle=True, seed=1,
        transforms=transforms, workers=0,
    )  # fmt: skip
    mine = rn.Loader(
        own, batch_size=7, shuffle=True, seed=1, transforms=transforms, workers=workers
    )
    own.threads.clear()
    for a, b in zip(arrays.epoch(3), mine.epoch(3), strict=True):
        assert a.x.tobytes() == b.x.tobytes() and a.y.tolist() == b.y.tolist()
    assert own.threads and (threading.main_thread() in own.threads) == (workers == 0)


def test_python_rows_and_targets():
    class Rows:
        def __len__(self):
            return 10

        def read(self, index):
            return np.full(3, index, np.float32), np.array([index, 0.5])

    loader = rn.Loader(Rows(), batch_size=4, workers=2)
    batch = loader.batch_at(0, 1)
    assert batch.x.tolist() == [[k] * 3 for k in (4, 5, 6, 7)]
    assert batch.y.tolist() == [[k, 0.5] for k in (4, 5, 6, 7)] and batch.y.dtype == np.float32


def test_samples_of_other_shapes_are_errors_that_name_them():
    class Uneven(Own):
        def read(self, index):
            picture, label = super().read(index)
            return (picture[:-1] if index == 17 else picture), label

    with pytest.raises(ValueError, match="sample 17: a picture of 11x10 at the end of the trans"):
        list(rn.Loader(Uneven(), batch_size=7, workers=2).epoch(0))

    class Rows:
        def __len__(self):
            return 10

        def read(self, index):
            return np.zeros(3 + (index == 6), np.float32), 0

    with pytest.raises(ValueError, match=r"sample 6: is float32 \(4,\); the first sample was"):
        list(rn.Loader(Rows(), batch_size=4, workers=2).epoch(0))


def test_a_data_set_that_raises_is_named_and_chained():
    class Broken(Own):
        def read(self, index):
            if index == 11:
                raise KeyError("no such thing")
            return super().read(index)

    with pytest.raises(ValueError, match="sample 11: KeyError: 'no such thing'") as caught:
        list(rn.Loader(Broken(), batch_size=7, workers=2).epoch(0))
    assert isinstance(caught.value.__cause__, KeyError)
    assert caught.value.index == 11


def test_labels_out_of_range_are_named():
    class Off(Own):
        def read(self, index):
            return self.pictures[index], 5 if index == 9 else 0

        def name(self, index):
            return f"row-{index}.csv"

    with pytest.raises(ValueError, match=r"sample 9 \(row-9.csv\): has label 5; with 5 classes"):
        list(rn.Loader(Off(), batch_size=7, workers=2).epoch(0))


class TorchStyle(torch.utils.data.Dataset):
    def __init__(self, form):
        self.form = form

    def __len__(self):
        return 9

    def __getitem__(self, index):
        pixels = odd.scene(8, 8, seed=index)
        return {
            "tensor": (torch.full((2, 2), float(index)), index),
            "list": [torch.full((2, 2), float(index)), torch.tensor(index)],
            "dict": {"image": Image.fromarray(pixels), "label": index},
            "lone": torch.full((2, 2), float(index)),
            "chw": (torch.from_numpy(pixels).permute(2, 0, 1), index),
        }[self.form]


@pytest.mark.parametrize("form", ["tensor", "list", "dict", "lone", "chw"])
def test_torch_map_style_data_sets(form):
    loader = rn.Loader(TorchStyle(form), batch_size=4, workers=2)
    assert "a torch data set" in loader.report()
    batch = loader.batch_at(0, 1)
    assert (batch.y is None) == (form == "lone")
    if form in ("dict", "chw"):
        expected = np.stack([odd.scene(8, 8, seed=k) for k in range(4, 8)]).transpose(0, 3, 1, 2)
        np.testing.assert_allclose(batch.x, expected / 255, rtol=1e-6)
    else:
        assert batch.x[:, 0, 0].tolist() == [4, 5, 6, 7]
    if batch.y is not None:
        assert batch.y.tolist() == [4, 5, 6, 7] and batch.y.dtype == np.int64
