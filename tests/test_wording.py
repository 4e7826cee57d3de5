"""Nearest names, those of other frameworks first."""

import pytest

import renaissance as rn
from renaissance.wording import FOREIGN_NAMES, nearest, unknown_name


@pytest.mark.parametrize(
    "cls, wrong, right",
    [
        (rn.AdamW, "learning_rate", "lr"),
        (rn.AdamW, "beta_1", "beta1"),
        (rn.AdamW, "beta_2", "beta2"),
        (rn.AdamW, "betas", "beta1"),
        (rn.AdamW, "epsilon", "eps"),
        (rn.AdamW, "wd", "weight_decay"),
        (rn.AdamW, "weight_deacy", "weight_decay"),
        (rn.AdamW, "base_lr", "lr"),
        (rn.SGD, "momentun", "momentum"),
        (rn.CosineAnnealingLR, "lr", "base_lr"),
        (rn.CosineAnnealingLR, "learning_rate", "base_lr"),
        (rn.CosineAnnealingLR, "min_lr", "eta_min"),
        (rn.CosineAnnealingLR, "end_lr", "eta_min"),
        (rn.PolynomialLR, "eta_min", "end_lr"),
        (rn.ReduceLROnPlateau, "eta_min", "min_lr"),
        (rn.CosineAnnealingLR, "warmup_epochs", "warmup"),
        (rn.OneCycleLR, "learning_rate", "max_lr"),
        (rn.OneCycleLR, "base_lr", "max_lr"),
        (rn.OneCycleLR, "div_factor", "div"),
        (rn.CosineAnnealingWithWarmRestartsLR, "T_0", "t_0"),
        (rn.CrossEntropyLoss, "weight", "class_weights"),
        (rn.CrossEntropyLoss, "label_smooting", "label_smoothing"),
        (rn.Clip, "max_norm", "norm"),
    ],
)
def test_near_names(cls, wrong, right):
    with pytest.raises(TypeError, match=f"no setting '{wrong}'; did you mean '{right}'\\?"):
        cls(**{wrong: 0.1})


def test_nothing_near_is_no_guess():
    assert nearest("zzz", ["lr", "momentum"]) is None
    assert unknown_name("X", "zzz", ["b", "a"]) == "X has no setting 'zzz'. Allowed: a, b"
    assert unknown_name("X", "zzz", []) == "X has no setting 'zzz'. Allowed: none"


def test_foreign_names_are_used_only_where_they_are_allowed():
    for name, candidates in FOREIGN_NAMES.items():
        assert candidates and name not in candidates
        assert nearest(name, candidates) == candidates[0]
    assert nearest("learning_rate", ["max_lr"]) == "max_lr"
