"""Every curve against its closed form in NumPy and against torch where the equations agree."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim import lr_scheduler

import renaissance as rn

TOTALS = st.integers(1, 200)
WARM = st.integers(0, 60)
EPOCHS = st.integers(1, 25)


def close(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-300)


def part(total, warm):
    """p of every step after the warm-up."""
    steps = np.arange(warm, total, dtype=np.float64)
    return (steps - warm) / max(total - warm, 1)


@settings(max_examples=30, deadline=None)
@given(total=TOTALS, warm=WARM, base=st.floats(1e-5, 10), low=st.floats(0, 1))
def test_cosine(total, warm, base, low):
    found = rn.CosineAnnealingLR(base_lr=base, eta_min=base * low, warmup=warm, warmup_unit="step")
    expected = base * low + (base - base * low) * (1 + np.cos(np.pi * part(total, warm))) / 2
    close(found.simulate(total)[warm:], expected)
    if warm < total:
        assert found.lr(total, total) == pytest.approx(base * low, rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(total=TOTALS, warm=WARM, power=st.floats(0.1, 5), low=st.floats(0, 1))
def test_polynomial(total, warm, power, low):
    found = rn.PolynomialLR(base_lr=2.0, power=power, end_lr=2 * low).warmup(warm, unit="step")
    expected = 2 * low + (2 - 2 * low) * (1 - part(total, warm)) ** power
    close(found.simulate(total)[warm:], expected)


@settings(max_examples=30, deadline=None)
@given(total=TOTALS, warm=WARM, turn=st.floats(0, 1), low=st.floats(0, 1))
def test_wsd(total, warm, turn, low):
    found = rn.WSDLR(base_lr=2.0, decay_start=turn, end_lr=2 * low, warmup=warm, warmup_unit="step")
    for p, rate in zip(part(total, warm), found.simulate(total)[warm:]):
        line = 2.0 if p <= turn else 2 * low + (2 - 2 * low) * (1 - p) / (1 - turn)
        assert rate == pytest.approx(line, rel=1e-12, abs=1e-300)


@settings(max_examples=30, deadline=None)
@given(total=TOTALS, per_epoch=EPOCHS, size=st.integers(1, 30), is_epoch=st.booleans())
def test_step(total, per_epoch, size, is_epoch):
    unit = per_epoch if is_epoch else 1
    found = rn.StepLR(size, 0.3, base_lr=2.0, by="epoch" if is_epoch else "step")
    expected = 2.0 * 0.3 ** (np.arange(total) // unit // size)
    close(found.simulate(total, per_epoch), expected)


@settings(max_examples=30, deadline=None)
@given(
    total=TOTALS,
    per_epoch=EPOCHS,
    milestones=st.sets(st.integers(1, 100), min_size=1, max_size=5).map(sorted),
    is_epoch=st.booleans(),
)
def test_multistep(total, per_epoch, milestones, is_epoch):
    unit = per_epoch if is_epoch else 1
    found = rn.MultiStepLR(milestones, 0.3, base_lr=2.0, by="epoch" if is_epoch else "step")
    position = np.arange(total) // unit
    passed = sum((position >= m).astype(int) for m in milestones)
    close(found.simulate(total, per_epoch), 2.0 * 0.3**passed)


@settings(max_examples=30, deadline=None)
@given(total=TOTALS, per_epoch=EPOCHS, gamma=st.floats(0.5, 1.0), is_epoch=st.booleans())
def test_exponential(total, per_epoch, gamma, is_epoch):
    unit = per_epoch if is_epoch else 1
    found = rn.ExponentialLR(gamma, base_lr=2.0, by="epoch" if is_epoch else "step")
    close(found.simulate(total, per_epoch), 2.0 * gamma ** (np.arange(total) // unit))


@settings(max_examples=30, deadline=None)
@given(
    total=TOTALS,
    warm=st.integers(0, 4),
    per_epoch=EPOCHS,
    first=st.integers(1, 9),
    mult=st.integers(1, 3),
    is_epoch=st.booleans(),
)
def test_restarts(total, warm, per_epoch, first, mult, is_epoch):
    found = rn.CosineAnnealingWithWarmRestartsLR(
        first, mult, base_lr=2.0, eta_min=0.1, by="epoch" if is_epoch else "step"
    ).warmup(warm, unit="epoch")
    unit = per_epoch if is_epoch else 1
    rates = found.simulate(total, per_epoch)
    lengths = [first * unit * mult**i for i in range(400)] if mult == 1 else None
    lengths = lengths or [first * unit * mult**i for i in range(12)]
    starts = np.cumsum([0, *lengths])
    for step in range(warm * per_epoch, total):
        place = (step - step % per_epoch if is_epoch else step) - warm * per_epoch
        cycle = int(np.searchsorted(starts, place, side="right")) - 1
        p = (place - starts[cycle]) / lengths[cycle]
        assert rates[step] == pytest.approx(0.1 + 1.9 * (1 + math.cos(math.pi * p)) / 2, rel=1e-12)


def test_restarts_do_not_jump_at_the_end():
    schedule = rn.CosineAnnealingWithWarmRestartsLR(5, by="step", base_lr=1.0)
    assert schedule.lr(5, 6) == 1.0  # a restart within the training
    assert schedule.lr(5, 5) == schedule.lr(4, 5) < 0.1  # none at its end


def torch_rates(make, steps, base=0.4):
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=base)
    scheduler = make(optimizer)
    rates = []
    for _ in range(steps):
        rates.append(scheduler.get_last_lr()[0])
        optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize(
    "ours, theirs, steps",
    [
        (
            rn.CosineAnnealingLR(base_lr=0.4, eta_min=0.01),
            lambda o: lr_scheduler.CosineAnnealingLR(o, 100, eta_min=0.01),
            100,
        ),
        (rn.PolynomialLR(base_lr=0.4), lambda o: lr_scheduler.PolynomialLR(o, 100, 2.0), 100),
        (rn.StepLR(30, base_lr=0.4, by="step"), lambda o: lr_scheduler.StepLR(o, 30), 100),
        (
            rn.MultiStepLR((30, 60), 0.2, base_lr=0.4, by="step"),
            lambda o: lr_scheduler.MultiStepLR(o, [30, 60], 0.2),
            100,
        ),
        (
            rn.ExponentialLR(0.95, base_lr=0.4, by="step"),
            lambda o: lr_scheduler.ExponentialLR(o, 0.95),
            100,
        ),
        (
            rn.CosineAnnealingWithWarmRestartsLR(7, 2, base_lr=0.4, eta_min=0.01, by="step"),
            lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 7, 2, 0.01),
            100,
        ),
        (
            rn.OneCycleLR(0.4),
            lambda o: lr_scheduler.OneCycleLR(o, 0.4, total_steps=101, cycle_momentum=False),
            101,
        ),
        (
            rn.OneCycleLR(0.4, pct_start=0.11, div=7, final_div=50),
            lambda o: lr_scheduler.OneCycleLR(
                o, 0.4, total_steps=101, pct_start=0.11, div_factor=7, final_div_factor=50,
                cycle_momentum=False,
            ),
            101,
        ),
    ],
    ids=lambda v: type(v).__name__ if hasattr(v, "settings") else "",
)  # fmt: skip
def test_agrees_with_torch(ours, theirs, steps):
    # torch's recursive forms gather a rounding a step: 1e-12 is 100 of them.
    expected = torch_rates(theirs, steps - 1)
    np.testing.assert_allclose(ours.simulate(steps)[: steps - 1], expected, rtol=1e-12, atol=1e-15)


@settings(max_examples=40, deadline=None)
@given(total=TOTALS, turn=st.floats(0, 1), per_epoch=EPOCHS)
def test_one_cycle_rises_then_falls_between_its_three_values(total, turn, per_epoch):
    schedule = rn.OneCycleLR(1.0, pct_start=turn, div=10, final_div=100)
    rates = schedule.simulate(total)
    top = rates.index(max(rates))
    assert rates[: top + 1] == sorted(rates[: top + 1])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert max(rates) <= 1.0
    if turn < 1:
        assert rates[-1] == pytest.approx(1 / 1000, rel=1e-12)
        assert schedule.lr(total + 5, total) == pytest.approx(1 / 1000, rel=1e-12)
    coarse = schedule.by("epoch").simulate(total, per_epoch)
    assert coarse == [rates[s - s % per_epoch] for s in range(total)]


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: rn.StepLR(0), "step_size = 0 .* at least 1"),
        (lambda: rn.StepLR(3, 0.0), "gamma = 0.0 .* above 0"),
        (lambda: rn.StepLR(base_lr=1, by="step").lr(0, 9), "has no step_size, which it needs"),
        (lambda: rn.StepLR(3, base_lr=1).lr(0, 9), "has no by, which it needs: What step_size"),
        (lambda: rn.MultiStepLR((1,), base_lr=1).lr(0, 9), "has no by"),
        (lambda: rn.ExponentialLR(0.9, base_lr=1).lr(0, 9), "has no by"),
        (lambda: rn.CosineAnnealingWithWarmRestartsLR(9, base_lr=1).lr(0, 9), "has no by"),
        (lambda: rn.MultiStepLR((60, 30)), r"milestones = \(60, 30\) .* rise, as in \(30, 60\)"),
        (lambda: rn.MultiStepLR((30, 30)), "must be at least 1 and rise"),
        (lambda: rn.MultiStepLR((0, 30)), "must be at least 1 and rise"),
        (lambda: rn.MultiStepLR(()), "milestones = .* at least 1 items"),
        (lambda: rn.ExponentialLR(-0.9), "gamma = -0.9 .* above 0"),
        (lambda: rn.PolynomialLR(power=0), "power = 0 .* above 0"),
        (lambda: rn.WSDLR(decay_start=1.1), "decay_start = 1.1 .* at least 0 and at most 1"),
        (lambda: rn.CosineAnnealingWithWarmRestartsLR(0), "t_0 = 0 .* at least 1"),
        (lambda: rn.CosineAnnealingWithWarmRestartsLR(3, 0), "t_mult = 0 .* at least 1"),
        (lambda: rn.OneCycleLR(-1.0), "max_lr = -1.0 .* at least 0"),
        (lambda: rn.OneCycleLR(1.0, div=0.5), "div = 0.5 .* at least 1"),
        (lambda: rn.OneCycleLR(1.0, pct_start=2.0), "pct_start = 2.0"),
    ],
)
def test_wrong_values(make, text):
    with pytest.raises(ValueError, match=text):
        make()


def test_milestones_of_the_wrong_type():
    with pytest.raises(TypeError, match=r"milestones\[1\] = 2.5 \(float\) .* a whole number"):
        rn.MultiStepLR((1, 2.5))
    assert rn.MultiStepLR([3, 5]) == rn.MultiStepLR((3, 5))
