"""Chosen samples of a data set: folds."""

import numpy as np
import pytest
import torch
from sklearn.model_selection import StratifiedKFold

import renaissance as rn
from renaissance.data.dataset import ArrayDataset
from renaissance.datasets import Digits
from renaissance.models import mlp

WHOLE = Digits(split="test")
PIXELS = [rn.Normalize(mean=[0.3], std=[0.38])]


def test_folds_hold_each_sample_once():
    targets = WHOLE.as_arrays()[1]
    seen = []
    for rest, part in StratifiedKFold(4).split(targets, targets):
        train = rn.Loader(rn.Subset(WHOLE, rest), batch_size=32, transforms=PIXELS)
        test = rn.Loader(rn.Subset(WHOLE, part), batch_size=1000, transforms=PIXELS)
        assert train.num_samples + test.num_samples == len(WHOLE) and test.num_classes == 10
        batch = test.batch_at(0, 0)
        assert (batch.y == targets[part]).all()
        seen += part.tolist()
    assert sorted(seen) == list(range(len(WHOLE)))


def test_one_task_for_all_folds_has_the_bits_of_a_task_for_each():
    def over(fold, task):
        rest, part = np.arange(fold, 359, 2), np.arange(1 - fold, 359, 2)
        train = rn.Loader(rn.Subset(WHOLE, rest), batch_size=32, shuffle=True, transforms=PIXELS)
        valid = rn.Loader(rn.Subset(WHOLE, part), batch_size=200, transforms=PIXELS)
        return task.data(train, valid).compile(report="none")

    def made(seed):
        task = rn.Task(mlp([8], num_classes=10, in_features=64, dropout=0.1), seed=seed)
        task.loss(rn.CrossEntropyLoss()).optimizer(rn.AdamW())
        return task.scheduler(rn.CosineAnnealingLR(base_lr=3e-3))

    one = made(0)
    for fold in range(2):
        over(fold, one).reset(seed=fold).fit(epochs=2, verbose=0)
        own = over(fold, made(fold))
        assert own.fit(epochs=2, verbose=0).rows() == one.history.rows()
        assert own.state_hash() == one.state_hash()


@pytest.mark.parametrize("kind", [list, np.asarray, torch.as_tensor, tuple])
def test_indices_of_any_kind(kind):
    part = rn.Subset(WHOLE, kind([5, 3, 5]))
    assert len(part) == 3 and part.indices.tolist() == [5, 3, 5]
    assert (part.read(1)[0] == WHOLE.read(3)[0]).all()
    assert rn.Subset(WHOLE, range(2, 6)).indices.tolist() == [2, 3, 4, 5]


def test_torchs_subset_of_a_data_set_of_ours():
    given = rn.Loader(torch.utils.data.Subset(WHOLE, [4, 1]), batch_size=2, transforms=PIXELS)
    own = rn.Loader(rn.Subset(WHOLE, [4, 1]), batch_size=2, transforms=PIXELS)
    assert (given.batch_at(0, 0).x == own.batch_at(0, 0).x).all()
    assert given.identity() == own.identity() and given.num_classes == 10
    rows = torch.utils.data.TensorDataset(torch.arange(6.0)[:, None], torch.arange(6))
    part = rn.Loader(torch.utils.data.Subset(rows, [4, 1]), batch_size=2)
    assert part.batch_at(0, 0).y.tolist() == [4, 1]


@pytest.mark.parametrize("kind", [rn.Subset, torch.utils.data.Subset])
@pytest.mark.parametrize("data", ["arrays", "pictures", "rows"])
def test_indices_below_0_count_from_the_end(kind, data):
    x = np.arange(8, dtype=np.float32).reshape(4, 2)
    whole = {
        "arrays": ArrayDataset(x, np.arange(4)),
        "pictures": WHOLE,
        "rows": torch.utils.data.TensorDataset(torch.from_numpy(x), torch.arange(4)),
    }[data]
    n = len(whole)
    part = rn.Loader(kind(whole, [-1, 0, -n]), batch_size=3)
    same = rn.Loader(kind(whole, [n - 1, 0, 0]), batch_size=3)
    assert np.array_equal(part.batch_at(0, 0).x, same.batch_at(0, 0).x)
    assert np.array_equal(part.batch_at(0, 0).y, same.batch_at(0, 0).y)
    if data != "rows":
        assert part.identity() == same.identity() and part.dataset.indices.tolist()[0] == n - 1


@pytest.mark.parametrize(
    ("indices", "error", "text"),
    [
        ([], ValueError, "no indices; it takes at least 1"),
        ([0, 4], ValueError, "from 0 to 4 are not allowed; the data set has 4 samples, 0 to 3"),
        ([-5, 0], ValueError, "from -5 to 0 are .* 0 to 3, or from the end -1 to -4"),
        ([0.0, 1.0], TypeError, r"type float64 and shape \(2,\) .* whole numbers"),
        ([True, False, True, True], TypeError, r"of a mask np.flatnonzero\(mask\)"),
        (np.zeros((2, 2), int), TypeError, r"shape \(2, 2\)"),
    ],
)
def test_wrong_indices(indices, error, text):
    with pytest.raises(error, match=text):
        rn.Subset(ArrayDataset(np.zeros((4, 2), np.float32)), indices)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (np.zeros((4, 2)), r"received an array; write x\[indices\]"),
        (torch.zeros(4, 2), r"received an array; write x\[indices\]"),
        (rn.Loader(WHOLE, batch_size=4, transforms=PIXELS), "received Loader, which gives no samp"),
    ],
)
def test_what_is_no_data_set_is_refused(given, text):
    with pytest.raises(TypeError, match=text):
        rn.Subset(given, [1, 2])
    assert len(rn.Subset([(np.zeros(2), 0)] * 4, [1, 2])) == 2
