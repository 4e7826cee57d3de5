"""Pad, crop, flip, rotation, scale and affine against torchvision."""

import pytest
import torch
import torchvision.transforms.functional as F
from pictures import levels, pictures, planes

import renaissance as rn

BILINEAR, NEAREST = F.InterpolationMode.BILINEAR, F.InterpolationMode.NEAREST
#: Largest difference to torchvision's float path, in levels: both compute in float32.
NEAR = 0.01


def framed(function, x, fill=0.0):
    """torchvision's resampling with a single border blend: on a frame that is wide enough."""
    margin = 24
    wide = F.pad(planes(x), [margin] * 4, fill)
    return function(wide)[..., margin:-margin, margin:-margin]


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_pad(channels, mode):
    x = pictures(3, 13, 17, channels)
    expected = F.pad(planes(x), [3, 1, 2, 4], 7 if mode == "constant" else 0, mode)
    found = levels([rn.Pad((3, 1, 2, 4), fill=7, mode=mode)], x)
    assert (found - expected).abs().max() < 1e-4


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("angle", [20.0, -33.0, 90.0, 179.0])
def test_rotation(channels, angle):
    x = pictures(3, 13, 17, channels)
    found = levels([rn.RandomRotation((angle, angle), fill=9)], x)
    expected = framed(lambda p: F.rotate(p, angle, BILINEAR, fill=None), x, 9)
    inside = (found - expected).abs()
    assert inside.max() < NEAR


def test_affine():
    x = pictures(3, 13, 17, 3)
    chain = [rn.RandomAffine((30.0, 30.0), scale=(0.8, 0.8), shear=(10.0, 10.0, 5.0, 5.0))]
    expected = framed(lambda p: F.affine(p, 30.0, [0, 0], 0.8, [10.0, 5.0], BILINEAR), x)
    assert (levels(chain, x) - expected).abs().max() < NEAR


def test_the_source_is_not_modified():
    x = pictures(4, 9, 11, 3)
    before = x.copy()
    levels([rn.Pad(2), rn.RandomCrop(8), rn.RandomRotation(10), rn.RandomErasing(1.0)], x)
    assert (x == before).all()


def test_flips():
    x = pictures(3, 9, 11, 3)
    assert torch.equal(levels([rn.RandomHorizontalFlip(1.0)], x), levels([], x).flip(-1))
    assert torch.equal(levels([rn.RandomVerticalFlip(1.0)], x), levels([], x).flip(-2))
    assert torch.equal(levels([rn.RandomVerticalFlip(0.0)], x), levels([], x))
