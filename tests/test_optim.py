"""Optimizers as descriptions; their arithmetic is tested with the updates."""

import numpy as np
import pytest

import renaissance as rn
from renaissance.optim import Optimizer


@pytest.mark.parametrize(
    "optimizer, kernel, moments, is_decoupled",
    [
        (rn.SGD(), "sgd", 0, True),
        (rn.SGD(l2=0.1), "sgd", 0, False),
        (rn.SGD(momentum=0.9), "momentum", 1, True),
        (rn.SGD(momentum=0.9, nesterov=True), "nesterov", 1, True),
        (rn.Adam(), "adam", 2, False),
        (rn.AdamW(), "adamw", 2, True),
        (rn.LARS(), "lars", 1, False),
        (rn.LARS(nesterov=True), "lars_nesterov", 1, False),
    ],
)
def test_kernel_and_moments(optimizer, kernel, moments, is_decoupled):
    assert optimizer.kernel == kernel
    assert optimizer.moments == moments
    assert optimizer.has_decoupled_decay is is_decoupled


def test_defaults():
    assert rn.SGD().to_dict(defaults=True) == {
        "momentum": 0.0,
        "nesterov": False,
        "weight_decay": 0.0,
        "l2": 0.0,
        "lr": None,
        "lr_scales": [],
    }
    adam = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "lr": None, "lr_scales": []}
    assert rn.Adam().to_dict(defaults=True) == {**adam, "weight_decay": 0.0}
    assert rn.AdamW().to_dict(defaults=True) == {**adam, "weight_decay": 0.01}
    assert rn.LARS().to_dict(defaults=True) == {
        "momentum": 0.9,
        "nesterov": False,
        "weight_decay": 0.0,
        "trust_coefficient": 1e-3,
        "eps": 1e-8,
        "lr": None,
        "lr_scales": [],
    }


@pytest.mark.parametrize("cls", [rn.SGD, rn.Adam, rn.AdamW, rn.LARS])
@pytest.mark.parametrize(
    "name, wrong, error",
    [
        ("lr", -0.1, ValueError),
        ("lr", float("nan"), ValueError),
        ("lr", float("inf"), ValueError),
        ("lr", "0.1", TypeError),
        ("lr", True, TypeError),
        ("weight_decay", -1.0, ValueError),
        ("weight_decay", float("nan"), ValueError),
        ("weight_decay", [0.1], TypeError),
    ],
)
def test_wrong_values(cls, name, wrong, error):
    with pytest.raises(error, match=rf"{cls.__name__}: {name} = "):
        cls(**{name: wrong})


@pytest.mark.parametrize(
    "cls, given",
    [
        (rn.SGD, {"momentum": 1.0}),
        (rn.SGD, {"momentum": -0.1}),
        (rn.SGD, {"l2": -0.1}),
        (rn.Adam, {"beta1": 1.0}),
        (rn.AdamW, {"beta2": 1.0}),
        (rn.AdamW, {"eps": 0.0}),
        (rn.AdamW, {"eps": 1e-39}),
        (rn.LARS, {"eps": 0.0}),
        (rn.LARS, {"trust_coefficient": 0.0}),
        (rn.LARS, {"momentum": 1.0}),
    ],
)
def test_out_of_range(cls, given):
    (name,) = given
    with pytest.raises(ValueError, match=rf"{cls.__name__}: {name} = .* must be"):
        cls(**given)


def test_the_least_eps_is_a_normal_float32():
    least = float(np.finfo(np.float32).tiny)
    assert rn.AdamW(eps=least).settings.eps == least
    with pytest.raises(ValueError, match="smallest normal float32"):
        rn.AdamW(eps=np.nextafter(least, 0))


def test_lr_of_zero_is_allowed():
    assert rn.SGD(lr=0).settings.lr == 0.0


def test_two_weight_decays_are_an_error():
    with pytest.raises(ValueError, match=r"weight_decay=0.1 \(decoupled\) and l2=0.2 \(coupled"):
        rn.SGD(weight_decay=0.1, l2=0.2)
    with pytest.raises(ValueError, match="keep one"):
        rn.SGD().weight_decay(0.1).l2(0.2)
    assert rn.SGD(weight_decay=0.0, l2=0.2).settings.l2 == 0.2


@pytest.mark.parametrize("optimizer", [rn.SGD(), rn.LARS(momentum=0)])
def test_nesterov_needs_momentum(optimizer):
    name = type(optimizer).__name__
    with pytest.raises(ValueError, match=f"{name}: nesterov=True needs a momentum above 0"):
        type(optimizer)(momentum=0, nesterov=True)
    with pytest.raises(ValueError, match="needs a momentum"):
        _ = optimizer.nesterov().kernel
    assert optimizer.nesterov().momentum(0.5).kernel.endswith("nesterov")


def test_lr_scale():
    made = rn.AdamW().lr_scale("head.*", 10).lr_scale("stem.*", 0.1)
    assert made.settings.lr_scales == (("head.*", 10.0), ("stem.*", 0.1))
    assert made == rn.AdamW(lr_scales={"head.*": 10, "stem.*": 0.1})
    assert made == rn.AdamW(lr_scales=[["head.*", 10], ["stem.*", 0.1]])
    assert made.lr_scale("head.*", 2).settings.lr_scales == (("stem.*", 0.1), ("head.*", 2.0))


@pytest.mark.parametrize(
    "pattern, factor, error, text",
    [
        ("a", -1, ValueError, r"lr_scale\('a', -1.0\) has a negative factor"),
        ("a", float("nan"), ValueError, "finite number"),
        ("a", "b", TypeError, "a number"),
        (3, 1.0, TypeError, "a text"),
        ("", 1.0, ValueError, "empty pattern"),
    ],
)
def test_wrong_lr_scale(pattern, factor, error, text):
    with pytest.raises(error, match=text):
        rn.SGD().lr_scale(pattern, factor)


def test_a_pattern_given_twice_is_an_error():
    with pytest.raises(ValueError, match="names the pattern 'a' twice"):
        rn.SGD(lr_scales=(("a", 1.0), ("a", 2.0)))


def test_the_base_is_no_optimizer():
    with pytest.raises(NotImplementedError):
        _ = Optimizer().kernel
