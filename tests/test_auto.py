"""TrivialAugmentWide and RandAugment against torchvision's operations with the same parameters."""

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as F
from pictures import compiled, levels, pictures, planes
from torchvision.transforms.autoaugment import RandAugment, TrivialAugmentWide, _apply_op

import renaissance as rn
from renaissance.data.draws import AUTO_KINDS, sample_parameters

NEAREST, BILINEAR = F.InterpolationMode.NEAREST, F.InterpolationMode.BILINEAR
NAMES = {
    "identity": "Identity", "shear_x": "ShearX", "shear_y": "ShearY",
    "translate_x": "TranslateX", "translate_y": "TranslateY", "rotate": "Rotate",
    "brightness": "Brightness", "color": "Color", "contrast": "Contrast",
    "sharpness": "Sharpness", "posterize": "Posterize", "solarize": "Solarize",
    "autocontrast": "AutoContrast", "equalize": "Equalize",
}  # fmt: skip
GEOMETRIC = ("shear_x", "shear_y", "translate_x", "translate_y", "rotate")


def applied(picture, kind, magnitude):
    """One operation by torchvision on (C, H, W) levels, on its float or its uint8 path."""
    if kind in ("posterize", "equalize"):
        whole = picture.round().to(torch.uint8)
        return _apply_op(whole, NAMES[kind], magnitude, NEAREST, None).float()
    scale = 255.0 if kind != "solarize" else 1.0
    if kind == "solarize":
        return torch.where(picture >= magnitude, 255 - picture, picture)
    if kind in GEOMETRIC:
        return _apply_op(picture, NAMES[kind], magnitude, NEAREST, None)
    return _apply_op(picture / scale, NAMES[kind], magnitude, NEAREST, None) * scale


@pytest.mark.parametrize("channels", [1, 3])
def test_trivial_augment_applies_what_it_drew(channels):
    count = 150
    x = pictures(count, 33, 37, channels)
    drawn = sample_parameters(rn.TrivialAugmentWide(), count, size=(33, 37), seed=1)
    found = levels([rn.TrivialAugmentWide()], x)
    seen = set()
    for k in range(count):
        kind, magnitude = AUTO_KINDS[int(drawn["kind"][k])], float(drawn["magnitude"][k])
        differs = (found[k] - applied(planes(x)[k], kind, magnitude)).abs().amax(0) > 0.01
        # Of nearest sampling, source coordinates within 1e-5 of half a pixel may go either way.
        assert differs.float().mean() <= (0.02 if kind in GEOMETRIC else 0.0), (kind, magnitude)
        seen.add(kind)
    assert seen == set(AUTO_KINDS)


def test_rand_augment_is_its_choices_one_after_the_other():
    x = pictures(60, 20, 23, 3)
    transform = rn.RandAugment(3, 12)
    drawn = sample_parameters(transform, 60, size=(20, 23), seed=1)
    found = levels([transform], x)
    compared = 0
    for k in range(60):
        choices = [(AUTO_KINDS[int(drawn[f"kind_{j}"][k])], float(drawn[f"magnitude_{j}"][k]))
                   for j in range(3)]  # fmt: skip
        kinds = {kind for kind, _ in choices}
        # Whole-picture operations after a resampling may amplify one pixel that went elsewhere.
        if kinds & set(GEOMETRIC):
            continue
        expected = planes(x)[k]
        for kind, magnitude in choices:
            expected = applied(expected, kind, magnitude)
        rounds = bool(kinds & {"posterize", "equalize"})  # a level on the edge may round apart
        differs = (found[k] - expected).abs() > 0.02
        assert differs.float().mean() <= (0.01 if rounds else 0.0), choices
        compared += 1
    assert compared > 10


@pytest.mark.parametrize("ours, theirs", [(rn.TrivialAugmentWide(), TrivialAugmentWide()),
                                          (rn.RandAugment(), RandAugment())])  # fmt: skip
def test_magnitudes_are_torchvisions(ours, theirs):
    size = (40, 50)
    wide = isinstance(theirs, TrivialAugmentWide)
    space = (theirs._augmentation_space(31) if wide
             else theirs._augmentation_space(31, size))  # fmt: skip
    drawn = sample_parameters(ours, 20000, size=size, seed=3)
    end = "" if wide else "_0"
    kinds, magnitudes = drawn[f"kind{end}"], drawn[f"magnitude{end}"]
    counts = np.bincount(kinds.astype(int), minlength=14)
    assert np.abs(counts - 20000 / 14).max() < 4 * np.sqrt(20000 / 14)
    for number, name in enumerate(AUTO_KINDS):
        values, signed = space[NAMES[name]]
        values = values.double().numpy().reshape(-1)
        if not wide and len(values) > 1:
            values = values[9:10]
        if name.startswith("translate"):
            values = np.trunc(values)  # int() in torchvision's affine
        expected = np.unique(np.concatenate([values, -values]) if signed else values)
        found = np.unique(magnitudes[kinds == number].astype(float))
        np.testing.assert_allclose(found, expected, atol=1e-4)


def test_bilinear_and_fill():
    x = pictures(200, 20, 20, 1)
    near = levels([rn.TrivialAugmentWide(fill=128)], x)
    smooth = levels([rn.TrivialAugmentWide(fill=128, interpolation="bilinear")], x)
    drawn = sample_parameters(rn.TrivialAugmentWide(), 200, size=(20, 20), channels=1, seed=1)
    turns = [k for k in range(200) if AUTO_KINDS[int(drawn["kind"][k])] == "rotate"
             and abs(drawn["magnitude"][k]) > 1]  # fmt: skip
    assert turns and all((near[k] != smooth[k]).any() for k in turns)
    steep = [k for k in turns if 30 < abs(drawn["magnitude"][k]) < 60]
    assert steep and all((near[k][0, 0, 0] - 128).abs() < 1e-3 for k in steep)


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: rn.RandAugment(2, 31), "below num_magnitude_bins"),
        (lambda: rn.RandAugment(0), "num_ops"),
        (lambda: rn.TrivialAugmentWide(num_magnitude_bins=1), "num_magnitude_bins"),
        (lambda: compiled([rn.TrivialAugmentWide()], pictures(1, 8, 8, 2)), "1 or 3 channels"),
        (lambda: compiled([rn.Normalize(mean=0.5, std=0.5), rn.RandAugment()],
                          pictures(1, 8, 8, 3)), "after Normalize"),
    ],
)  # fmt: skip
def test_errors_at_construction(make, text):
    with pytest.raises(ValueError, match=text):
        make()
