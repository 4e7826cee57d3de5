"""Losses against torch in float64, and what makes a sum and a weight of them."""

import functools
import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import renaissance as rn
from renaissance.foreign_losses import CallableLoss, as_loss
from renaissance.metrics import top_k

SHAPES = {"rows": (7, 5), "lines": (3, 5, 4), "pictures": (2, 5, 3, 4)}
WEIGHTS = (0.5, 2.0, 0.0, 1.0, 3.0)


def draw(shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def classes(shape, seed=1, ignored=None):
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(0, shape[1], (shape[0], *shape[2:]), generator=generator)
    if ignored is not None:
        target[torch.rand(target.shape, generator=generator) < 0.3] = ignored
    return target


def probabilities(shape, seed=2):
    return torch.softmax(draw(shape, seed), 1)


def both(loss, output, target):
    """(mean, gradient of the mean) of a loss of ours."""
    output = output.detach().clone().requires_grad_()
    total, weight = loss.function("cpu")(output, target)
    (gradient,) = torch.autograd.grad(total / weight, output)
    return (total / weight).detach(), gradient


def reference(function, output, target):
    output = output.detach().double().clone().requires_grad_()
    mean = function(output, target)
    (gradient,) = torch.autograd.grad(mean, output)
    return mean.detach(), gradient


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize(
    "smoothing, weights, ignored",
    list(itertools.product([0.0, 0.1], [None, WEIGHTS], [None, 255, 2])),
)
def test_cross_entropy_of_classes(shape, smoothing, weights, ignored):
    index = -100 if ignored is None else ignored
    loss = rn.CrossEntropyLoss(label_smoothing=smoothing, class_weights=weights, ignore_index=index)
    output, target = draw(shape), classes(shape, ignored=ignored)
    as_tensor = None if weights is None else torch.tensor(weights, dtype=torch.float64)

    def torchs(output, target):
        return F.cross_entropy(
            output, target, as_tensor, ignore_index=index, label_smoothing=smoothing
        )

    found, expected = both(loss, output, target), reference(torchs, output, target)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)
    found = both(loss, output.float(), target)
    assert found[0].dtype == torch.float32
    torch.testing.assert_close(found[0].double(), expected[0], rtol=1e-6, atol=0)
    torch.testing.assert_close(found[1].double(), expected[1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("smoothing, weights", list(itertools.product([0.0, 0.1], [None, WEIGHTS])))
def test_cross_entropy_of_probabilities(shape, smoothing, weights):
    loss = rn.CrossEntropyLoss(label_smoothing=smoothing, class_weights=weights)
    output, target = draw(shape), probabilities(shape)
    as_tensor = None if weights is None else torch.tensor(weights, dtype=torch.float64)

    def torchs(output, target):
        return F.cross_entropy(output, target, as_tensor, label_smoothing=smoothing)

    expected = reference(torchs, output, target)
    torch.testing.assert_close(both(loss, output, target), expected, rtol=1e-12, atol=1e-13)


def test_probabilities_of_one_class_equal_that_class():
    loss = rn.CrossEntropyLoss(label_smoothing=0.1).function("cpu")
    output, target = draw((7, 5)), classes((7, 5))
    hard, soft = loss(output, target), loss(output, F.one_hot(target, 5).double())
    torch.testing.assert_close(hard, soft, rtol=1e-13, atol=0)


@pytest.mark.parametrize(
    "loss, torchs",
    [
        (rn.BCEWithLogitsLoss(), F.binary_cross_entropy_with_logits),
        (rn.MSELoss(), F.mse_loss),
        (as_loss(F.smooth_l1_loss), F.smooth_l1_loss),
        (as_loss(torch.nn.HuberLoss(delta=0.3)), torch.nn.HuberLoss(delta=0.3)),
    ],
    ids=lambda v: getattr(v, "__name__", type(v).__name__),
)
@pytest.mark.parametrize("shape", [(7,), (7, 1), (7, 5), (2, 3, 4)])
def test_elementwise_losses(loss, torchs, shape):
    output, target = draw(shape), torch.sigmoid(draw(shape, 3))
    expected = reference(torchs, output, target)
    torch.testing.assert_close(both(loss, output, target), expected, rtol=1e-12, atol=1e-13)
    mean, gradient = both(loss, output.float(), target.float())
    torch.testing.assert_close(mean.double(), expected[0], rtol=2e-6, atol=0)
    torch.testing.assert_close(gradient.double(), expected[1], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", ["classes", "weighted", "pictures", "soft", "bce", "mse"])
def test_gradcheck(kind):
    shape = (2, 5, 2) if kind == "pictures" else (4, 5)
    loss = {
        "bce": rn.BCEWithLogitsLoss(),
        "mse": rn.MSELoss(),
        "classes": rn.CrossEntropyLoss(),
    }.get(kind, rn.CrossEntropyLoss(label_smoothing=0.2, class_weights=WEIGHTS))
    targets = {
        "classes": classes(shape),
        "weighted": classes(shape, ignored=-100),
        "pictures": classes(shape, ignored=-100),
    }
    target = targets.get(kind, probabilities(shape))
    function = loss.function("cpu")
    output = draw(shape).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: function(x, target)[0], (output,))


LOSSES = [
    (rn.CrossEntropyLoss(), classes((12, 5))),
    (rn.CrossEntropyLoss(class_weights=WEIGHTS, label_smoothing=0.1), classes((12, 5), ignored=3)),
    (rn.CrossEntropyLoss(ignore_index=3), classes((12, 5), ignored=3)),
    (rn.CrossEntropyLoss(class_weights=WEIGHTS), probabilities((12, 5))),
    (rn.BCEWithLogitsLoss(), probabilities((12, 5))),
    (rn.MSELoss(), probabilities((12, 5))),
    (as_loss(F.l1_loss), probabilities((12, 5))),
]


@pytest.mark.parametrize("loss, target", LOSSES, ids=lambda v: type(v).__name__)
@pytest.mark.parametrize("cuts", [(0, 12), (0, 4, 8, 12), (0, 5, 10, 12), (0, 11, 12)])
def test_batches_of_any_size_add_up(loss, target, cuts):
    function, output = loss.function("cpu"), draw((12, 5))
    whole = torch.stack(function(output, target))
    parts = [torch.stack(function(output[a:b], target[a:b])) for a, b in zip(cuts, cuts[1:])]
    torch.testing.assert_close(sum(parts), whole, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("odd", [-1, 5, 255])
def test_a_class_of_pictures_that_there_is_not_makes_the_loss_nan(odd):
    shape = (2, 5, 3, 3)
    output, target = draw(shape).requires_grad_(), classes(shape)
    loss = rn.CrossEntropyLoss().function("cpu")
    assert loss(output, target)[0].isfinite()
    target[1, 2, 0] = odd
    total, _ = loss(output, target)
    (gradient,) = torch.autograd.grad(total, output)
    assert total.isnan() and gradient.isnan().any()
    ignoring = rn.CrossEntropyLoss(ignore_index=odd).function("cpu")
    assert ignoring(output, target)[0].isfinite()


@pytest.mark.parametrize("places", [(), (2,)])
def test_classes_of_eight_bits_are_none_that_is_ignored(places):
    output = torch.zeros(3, 200, *places)
    target = torch.full((3, *places), 156)  # -100 as one byte
    wide = rn.CrossEntropyLoss().function("cpu")(output, target)
    narrow = rn.CrossEntropyLoss().function("cpu")(output, target.to(torch.uint8))
    assert wide[0].item() == pytest.approx(target.numel() * math.log(200))
    assert [narrow[0].item(), narrow[1].item()] == [wide[0].item(), target.numel()]
    right, counted = top_k(200, -100)(output, target.to(torch.uint8))
    assert (right, counted) == (target.numel(), target.numel())
    assert top_k(200, 156)(output, target.to(torch.uint8))[1] == 0


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("smoothing, weights", [(0.0, None), (0.1, None), (0.1, WEIGHTS)])
def test_a_batch_of_ignored_targets_contributes_nothing(shape, smoothing, weights):
    loss = rn.CrossEntropyLoss(label_smoothing=smoothing, class_weights=weights, ignore_index=255)
    output = draw(shape, dtype=torch.float32).requires_grad_()
    total, weight = loss.function("cpu")(output, torch.full_like(classes(shape), 255))
    assert float(total.detach()) == 0.0 and float(weight) == 0.0
    (gradient,) = torch.autograd.grad(total, output)
    assert torch.equal(gradient, torch.zeros_like(output))
    assert torch.isnan(
        F.cross_entropy(output, torch.full_like(classes(shape), 255), ignore_index=255)
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("loss, target", LOSSES[:-1], ids=lambda v: type(v).__name__)
def test_sixteen_bit_outputs_are_computed_in_float32(dtype, loss, target):
    function, output = loss.function("cpu"), draw((12, 5)).to(dtype)
    found, wide = function(output, target), function(output.float(), target)
    assert found[0].dtype == torch.float32 and torch.equal(torch.stack(found), torch.stack(wide))


def test_large_logits_do_not_overflow():
    output = torch.tensor([[1e4, -1e4], [-1e4, 1e4]])
    total, _ = rn.CrossEntropyLoss().function("cpu")(output, torch.tensor([1, 1]))
    assert float(total) == 2e4


class NoHostReads(TorchDispatchMode):
    """Raises when a value leaves the device or a shape depends on one."""

    FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in self.FORBIDDEN:
            raise RuntimeError(f"host read by {func}")
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("loss, target", LOSSES, ids=lambda v: type(v).__name__)
def test_no_value_is_read_by_the_host(loss, target):
    function, output = loss.function("cpu"), draw((12, 5), dtype=torch.float32)
    with NoHostReads():
        function(output, target)
    with NoHostReads(), pytest.raises(RuntimeError, match="host read"):
        float(output.sum())  # the mode does notice


@pytest.mark.parametrize("loss, target", LOSSES, ids=lambda v: type(v).__name__)
def test_targets_may_be_of_any_integer_or_floating_type(loss, target):
    function, output = loss.function("cpu"), draw((12, 5), dtype=torch.float32)
    narrow = target.float() if target.is_floating_point() else target.to(torch.int32)
    wide = target.double() if target.is_floating_point() else target.long()
    torch.testing.assert_close(function(output, narrow), function(output, wide))


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_nominal_weight_is_that_of_a_full_batch(shape):
    cases = [
        (rn.CrossEntropyLoss(), classes(shape)),
        (rn.CrossEntropyLoss(), probabilities(shape)),
        (rn.BCEWithLogitsLoss(), probabilities(shape)),
        (rn.MSELoss(), probabilities(shape)),
        (as_loss(F.l1_loss), probabilities(shape)),
    ]
    for loss, target in cases:
        _, weight = loss.function("cpu")(draw(shape), target)
        assert float(weight) == loss.nominal_weight(shape)


def test_classification_is_said():
    assert rn.CrossEntropyLoss().is_classification
    assert not any(x.is_classification for x in (rn.BCEWithLogitsLoss(), rn.MSELoss()))
    assert not as_loss(F.cross_entropy).is_classification


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
