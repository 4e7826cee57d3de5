"""Losses of torch and functions: taken for ours where we have a peer, else means of a batch."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from loss_cases import WEIGHTS, both, classes, draw, probabilities, reference

import renaissance as rn
from renaissance.foreign_losses import CallableLoss, as_loss


def test_as_loss():
    loss = rn.CrossEntropyLoss()
    assert as_loss(loss) is loss
    assert repr(as_loss(F.l1_loss)) == "CallableLoss(l1_loss)"
    assert as_loss(F.l1_loss) == CallableLoss(F.l1_loss) != as_loss(F.mse_loss)
    for wrong, text in [
        ("mse", "loss = 'mse' .* takes a loss such as"),
        (None, "NoneType"),
        (rn.MSELoss, r"write MSELoss\(\)"),
    ]:
        with pytest.raises(TypeError, match=text):
            as_loss(wrong)


CLASS_WEIGHTS = torch.tensor(WEIGHTS, dtype=torch.float64)


@pytest.mark.parametrize(
    "module, ours, target",
    [
        (torch.nn.CrossEntropyLoss(), rn.CrossEntropyLoss(), classes((12, 5))),
        (
            torch.nn.CrossEntropyLoss(CLASS_WEIGHTS, label_smoothing=0.2),
            rn.CrossEntropyLoss(class_weights=WEIGHTS, label_smoothing=0.2),
            classes((12, 5), ignored=-100),
        ),
        (
            torch.nn.CrossEntropyLoss(CLASS_WEIGHTS, ignore_index=3),
            rn.CrossEntropyLoss(class_weights=WEIGHTS, ignore_index=3),
            classes((12, 5), ignored=3),
        ),
        (
            torch.nn.CrossEntropyLoss(CLASS_WEIGHTS, label_smoothing=0.2),
            rn.CrossEntropyLoss(class_weights=WEIGHTS, label_smoothing=0.2),
            probabilities((12, 5)),
        ),
        (torch.nn.MSELoss(), rn.MSELoss(), probabilities((12, 5))),
        (torch.nn.BCEWithLogitsLoss(), rn.BCEWithLogitsLoss(), probabilities((12, 5))),
        (torch.nn.L1Loss(), None, probabilities((12, 5))),
        (torch.nn.SmoothL1Loss(beta=0.5), None, probabilities((12, 5))),
        (torch.nn.HuberLoss(delta=0.5), None, probabilities((12, 5))),
    ],
    ids=lambda v: type(v).__name__,
)
def test_torchs_own_losses_count_over_a_window_what_they_count_over_a_batch(module, ours, target):
    loss, output = as_loss(module), draw((12, 5))
    assert loss == ours if ours is not None else isinstance(loss, CallableLoss)
    expected = reference(module, output, target)
    torch.testing.assert_close(both(loss, output, target), expected, rtol=1e-12, atol=1e-13)
    function = loss.function("cpu")
    parts = [
        torch.stack(function(output[a:b], target[a:b])) for a, b in [(0, 5), (5, 10), (10, 12)]
    ]
    total, weight = sum(parts)
    torch.testing.assert_close(total / weight, expected[0], rtol=1e-12, atol=0)


def test_torchs_losses_that_have_no_peer_stay_what_they_are():
    class Own(torch.nn.CrossEntropyLoss):
        def forward(self, output, target):
            return 2 * super().forward(output, target)

    weighted = torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor([2.0]))
    for module in (Own(), weighted, torch.nn.BCEWithLogitsLoss(weight=torch.ones(5))):
        assert as_loss(module) == CallableLoss(module)
    for reduction in ("sum", "none"):
        for kind in (torch.nn.CrossEntropyLoss, torch.nn.L1Loss, Own):
            with pytest.raises(
                ValueError, match=rf"reduction='{reduction}'.* takes reduction=.mean"
            ):
                as_loss(kind(reduction=reduction))


def test_a_function_must_give_a_scalar():
    function = as_loss(lambda output, target: (output - target) ** 2).function("cpu")
    with pytest.raises(ValueError, match=r"the loss <lambda> gave \(3, 2\), not a scalar"):
        function(torch.zeros(3, 2), torch.zeros(3, 2))
    with pytest.raises(ValueError, match="gave float, not a scalar"):
        as_loss(lambda output, target: 1.0).function("cpu")(torch.zeros(3, 2), torch.zeros(3))


def test_a_module_is_copied_with_its_buffers():
    module = torch.nn.BCEWithLogitsLoss(pos_weight=torch.tensor([3.0]))
    function = as_loss(module).function("cpu")
    module.pos_weight.zero_()
    total, weight = function(torch.zeros(2, 1), torch.ones(2, 1))
    assert float(total / weight) == pytest.approx(3 * np.log(2))
