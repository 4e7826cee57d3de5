"""Resize and RandomResizedCrop against torchvision and PIL."""

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as F
from pictures import compiled, levels, pictures, planes
from PIL import Image

import renaissance as rn
from renaissance.data.draws import sample_parameters

MODES = {
    "bilinear": F.InterpolationMode.BILINEAR,
    "bicubic": F.InterpolationMode.BICUBIC,
    "nearest": F.InterpolationMode.NEAREST,
}
NEAR = 0.01  # levels


@pytest.mark.parametrize("shape", [(37, 53, 1), (37, 53, 3), (12, 9, 4)])
@pytest.mark.parametrize("size", [(20, 31), (37, 20), (50, 80), (5, 7), (1, 1)])
@pytest.mark.parametrize("mode", MODES)
def test_resize_is_torchvisions(shape, size, mode):
    x = pictures(2, *shape)
    expected = F.resize(planes(x), list(size), MODES[mode], antialias=True).clamp(0, 255)
    found = levels([rn.Resize(size, interpolation=mode)], x)
    assert (found - expected).abs().max() < NEAR


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(20, 31), (60, 90), (224, 224)])
def test_resize_is_within_one_level_of_pil(mode, size):
    # PIL cuts the cubic filter's overshoot to 0-255 between the axes too, which ours, and
    # torchvision's float path, do not: such a picture is given levels that stay inside.
    x = pictures(1, 75, 101, 3) // (2 if mode == "bicubic" else 1) + (
        64 if mode == "bicubic" else 0
    )
    filters = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}
    expected = np.asarray(Image.fromarray(x[0]).resize(size[::-1], filters[mode]))
    found = levels([rn.Resize(size, interpolation=mode)], x)[0].permute(1, 2, 0)
    assert np.abs(np.rint(found.numpy()) - expected).max() <= 1


@pytest.mark.parametrize("shape", [(37, 53, 3), (53, 37, 3), (20, 20, 1)])
def test_the_shorter_side_keeps_the_aspect(shape):
    x = pictures(1, *shape)
    expected = F.resize(planes(x), 16, MODES["bilinear"], antialias=True)
    found = levels([rn.Resize(16)], x)
    assert found.shape == expected.shape
    assert (found - expected).abs().max() < NEAR


def test_the_shorter_side_of_pictures_that_differ():
    program = compiled([rn.Resize(16), rn.CenterCrop(16)], pictures(1, 37, 53, 3))
    assert program.shape == (3, 16, 16)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_random_resized_crop_shows_the_window_that_was_drawn(channels, mode):
    x = pictures(12, 45, 61, channels)
    crop = rn.RandomResizedCrop((24, 19), interpolation=mode)
    drawn = sample_parameters(crop, 12, size=(45, 61), channels=channels, seed=1)
    found = levels([crop], x)
    for k in range(12):
        box = [int(drawn[name][k]) for name in ("top", "left", "height", "width")]
        expected = F.resized_crop(planes(x)[k], *box, [24, 19], MODES[mode], antialias=True)
        assert (found[k] - expected.clamp(0, 255)).abs().max() < NEAR


def test_what_follows_a_resize_is_what_follows_its_result():
    x = pictures(4, 30, 40, 3)
    resized = levels([rn.Resize((20, 24))], x)
    flipped = levels([rn.Resize((20, 24)), rn.RandomHorizontalFlip(1.0)], x)
    assert torch.equal(flipped, resized.flip(-1))
    cropped = levels([rn.Resize((20, 24)), rn.CenterCrop((10, 12)), rn.RandomVerticalFlip(1.0)], x)
    assert torch.equal(cropped, resized[..., 5:15, 6:18].flip(-2))
    padded = levels([rn.Resize((20, 24)), rn.Pad(2, fill=5)], x)
    assert torch.allclose(padded[..., 2:-2, 2:-2], resized, atol=1e-4, rtol=0)


def test_a_flip_before_a_resize():
    x = pictures(4, 30, 40, 3)
    found = levels(
        [rn.RandomHorizontalFlip(1.0), rn.RandomVerticalFlip(1.0), rn.Resize((20, 24))], x
    )
    expected = F.resize(planes(x).flip(-1).flip(-2), [20, 24], MODES["bilinear"], antialias=True)
    assert (found - expected).abs().max() < NEAR


def test_a_padded_picture_is_resized_with_its_border():
    x = pictures(2, 15, 12, 3)
    expected = F.resize(F.pad(planes(x), [3] * 4, 40), [9, 9], MODES["bilinear"], antialias=True)
    assert (levels([rn.Pad(3, fill=40), rn.Resize((9, 9))], x) - expected).abs().max() < NEAR


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: rn.Resize(0), "takes 1 or more"),
        (lambda: rn.RandomResizedCrop(8, scale=(0.5, 0.2)), "scale"),
        (lambda: rn.RandomResizedCrop(8, ratio=(0.0, 1.0)), "ratio"),
        (lambda: rn.Resize(8, interpolation="lanczos"), "interpolation"),
    ],
)
def test_errors_at_construction(make, text):
    with pytest.raises(ValueError, match=text):
        make()
