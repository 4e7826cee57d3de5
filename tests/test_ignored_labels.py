"""Labels of -100: samples that do not count, from the data to the loss."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import renaissance as rn
from renaissance.data.dataset import ArrayDataset
from renaissance.data.supply import LabelSpec
from renaissance.nn.fusion import classifier_head

pytestmark = pytest.mark.timeout(60)

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(20, 4)).astype(np.float32), rng.integers(0, 3, size=20)
SOME = np.where(np.arange(20) % 4 == 1, -100, Y)


class Rows:
    """A data set in Python."""

    def __init__(self, labels=SOME, num_classes=3):
        self.y, self.num_classes = labels, num_classes

    def __len__(self):
        return len(X)

    def read(self, index):
        return X[index], int(self.y[index])


def arrays(labels=SOME, **options):
    return rn.Loader.from_arrays(X, labels, **({"batch_size": 8, "workers": 0} | options))


def task_on(train, valid=None, loss=None):
    task = rn.Task(nn.Linear(4, 3), seed=1, device="cpu", threads=1).data(train, valid)
    return task.loss(loss or rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.5))


@pytest.mark.parametrize(
    "make", [arrays, lambda: rn.Loader(Rows(), batch_size=8, workers=0)], ids=["arrays", "python"]
)
def test_samples_without_a_class_train_and_evaluate_as_if_they_were_not_there(make):
    task = task_on(make(), make()).compile(report="none")
    history = task.fit(epochs=2, verbose=0).history
    weight, bias = (t.double() for t in task.state_dict().values())
    x, y = torch.from_numpy(X).double(), torch.from_numpy(SOME)
    expected = F.cross_entropy(x @ weight.T + bias, y)  # over those that count
    assert task.evaluate(make())["loss"] == pytest.approx(float(expected), rel=1e-5)
    assert history["val_loss"][-1] == pytest.approx(float(expected), rel=1e-5)

    zero = np.where(SOME[:, None] == -100, 100 * X, X)  # what they hold is of no importance
    other = task_on(rn.Loader.from_arrays(zero, SOME, batch_size=8, workers=0))
    other.compile(report="none").fit(epochs=2, verbose=0)
    assert other.state_hash() == task.state_hash()


def test_the_number_of_classes_is_that_of_the_others():
    assert arrays().num_classes == arrays(Y).num_classes == 3
    assert arrays(num_classes=5).num_classes == 5
    assert arrays(np.full(20, -100)).num_classes == 0
    label = arrays().sample_spec().label
    assert (label.low, label.high, label.num_classes) == (-100, 2, 3)


@pytest.mark.parametrize("wrong", [-1, -99, -101])
def test_other_negative_labels_are_refused_as_before(wrong):
    labels = np.where(np.arange(20) == 7, wrong, SOME)
    text = rf"label {wrong} of sample 7 .* takes 0 to 2. 1 of 20 .*-100 is for samples"
    for options in ({}, {"num_classes": 3}):
        with pytest.raises(ValueError, match=text):
            arrays(labels, **options)
    with pytest.raises(ValueError, match=rf"sample 7: has label {wrong}; with 3 classes"):
        list(rn.Loader(Rows(labels), batch_size=8, workers=0).epoch(0))


def test_what_the_loss_ignores_decides_at_compile():
    with pytest.raises(ValueError, match=r"= -100 is no class: .* ignore_index = 255"):
        task_on(arrays(), loss=rn.CrossEntropyLoss(ignore_index=255)).compile(report="none")
    labels = np.where(SOME == -100, 255, SOME)
    loss = rn.CrossEntropyLoss(ignore_index=255)
    found = task_on(arrays(labels), loss=loss).compile(report="none")
    found.fit(epochs=1, verbose=0)
    expected = task_on(arrays()).compile(report="none")
    expected.fit(epochs=1, verbose=0)
    assert found.state_hash() == expected.state_hash()


class Rows255(Rows):
    ignore_index = 255


MASKED = np.where(SOME == -100, 255, SOME)


@pytest.mark.parametrize(
    "make",
    [
        lambda y: arrays(y, num_classes=3, ignore_index=255),
        lambda y: arrays(y, classes=["a", "b", "c"], ignore_index=255),
        lambda y: rn.Loader(Rows255(y), batch_size=8, workers=0),
    ],
    ids=["arrays", "names", "python"],
)
def test_data_of_three_classes_may_have_another_number_for_none(make):
    found = task_on(make(MASKED), loss=rn.CrossEntropyLoss(ignore_index=255)).compile(report="none")
    found.fit(epochs=2, verbose=0)
    expected = task_on(arrays()).compile(report="none")
    expected.fit(epochs=2, verbose=0)
    assert found.state_hash() == expected.state_hash()
    with pytest.raises(ValueError, match=r"= 255 is no class: .* ignore_index = -100"):
        task_on(make(MASKED)).compile(report="none").fit(epochs=1, verbose=0)
    for wrong in (-100, 3, 254):
        with pytest.raises(ValueError, match=rf"label {wrong}\b.* takes 0 to 2"):
            list(make(np.where(np.arange(20) == 7, wrong, MASKED)).epoch(0))


@pytest.mark.parametrize("none, wrong", [(255, 7), (-100, -1)])
def test_a_class_that_there_is_not_is_found_behind_the_ignored_one(none, wrong):
    """On a GPU it would end the process, without a word of where it was."""

    class Known(Rows):
        def labels(self):
            return self.y

    labels, loss = np.where(SOME == -100, none, SOME), rn.CrossEntropyLoss(ignore_index=none)
    for place in (None, 11):
        given = Known(np.where(np.arange(20) == place, wrong, labels), num_classes=None)
        task = task_on(rn.Loader(given, batch_size=8, workers=0), loss=loss)
        if place is None:
            task.compile(report="none").fit(epochs=1, verbose=0)
        else:
            with pytest.raises(ValueError, match=rf"target\[11\] = {wrong} is no class"):
                task.compile(report="none")


def test_another_number_for_none_is_no_class_and_goes_with_a_part():
    assert arrays(MASKED, ignore_index=255).num_classes == 3
    assert arrays(MASKED).num_classes == 256  # nobody has said so
    part = rn.split(arrays(MASKED, ignore_index=255).dataset, 0.5, seed=1)[0]
    label = rn.Loader(part, batch_size=4).sample_spec().label
    assert (label.low, label.high, label.num_classes, label.ignored) == (0, 2, 3, 255)
    part = rn.Loader(rn.split(Rows255(MASKED), 0.5, seed=1)[0], batch_size=10, workers=0)
    assert 255 in next(iter(part.epoch(0))).y


def test_they_cannot_be_mixed_nor_drawn_by_name(tmp_path):
    pictures = rng.integers(0, 256, size=(20, 8, 8, 3), dtype=np.uint8)
    text = r"5 of the 20 labels of .* are -100, .* do not count.* np.flatnonzero\(labels != -100\)"
    with pytest.raises(ValueError, match=text):
        rn.Loader.from_arrays(pictures, SOME, batch_size=4, mix=[rn.Mixup(0.2)])
    told = {"num_classes": 3, "ignore_index": 255, "batch_size": 4, "mix": [rn.Mixup(0.2)]}
    with pytest.raises(
        ValueError, match=r"5 of the 20 labels of .* are 255, .*train on the others"
    ):
        rn.Loader.from_arrays(pictures, MASKED, **told)
    counted = np.flatnonzero(MASKED != 255)
    rn.Loader.from_arrays(pictures, Y, **told)  # such a number, and no sample that has it
    part = rn.Subset(ArrayDataset(pictures, MASKED, ignore_index=255), counted)
    mixed = rn.Loader(part, batch_size=4, mix=[rn.Mixup(0.2)], seed=1)
    assert all(np.allclose(batch.y.sum(1), 1) for batch in mixed.epoch(0))
    names = ["one", "two", "three"]
    loader = rn.Loader.from_arrays(pictures, SOME, batch_size=4, classes=names)
    loader.show_batch(tmp_path / "batch.png")
    loader = rn.Loader.from_arrays(pictures, MASKED, batch_size=4, classes=names, ignore_index=255)
    loader.show_batch(tmp_path / "masked.png")
    assert (tmp_path / "batch.png").stat().st_size > 0


@pytest.mark.parametrize("ignored", [-100, 255, 1])
def test_mixing_refuses_them_where_only_reading_tells(ignored):
    class Pictures(Rows):
        ignore_index = ignored

        def read(self, index):
            return np.zeros((8, 8, 3), np.uint8), int(self.y[index])

    told = {"batch_size": 4, "mix": rn.CutMix(), "seed": 1, "workers": 0}
    own = Pictures(np.where(np.arange(20) == 6, ignored, 2 * (Y > 1)))
    text = f"sample 6: has label {ignored}, which is .* do not count .* with rn.Subset"
    with pytest.raises(ValueError, match=text):
        list(rn.Loader(own, **told).epoch(0))
    others = rn.Subset(own, np.flatnonzero(own.y != ignored))
    assert sum(len(batch) for batch in rn.Loader(others, **told).epoch(0)) == 19


def test_a_fused_loss_is_for_labels_that_all_count():
    good = LabelSpec((), torch.int64, 3, 0, 2)
    some = LabelSpec((), torch.int64, 3, -100, 2)
    unknown = LabelSpec((), torch.int64, 3)
    last = nn.Linear(4, 3)

    def head(labels, **settings):
        loss = rn.CrossEntropyLoss(**settings)
        return classifier_head(last, loss, ["accuracy"], labels, torch.zeros(1))

    assert head([good]) is not None and head([good, good]) is not None
    for labels in ([some], [good, some], [good, unknown], [good, None]):
        assert head(labels) is None
    assert head([good], ignore_index=2) is None

    task = task_on(arrays(Y)).compile(report="none")
    task.executor.passes.head = lambda output, target, sums: pytest.fail("it reads out of bounds")
    calls = [
        lambda: task.evaluate(arrays()),
        lambda: task.fit(arrays(), epochs=1, verbose=0),
        lambda: task.train_on_batch(X, SOME),
        lambda: task.test_on_batch(X, SOME),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="some labels are -100, which does not count"):
            call()
