"""Losses against torch in float64, and what makes a sum and a weight of them."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F
from loss_cases import SHAPES, WEIGHTS, both, classes, draw, probabilities, reference
from torch.utils._python_dispatch import TorchDispatchMode

import renaissance as rn
from renaissance.foreign_losses import as_loss
from renaissance.metrics import top_k


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
