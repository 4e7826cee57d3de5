"""Sums of squares in their one order, and the gradients that lead to them."""

import itertools

import numpy as np
import pytest
import reference
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rig import Rig, same_bits
from torch import nn

from renaissance import _native
from renaissance.ema import Clip
from renaissance.optim import LARS, SGD
from renaissance.update.range_tables import walk


def tree(x):
    """The chunk tree of norms.h, step by step in NumPy."""
    partials = []
    for begin in range(0, x.size, 4096):
        lane = np.zeros(256, np.float32)
        for base in range(begin, min(begin + 4096, x.size), 256):
            part = x[base : min(base + 256, begin + 4096, x.size)]
            lane[: part.size] = lane[: part.size] + part * part
        half = 128
        while half:
            lane[:half] = lane[:half] + lane[half : 2 * half]
            half //= 2
        partials.append(lane[0])
    return np.array(partials, np.float32)


def fold(partials):
    lane = np.zeros(256, np.float64)
    for base in range(0, partials.size, 256):
        part = partials[base : base + 256].astype(np.float64)
        lane[: part.size] = lane[: part.size] + part
    half = 128
    while half:
        lane[:half] = lane[:half] + lane[half : 2 * half]
        half //= 2
    return lane[0]


@pytest.mark.parametrize("count", [1, 255, 256, 257, 4095, 4096, 4097, 50_001, 2_000_001])
def test_partials_and_norm_follow_the_tree(count):
    rig = Rig(SGD(), lambda: nn.Linear(count, 1, bias=False), threads=2)
    grads = rig.grads(0)
    rig.step(grads, 0.0)
    x = grads["weight"].numpy().reshape(-1)
    expected = tree(x)
    assert rig.updater.tables.partials.numpy().tobytes() == expected.tobytes()
    assert rig.scalars["norm"] == np.sqrt(fold(expected))
    assert rig.scalars["norm"] == pytest.approx(reference.norm(x), rel=1e-6)
    rig.updater.tables.partials.zero_()
    rig.updater.check()
    assert rig.updater.tables.partials.numpy().tobytes() == expected.tobytes()


def test_fold_of_more_partials_than_lanes():
    partials = np.random.default_rng(0).random(1000).astype(np.float32)
    assert _native.fold_partials(partials.ctypes.data, partials.size) == fold(partials)
    assert _native.fold_partials(partials.ctypes.data, 0) == 0.0


@pytest.mark.timeout(60)
@pytest.mark.parametrize("threads", [2, 7])
def test_norms_do_not_depend_on_threads(threads):
    first = Rig(SGD(), lambda: nn.Linear(300, 301), threads=1)
    other = Rig(SGD(), lambda: nn.Linear(300, 301), threads=threads)
    for rig in (first, other):
        rig.step(rig.grads(0), 0.1)
    assert same_bits(first.updater.tables.partials, other.updater.tables.partials)


@pytest.mark.parametrize("which", ["w", "g", "both"])
def test_zero_norms_give_a_trust_ratio_of_one(which):
    rig = Rig(LARS(momentum=0.0, weight_decay=0.5), lambda: nn.Linear(5, 3, bias=False))
    if which != "g":
        rig.memory.region("W").zero_()
    before, grads = rig.tensors("W")["weight"], rig.grads(0)
    if which != "w":
        grads["weight"].zero_()
    rig.step(grads, 0.1)
    assert rig.memory.region("N")[0] == 1.0
    expected = before - 0.1 * (grads["weight"] + 0.5 * before)
    torch.testing.assert_close(rig.tensors("W")["weight"], expected)


def test_trust_ratios_are_per_tensor():
    rig = Rig(
        LARS(weight_decay=0.01, trust_coefficient=0.02),
        lambda: nn.Sequential(nn.Linear(70, 80, bias=False), nn.Linear(80, 90, bias=False)),
    )
    rig.memory.view("W", "0.weight").mul_(1000.0)
    weights, grads = rig.tensors("W"), rig.grads(0)
    rig.step(grads, 0.1)
    for slot, name in enumerate(rig.names):
        w, g = weights[name].double().numpy(), grads[name].double().numpy()
        eta = reference.trust_ratio(w, g, trust_coefficient=0.02, weight_decay=0.01, eps=1e-8)
        assert float(rig.memory.region("N")[slot]) == pytest.approx(eta, rel=1e-6)


def test_trust_ratio_sees_clipped_gradients_and_is_at_most_100():
    rig = Rig(
        LARS(trust_coefficient=1.0), lambda: nn.Linear(6, 5, bias=False), clip=Clip(norm=1e-6)
    )
    rig.step(rig.grads(0), 0.1)
    assert float(rig.memory.region("N")[0]) == 100.0


def test_clip_by_value_is_after_unscaling():
    rig = Rig(SGD(), lambda: nn.Linear(6, 5, bias=False), clip=Clip(value=0.25), nominal=4.0)
    before, grads = rig.tensors("W")["weight"], rig.grads(0)
    rig.step(grads, 1.0, torch.tensor(2.0))  # half a window: gradients count twice
    expected = before - (2 * grads["weight"]).clamp(-0.25, 0.25)
    torch.testing.assert_close(rig.tensors("W")["weight"], expected)


def test_clip_by_norm_is_exact_below_the_limit():
    plain, clipped = Rig(SGD()), Rig(SGD(), clip=Clip(norm=1e6))
    for rig in (plain, clipped):
        rig.step(rig.grads(0), 0.1)
    assert same_bits(plain.memory.region("W"), clipped.memory.region("W"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last", "transposed", "expanded"])
def test_gather_takes_any_strides(dtype, layout):
    rig = Rig(SGD(), lambda: nn.Conv2d(7, 5, 3, bias=False))
    grad = rig.grads(0)["weight"].to(dtype)
    if layout == "channels_last":
        grad = grad.contiguous(memory_format=torch.channels_last)
    elif layout == "transposed":
        grad = grad.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0)
    elif layout == "expanded":
        grad = grad[:, :, :1, :1].expand(5, 7, 3, 3)
    rig.updater.gather([grad])
    assert torch.equal(rig.memory.view("G", "weight"), grad.float())
    rig.updater.gather([grad], accumulate=True)
    assert torch.equal(rig.memory.view("G", "weight"), grad.float() + grad.float())
    rig.updater.gather([None])
    assert not rig.memory.region("G").any()


def test_gather_refuses_what_does_not_fit():
    rig = Rig(SGD(), lambda: nn.Linear(6, 5))
    grads = [rig.grads(0)[name] for name in rig.names]
    with pytest.raises(ValueError, match="received 1 gradients; the plan trains 2"):
        rig.updater.gather(grads[:1])
    with pytest.raises(ValueError, match=r"is \(6, 5\).*the plan has \(5, 6\)"):
        rig.updater.gather([grads[0], grads[1].t()])
    with pytest.raises(ValueError, match="float64; it may be"):
        rig.updater.gather([grads[0].double(), grads[1]])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=0, max_size=5),
    st.randoms(use_true_random=False),
    st.data(),
)
def test_walk_visits_the_source_in_stored_order(shape, random, data):
    def strides_in(order):
        steps, step = [0] * len(shape), 1
        for axis in reversed(order):
            steps[axis] = step
            step *= shape[axis]
        return steps

    axes = list(range(len(shape)))
    stored = strides_in(random.sample(axes, len(axes)))
    source = strides_in(random.sample(axes, len(axes)))
    if axes:
        source[data.draw(st.sampled_from(axes))] = 0  # an expanded dimension
    sizes, strides = walk(shape, stored, source)
    expected = {}
    for index in itertools.product(*map(range, shape)):
        place = sum(i * s for i, s in zip(index, stored))
        expected[place] = sum(i * s for i, s in zip(index, source))
    walked = [
        sum(i * s for i, s in zip(ix, strides)) for ix in itertools.product(*map(range, sizes))
    ]
    assert walked == [expected[place] for place in range(len(expected))]
