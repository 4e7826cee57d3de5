"""ReduceLROnPlateau against torch's, its state, and what it refuses."""

import json
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import renaissance as rn


@settings(max_examples=50, deadline=None)
@given(
    values=st.lists(st.floats(0.01, 10), min_size=1, max_size=60),
    patience=st.integers(0, 4),
    cooldown=st.integers(0, 3),
    threshold=st.floats(0, 0.5),
    is_max=st.booleans(),
    low=st.sampled_from([0.0, 1e-3]),
)
def test_agrees_with_torch(values, patience, cooldown, threshold, is_max, low):
    run = rn.ReduceLROnPlateau(
        base_lr=0.4, factor=0.3, patience=patience, cooldown=cooldown, threshold=threshold,
        min_lr=low, mode="max" if is_max else "min",
    ).start()  # fmt: skip
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.4)
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(
        optimizer, "max" if is_max else "min", 0.3, patience, threshold, "rel", cooldown, low, eps=0
    )
    for value in values:
        before = run.lr(0, 10)
        lowered = run.observe(value)
        theirs.step(value)
        assert run.lr(0, 10) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)
        assert lowered == (run.lr(0, 10) < before)


@settings(max_examples=40, deadline=None)
@given(values=st.lists(st.floats(0.01, 10), min_size=2, max_size=40), cut=st.integers(0, 40))
def test_a_resumed_state_goes_on_as_if_never_stopped(values, cut):
    schedule = rn.ReduceLROnPlateau(base_lr=0.4, patience=1, cooldown=1)
    whole, first, second = schedule.start(), schedule.start(), schedule.start()
    for value in values[:cut]:
        first.observe(value)
    second.load_state_dict(json.loads(json.dumps(first.state_dict(), allow_nan=False)))
    for value in values:
        whole.observe(value)
    for value in values[cut:]:
        second.observe(value)
    assert second.state_dict() == whole.state_dict()


def test_the_description_has_no_state():
    schedule = rn.ReduceLROnPlateau(base_lr=0.4, patience=0)
    one, other = schedule.start(), schedule.start()
    one.observe(1.0)
    assert one.observe(1.0) is True and one.reductions == 1
    assert other.reductions == 0 and other.lr(0, 10) == 0.4 == schedule.lr(0, 10)
    assert one.monitor == "val_loss" and schedule.is_stateful and not rn.ConstantLR.is_stateful


def test_warm_up_and_least_learning_rate():
    schedule = rn.ReduceLROnPlateau(base_lr=0.4, patience=0, factor=0.5, min_lr=0.15)
    run = schedule.warmup(4, unit="step").start()
    assert [run.lr(s, 10) for s in range(5)] == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4])
    assert [run.observe(1.0) for _ in range(5)] == [False, True, True, False, False]
    assert run.lr(9, 10) == 0.15 and run.reductions == 2
    assert run.lr(0, 10) == 0.1  # the floor does not lift a warm-up


@pytest.mark.parametrize(
    "monitor, mode, value",
    [
        ("val_loss", "auto", math.nan),
        ("val_loss", "auto", -math.inf),
        ("val_accuracy", "auto", math.inf),
        ("score", "max", math.inf),
    ],
)
def test_what_cannot_be_compared_is_an_error(monitor, mode, value):
    run = rn.ReduceLROnPlateau(base_lr=0.4, monitor=monitor, mode=mode, patience=0).start()
    run.observe(1.0)
    before = run.state_dict()
    with pytest.raises(ValueError, match=f"{monitor} is {value}, which cannot be compared"):
        run.observe(value)
    assert run.state_dict() == before


def test_the_worst_value_counts_as_no_progress():
    run = rn.ReduceLROnPlateau(base_lr=0.4, patience=1).start()
    assert [run.observe(math.inf) for _ in range(2)] == [False, True]
    assert run.best is None
    json.dumps(run.state_dict(), allow_nan=False)
    assert run.observe(3.0) is False and run.best == 3.0


def test_a_negative_best_value_needs_progress_too():
    run = rn.ReduceLROnPlateau(base_lr=0.4, patience=0, threshold=0.1).start()
    assert [run.observe(x) for x in (-1.0, -1.05, -1.2)] == [False, True, False]


def test_a_foreign_state_is_refused():
    run = rn.ReduceLROnPlateau(base_lr=0.4).start()
    with pytest.raises(ValueError, match="has .*'best'.* received \\[\\]"):
        run.load_state_dict({})


@pytest.mark.parametrize(
    "given, text",
    [
        ({"factor": 1.0}, "factor = 1.0 .* above 0 and below 1"),
        ({"factor": 0.0}, "factor = 0.0"),
        ({"patience": -1}, "patience = -1 .* at least 0"),
        ({"threshold": -1.0}, "threshold = -1.0"),
        ({"cooldown": -1}, "cooldown = -1"),
        ({"monitor": ""}, "monitor = ''"),
        ({"mode": "least"}, "mode = 'least' .* 'auto', 'min' or 'max'"),
    ],
)
def test_wrong_values(given, text):
    with pytest.raises(ValueError, match=text):
        rn.ReduceLROnPlateau(**given)


@pytest.mark.parametrize(
    "monitor, mode, falls",
    [
        ("val_loss", "auto", True),
        ("val_mae", "auto", True),
        ("val_accuracy", "auto", False),
        ("val_top5_accuracy", "auto", False),
        ("val_auc", "auto", False),
        ("f1", "auto", False),
        ("val_auc", "min", True),
        ("val_thing", "max", False),
    ],
)
def test_the_direction_is_that_of_the_name(monitor, mode, falls):
    run = rn.ReduceLROnPlateau(base_lr=0.4, monitor=monitor, mode=mode, patience=0).start()
    found = [run.observe(value) for value in (0.5, 0.6, 0.7)]
    assert found == [False, falls, falls]


def test_a_name_that_tells_no_direction_needs_a_mode():
    given = rn.ReduceLROnPlateau(base_lr=0.4).monitor("val_thing")
    for use in (given.start, given.ready, lambda: given.lr(0, 10)):
        with pytest.raises(ValueError, match="ReduceLROnPlateau: mode = 'auto' does not know wh"):
            use()
    assert given.mode("max").lr(0, 10) == 0.4
