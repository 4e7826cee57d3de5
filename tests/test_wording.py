"""Nearest names, those of other frameworks first."""

import inspect
import pathlib

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


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (
            lambda: rn.EarlyStopping(patience=2, restore_best_weights=True),
            "EarlyStopping has no setting 'restore_best_weights': write restore_best=True",
        ),
        (
            lambda: rn.EarlyStopping(patience=2, minimum_delta=1),
            "no setting 'minimum_delta'; did you mean 'min_delta'",
        ),
        (lambda: rn.EarlyStopping(), "missing 1 required keyword-only argument: 'patience'"),
        (lambda: rn.ModelCheckpoint(save_best_only=True), "it saves the best and nothing else"),
        (lambda: rn.ModelCheckpoint(save_top_k=3), "no setting 'save_top_k': write keep"),
        (
            lambda: rn.CSVLogger(append=True),
            "CSVLogger has no setting 'append': files are appended",
        ),
        (lambda: rn.JSONLogger(filename="x"), "no setting 'filename': write path"),
        (lambda: rn.CSVLogger(separator=";"), r"no setting 'separator'\. Allowed: path"),
    ],
)
def test_names_of_other_frameworks_are_told_ours(make, text):
    with pytest.raises(TypeError, match=text):
        make()


def test_signatures_stay_what_they_are():
    assert list(inspect.signature(rn.EarlyStopping).parameters)[:2] == ["monitor", "patience"]
    assert rn.EarlyStopping("loss", patience=2).monitor == "loss"
    assert rn.CSVLogger("a.csv").path == pathlib.Path("a.csv")
