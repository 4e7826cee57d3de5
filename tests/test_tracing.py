"""Forwards that no graph can stand for are refused, and left as they were."""

import copy
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from renaissance.nn.fusion import Fusion
from renaissance.nn.patterns import fuse


class Network(nn.Module):
    """Two convolutions with batch-norm and ReLU; subclasses do something beside."""

    def __init__(self):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)
        self.c2, self.b2 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.fc, self.calls = nn.Linear(8, 4), []
        self.register_buffer("seen", torch.zeros(()))

    def stem(self, x):
        return F.relu(self.b1(self.c1(x)))

    def body(self, x):
        return F.relu(self.b2(self.c2(x)))

    def head(self, x):
        return self.fc(x.mean((2, 3)))

    def forward(self, x):
        return self.head(self.body(self.stem(x)))


class NoGradient(Network):
    def forward(self, x):
        with torch.no_grad():
            x = self.stem(x)
        return self.head(self.body(x))


class Autocast(Network):
    def forward(self, x):
        with torch.autocast("cpu", torch.bfloat16):
            x = self.stem(x)
        return self.head(self.body(x))


class Checkpointed(Network):
    def forward(self, x):
        return self.head(checkpoint(self.body, self.stem(x), use_reentrant=False))


class ChangesBuffer(Network):
    def forward(self, x):
        self.seen.add_(1)
        return super().forward(x)


class NewBuffer(Network):
    def forward(self, x):
        self.seen = self.seen + 1
        return super().forward(x)


class Appends(Network):
    def forward(self, x):
        self.calls.append(1)
        return super().forward(x)


class MakesLayer(Network):
    def forward(self, x):
        self.extra = nn.Conv2d(8, 8, 1)
        return super().forward(x)


class Throws(Network):
    def forward(self, x):
        is_kept = self.throw() < 0.5
        return self.head(self.body(self.stem(x)) if is_kept else self.stem(x))

    def throw(self):
        return torch.rand(1).item()


class ThrowsInPython(Throws):
    throw = staticmethod(random.random)


class ThrowsInNumpy(Throws):
    throw = staticmethod(np.random.random)


class Optional(Network):
    def forward(self, x, skip=None):
        return self.head(self.stem(x) if skip is not None else self.body(self.stem(x)))


class Unpacks(Network):
    def forward(self, x):
        return super().forward(x if isinstance(x, torch.Tensor) else x[0])


class Shared(Network):
    def forward(self, x):
        x = self.stem(x)
        a, b = self.b2(self.c2(x)), self.b2(x)
        late, early = F.relu(b), F.relu(a)
        return self.head(early) + self.head(late)


class AddsToView(Network):
    def forward(self, x):
        x = self.stem(x)
        view = x.view(x.shape)
        view += self.b2(self.c2(x))
        return self.head(F.relu(view))


class AddsInPlace(Network):
    """The shortcut and the sum are the same memory."""

    def forward(self, x):
        x = same = self.stem(x)
        same += self.b2(self.c2(x))
        return self.head(F.relu(same)) + self.head(x)


REFUSED = {
    AddsInPlace: "iadd",
    NoGradient: "switches gradients",
    Autocast: "autocast itself",
    Checkpointed: "checkpoints",
    ChangesBuffer: "reads seen itself",
    NewBuffer: "keeps values in NewBuffer._buffers",
    Appends: "keeps values in Appends.calls",
    MakesLayer: "MakesLayer._modules",
    Throws: "draws random numbers",
    ThrowsInPython: "draws random numbers",
    ThrowsInNumpy: "draws random numbers",
    Optional: "more than one input",
    Unpacks: "getitem",
    Shared: "BatchNorm2d (b2)",
    AddsToView: "iadd",
}


def state(module):
    """Everything that tracing might change: tensors' bits, attributes, generators."""
    return (
        {name: tensor.clone() for name, tensor in module.state_dict().items()},
        [dict(vars(part)) for part in module.modules()],
        list(module.calls),
        [part.training for part in module.modules()],
        torch.get_rng_state().tolist(),
        random.getstate(),
        np.random.get_state()[1:3],
    )


@pytest.mark.parametrize("kind", REFUSED, ids=lambda kind: kind.__name__)
def test_what_a_graph_cannot_say_is_refused_and_leaves_no_trace(kind):
    module = kind()
    before = state(module)
    found = fuse(module)
    assert isinstance(found, str) and found.startswith("not fused: ") and REFUSED[kind] in found
    after = state(module)
    assert before[0].keys() == after[0].keys()
    assert all(torch.equal(before[0][name], after[0][name]) for name in before[0])
    assert all(a.keys() == b.keys() for a, b in zip(before[1], after[1]))
    assert all(a[n] is b[n] for a, b in zip(before[1], after[1]) for n in a)
    assert before[2:6] == after[2:6] and np.array_equal(before[6][0], after[6][0])


def test_the_network_itself_is_fused_without_a_trace():
    module = Network()
    before = state(module)
    assert isinstance(fuse(module), Fusion)
    assert before[2:6] == state(module)[2:6]


def test_a_hook_of_the_model_or_of_a_block_is_not_passed_by():
    module = Network()
    handle = module.register_forward_hook(lambda *_: None)
    assert fuse(module) == "not fused: the model has hooks"
    handle.remove()
    block = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    outer = nn.Sequential(block)
    block.register_forward_hook(lambda *_: None)
    assert fuse(outer) == "not fused: 0 has hooks"


def test_a_forward_that_was_replaced_is_not_passed_by():
    module = Network()
    module.forward = lambda x: x
    assert fuse(module) == "not fused: the model's forward was replaced"


class Moded(nn.Module):
    """A part that looks at its own mode."""

    def __init__(self):
        super().__init__()
        self.part = Part()

    def forward(self, x):
        return self.part(x).flatten(1)


class Part(Network):
    def forward(self, x):
        return self.body(self.stem(x)) if self.training else self.stem(x)


def test_a_part_in_another_mode_is_run_in_that_mode():
    torch.manual_seed(0)
    module = Moded()
    plain = copy.deepcopy(module)
    found = fuse(module)
    assert isinstance(found, Fusion)
    x = torch.randn(2, 3, 6, 6)
    for part_trains in (True, False):
        for one in (module, plain):
            one.train()
            one.part.train(part_trains)
        torch.testing.assert_close(found.forward(x), plain(x))


def test_gradients_in_evaluation_are_the_modules_own():
    torch.manual_seed(0)
    module = Network().eval()
    found = fuse(module)
    assert isinstance(found, Fusion)
    x = torch.randn(2, 3, 6, 6)
    grads = [
        torch.autograd.grad(forward(x).square().sum(), list(module.parameters()))
        for forward in (found.forward, module)
    ]
    for ours, theirs in zip(*grads):
        torch.testing.assert_close(ours, theirs)
