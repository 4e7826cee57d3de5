"""Pad, crop, flip, rotation, scale and affine against torchvision."""

import numpy as np
import pytest
import torch
import torchvision.transforms.functional as F
from pictures import compiled, levels, pictures, planes, run

import renaissance as rn
from renaissance.data.draws import sample_parameters
from renaissance.random import AUGMENT, derive

BILINEAR, NEAREST = F.InterpolationMode.BILINEAR, F.InterpolationMode.NEAREST
#: Largest difference to torchvision's float path, in levels: both compute in float32.
NEAR = 0.01
SHAPES = [(13, 17, 1), (13, 17, 3), (6, 5, 4), (31, 30, 3)]


def framed(function, x, fill=0.0):
    """torchvision's resampling with a single border blend: on a frame that is wide enough."""
    margin = 32
    wide = F.pad(planes(x), [margin] * 4, fill)
    return function(wide)[..., margin:-margin, margin:-margin]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect", "symmetric"])
def test_pad(shape, mode):
    x = pictures(3, *shape)
    expected = F.pad(planes(x), [3, 1, 2, 4], 7 if mode == "constant" else 0, mode)
    found = levels([rn.Pad((3, 1, 2, 4), fill=7, mode=mode)], x)
    assert (found - expected).abs().max() < 1e-4


def test_pad_takes_one_two_or_four_numbers_and_a_fill_per_channel():
    x = pictures(2, 5, 6, 3)
    fill = (10.0, 20.5, 30.0)
    for padding, sides in ((2, (2, 2, 2, 2)), ((1, 3), (1, 3, 1, 3)), ((1, 2, 3, 4), (1, 2, 3, 4))):
        found = levels([rn.Pad(padding, fill=fill)], x)
        left, top, right, bottom = sides
        assert found.shape == (2, 3, 5 + top + bottom, 6 + left + right)
        assert torch.allclose(found[:, :, 0, 0], torch.tensor(fill, dtype=torch.float64), atol=1e-4)
        inner = found[:, :, top : top + 5, left : left + 6]
        assert (inner - planes(x)).abs().max() < 1e-4


def test_pads_of_other_kinds_follow_each_other():
    x = pictures(2, 7, 8, 3)
    chain = [rn.Pad(2, mode="reflect"), rn.Pad(1, fill=9), rn.Pad(3, mode="symmetric"),
             rn.Pad((0, 2), mode="edge"), rn.Pad(1, fill=200)]  # fmt: skip
    expected = planes(x)
    for sides, fill, mode in ((2, 0, "reflect"), (1, 9, "constant"), (3, 0, "symmetric"),
                              ([0, 2], 0, "edge"), (1, 200, "constant")):  # fmt: skip
        expected = F.pad(expected, sides, fill, mode)
    assert (levels(chain, x) - expected).abs().max() < 1e-4


@pytest.mark.parametrize("shape", SHAPES)
def test_random_crop_shows_the_window_that_was_drawn(shape):
    height, width, _ = shape
    x = pictures(40, *shape)
    crop = rn.RandomCrop((height - 1, width - 2), padding=2, fill=50)
    drawn = sample_parameters(crop, 40, size=(height, width), channels=shape[2], seed=1)
    padded = F.pad(planes(x), [2] * 4, 50)
    found = levels([crop], x)
    for k in range(40):
        top, left = int(drawn["top"][k]), int(drawn["left"][k])
        window = padded[k, :, top : top + height - 1, left : left + width - 2]
        assert (found[k] - window).abs().max() < 1e-4
    assert len(set(drawn["top"])) > 3 and len(set(drawn["left"])) > 3


def test_pad_if_needed_pads_both_sides_by_the_deficit():
    x = pictures(30, 5, 20, 1)
    crop = rn.RandomCrop(9, pad_if_needed=True, fill=3)
    found = levels([crop], x)
    drawn = sample_parameters(rn.RandomCrop(9), 30, size=(13, 20), channels=1, seed=1)
    padded = F.pad(planes(x), [0, 4], 3)
    for k in range(30):
        top, left = int(drawn["top"][k]), int(drawn["left"][k])
        assert (found[k] - padded[k, :, top : top + 9, left : left + 9]).abs().max() < 1e-4


@pytest.mark.parametrize("size", [(5, 6), (8, 17), (13, 17), (16, 9), (20, 31)])
def test_center_crop(size):
    x = pictures(2, 13, 17, 3)
    found = levels([rn.CenterCrop(size)], x)
    assert (found - F.center_crop(planes(x), list(size))).abs().max() < 1e-4


def test_flips():
    x = pictures(3, 9, 11, 3)
    assert torch.equal(levels([rn.RandomHorizontalFlip(1.0)], x), levels([], x).flip(-1))
    assert torch.equal(levels([rn.RandomVerticalFlip(1.0)], x), levels([], x).flip(-2))
    assert torch.equal(levels([rn.RandomVerticalFlip(0.0)], x), levels([], x))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("angle", [20.0, -33.0, 90.0, 179.0])
def test_rotation(shape, angle):
    x = pictures(3, *shape)
    found = levels([rn.RandomRotation((angle, angle), fill=9)], x)
    expected = framed(lambda p: F.rotate(p, angle, BILINEAR, fill=None), x, 9)
    assert (found - expected).abs().max() < NEAR


@pytest.mark.parametrize("scale", [0.5, 0.83, 1.0, 1.7])
def test_scale(scale):
    x = pictures(3, 13, 17, 3)
    expected = framed(lambda p: F.affine(p, 0.0, [0, 0], scale, [0.0], BILINEAR), x)
    assert (levels([rn.RandomScale(scale, scale)], x) - expected).abs().max() < NEAR


@pytest.mark.parametrize("angle, scale, shear", [(30, 0.8, (10, 5)), (-70, 1.3, (-25, 0)),
                                                 (0, 1.0, (0, 40))])  # fmt: skip
def test_affine(angle, scale, shear):
    x = pictures(3, 13, 17, 3)
    chain = [rn.RandomAffine((angle, angle), scale=(scale, scale),
                             shear=(shear[0], shear[0], shear[1], shear[1]))]  # fmt: skip
    numbers = (float(angle), [0, 0], scale, [float(s) for s in shear], BILINEAR)
    assert (levels(chain, x) - framed(lambda p: F.affine(p, *numbers), x)).abs().max() < NEAR


def test_translation_is_by_whole_pixels():
    x = pictures(30, 13, 17, 1)
    move = rn.RandomAffine(0.0, (0.3, 0.4))
    drawn = sample_parameters(move, 30, size=(13, 17), channels=1, seed=1)
    found = levels([move], x)
    for k in range(30):
        shift = [int(drawn["shift_x"][k]), int(drawn["shift_y"][k])]
        expected = framed(lambda p: F.affine(p, 0.0, shift, 1.0, [0.0], NEAREST), x)[k]  # noqa: B023
        assert (found[k] - expected).abs().max() < NEAR
    assert np.abs(drawn["shift_x"]).max() <= 5 and np.abs(drawn["shift_y"]).max() <= 5


def test_nearest_takes_pixels_as_they_are():
    x = pictures(4, 13, 17, 3)
    chain = [rn.RandomAffine((33.0, 33.0), scale=(0.9, 0.9), interpolation="nearest")]
    expected = framed(lambda p: F.affine(p, 33.0, [0, 0], 0.9, [0.0], NEAREST), x)
    differs = (levels(chain, x) - expected).abs().amax(1) > NEAR
    # A source coordinate within 1e-5 of half a pixel may go either way in float32.
    assert differs.float().mean() < 0.005


def test_the_border_blends_once():
    white = np.full((1, 21, 21, 1), 255, np.uint8)
    found = levels([rn.RandomRotation((17.0, 17.0), fill=255)], white)
    assert (found - 255).abs().max() < 1e-4
    twice = F.rotate(planes(white), 17.0, BILINEAR, fill=[255.0])
    assert twice.min() < 200  # what torchvision makes of it


def test_rotation_and_scale_are_one_resampling():
    x = pictures(3, 21, 21, 1)
    chain = [rn.RandomRotation((25.0, 25.0)), rn.RandomScale(1.2, 1.2)]
    expected = framed(lambda p: F.affine(p, -25.0, [0, 0], 1.2, [0.0], BILINEAR), x)
    assert (levels(chain, x) - expected).abs().max() < NEAR


def test_what_is_between_two_rotations_keeps_them_apart():
    x = pictures(3, 21, 21, 1)
    turn = rn.RandomRotation((25.0, 25.0))
    found = levels([turn, rn.Pad(0), turn], x)
    apart = levels([turn, rn.RandomVerticalFlip(0.0), turn], x)
    together = levels([turn, turn], x)
    assert torch.equal(found, apart)
    assert (found - together).abs().max() > 1.0


def test_the_source_is_not_modified():
    x = pictures(4, 9, 11, 3)
    before = x.copy()
    levels([rn.Pad(2), rn.RandomCrop(8), rn.RandomRotation(10), rn.RandomErasing(1.0)], x)
    assert (x == before).all()


def test_only_what_crop_of_names_is_read():
    x = pictures(1, 40, 50, 3)
    chains = ([rn.RandomCrop(20), rn.RandomHorizontalFlip(), rn.RandomRotation(20)],
              [rn.RandomHorizontalFlip(), rn.RandomResizedCrop(16)],
              [rn.RandomCrop(44, 6, padding_mode="reflect")])  # fmt: skip
    for chain in chains:
        program = compiled(chain, x)
        for epoch in range(6):
            box = program.native.crop_of(40, 50, derive(1, AUGMENT), epoch, 0)
            top, left, height, width = box
            rest = np.full_like(x, 99)
            window = np.s_[:, top : top + height, left : left + width]
            rest[window] = x[window]
            assert torch.equal(run(program, x, epoch=epoch), run(program, rest, epoch=epoch))
            assert box != (0, 0, 40, 50) or chain is chains[2]


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: rn.Pad(-1), "takes 0 or more"),
        (lambda: rn.Pad(2, mode="wrap"), "mode"),
        (lambda: rn.RandomCrop(0), "takes 1 or more"),
        (lambda: rn.RandomRotation((9.0, 3.0)), "low, high"),
        (lambda: rn.RandomScale(1.2, 0.8), "low, high"),
        (lambda: rn.RandomScale(0.0, 0.8), "above 0"),
        (lambda: rn.RandomAffine(3.0, (0.1, 1.5)), "fractions"),
        (lambda: rn.RandomAffine(3.0, shear=95.0), "below 90"),
        (lambda: rn.RandomHorizontalFlip(1.5), "at most 1"),
        (lambda: compiled([rn.RandomCrop(20)], pictures(1, 9, 9, 1)), "smaller than the crop"),
        (lambda: compiled([rn.Pad(9, mode="reflect")], pictures(1, 9, 9, 1)), "at least 10"),
        (lambda: compiled([rn.Pad(1, fill=(1.0, 2.0))], pictures(1, 9, 9, 3)), "2 numbers"),
    ],
)
def test_errors_at_construction(make, text):
    with pytest.raises(ValueError, match=text):
        make()
