"""Targets and settings of losses: which fit, and what is said of those that do not."""

import functools

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import renaissance as rn
from renaissance.foreign_losses import as_loss


@pytest.mark.parametrize(
    "loss, target, text",
    [
        (rn.MSELoss(), torch.zeros(4), r"outputs \(4, 1\), received \(4,\)"),
        (rn.BCEWithLogitsLoss(), torch.zeros(4), r"outputs \(4, 1\), received \(4,\)"),
        (as_loss(torch.nn.L1Loss()), torch.zeros(4), r"L1Loss needs .*received \(4,\)"),
        (as_loss(torch.nn.SmoothL1Loss()), torch.zeros(4), "SmoothL1Loss needs"),
        (as_loss(torch.nn.HuberLoss()), torch.zeros(4), "HuberLoss needs"),
        (as_loss(F.l1_loss), torch.zeros(4), "l1_loss needs"),
        (as_loss(F.mse_loss), torch.zeros(1, 1), "mse_loss needs"),
        (as_loss(torch.nn.PoissonNLLLoss()), torch.zeros(4), "PoissonNLLLoss needs"),
        (as_loss(torch.nn.KLDivLoss()), torch.zeros(4), "KLDivLoss needs"),
        (as_loss(functools.partial(F.huber_loss, delta=2.0)), torch.zeros(4), "huber_loss needs"),
        (
            rn.CrossEntropyLoss(),
            torch.zeros(4, 1, dtype=torch.int64),
            r"classes \(4, 1\); .* \(4,\)",
        ),
    ],
    ids=lambda v: getattr(v, "name", type(v).__name__),
)
def test_shapes_that_would_broadcast_are_refused_where_the_loss_is_computed(loss, target, text):
    with pytest.raises(ValueError, match=text):
        loss.function("cpu")(torch.zeros(4, 1), target)


def test_pictures_of_classes_do_not_broadcast():
    function = rn.CrossEntropyLoss().function("cpu")
    for shape in [(1, 3, 4), (2, 1, 4), (2, 3, 1), (2, 3)]:
        with pytest.raises(ValueError, match=r"it takes one whole number .* \(2, 3, 4\)"):
            function(torch.zeros(2, 5, 3, 4), torch.zeros(shape, dtype=torch.int64))


@pytest.mark.parametrize(
    "given, error, text",
    [
        ({"label_smoothing": 1.5}, ValueError, "label_smoothing = 1.5 .* at least 0 and at most 1"),
        ({"label_smoothing": float("nan")}, ValueError, "finite"),
        ({"class_weights": (1.0, -1.0)}, ValueError, "at least 0 and not all 0"),
        ({"class_weights": (0.0, 0.0)}, ValueError, "at least 0 and not all 0"),
        ({"class_weights": ()}, ValueError, "one number per class"),
        ({"class_weights": (1.0, "a")}, TypeError, r"class_weights\[1\] = 'a'"),
        ({"class_weights": (1.0, float("nan"))}, ValueError, "finite"),
        ({"ignore_index": 1.0}, TypeError, "ignore_index = 1.0 .* a whole number"),
        ({"reduction": "mean"}, TypeError, "no setting 'reduction'"),
    ],
)
def test_wrong_settings(given, error, text):
    with pytest.raises(error, match=text):
        rn.CrossEntropyLoss(**given)


def test_class_weights_may_be_any_sequence_of_numbers():
    expected = rn.CrossEntropyLoss(class_weights=(1.0, 2.0))
    for given in ([1, 2], np.array([1.0, 2.0]), torch.tensor([1, 2])):
        assert rn.CrossEntropyLoss(class_weights=given) == expected


INTS, FLOATS = np.int64, np.float32


@pytest.mark.parametrize(
    "loss, target, shape",
    [
        (rn.CrossEntropyLoss(), np.zeros(4, np.uint8), (4, 3)),
        (rn.CrossEntropyLoss(), np.full(4, -100), (4, 3)),
        (rn.CrossEntropyLoss(ignore_index=255), np.full((4, 2, 2), 255), (4, 3, 2, 2)),
        (rn.CrossEntropyLoss(), np.full((4, 3), 1 / 3), (4, 3)),
        (rn.BCEWithLogitsLoss(), np.ones((4, 3), bool), (4, 3)),
        (rn.BCEWithLogitsLoss(), np.full((4, 3), 0.5), (4, 3)),
        (rn.MSELoss(), np.zeros((4, 3), FLOATS), (4, 3)),
        (as_loss(F.l1_loss), np.zeros((4, 9), FLOATS), (4, 3)),
    ],
)
def test_targets_that_fit(loss, target, shape):
    loss.check_target(target, shape)


@pytest.mark.parametrize(
    "loss, target, shape, text",
    [
        (
            rn.CrossEntropyLoss(),
            np.array([0, 3]),
            (2, 3),
            r"target\[1\] = 3 is no class: .* 0 to 2",
        ),
        (rn.CrossEntropyLoss(), np.array([-1, 0]), (2, 3), r"target\[0\] = -1 is no class"),
        (rn.CrossEntropyLoss(ignore_index=9), np.array([9, -100]), (2, 3), r"target\[1\] = -100"),
        (
            rn.CrossEntropyLoss(),
            np.full((1, 2, 2), 7),
            (1, 3, 2, 2),
            r"target\[0, 0, 0\] = 7 is no class",
        ),
        (rn.CrossEntropyLoss(), np.zeros(2, FLOATS), (2, 3), r"targets \(2,\) of type float32"),
        (rn.CrossEntropyLoss(), np.zeros(2, bool), (2, 3), "type bool"),
        (rn.CrossEntropyLoss(), np.zeros((2, 1), INTS), (2, 3), r"classes, whole numbers \(2,\)"),
        (rn.CrossEntropyLoss(), np.zeros((2, 3), INTS), (2, 3), "probabilities, floating-point"),
        (rn.CrossEntropyLoss(), np.zeros(3, INTS), (2, 3), r"outputs \(2, 3\) with targets \(3,\)"),
        (rn.CrossEntropyLoss(), np.zeros(2, INTS), (2,), r"needs outputs \(N, C, ...\)"),
        (rn.CrossEntropyLoss(), np.full((1, 2), -0.5), (1, 2), r"target\[0, 0\] = -0.5 is no prob"),
        (rn.CrossEntropyLoss(), np.full((1, 2), np.nan), (1, 2), "= nan is no probability"),
        (rn.CrossEntropyLoss(ignore_index=1), np.full((1, 2), 0.5), (1, 2), "ignore_index = 1 has"),
        (rn.CrossEntropyLoss(class_weights=(1, 2)), np.zeros(2, INTS), (2, 3), "2 class_weights"),
        (rn.BCEWithLogitsLoss(), np.zeros(2, FLOATS), (2, 1), r"outputs \(2, 1\), received \(2,\)"),
        (rn.BCEWithLogitsLoss(), np.full((2, 1), 2.0), (2, 1), r"target\[0, 0\] = 2.0 .* 0 to 1"),
        (rn.BCEWithLogitsLoss(), np.full((2, 1), np.nan), (2, 1), "= nan is not finite"),
        (rn.MSELoss(), np.zeros((2, 1), FLOATS), (2, 3), "broadcasting"),
        (rn.MSELoss(), np.zeros((2, 3), complex), (2, 3), "type complex128"),
        (rn.MSELoss(), np.full((2, 1), np.inf), (2, 1), r"target\[0, 0\] = inf is not finite"),
        (as_loss(F.l1_loss), np.zeros((3, 1), FLOATS), (2, 1), "both must begin with the batch"),
    ],
)
def test_targets_that_do_not_fit(loss, target, shape, text):
    with pytest.raises(ValueError, match=text):
        loss.check_target(target, shape)
