"""The scalar step: decisions of a window, counters, loss scale; all of pitfalls that live in S."""

import math

import numpy as np
import pytest
import reference
import torch

from renaissance import _native
from renaissance.update.scalars import RECORD, STATE, Scalars

RECIPE = {
    "nominal": 8.0,
    "loss_scale": 1.0,
    "beta1": 0.9,
    "beta2": 0.999,
    "eps": 1e-8,
    "growth": 2.0,
    "backoff": 0.5,
    "growth_interval": 2000,
    "min_scale": 1.0,
    "max_scale": 2.0**24,
    "factor": [1.0] * 16,
}


@pytest.fixture
def scalars():
    made = Scalars(torch.zeros(_native.SCALARS_BYTES, dtype=torch.uint8))
    made.write(**RECIPE)
    return made


def step(scalars, partials=(4.0,), weight=8.0):
    """One window of one micro-step."""
    given = np.array(partials, np.float32)
    loss_weight = np.array([weight], np.float32)
    _native.count_micro_step(scalars.address, True, loss_weight.ctypes.data)
    _native.step_scalars(scalars.address, given.ctypes.data, given.size)


def test_layout_covers_the_struct_without_overlap():
    taken = sorted(
        (offset, offset + count * int(kind[1:]), name)
        for name, (offset, kind, count) in _native.scalars_layout().items()
    )
    assert taken[0][0] == 0 and taken[-1][1] == _native.SCALARS_BYTES <= 4096
    for (_, end, name), (begin, _, after) in zip(taken, taken[1:]):
        assert 0 <= begin - end < 8, (name, after)  # only padding before a double
    assert RECORD.itemsize == _native.SCALARS_BYTES


def test_read_write_view(scalars):
    scalars.write(lr=0.25, applied=2**40, decay=[0.1] * 16)
    assert scalars["lr"] == 0.25 and scalars["applied"] == 2**40 and scalars["decay"] == [0.1] * 16
    assert scalars.view("lr").dtype == torch.float64 and scalars.view("lr").item() == 0.25
    scalars.view("lr").fill_(0.5)
    assert scalars["lr"] == 0.5
    with pytest.raises(ValueError, match="needs"):
        Scalars(torch.zeros(8, dtype=torch.uint8))


def test_floats_are_rounded_once_from_double(scalars):
    scalars.write(lr=1e-3, decay=[0.0, 0.3] + [0.0] * 14, beta1=0.9, beta2=0.999)
    step(scalars)
    found = scalars.read()
    assert found["row_lr"][0, 0] == np.float32(1e-3)
    assert found["row_lr_decay"][0, 1] == np.float32(1e-3 * 0.3)
    assert found["one_minus_b2"][0] == np.float32(1 - 0.999) != np.float32(1) - np.float32(0.999)
    assert found["bc1"][0] == np.float32(1 / (1 - 0.9)) and found["bc2"][0] == np.float32(
        1 / (1 - 0.999)
    )


@pytest.mark.parametrize("applied", [0, 1, 9, 1000, 2**24 - 1, 2**24, 2**24 + 1, 2**40])
def test_step_is_an_integer_beyond_2_to_24(scalars, applied):
    scalars.write(applied=applied, beta2=1 - 1e-8)
    step(scalars)
    assert scalars["applied"] == applied + 1
    expected = -1 / math.expm1((applied + 1) * math.log1p(-1e-8))
    assert scalars["bc2"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_non_finite_partial_skips(scalars, bad):
    step(scalars, (1.0, 2.0, bad, bad))
    assert scalars["has_nan"] == 1 and scalars["bad_chunk"] == 2
    assert (scalars["attempted"], scalars["applied"], scalars["skipped"]) == (1, 0, 1)
    step(scalars)
    assert scalars["has_nan"] == 0 and scalars["bad_chunk"] == -1 and scalars["applied"] == 1


def test_a_norm_beyond_float32_skips(scalars):
    scalars.write(nominal=1e30)
    step(scalars, (1e38,), weight=1.0)  # |G| = 1e19, |g| = 1e49
    assert scalars["has_nan"] == 1 and scalars["bad_chunk"] == -1


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -float("inf")])
def test_a_loss_weight_that_is_not_finite_skips(scalars, weight):
    step(scalars, weight=weight)
    assert scalars["has_nan"] == 1


def test_a_window_without_counted_loss_has_gradient_zero(scalars):
    step(scalars, (0.0,), weight=0.0)
    assert scalars["has_nan"] == 0 and scalars["unscale"] == 0.0 and scalars["norm"] == 0.0


def test_window_weights_by_samples(scalars):
    # Three micro-steps of 2, 2 and 1 samples; G holds sum / nominal.
    for i, weight in enumerate((2.0, 2.0, 1.0)):
        held = np.array([weight], np.float32)
        _native.count_micro_step(scalars.address, i == 0, held.ctypes.data)
    partials = np.array([1.0], np.float32)
    _native.step_scalars(scalars.address, partials.ctypes.data, 1)
    assert scalars["weight"] == 5.0 and scalars["unscale"] == np.float32(8 / 5)
    assert (scalars["window"], scalars["batches"], scalars["micro"]) == (3, 3, 3)
    assert scalars["seed_scale"] == 1 / 8


@pytest.mark.parametrize("squares, max_norm", [(16.0, 1.0), (16.0, 4.0), (16.0, 5.0), (0.0, 1.0)])
def test_clip_factor(scalars, squares, max_norm):
    scalars.write(max_norm=max_norm)
    step(scalars, (squares,))
    assert scalars["clip"] == np.float32(reference.clip_factor(math.sqrt(squares), max_norm))
    assert scalars["norm"] == math.sqrt(squares)


def test_norm_is_of_unscaled_gradients(scalars):
    scalars.write(loss_scale=65536.0, max_norm=1.0)
    step(scalars, ((3 * 65536.0) ** 2, (4 * 65536.0) ** 2))
    assert scalars["norm"] == 5.0 and scalars["clip"] == np.float32(0.2)


def loss_scale_reference(events, *, scale, interval, low=1.0, high=2.0**24):
    good = 0
    for is_good in events:
        good = good + 1 if is_good else 0
        if not is_good:
            scale = max(low, scale * 0.5)
        elif good == interval:
            scale, good = min(high, scale * 2), 0
        yield scale, good


def test_loss_scale_trajectory(scalars):
    scalars.write(is_scaling=1, loss_scale=65536.0, growth_interval=3)
    events = np.random.default_rng(0).random(500) < 0.8
    for is_good, expected in zip(
        events, loss_scale_reference(events, scale=65536.0, interval=3), strict=True
    ):
        step(scalars, (1.0 if is_good else float("inf"),))
        assert (scalars["loss_scale"], scalars["good"]) == expected
        assert scalars["seed_scale"] == np.float32(expected[0] / 8)


def test_loss_scale_has_a_floor_and_a_ceiling(scalars):
    scalars.write(is_scaling=1, loss_scale=4.0, growth_interval=1)
    for _ in range(5):
        step(scalars, (float("inf"),))
    assert scalars["loss_scale"] == 1.0
    for _ in range(40):
        step(scalars)
    assert scalars["loss_scale"] == 2.0**24


def test_loss_scale_stays_without_scaling(scalars):
    step(scalars, (float("nan"),))
    assert scalars["loss_scale"] == 1.0


def test_the_run_stops_after_consecutive_skips_and_stays_stopped(scalars):
    scalars.write(max_skipped=3)
    for bad in (True, True, False, True, True):
        step(scalars, (float("nan") if bad else 1.0,))
    assert scalars["stop"] == 0 and scalars["bad"] == 2
    step(scalars, (float("nan"),))
    assert scalars["stop"] == 1
    before = scalars.state()
    step(scalars)  # good, but the run has stopped
    assert scalars.state() == before and scalars["has_nan"] == 1


@pytest.mark.parametrize("warmup", [0, 1])
def test_average_rate(scalars, warmup):
    scalars.write(ema_decay=0.99, ema_warmup=warmup)
    for t in range(1, 1200):
        step(scalars)
        assert scalars["ema_rate"] == np.float32(reference.ema_rate(t, 0.99, warmup))


def test_state_round_trip(scalars):
    for _ in range(3):
        step(scalars)
    state = scalars.state()
    assert set(state) == set(STATE)
    other = Scalars(torch.zeros(_native.SCALARS_BYTES, dtype=torch.uint8))
    other.write(**RECIPE)
    other.load_state(state)
    assert other.state() == state
    with pytest.raises(ValueError, match="all of them"):
        other.load_state({"applied": 1})
