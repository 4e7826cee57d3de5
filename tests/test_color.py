"""Colour transforms and blur against torchvision's float path."""

import pytest
import torch
import torchvision.transforms.functional as F
from pictures import compiled, levels, pictures, planes

import renaissance as rn
from renaissance.data.draws import sample_parameters

#: Levels; both sides compute in float32.
NEAR = 0.01
SHAPES = [(13, 17, 1), (13, 17, 3), (24, 32, 3)]


def unit(x):
    """Pictures as torchvision's float tensors 0-1."""
    return planes(x) / 255


ONE_PART = {
    "brightness": [(0.3, F.adjust_brightness), (1.6, F.adjust_brightness)],
    "contrast": [(0.0, F.adjust_contrast), (0.6, F.adjust_contrast), (1.7, F.adjust_contrast)],
    "saturation": [(0.0, F.adjust_saturation), (0.5, F.adjust_saturation),
                   (1.9, F.adjust_saturation)],
    "hue": [(0.5, F.adjust_hue), (0.11, F.adjust_hue), (-0.37, F.adjust_hue),
            (-0.5, F.adjust_hue)],
}  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("part", ONE_PART)
def test_one_part_of_the_jitter(shape, part):
    x = pictures(3, *shape)
    for factor, function in ONE_PART[part]:
        found = levels([rn.ColorJitter(**{part: (factor, factor)})], x)
        assert (found - function(unit(x), factor) * 255).abs().max() < NEAR


def test_gray_pixels_have_no_hue():
    x = pictures(2, 9, 9, 1).repeat(3, axis=3)
    assert (levels([rn.ColorJitter(hue=(0.3, 0.3))], x) - planes(x)).abs().max() < NEAR


def test_jitter_acts_in_the_order_that_was_drawn():
    x = pictures(40, 13, 17, 3)
    jitter = rn.ColorJitter(0.4, 0.4, 0.4, 0.1)
    drawn = sample_parameters(jitter, 40, size=(13, 17), seed=1)
    functions = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation, F.adjust_hue)
    names = ("brightness", "contrast", "saturation", "hue")
    found = levels([jitter], x)
    orders = set()
    for k in range(40):
        expected = unit(x)[k]
        order = [int(drawn[place][k]) for place in ("first", "second", "third", "fourth")]
        for part in order:
            expected = functions[part](expected, float(drawn[names[part]][k]))
        # Hue near a grey pixel multiplies rounding by up to 255 / chroma: 0.02 measured.
        assert (found[k] - expected * 255).abs().max() < 0.05
        orders.add(tuple(order))
    assert len(orders) > 12


@pytest.mark.parametrize("channels", [1, 3])
def test_grayscale(channels):
    x = pictures(3, 13, 17, channels)
    expected = F.rgb_to_grayscale(unit(x), 3) if channels == 3 else unit(x)
    assert (levels([rn.RandomGrayscale(1.0)], x) - expected * 255).abs().max() < NEAR
    assert (levels([rn.RandomGrayscale(0.0)], x) - planes(x)).abs().max() < NEAR


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_autocontrast(channels):
    x = pictures(3, 13, 17, channels) // 2 + 20
    x[1, ..., 0] = 77  # a channel of one level stays
    expected = torch.stack([F.autocontrast(p[None])[0] for p in unit(x).flatten(0, 1)[:, None]])
    found = levels([rn.RandomAutocontrast(1.0)], x).flatten(0, 1)
    assert (found - expected[:, 0] * 255).abs().max() < NEAR


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kernel, sigma", [((5, 9), 1.3), ((1, 3), 0.1), ((13, 11), 4.0)])
def test_blur(shape, kernel, sigma):
    x = pictures(3, *shape)
    found = levels([rn.GaussianBlur(kernel, sigma)], x)
    expected = F.gaussian_blur(planes(x), list(kernel), [sigma, sigma])
    assert (found - expected).abs().max() < NEAR


def test_colour_then_geometry_then_normalize():
    x = pictures(3, 14, 18, 3)
    chain = [rn.ColorJitter(brightness=(1.4, 1.4)), rn.Pad(2, fill=30),
             rn.RandomHorizontalFlip(1.0),
             rn.ColorJitter(saturation=(0.3, 0.3)), rn.RandomRotation((10.0, 10.0)),
             rn.GaussianBlur(3, 1.0), rn.CenterCrop((9, 11))]  # fmt: skip
    u = F.adjust_brightness(unit(x), 1.4)
    u = F.adjust_saturation(F.pad(u, [2] * 4, 30 / 255).flip(-1), 0.3)
    u = F.pad(u, [20] * 4)
    u = F.rotate(u, 10.0, F.InterpolationMode.BILINEAR, fill=None)[..., 20:-20, 20:-20]
    u = F.center_crop(F.gaussian_blur(u, [3, 3], [1.0, 1.0]), [9, 11])
    assert (levels(chain, x) - u * 255).abs().max() < NEAR


@pytest.mark.parametrize(
    "make, text",
    [
        (lambda: rn.ColorJitter(brightness=-0.1), "0 or more"),
        (lambda: rn.ColorJitter(hue=0.6), "0 to 0.5"),
        (lambda: rn.ColorJitter(contrast=(1.2, 0.8)), "low, high"),
        (lambda: rn.GaussianBlur(4), "odd numbers"),
        (lambda: rn.GaussianBlur(65), "odd numbers"),
        (lambda: rn.GaussianBlur(3, (0.0, 1.0)), "above 0"),
        (lambda: compiled([rn.GaussianBlur(19)], pictures(1, 9, 9, 1)), "too small for the kernel"),
        (lambda: compiled([rn.ColorJitter(0.1)], pictures(1, 9, 9, 4)), "1 or 3 channels"),
        (
            lambda: compiled([rn.Normalize("cifar10"), rn.ColorJitter(0.1)], pictures(1, 9, 9, 3)),
            "stands after Normalize",
        ),
    ],
)
def test_errors_at_construction(make, text):
    with pytest.raises(ValueError, match=text):
        make()
