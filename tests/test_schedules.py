"""What all schedules share: warm-up, position, end, sequence, picture, and whose learning rate."""

import math
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import renaissance as rn
from renaissance.schedules.schedule import resolve_lr

CLOSE = dict(rel=1e-12, abs=0)

base_lrs = st.floats(1e-6, 10)
totals = st.integers(1, 150)
epochs = st.integers(1, 20)

#: Every pure schedule over [0, T) that does not rise after its warm-up.
FALLING = {
    "constant": lambda base: rn.ConstantLR(base_lr=base),
    "polynomial": lambda base: rn.PolynomialLR(base_lr=base, power=1.7, end_lr=base / 100),
    "cosine": lambda base: rn.CosineAnnealingLR(base_lr=base, eta_min=base / 50),
    "step": lambda base: rn.StepLR(7, 0.5, by="step", base_lr=base),
    "multistep": lambda base: rn.MultiStepLR((3, 50), 0.3, by="step", base_lr=base),
    "exponential": lambda base: rn.ExponentialLR(0.97, by="step", base_lr=base),
    "wsd": lambda base: rn.WSDLR(base_lr=base, decay_start=0.6, end_lr=base / 10),
    "plateau": lambda base: rn.ReduceLROnPlateau(base_lr=base),
}
ALL = FALLING | {
    "restarts": lambda base: rn.CosineAnnealingWithWarmRestartsLR(5, 2, by="step", base_lr=base),
    "lambda": lambda base: rn.LambdaLR(lambda s: 0.9**s, by="step", base_lr=base),
    "then": lambda base: rn.ConstantLR(base_lr=base / 2).then(
        rn.CosineAnnealingLR(base_lr=base, warmup=4, warmup_unit="step"), at=20, unit="step"
    ),
}
falling = pytest.mark.parametrize("name", FALLING)
every = pytest.mark.parametrize("name", ALL)


@falling
@settings(max_examples=20, deadline=None)
@given(base=base_lrs, total=totals, warm=st.integers(0, 80))
def test_warm_up_rises_and_the_curve_falls(name, base, total, warm):
    schedule = FALLING[name](base).warmup(warm, unit="step")
    rates = schedule.simulate(total)
    for step in range(min(warm, total)):
        assert rates[step] == pytest.approx(base * (step + 1) / warm, **CLOSE)
    after = rates[warm:]
    assert all(a >= b for a, b in zip(after, after[1:]))
    assert all(0 < rate <= base * (1 + 1e-15) for rate in rates)


@every
@settings(max_examples=20, deadline=None)
@given(base=base_lrs, total=totals, per_epoch=epochs, warm=st.integers(0, 5))
def test_holds_after_the_end_and_never_rises(name, base, total, per_epoch, warm):
    schedule = ALL[name](base)
    if name != "then":
        schedule = schedule.warmup(warm, unit="epoch")
    last = schedule.lr(total - 1, total, per_epoch)
    held = schedule.lr(total, total, per_epoch)
    assert held <= last
    for beyond in (1, 2, total, 10 * total + 3, 2**40):
        assert schedule.lr(total + beyond, total, per_epoch) == held


@every
@settings(max_examples=15, deadline=None)
@given(base=base_lrs, total=totals, per_epoch=epochs)
def test_is_a_pure_function(name, base, total, per_epoch):
    rates = ALL[name](base).simulate(total, per_epoch)
    assert len(rates) == total
    backwards = [ALL[name](base).lr(s, total, per_epoch) for s in reversed(range(total))]
    assert rates == backwards[::-1]


@pytest.mark.parametrize("name", ["constant", "polynomial", "cosine", "wsd", "plateau"])
@settings(max_examples=20, deadline=None)
@given(total=totals, per_epoch=epochs, warm=st.integers(0, 4))
def test_by_epoch_takes_the_value_of_the_epochs_first_step(name, total, per_epoch, warm):
    fine = FALLING[name](0.1).warmup(warm, unit="epoch")
    coarse = fine.by("epoch")
    for step in range(total):
        first = step - step % per_epoch
        assert coarse.lr(step, total, per_epoch) == fine.lr(first, total, per_epoch)


def test_warm_up_of_zero_is_none():
    plain = rn.CosineAnnealingLR(base_lr=0.1)
    assert plain.warmup(0, unit="epoch").simulate(50, 5) == plain.simulate(50, 5)


def test_the_first_step_is_never_zero_without_a_start():
    schedule = rn.CosineAnnealingLR(base_lr=1e-5)
    assert schedule.warmup(1000, unit="epoch").lr(0, 10**6, 1000) == 1e-5 / 1e6
    assert schedule.warmup(5, unit="epoch").by("epoch").lr(0, 100, 10) == 1e-5 / 50


@settings(max_examples=20, deadline=None)
@given(
    base=base_lrs,
    part=st.floats(0, 1),
    warm=st.integers(1, 50),
    is_factor=st.booleans(),
)
def test_warm_up_from_a_start(base, part, warm, is_factor):
    schedule = rn.ConstantLR(base_lr=base).warmup(warm, unit="step")
    start = base * part
    if is_factor:
        schedule = schedule.warmup_start_factor(part)
    else:
        schedule = schedule.warmup_start_lr(start)
    rates = schedule.simulate(warm + 3)
    assert rates[0] == start
    for step in range(warm):
        expected = start + (base - start) * step / warm
        assert rates[step] == pytest.approx(expected, rel=1e-12, abs=1e-300)
    assert rates[warm:] == [base] * 3


def test_a_warm_up_longer_than_the_training_rises_to_its_end_and_stays():
    schedule = rn.CosineAnnealingLR(base_lr=1.0, warmup=100, warmup_unit="step")
    assert schedule.simulate(10) == [(s + 1) / 100 for s in range(10)]
    assert schedule.lr(10, 10) == schedule.lr(1000, 10) == 0.1


def test_the_step_counts_not_the_size_of_the_rate():
    # ParlAI 4384: "still warming" was tested as lr < 1.
    rates = rn.CosineAnnealingLR(base_lr=1e-5, warmup=2, warmup_unit="step").simulate(10)
    assert rates[2] == 1e-5 and rates[9] < 1e-6


def test_warm_up_in_torch():
    """LinearLR from 1/W for W-1 steps is base*(s+1)/W."""
    warm, total = 8, 20
    weight = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([weight], lr=0.3)
    linear = torch.optim.lr_scheduler.LinearLR(optimizer, 1 / warm, 1.0, warm - 1)
    for rate in rn.ConstantLR(base_lr=0.3, warmup=warm, warmup_unit="step").simulate(total):
        assert rate == pytest.approx(linear.get_last_lr()[0], rel=1e-12)
        optimizer.step()
        linear.step()


def test_then_starts_at_its_own_zero():
    first = rn.PolynomialLR(base_lr=1.0, power=1)
    second = rn.CosineAnnealingLR(base_lr=0.5, warmup=2, warmup_unit="step")
    both = first.then(second, at=10, unit="step")
    rates = both.simulate(30)
    assert rates[:10] == first.simulate(10)
    assert rates[10:] == second.simulate(20)
    assert both.lr(30, 30) == both.lr(99, 30) == 0.0
    assert first.then(second, at=2, unit="epoch").simulate(30, 5) == both.simulate(30)
    assert first.then(second, at=0, unit="step").simulate(30) == second.simulate(30)
    assert first.then(second, at=50, unit="step").simulate(30) == first.simulate(50)[:30]


def test_then_may_be_repeated():
    a, b, c = (rn.ConstantLR(base_lr=x) for x in (1.0, 2.0, 3.0))
    assert a.then(b, at=2, unit="step").then(c, at=4, unit="step").simulate(6) == [
        1.0, 1.0, 2.0, 2.0, 3.0, 3.0,
    ]  # fmt: skip
    assert a.then(b.then(c, at=2, unit="step"), at=2, unit="step").simulate(6)[4] == 3.0


def test_then_needs_its_unit_and_pure_schedules():
    constant = rn.ConstantLR(base_lr=0.1)
    with pytest.raises(TypeError, match="unit"):
        constant.then(constant, at=3)
    with pytest.raises(ValueError, match="unit = 'steps' .* 'step' or 'epoch'"):
        constant.then(constant, at=3, unit="steps")
    with pytest.raises(ValueError, match="at = -1"):
        constant.then(constant, at=-1, unit="step")
    with pytest.raises(ValueError, match="ReduceLROnPlateau.* cannot be part of a sequence"):
        constant.then(rn.ReduceLROnPlateau(base_lr=0.1), at=3, unit="step")
    with pytest.raises(TypeError, match="second = 3"):
        constant.then(3, at=3, unit="step")
    with pytest.raises(ValueError, match="StepLR.* has no by"):
        constant.then(rn.StepLR(3, base_lr=0.1), at=3, unit="step").lr(0, 10)


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: rn.ConstantLR(base_lr=-1.0), "base_lr = -1.0 .* at least 0"),
        (lambda: rn.ConstantLR(base_lr=math.nan), "base_lr = nan .* finite"),
        (lambda: rn.ConstantLR(base_lr=math.inf), "base_lr = inf .* finite"),
        (lambda: rn.ConstantLR().warmup(5), r"warmup = 5 has no unit; write .warmup\(5, unit="),
        (lambda: rn.ConstantLR(warmup=5), "warmup_unit='step'"),
        (lambda: rn.ConstantLR().warmup(-1, unit="step"), "warmup = -1 .* at least 0"),
        (lambda: rn.ConstantLR().warmup(1, unit="batch"), "warmup_unit = 'batch' .* 'step' or"),
        (lambda: rn.ConstantLR().by("batch"), "by = 'batch' .* 'step' or 'epoch'"),
        (
            lambda: rn.ConstantLR(warmup_start_lr=0.1, warmup_start_factor=0.1),
            "warmup_start_lr=0.1 and warmup_start_factor=0.1 are both given",
        ),
        (lambda: rn.ConstantLR(base_lr=0.1, warmup_start_lr=0.2), "0.2 is above base_lr = 0.1"),
        (lambda: rn.ConstantLR(warmup_start_factor=1.5), "at least 0 and at most 1"),
        (lambda: rn.ConstantLR(warmup_start_factor=0.5), "no effect without a warm-up"),
        (lambda: rn.CosineAnnealingLR(base_lr=0.1, eta_min=0.2), "eta_min = 0.2 is above base_lr"),
        (lambda: rn.CosineAnnealingLR(base_lr=0.1).eta_min(0.2), "eta_min = 0.2 is above base_lr"),
        (lambda: rn.PolynomialLR(base_lr=0.1, end_lr=0.2), "end_lr = 0.2 is above base_lr"),
        (lambda: rn.WSDLR(base_lr=0.1, end_lr=0.2), "end_lr = 0.2 is above base_lr"),
        (lambda: rn.ReduceLROnPlateau(base_lr=0.1, min_lr=0.2), "min_lr = 0.2 is above base_lr"),
        (lambda: rn.ConstantLR().lr(0, 10), r"ConstantLR\(\) has no base_lr, which it needs"),
        (lambda: rn.ConstantLR(base_lr=1).lr(-1, 10), "step = -1 .* at least 0"),
        (lambda: rn.ConstantLR(base_lr=1).lr(0, 0), "total_steps = 0 .* at least 1"),
        (lambda: rn.ConstantLR(base_lr=1).lr(0, 1, 0), "steps_per_epoch = 0 .* at least 1"),
        (lambda: rn.ConstantLR(base_lr=1).simulate(0), "total_steps = 0"),
    ],
)  # fmt: skip
def test_wrong_values(make, text):
    with pytest.raises(ValueError, match=text):
        make()


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: rn.ConstantLR(lr=1.0), "no setting 'lr'; did you mean 'base_lr'"),
        (lambda: rn.ConstantLR(base_lr="1e-3"), "base_lr = '1e-3' .* a number"),
        (lambda: rn.ConstantLR().warmup(1.5, unit="step"), "warmup = 1.5 .* a whole number"),
        (lambda: rn.ConstantLR(base_lr=1).lr(1.5, 10), r"step = 1.5 \(float\) is no whole number"),
        (lambda: rn.ConstantLR(base_lr=1).lr(True, 10), r"step = True \(bool\)"),
    ],
)
def test_wrong_types_and_names(make, text):
    with pytest.raises(TypeError, match=text):
        make()


def test_one_place_says_the_learning_rate():
    cosine = rn.CosineAnnealingLR(base_lr=0.1)
    assert resolve_lr(rn.SGD(), cosine) is cosine
    assert resolve_lr(rn.SGD(lr=0.2), None) == rn.ConstantLR(base_lr=0.2)
    assert resolve_lr(rn.SGD(lr=0.1), rn.CosineAnnealingLR()) == cosine
    assert resolve_lr(rn.SGD(lr=0.1), rn.OneCycleLR()) == rn.OneCycleLR(0.1)
    both = rn.ConstantLR().then(rn.OneCycleLR(), at=3, unit="step")
    assert resolve_lr(rn.SGD(lr=0.5), both).simulate(4)[0] == 0.5


@pytest.mark.parametrize(
    "optimizer, schedule, text",
    [
        (rn.SGD(), None, r"SGD.lr is not set and there is no schedule; write SGD\(lr=...\)"),
        (rn.AdamW(), rn.WSDLR(), "neither AdamW.lr nor WSDLR.base_lr is set"),
        (rn.AdamW(), rn.OneCycleLR(), "neither AdamW.lr nor OneCycleLR.max_lr is set"),
        (
            rn.AdamW(lr=0.1),
            rn.WSDLR(base_lr=0.2),
            "two learning rates: AdamW.lr = 0.1 and WSDLR.base_lr = 0.2",
        ),
        (
            rn.SGD(),
            rn.ConstantLR(base_lr=1).then(rn.WSDLR(), at=1, unit="step"),
            "neither SGD.lr nor WSDLR.base_lr",
        ),
        (rn.SGD(lr=0.1), rn.StepLR(3), "StepLR.* has no by"),
        (rn.SGD(lr=0.1), rn.CosineAnnealingLR(eta_min=0.5), "eta_min = 0.5 is above base_lr = 0.1"),
    ],
)
def test_both_or_neither_place_is_an_error(optimizer, schedule, text):
    with pytest.raises(ValueError, match=text):
        resolve_lr(optimizer, schedule)


def test_a_pure_schedule_in_use_has_no_state():
    cosine = rn.CosineAnnealingLR(base_lr=0.1)
    run = cosine.start()
    assert run.monitor is None and run.state_dict() == {} and run.observe(1.0) is False
    assert [run.lr(s, 10) for s in range(10)] == cosine.simulate(10)
    run.load_state_dict({})
    with pytest.raises(ValueError, match="CosineAnnealingLR has no state, received"):
        run.load_state_dict({"best": 1})
    with pytest.raises(ValueError, match="has no base_lr"):
        rn.CosineAnnealingLR().start()


def test_notes_say_what_training_never_reaches():
    cosine = rn.CosineAnnealingLR(base_lr=0.1).warmup(5, unit="epoch")
    assert cosine.notes(51, 10) == []
    assert cosine.notes(50, 10) == ["the warm-up of 50 steps fills the whole training of 50"]
    stairs = rn.StepLR(3, base_lr=0.1, by="epoch")
    assert stairs.notes(31, 10) == []
    assert stairs.notes(30, 10) == ["the first step of the stairs is 30 steps, training 30"]
    several = rn.MultiStepLR((2, 5, 9), base_lr=0.1, by="epoch")
    assert several.notes(91, 10) == []
    assert several.notes(50, 10) == ["milestones [5, 9] lie after the end at step 50"]
    both = cosine.then(stairs, at=4, unit="epoch")
    assert both.notes(40, 10) == [
        "the warm-up of 50 steps fills the whole training of 40",
        "StepLR starts at step 40, after the end at 40",
    ]
    assert cosine.then(stairs, at=6, unit="epoch").notes(91, 10) == []
    assert rn.OneCycleLR(0.1).notes(1) == []


@pytest.mark.parametrize("name", ["cosine", "multistep", "then"])
def test_plot_writes_a_picture(name, tmp_path):
    pytest.importorskip("matplotlib")
    path = ALL[name](0.1).plot(tmp_path / "lr.png")
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and len(data) > 5000


def test_plot_of_one_step_and_of_zero(tmp_path):
    pytest.importorskip("matplotlib")
    path = rn.ConstantLR(base_lr=0).plot(tmp_path / "folder" / "a.png", 1, 1)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_plot_leaves_pyplot_alone(tmp_path):
    pyplot = pytest.importorskip("matplotlib.pyplot")
    before = pyplot.get_fignums()
    rn.ConstantLR(base_lr=0.1).plot(tmp_path / "a.png")
    assert pyplot.get_fignums() == before


def test_plot_without_matplotlib_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'renaissance\[demo\]'"):
        rn.ConstantLR(base_lr=0.1).plot(tmp_path / "a.png")
