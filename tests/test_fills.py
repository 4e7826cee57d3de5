"""Fills: bits whatever the threads, the layout and the number of elements; distributions."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
from torch import nn

import renaissance as rn
from renaissance import _native
from renaissance.fills import Fill, fill
from renaissance.random import INIT, derive


def filled(rule, shape, seed=0, name="w", dtype=torch.float32):
    tensor = torch.full(shape, 7.0, dtype=dtype)
    fill(tensor, rule, seed, name)
    return tensor


DRAWN = {
    "normal": Fill("normal", 0.02, ""),
    "uniform": Fill("uniform", 0.3, ""),
    "trunc_normal": Fill("trunc_normal", 0.02, ""),
}
drawn = pytest.mark.parametrize("rule", DRAWN.values(), ids=DRAWN)


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@drawn
@pytest.mark.timeout(60)
def test_bits_do_not_depend_on_threads(rule, threads):
    found = []
    for count in (1, 2, 7):
        threads(count)
        found.append(filled(rule, (300_001,)))
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


@drawn
def test_an_element_does_not_depend_on_the_number_of_elements(rule):
    long = filled(rule, (5001,))
    for count in (1, 2, 3, 5000):
        assert torch.equal(filled(rule, (count,)), long[:count])


@drawn
def test_bits_do_not_depend_on_memory_layout(rule):
    plain = filled(rule, (4, 3, 5, 6))
    last = torch.empty(4, 3, 5, 6).to(memory_format=torch.channels_last)
    fill(last, rule, 0, "w")
    strided = torch.empty(6, 5, 3, 4).permute(3, 2, 1, 0)
    fill(strided, rule, 0, "w")
    assert last.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(last, plain) and torch.equal(strided, plain)
    assert torch.equal(filled(rule, (360,)).view(4, 3, 5, 6), plain)


@drawn
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_types_hold_the_float32_value(rule, dtype):
    assert torch.equal(filled(rule, (99,), dtype=dtype), filled(rule, (99,)).to(dtype))


@drawn
def test_key_is_seed_and_name(rule):
    base = filled(rule, (1000,))
    assert torch.equal(base, filled(rule, (1000,), seed=0, name="w"))
    others = [filled(rule, (1000,), seed=s, name=n) for s, n in ((1, "w"), (0, "v"), (2**63, "w"))]
    for other in others:
        assert not bool((other == base).any()) or float((other == base).float().mean()) < 0.01
        assert abs(float(torch.corrcoef(torch.stack([base, other]))[0, 1])) < 4 / math.sqrt(1000)


@pytest.mark.parametrize("kind", ["normal", "uniform", "trunc_normal"])
def test_a_value_is_a_draw_of_the_key_times_the_scale(kind):
    key, scale = derive(5, INIT, "a.b"), np.float32(0.37)
    out = np.empty(1001, np.float32)
    draws = {
        "normal": lambda: rn.Generator(key).normal(1001),
        "uniform": lambda: rn.Generator(key).uniform(1001) * np.float32(2) - np.float32(1),
        "trunc_normal": lambda: _native.fill_trunc_normal(out.ctypes.data, 1001, key, 0, 1) or out,
    }
    found = filled(Fill(kind, 0.37, ""), (1001,), seed=5, name="a.b")
    assert np.array_equal(found.numpy(), draws[kind]() * scale)


def test_adding_a_layer_moves_nobody_elses_values():
    def initialised(module):
        for name, rule in rn.Initializer().resolve(module):
            fill(module.get_parameter(name), rule, 3, name)
        return dict(module.named_parameters())

    small = initialised(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)))
    large = initialised(
        nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 2), nn.Linear(2, 9))
    )
    for name in ("0.weight", "2.weight", "2.bias"):
        assert torch.equal(small[name], large[name])
    assert not torch.equal(small["0.weight"].flatten()[:12], small["2.weight"].flatten())


#: First values of seed 42 and name "weight": part of the format of a run, so they never change.
GOLDEN = {
    "normal": [
        -0.029445327818393707,
        -0.026549698784947395,
        0.01341365184634924,
        -0.053255900740623474,
    ],
    "uniform": [
        -0.21589745581150055,
        -0.2861707806587219,
        -0.11603797972202301,
        0.12912902235984802,
    ],
    "trunc_normal": [
        -0.029445327818393707,
        0.01341365184634924,
        0.02214493229985237,
        -0.0004835278377868235,
    ],
}


def test_the_numbers_are_part_of_the_format():
    found = {k: filled(r, (4,), seed=42, name="weight").tolist() for k, r in DRAWN.items()}
    assert found == GOLDEN


# ------------------------------------------------------------------------------ distributions

COUNT = 200_000
REFERENCES = {
    "normal": scipy.stats.norm(scale=0.02),
    "uniform": scipy.stats.uniform(-0.3, 0.6),
    "trunc_normal": scipy.stats.truncnorm(-2, 2, scale=0.02),
}


@pytest.mark.parametrize("kind", DRAWN)
@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_distributions(kind, seed):
    values = filled(DRAWN[kind], (COUNT,), seed=seed).double().numpy()
    reference = REFERENCES[kind]
    mean, variance, kurtosis = reference.stats("mvk")
    assert abs(values.mean() - mean) < 4 * math.sqrt(variance / COUNT)
    spread = variance * math.sqrt((kurtosis + 2) / COUNT)  # of the sample variance
    assert abs(values.var() - variance) < 4 * spread
    assert scipy.stats.kstest(values, reference.cdf).pvalue > 0.01
    lagged = np.corrcoef(values[:-1], values[1:])[0, 1]
    assert abs(lagged) < 4 / math.sqrt(COUNT)


def test_truncated_normals_stay_within_two_deviations_and_reach_them():
    values = filled(DRAWN["trunc_normal"], (COUNT,)).abs()
    assert 0.0399 < float(values.max()) <= float(np.float32(0.02) * 2)


def test_uniform_stays_within_its_bound():
    values = filled(DRAWN["uniform"], (COUNT,))
    assert -0.3 <= float(values.min()) < -0.2999 and 0.2999 < float(values.max()) < 0.3001
