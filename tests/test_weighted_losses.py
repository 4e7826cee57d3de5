"""Weights of classes and of what is positive, and what a mistaken shape is told."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import renaissance as rn
from renaissance.metrics import resolve_metrics


def draw(shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("shape", "given", "torchs"),
    [
        ((6, 3), 2.5, 2.5),
        ((6, 3), [0.5, 1.0, 4.0], [0.5, 1.0, 4.0]),
        ((6, 3), np.array([0.5, 1.0, 4.0]), [0.5, 1.0, 4.0]),
        ((6, 3), torch.tensor([0.5, 1.0, 4.0]), [0.5, 1.0, 4.0]),
        ((2, 3, 4, 5), (0.5, 1.0, 4.0), [[[0.5]], [[1.0]], [[4.0]]]),
        ((6,), 3, 3.0),
        ((2, 1, 1, 1, 1, 1, 2), 3, 3.0),
    ],
)
def test_pos_weight_is_torchs(shape, given, torchs):
    output = draw(shape).requires_grad_()
    target = (draw(shape, 1) > 0).double()
    total, weight = rn.BCEWithLogitsLoss(pos_weight=given).function("cpu")(output, target)
    factor = torch.tensor(torchs, dtype=torch.float64)
    expected = F.binary_cross_entropy_with_logits(output, target, pos_weight=factor)
    torch.testing.assert_close(total / weight, expected, rtol=1e-12, atol=0)
    for ours, theirs in zip(
        torch.autograd.grad(total / weight, output), torch.autograd.grad(expected, output)
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-14)


def test_pos_weight_as_a_value():
    loss = rn.BCEWithLogitsLoss().pos_weight([3, 1])
    assert repr(loss) == "BCEWithLogitsLoss(pos_weight=(3.0, 1.0))"
    assert rn.BCEWithLogitsLoss(pos_weight=2).settings.pos_weight == 2.0
    assert rn.BCEWithLogitsLoss() != loss


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), float("inf"), [1.0, 0.0], [], "x"])
def test_wrong_factors(wrong):
    with pytest.raises((ValueError, TypeError), match="pos_weight = .* is not allowed"):
        rn.BCEWithLogitsLoss(pos_weight=wrong)


def test_factors_of_another_number_of_classes():
    loss = rn.BCEWithLogitsLoss(pos_weight=[1.0, 2.0])
    with pytest.raises(ValueError, match=r"for each of 2 classes, the model gives \(2, 3\)"):
        loss.check_target(np.zeros((2, 3), np.float32), (2, 3))
    loss.check_target(np.zeros((4, 2, 8), np.float32), (4, 2, 8))


def test_weights_of_classes_from_a_dict():
    assert rn.CrossEntropyLoss(class_weights={1: 2.0, 0: 1.0, 2: 5}) == rn.CrossEntropyLoss(
        class_weights=[1.0, 2.0, 5.0]
    )
    eleven = {k: k + 1.0 for k in range(11)}
    assert rn.CrossEntropyLoss(class_weights=eleven).settings.class_weights[10] == 11.0
    for wrong in ({1: 1.0, 2: 2.0}, {"a": 1.0}, {0: "x"}):
        with pytest.raises(TypeError, match="class_weights"):
            rn.CrossEntropyLoss(class_weights=wrong)


def test_classes_in_the_last_dimension_are_told_where_they_belong():
    loss, target = rn.CrossEntropyLoss(), np.zeros((2, 7), np.int64)
    with pytest.raises(
        ValueError, match=r"belong into dimension 1: return output.movedim\(-1, 1\)"
    ):
        loss.check_target(target, (2, 7, 5))
    with pytest.raises(ValueError, match="movedim"):
        loss.function("cpu")(torch.zeros(2, 7, 5), torch.zeros(2, 7, dtype=torch.long))
    with pytest.raises(ValueError, match="classes, whole numbers") as caught:
        loss.check_target(target, (2, 6, 5))
    assert "movedim" not in str(caught.value)


def test_mean_errors_by_name():
    output, target = torch.tensor([[1.0, -2.0], [0.0, 4.0]]), torch.tensor([[1.0, 1.0], [0, 0]])
    mae, mse = resolve_metrics(["mae", "mse"], rn.MSELoss())
    assert [float(x) for x in mae.function(output, target)] == [3.0 + 4.0, 4.0]
    assert [float(x) for x in mse.function(output, target)] == [9.0 + 16.0, 4.0]
    with pytest.raises(ValueError, match=r"mae takes targets of shape \(2, 2\) here"):
        mae.function(output, target[:, 0])
    x = np.random.default_rng(0).normal(size=(10, 2)).astype(np.float32)
    task = rn.Task(torch.nn.Linear(2, 2), seed=1, device="cpu").optimizer(rn.SGD(lr=0.1))
    task.loss(rn.MSELoss()).metrics("mae", "mse").data(rn.Loader.from_arrays(x, x, batch_size=4))
    logs = task.compile(report="none").evaluate(rn.Loader.from_arrays(x, x, batch_size=4))
    found = task.predict(x)
    assert logs["mae"] == pytest.approx(np.abs(found - x).mean(), rel=1e-6)
    assert logs["mse"] == pytest.approx(logs["loss"], rel=1e-6)


@pytest.mark.parametrize(
    ("loss", "last", "is_told"),
    [
        (rn.CrossEntropyLoss(), torch.nn.Softmax(1), True),
        (torch.nn.CrossEntropyLoss(), torch.nn.Softmax(1), True),
        (rn.CrossEntropyLoss(), torch.nn.ReLU(), False),
        (rn.CrossEntropyLoss(), torch.nn.Sigmoid(), False),
        (torch.nn.NLLLoss(), torch.nn.LogSoftmax(1), False),
        (rn.BCEWithLogitsLoss(), torch.nn.Sigmoid(), True),
        (rn.MSELoss(), torch.nn.Sigmoid(), False),
    ],
)
def test_a_softmax_or_sigmoid_too_many_is_told(loss, last, is_told, capsys):
    x = np.random.default_rng(0).random((8, 3), dtype=np.float32)
    is_of_classes = "CrossEntropy" in repr(loss) or "NLL" in repr(loss)
    y = x.argmax(1) if is_of_classes else x
    network = torch.nn.Sequential(torch.nn.Linear(3, 3), last)
    task = rn.Task(network, seed=1, device="cpu").loss(loss).optimizer(rn.SGD(lr=0.1))
    task.data(rn.Loader.from_arrays(x, y, batch_size=4)).compile()
    name = type(last).__name__.lower()
    told = f"the model ends in {name}, which" in capsys.readouterr().out
    assert told == is_told
