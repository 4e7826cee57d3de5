"""Fused batch-norm: the kernels in Triton's interpreter, and what of a network is fused."""

import contextlib
import copy
import json
import pathlib

import fresh
import pytest
import torch
import torchvision
from torch import nn

from renaissance import models
from renaissance.nn.fused_layers import FusedConvolution, FusedMean, FusedNorm
from renaissance.nn.fusion import Fusion
from renaissance.nn.patterns import fuse

pytest.importorskip("triton")

TOLERANCE = {"torch.float32": 1e-6, "torch.bfloat16": 8e-3}  # bf16: half a unit in 8 bits is 4e-3


@pytest.fixture(scope="module")
def answers():
    """Relative errors of every case by name, and those of a frozen batch-norm by type.

    The interpreter needs a process of its own.
    """
    place = pathlib.Path(__file__).with_name("norm_cases.py")
    said, _ = fresh.run(
        "import os, runpy, warnings\n"
        "os.environ['TRITON_INTERPRET'] = '1'\n"
        "warnings.simplefilter('error', UserWarning)\n"
        f"runpy.run_path({str(place)!r}, run_name='__main__')\n",
        timeout=240,
    )
    return [json.loads(line) for line in said.splitlines()]


@pytest.mark.timeout(300)
def test_outputs_gradients_and_statistics_are_torchs_in_float64(answers):
    interpreted = answers[0]
    assert len(interpreted) == 51
    for name, errors in interpreted.items():
        limit = TOLERANCE[name.rsplit(" ", 1)[1]]
        assert max(errors.values()) < limit, (name, errors)


def twins(module):
    """The fused forward of a module, the module, and an equal one left alone."""
    plain = copy.deepcopy(module)
    found = fuse(module)
    assert isinstance(found, Fusion), found
    return found, module, plain


@pytest.mark.timeout(300)
def test_a_frozen_batch_norm_behind_a_bias_sees_it_in_the_kernels_too(answers):
    for dtype, error in answers[1].items():
        assert error < TOLERANCE[dtype], dtype


@contextlib.contextmanager
def graph_alone(module):
    """The module's own forward is an error: what is called runs the graph."""

    def fail(*_):
        pytest.fail("the module ran, not the graph")

    module.forward = fail
    try:
        yield
    finally:
        del module.forward


BLOCKS = {
    "resnet18": (lambda: torchvision.models.resnet18(num_classes=10), 32, 20),
    "resnet50": (lambda: models.resnet50(num_classes=10), 32, 53),
    "vgg": (lambda: models.vgg11_bn(num_classes=10, head="cifar"), 32, 8),
    "seq": (
        lambda: models.seq(
            "conv 16 3, bn, relu, maxpool 2, conv 24 3, bn, mean, flatten, linear 10",
            input_shape=(3, 8, 8),
        ),
        8,
        2,
    ),
}


@pytest.mark.parametrize("name", BLOCKS)
def test_the_rewritten_forward_is_the_modules(name):
    make, side, norms = BLOCKS[name]
    torch.manual_seed(0)
    found, module, plain = twins(make())
    assert found.text == f"{norms} batch-norms run together with what follows them"
    assert found.last is not None and found.last.out_features == 10
    x = torch.randn(4, 3, side, side)
    for training in (True, False):
        module.train(training)
        plain.train(training)
        with torch.set_grad_enabled(training), graph_alone(module):
            ours = found.forward(x)
        torch.testing.assert_close(ours, plain(x), rtol=1e-4, atol=1e-4)
    assert module.state_dict().keys() == plain.state_dict().keys()
    for (key, mine), theirs in zip(module.state_dict().items(), plain.state_dict().values()):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5, msg=key)


class Strange(nn.Module):
    """A block in which an addition changes what somebody else reads."""

    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.conv, self.bn = nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8)

    def forward(self, x):
        x = self.conv(x)
        y = self.bn(x)
        if self.kind == "in place":
            x += y
            return torch.relu(x).flatten(1) + x.flatten(1)
        if self.kind == "twice":
            return (torch.relu(y) + y).flatten(1)
        if self.kind == "branch" and x.sum() > 0:
            return y
        return torch.tanh(y)


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("in place", "iadd"),
        ("twice", "relu"),
        ("branch", "torch.fx cannot follow forward"),
        ("tanh", "tanh"),
    ],
)
def test_what_is_not_recognised_is_left_alone(kind, reason):
    found = fuse(Strange(kind))
    assert isinstance(found, str) and found.startswith("not fused: ") and reason in found


def test_a_network_without_batch_norm_is_not_spoken_of():
    assert fuse(nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten())) == ""


def test_a_watched_batch_norm_is_left_alone():
    block = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    assert isinstance(fuse(block), Fusion)
    block[1].register_forward_hook(lambda *_: None)
    assert fuse(block) == ""


def test_a_batch_norm_whose_gradient_is_watched_is_left_alone():
    block = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    block[1].register_full_backward_pre_hook(lambda *_: None)
    assert fuse(block) == ""


def test_fusing_leaves_modes_as_they_were():
    block = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    block[1].eval()
    fuse(block)
    assert block.training and not block[1].training


def test_a_frozen_batch_norm_behind_a_bias_sees_the_bias():
    torch.manual_seed(0)
    block = nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU())
    found, module, plain = twins(block)
    module[1].eval()
    plain[1].eval()
    x = torch.randn(2, 8, 4, 4)
    torch.testing.assert_close(found.forward(x), plain(x))


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda: models.resnet9(num_classes=10, width=8), 8),
        (lambda: models.wide_resnet(depth=10, widen=1), 7),
    ],
    ids=["resnet9", "wide_resnet"],
)
@pytest.mark.parametrize("training", [True, False])
def test_additions_and_pools_without_a_batch_norm_stay_beside_fused_layers(make, count, training):
    torch.manual_seed(0)
    found, module, plain = twins(make().train(training))
    assert found.text.startswith(f"{count} batch-norms")
    x = torch.randn(3, 3, 16, 16)
    with torch.set_grad_enabled(training):
        mine, theirs = found.forward(x), plain(x)
    torch.testing.assert_close(mine, theirs)
    if training:
        got = torch.autograd.grad(mine.square().sum(), list(module.parameters()))
        want = torch.autograd.grad(theirs.square().sum(), list(plain.parameters()))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["forward", "_conv_forward"])
def test_a_layer_with_a_method_of_its_own_is_left_alone(name):
    block = nn.Sequential(nn.Conv2d(8, 8, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1))
    setattr(block[3], name, lambda x, *rest: -x)
    found, _, plain = twins(block.train())
    x = torch.randn(2, 8, 4, 4)
    torch.testing.assert_close(found.forward(x), plain(x))


def test_layers_called_by_keyword_are_fused_too():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm, self.pool = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.MaxPool2d(2)

        def forward(self, x):
            x = self.norm(input=self.conv(input=x))
            return self.pool(input=self.pool(torch.relu(x)))

    found, module, plain = twins(Net().train())
    x = torch.randn(2, 3, 12, 12)
    torch.testing.assert_close(found.forward(x), plain(x))


def test_texts():
    layer = FusedNorm(nn.BatchNorm2d(8), relu=True, pool=nn.MaxPool2d(2))
    assert "relu" in str(layer) and "MaxPool2d" in str(layer)
    convolution = FusedConvolution(nn.Conv2d(3, 8, 3), is_biased=True, is_first=True)
    assert "Conv2d(3, 8" in str(convolution)


def test_the_mean_is_torchs_both_ways():
    x = torch.randn(2, 8, 3, 5).contiguous(memory_format=torch.channels_last).requires_grad_()
    mine, theirs = FusedMean()(x), nn.AdaptiveAvgPool2d(1)(x)
    assert torch.equal(mine, theirs)
    (got,), (want,) = (torch.autograd.grad(y.square().sum(), x) for y in (mine, theirs))
    torch.testing.assert_close(got, want, rtol=1e-6, atol=0)
    assert got.is_contiguous(memory_format=torch.channels_last)


class Storing(nn.Module):
    """A network that counts its calls, or keeps a value."""

    def __init__(self, kind):
        super().__init__()
        self.kind, self.calls, self.last = kind, 0, None
        self.conv, self.bn = nn.Conv2d(3, 8, 1), nn.BatchNorm2d(8)

    def forward(self, x):
        y = torch.relu(self.bn(self.conv(x)))
        if self.kind == "counts":
            self.calls += 1
        elif self.kind == "keeps":
            self.last = y
        else:
            self.new = y
        return y.flatten(1)


@pytest.mark.parametrize(
    ("kind", "name"), [("counts", "calls"), ("keeps", "last"), ("adds", "new")]
)
def test_a_forward_that_stores_values_is_left_alone_and_as_it_was(kind, name):
    module = Storing(kind)
    before = dict(vars(module))
    assert fuse(module) == f"not fused: forward keeps values in Storing.{name}"
    assert dict(vars(module)) == before


def test_names_of_the_network_are_not_taken():
    torch.manual_seed(0)
    block = nn.Sequential()
    block.add_module("own_fused_0", nn.Conv2d(3, 8, 3))
    block.add_module("fused_0", nn.BatchNorm2d(8))
    block.add_module("fused_1", nn.ReLU())
    found, _, plain = twins(block)
    x = torch.randn(2, 3, 6, 6)
    torch.testing.assert_close(found.forward(x), plain(x))


def test_an_addend_of_another_shape_is_added_by_torch():
    torch.manual_seed(0)
    layer = FusedNorm(nn.BatchNorm2d(8), relu=True)
    x, small = torch.randn(2, 8, 4, 4), torch.randn(2, 8, 1, 1)
    expected = torch.relu(copy.deepcopy(layer._norms[0])(x) + small)
    torch.testing.assert_close(layer(x, small)[0], expected)
