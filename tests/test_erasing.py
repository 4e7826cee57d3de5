"""Normalize, RandomErasing and Cutout."""

import math

import numpy as np
import pytest
import scipy.stats
import torch
import torchvision.transforms.functional as F
from pictures import compiled, pictures, planes, run

import renaissance as rn
from renaissance.data.draws import sample_parameters
from renaissance.data.erasing import PRESETS

CIFAR = rn.Normalize("cifar10")


@pytest.mark.parametrize("preset", PRESETS)
def test_normalize_is_torchvisions(preset):
    mean, std = PRESETS[preset]
    x = pictures(3, 9, 11, len(mean))
    found = run(compiled([rn.Normalize(preset)], x), x)
    expected = F.normalize(planes(x) / 255, list(mean), list(std))
    assert (found - expected).abs().max() < 1e-6 * 10  # a few ulp at 2.8
    assert torch.equal(found, run(compiled([rn.Normalize(mean=mean, std=std)], x), x))


def test_without_normalize_values_are_0_to_1():
    x = pictures(2, 9, 11, 3)
    found = run(compiled([], x), x)
    assert (found - planes(x) / 255).abs().max() < 1e-7
    assert found.min() == 0 and found.max() == 1


def test_one_number_serves_all_channels():
    x = pictures(2, 9, 11, 3)
    one = run(compiled([rn.Normalize(mean=0.3, std=0.38)], x), x)
    three = run(compiled([rn.Normalize(mean=(0.3,) * 3, std=(0.38,) * 3)], x), x)
    assert torch.equal(one, three)


def boxes(transform, count, x):
    """(top, left, height, width) of each sample, integers."""
    drawn = sample_parameters(transform, count, size=x.shape[1:3], channels=x.shape[3], seed=1)
    return np.stack([drawn[n] for n in ("top", "left", "height", "width")], 1).astype(int)


@pytest.mark.parametrize("shape", [(32, 32, 3), (13, 17, 1), (7, 40, 4)])
@pytest.mark.parametrize(
    "erase", [rn.RandomErasing(0.7, value=1.5), rn.Cutout(6, p=0.7, value=-2.0)]
)
def test_a_box_is_overwritten_and_nothing_else(shape, erase):
    x = pictures(30, *shape)
    normalize = rn.Normalize(mean=0.4, std=0.3)
    found = run(compiled([normalize, erase], x), x)
    expected = run(compiled([normalize], x), x)
    for k, (top, left, height, width) in enumerate(boxes(erase, 30, x)):
        expected[k, :, top : top + height, left : left + width] = erase.settings.value
    assert torch.equal(found, expected)


def test_value_per_channel_and_before_normalize():
    x = pictures(20, 16, 16, 3)
    erase = rn.RandomErasing(1.0, value=(10.0, 20.0, 30.0))
    found = run(compiled([erase, CIFAR], x), x)
    expected = planes(x)
    for k, (top, left, height, width) in enumerate(boxes(erase, 20, x)):
        for c in range(3):
            expected[k, c, top : top + height, left : left + width] = 10.0 * (c + 1)
    expected = F.normalize(expected / 255, *map(list, PRESETS["cifar10"]))
    assert (found - expected).abs().max() < 1e-5


@pytest.mark.parametrize("late", [rn.RandomHorizontalFlip(1.0), rn.RandomVerticalFlip(1.0),
                                  rn.CenterCrop((9, 8)), rn.Pad(2, fill=0.5)])  # fmt: skip
@pytest.mark.parametrize("value", [3.0, "random"])
def test_what_follows_moves_the_box_along(late, value):
    x = pictures(10, 16, 18, 3)
    chain = [CIFAR, rn.RandomErasing(1.0, value=value)]
    erased = run(compiled(chain, x), x)
    moved = {
        "RandomHorizontalFlip": lambda p: p.flip(-1),
        "RandomVerticalFlip": lambda p: p.flip(-2),
        "CenterCrop": lambda p: F.center_crop(p, [9, 8]),
        "Pad": lambda p: F.pad(p, [2] * 4, 0.5),
    }[type(late).__name__](erased)
    assert torch.equal(run(compiled([*chain, late], x), x), moved)


def test_noise_is_standard_normal_and_belongs_to_the_sample():
    x = pictures(60, 24, 24, 3)
    erase = rn.RandomErasing(1.0, value="random")
    program = compiled([CIFAR, erase], x)
    found = run(program, x)
    noise = []
    for k, (top, left, height, width) in enumerate(boxes(erase, 60, x)):
        noise.append(found[k, :, top : top + height, left : left + width].flatten())
    values = torch.cat(noise).double().numpy()
    assert len(values) > 5000
    assert scipy.stats.kstest(values, "norm").pvalue > 0.01
    assert len(np.unique(values)) > 0.99 * len(values)
    alone = run(program, x, [7])
    assert torch.equal(alone[0], found[7])


def test_cutout_boxes_are_cut_at_the_border():
    x = pictures(4000, 10, 12, 1)
    found = boxes(rn.Cutout((4, 5)), 4000, x)
    ends = found[:, :2] + found[:, 2:]
    assert (found[:, :2] >= 0).all() and (ends <= (10, 12)).all()
    # The centre is uniform: 4 rows around it, two of them on either side.
    assert scipy.stats.chisquare(np.bincount(ends[:, 0], minlength=11)[2:10]).pvalue > 0.01
    assert found[:, 2].max() == 4 and found[:, 3].max() == 5


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda: rn.Normalize(), ValueError, "either a preset"),
        (lambda: rn.Normalize("mnist", mean=0.1, std=0.2), ValueError, "either a preset"),
        (lambda: rn.Normalize(mean=0.1), ValueError, "both mean= and std="),
        (lambda: rn.Normalize("cifar"), ValueError, "did you mean 'cifar10'"),
        (lambda: rn.Normalize(mean=0.1, std=0.0), ValueError, "above 0"),
        (lambda: rn.Normalize(mean=math.nan, std=1.0), ValueError, "mean"),
        (lambda: compiled([CIFAR, CIFAR], pictures(1, 8, 8, 3)), ValueError, "normalised already"),
        (lambda: compiled([CIFAR], pictures(1, 8, 8, 1)), ValueError, "of 3 channels"),
        (lambda: rn.RandomErasing(scale=(0.4, 0.2)), ValueError, "scale"),
        (lambda: rn.RandomErasing(ratio=(0.0, 2.0)), ValueError, "ratio"),
        (lambda: rn.RandomErasing(value="noise"), (ValueError, TypeError), "value"),
        (
            lambda: compiled([rn.RandomErasing(value="random")], pictures(1, 8, 8, 3)),
            ValueError,
            "after Normalize",
        ),
        (lambda: rn.Cutout(0), ValueError, "1 or more"),
    ],
)
def test_errors_at_construction(make, error, text):
    with pytest.raises(error, match=text):
        make()
