"""Weight gradients on a second stream: equal to torch's, and never read before they are made."""

import copy

import pytest
import torch
from torch import nn

from renaissance.nn import beside, patterns
from renaissance.nn.fused_layers import FusedConvolution
from renaissance.nn.fusion import Fusion


def twins(module):
    """The fused forward of a module, the module, and an equal one left alone."""
    plain = copy.deepcopy(module)
    found = patterns.fuse(module)
    assert isinstance(found, Fusion), found
    return found, module, plain


class InTurn:
    """In the place of `Beside` where there is no second stream."""

    def __init__(self):
        self.read = []

    def run(self, work, *read):
        self.read.append(read)
        return work()


@pytest.mark.parametrize("has_bias", [False, True])
def test_gradients_of_a_convolution_in_two_parts_are_those_of_one(has_bias):
    torch.manual_seed(0)
    x = torch.randn(2, 8, 9, 7, dtype=torch.float64, requires_grad=True)
    tensors = [x, torch.randn(6, 4, 3, 3, dtype=torch.float64, requires_grad=True)]
    if has_bias:
        tensors.append(torch.randn(6, dtype=torch.float64, requires_grad=True))
    form = beside.Form((2, 1), (1, 2), (1, 2), 2)
    bias = tensors[2] if has_bias else None
    expected = torch.conv2d(x, tensors[1], bias, *form)
    turn = InTurn()
    found = beside.convolution(x, tensors[1], bias, form, turn)
    assert torch.equal(found, expected)
    g = torch.randn_like(expected)
    want = torch.autograd.grad(expected, tensors, g)
    for mine, theirs in zip(torch.autograd.grad(found, tensors, g), want):
        torch.testing.assert_close(mine, theirs, rtol=1e-13, atol=1e-13)
    assert len(turn.read) == 1 and turn.read[0][1] is x


class Late(beside.Beside):
    """A second stream as a reader sees it who does not wait: NaN until the streams have met."""

    is_on = True

    def run(self, work, *read):
        real = work()
        shown = [None if t is None else torch.full_like(t, torch.nan) for t in real]
        self._under_way.append((real, shown))
        return shown

    def join(self):
        for real, shown in self._under_way:
            for one, other in zip(real, shown):
                if one is not None:
                    other.copy_(one)
        self._under_way.clear()


class Shared(nn.Module):
    """A convolution called twice, two that share a weight, and a bias of another type."""

    def __init__(self):
        super().__init__()
        self.alone, self.twice, self.tied, self.other = (nn.Conv2d(8, 8, 1) for _ in range(4))
        self.other.weight = self.tied.weight
        self.norm = nn.BatchNorm2d(8)

    def forward(self, x):
        x = self.twice(self.twice(self.alone(input=x)))
        return torch.relu(self.norm(self.other(self.tied(x))))


@pytest.fixture
def late(monkeypatch):
    """`Late` in the place of the second stream, and convolutions as on CUDA."""
    monkeypatch.setattr(patterns, "Beside", Late)
    monkeypatch.setattr(FusedConvolution, "forward", lambda self, x: self._convolve(
        x, *self._convolution, self._convolution[0].bias if self.is_biased else None,
        self._convolution[0].stride, self._convolution[0].padding,
    ))  # fmt: skip


def penalty(module):
    return sum(parameter.square().sum() for parameter in module.parameters())


@pytest.mark.parametrize("more", [lambda module: 0.0, penalty], ids=["plain", "penalty"])
@pytest.mark.parametrize("hook", [None, lambda g: g.clamp(-0.5, 0.5)], ids=["", "hook"])
def test_nothing_of_autograd_reads_a_gradient_that_is_not_made_yet(late, more, hook):
    torch.manual_seed(0)
    found, module, plain = twins(Shared().double().train())
    x = torch.randn(3, 8, 4, 4, dtype=torch.float64)
    gradients = []
    for forward, owner in ((found.forward, module), (plain, plain)):
        if hook is not None:  # after compile, as tracing refuses one that is there before
            owner.twice.weight.register_hook(hook)
        loss = forward(x).square().sum() + more(owner)
        gradients.append(torch.autograd.grad(loss, list(owner.parameters()), allow_unused=True))
    mine, theirs = gradients
    assert not found.beside._under_way
    for name, got, want in zip(dict(plain.named_parameters()), mine, theirs):
        if got is None:  # a bias before a batch-norm, whose gradient is 0 but for rounding
            assert name == "other.bias" and want.abs().max() < 1e-10
            continue
        torch.testing.assert_close(got, want, rtol=1e-10, atol=1e-10, msg=name)


def test_a_bias_of_another_type_is_turned_into_it_before_the_streams_meet(late):
    torch.manual_seed(0)
    block = nn.Sequential(
        nn.Conv2d(8, 8, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1),
        nn.Flatten(), nn.Linear(8 * 16, 2),
    ).train()  # fmt: skip
    for layer in (block[0], block[3]):
        layer.weight.data = layer.weight.data.bfloat16()
    found, module, plain = twins(block)
    x = torch.randn(3, 8, 4, 4).bfloat16()
    for forward, owner in ((found.forward, module), (plain, plain)):
        with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
            loss = forward(x).float().square().sum()
        owner.got = torch.autograd.grad(loss, list(owner.parameters()))
    for got, want in zip(module.got, plain.got):
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
