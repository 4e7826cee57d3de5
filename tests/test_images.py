"""Odd pictures through the decoder that Python uses, and through a loader."""

import io

import numpy as np
import odd_pictures as odd
import pytest
import torch
from PIL import Image

from renaissance import _native
from renaissance.data import images
from renaissance.data.images import as_channels, decode, format_of, picture_of


@pytest.fixture
def no_native_jpeg(monkeypatch):
    """As a build without jpeglib.h."""
    monkeypatch.setattr(images._native, "has_jpeg", lambda: False)


def test_palette_and_alpha_png():
    pixels = odd.scene(20, 24)
    picture = Image.fromarray(pixels)
    palette = picture.convert("P", palette=Image.Palette.ADAPTIVE)
    assert np.array_equal(decode(odd.png(palette), 3), np.asarray(palette.convert("RGB")))
    see_through = odd.png(palette, transparency=3)
    assert np.array_equal(decode(see_through, 3), np.asarray(palette.convert("RGB")))
    alpha = picture.copy()
    alpha.putalpha(Image.fromarray(odd.scene(20, 24, 1)[..., 0]))
    assert np.array_equal(decode(odd.png(alpha), 3), pixels)


def test_grey_png_and_grey_with_alpha():
    grey = odd.scene(9, 11, 1)[..., 0]
    picture = Image.fromarray(grey)
    assert np.array_equal(decode(odd.png(picture), 3), np.repeat(grey[..., None], 3, axis=2))
    assert np.array_equal(decode(odd.png(picture.convert("LA")), 1), grey[..., None])
    bits = picture.point(lambda v: 255 * (v > 128), mode="1")
    assert set(np.unique(decode(odd.png(bits), 1))) == {0, 255}


def test_sixteen_bits_become_the_high_byte():
    wide = (np.arange(12 * 13, dtype=np.uint32) * 419 % 65536).astype(np.uint16).reshape(12, 13)
    assert np.array_equal(decode(odd.png16(wide), 1)[..., 0], wide >> 8)
    colour = np.stack([wide, wide[::-1], wide[:, ::-1]], -1)
    assert np.array_equal(decode(odd.png16(colour), 3), (colour >> 8).astype(np.uint8))
    assert np.array_equal(picture_of(wide, 1)[..., 0], wide >> 8)


def test_format_is_by_first_bytes():
    assert format_of(odd.jpeg(odd.scene(4, 4))) == "JPEG"
    assert format_of(odd.png(Image.fromarray(odd.scene(4, 4)))) == "PNG"
    assert format_of(b"hello") is None


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", r"is empty \(0 bytes\)"),
        (b"not a picture", r"is no picture: its first bytes are 6e 6f 74 20 61"),
        (odd.png(Image.fromarray(odd.scene(30, 30)))[:-40], "bytes"),
        (odd.png(Image.fromarray(odd.scene(30, 30)))[:40], "bytes"),
        (odd.jpeg(odd.scene(30, 30))[:-40], "bytes"),
    ],
)
def test_damage_is_an_error_with_a_reason(data, text):
    with pytest.raises(ValueError, match=text):
        decode(data, 3)


def test_floating_point_pictures_are_refused():
    out = io.BytesIO()
    Image.fromarray(np.zeros((3, 3), np.float32)).save(out, "TIFF")
    with pytest.raises(ValueError, match="floating-point pixels; convert it to 8 bits"):
        decode(out.getvalue(), 3)


def test_fallback_decoder_equals_the_native_one(no_native_jpeg):
    for pixels in (odd.scene(40, 50), odd.scene(33, 47, 4), odd.scene(21, 34, 1)):
        data = odd.jpeg(pixels)
        assert np.array_equal(decode(data, 3), _native.decode_jpeg(data, 3))
    with pytest.raises(ValueError, match="bytes"):
        decode(odd.jpeg(odd.scene(40, 50))[:-60], 3)


@pytest.mark.parametrize("found", [1, 2, 3, 4])
@pytest.mark.parametrize("wanted", [1, 3])
def test_channels_are_converted(found, wanted):
    pixels = odd.scene(5, 6, found)
    got = as_channels(pixels, wanted)
    assert got.shape == (5, 6, wanted) and got.flags.c_contiguous
    colours = pixels[..., : found - 1] if found in (2, 4) else pixels
    if colours.shape[2] == wanted:
        assert np.array_equal(got, colours)
    elif wanted == 3:
        assert np.array_equal(got, np.repeat(colours, 3, axis=2))
    else:
        expected = np.asarray(Image.fromarray(colours).convert("L"))
        assert np.array_equal(got[..., 0], expected)


def test_pictures_of_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"received float32 \(3, 3\)"):
        as_channels(np.zeros((3, 3), np.float32), 1)
    with pytest.raises(ValueError, match="has 5 channels; 3 are expected"):
        as_channels(np.zeros((3, 3, 5), np.uint8), 3)


def test_tensors_and_pil_pictures():
    pixels = odd.scene(6, 7)
    assert np.array_equal(picture_of(torch.from_numpy(pixels).permute(2, 0, 1), 3), pixels)
    assert np.array_equal(picture_of(Image.fromarray(pixels), 3), pixels)
    assert np.array_equal(picture_of(odd.png(Image.fromarray(pixels)), 3), pixels)
