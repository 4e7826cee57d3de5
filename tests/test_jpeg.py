"""JPEG in C++: whole and in part, odd kinds, and damage."""

import io

import numpy as np
import odd_pictures as odd
import pytest
import torch
from PIL import Image

import renaissance as rn
from renaissance import _native
from renaissance.data.dataset import ArrayDataset
from renaissance.random import AUGMENT, derive

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(not _native.has_jpeg(), reason="this build has no libjpeg-turbo"),
]

SIZES = [(1, 1), (7, 9), (8, 8), (16, 33), (37, 75), (64, 48)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("subsampling", odd.COLOURS.values(), ids=odd.COLOURS)
def test_whole_picture_equals_pillow(size, subsampling):
    data = odd.jpeg(odd.scene(*size), subsampling=subsampling)
    assert np.array_equal(_native.decode_jpeg(data, 3), odd.pil(data))


@pytest.mark.parametrize("options", [{"progressive": True}, {"optimize": True}, {"quality": 30}])
def test_other_encodings_equal_pillow(options):
    data = odd.jpeg(odd.scene(45, 61), **options)
    assert np.array_equal(_native.decode_jpeg(data, 3), odd.pil(data))


def test_grey_becomes_three_equal_channels():
    data = odd.jpeg(odd.scene(21, 34, 1))
    grey = _native.decode_jpeg(data, 1)
    assert grey.shape == (21, 34, 1)
    assert np.array_equal(grey[..., 0], odd.pil(data, "L"))
    assert np.array_equal(_native.decode_jpeg(data, 3), np.repeat(grey, 3, axis=2))


def test_colour_becomes_grey_by_the_files_own_luma():
    from torchvision.io import ImageReadMode, decode_jpeg

    data = odd.jpeg(odd.scene(21, 34))
    encoded = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    expected = decode_jpeg(encoded, mode=ImageReadMode.GRAY)[0].numpy()
    assert np.array_equal(_native.decode_jpeg(data, 1)[..., 0], expected)


def test_cmyk_equals_pillow():
    data = odd.jpeg(odd.scene(33, 47, 4))
    assert Image.open(io.BytesIO(data)).mode == "CMYK"
    assert np.array_equal(_native.decode_jpeg(data, 3), odd.pil(data))
    assert _native.decode_jpeg(data, 1).shape == (33, 47, 1)


def test_exif_turn_is_ignored():
    exif = Image.Exif()
    exif[0x0112] = 6
    data = odd.jpeg(odd.scene(20, 30), exif=exif)
    assert Image.open(io.BytesIO(data)).getexif()[0x0112] == 6
    assert _native.decode_jpeg(data, 3).shape == (20, 30, 3)


@pytest.mark.parametrize("cut", [1, 2, 10, 500])
def test_a_cut_file_is_damage(cut):
    data = odd.jpeg(odd.scene(60, 80))
    with pytest.raises(ValueError, match=r"truncated|Premature|EOI"):
        _native.decode_jpeg(data[:-cut], 3)


@pytest.mark.parametrize("keep", [3, 20, 150, 300, 620])
def test_hardly_a_header_is_damage(keep):
    with pytest.raises(ValueError, match=f"{keep} bytes"):
        _native.decode_jpeg(odd.jpeg(odd.scene(60, 80))[:keep], 3)


def test_overwritten_bytes_are_damage_though_pillow_takes_them():
    data = odd.jpeg(odd.scene(120, 160))
    for seed in range(10):
        bad = odd.overwritten(data, seed=seed)
        assert odd.pil(bad).shape == (120, 160, 3)
        with pytest.raises(ValueError, match="bytes"):
            _native.decode_jpeg(bad, 3)
    assert _native.decode_jpeg(data, 3).shape == (120, 160, 3)  # the decoder goes on afterwards


def test_bytes_after_the_end_are_no_damage():
    data = odd.jpeg(odd.scene(40, 50))
    assert np.array_equal(_native.decode_jpeg(data + b"trailer" * 9, 3), odd.pil(data))


def test_random_bytes_never_crash():
    data = bytearray(odd.jpeg(odd.scene(24, 24), subsampling=2))
    rng = np.random.default_rng(0)
    outcomes = {"read": 0, "refused": 0}
    for _ in range(3000):
        bad = bytearray(data)
        for place in rng.integers(2, len(bad), rng.integers(1, 6)):
            bad[place] = rng.integers(0, 256)
        try:
            _native.decode_jpeg(bytes(bad), 3)
            outcomes["read"] += 1
        except (ValueError, MemoryError):
            outcomes["refused"] += 1
    assert outcomes["refused"] > 100 and outcomes["read"] > 100


def test_a_file_without_tables_does_not_take_those_of_the_file_before():
    data = odd.jpeg(odd.scene(32, 32))  # with the usual codes, which libjpeg-turbo knows by heart
    bare = data
    while (start := bare.find(b"\xff\xc4")) >= 0:
        bare = bare[:start] + bare[start + 2 + int.from_bytes(bare[start + 2 : start + 4], "big") :]
    assert len(bare) < len(data)
    files = [odd.jpeg(odd.scene(32, 32, seed=1), optimize=True), bare]
    loader = rn.Loader(Encoded(files), batch_size=2, transforms=(rn.RandomCrop(32),), workers=0)
    whole = rn.Loader(Whole(files), batch_size=2, transforms=(rn.RandomCrop(32),), workers=0)
    assert loader.batch_at(0, 0).x.tobytes() == whole.batch_at(0, 0).x.tobytes()


class Encoded:
    """JPEG bytes in memory, as a user's data set gives them."""

    num_classes = 10

    def __init__(self, files):
        self.files_in_memory = files

    def __len__(self):
        return len(self.files_in_memory)

    def read(self, index):
        return self.files_in_memory[index], index % 10


def _variants():
    rng = np.random.default_rng(1)
    for kind in ("4:4:4", "4:2:2", "4:2:0", "grey", "progressive", "cmyk"):
        for _ in range(6):
            height, width = rng.integers(20, 140, 2)
            channels = {"grey": 1, "cmyk": 4}.get(kind, 3)
            pixels = odd.scene(height, width, channels, seed=int(height))
            options = {"subsampling": odd.COLOURS[kind]} if kind in odd.COLOURS else {}
            yield odd.jpeg(pixels, progressive=kind == "progressive", **options)


@pytest.mark.parametrize("scale", [(0.08, 1.0), (0.01, 0.1)])
def test_decoding_the_crop_gives_the_bits_of_decoding_everything(scale):
    transforms = (rn.RandomResizedCrop(24, scale=scale), rn.RandomHorizontalFlip())
    files = list(_variants())
    settings = {"batch_size": len(files), "transforms": transforms, "workers": 0, "seed": 3}
    partly = rn.Loader(Encoded(files), **settings)
    whole = rn.Loader(Whole(files), **settings)
    for epoch in range(12):
        a, b = partly.batch_at(epoch, 0), whole.batch_at(epoch, 0)
        assert a.x.tobytes() == b.x.tobytes()


class Whole(Encoded):
    """The same pictures, decoded whole beforehand."""

    def read(self, index):
        return _native.decode_jpeg(self.files_in_memory[index], 3), index % 10


def test_plain_crops_at_every_edge_give_the_bits_of_decoding_everything():
    data = odd.jpeg(odd.scene(50, 70), subsampling=2)
    files = [data] * 64
    settings = {"batch_size": 64, "transforms": (rn.RandomCrop(17),), "workers": 0, "seed": 1}
    partly, whole = rn.Loader(Encoded(files), **settings), rn.Loader(Whole(files), **settings)
    native = partly._program.native
    key = derive(1, AUGMENT)
    boxes = {native.crop_of(50, 70, key, epoch, id)[:2] for epoch in range(20) for id in range(64)}
    tops, lefts = {top for top, _ in boxes}, {left for _, left in boxes}
    assert {0, 50 - 17} <= tops and {0, 70 - 17} <= lefts  # corners and edges do occur
    for epoch in range(20):
        assert partly.batch_at(epoch, 0).x.tobytes() == whole.batch_at(epoch, 0).x.tobytes()


def test_arrays_and_encoded_files_give_the_same_batches():
    files = [odd.jpeg(odd.scene(32, 32, seed=k)) for k in range(20)]
    arrays = ArrayDataset(np.stack([_native.decode_jpeg(f, 3) for f in files]), np.arange(20) % 10)
    transforms = (rn.Pad(4), rn.RandomCrop(32), rn.RandomHorizontalFlip(), rn.RandomErasing(0.5))
    settings = {"batch_size": 7, "shuffle": True, "transforms": transforms, "seed": 2}
    a, b = (
        rn.Loader(arrays, workers=0, **settings),
        rn.Loader(Encoded(files), workers=2, **settings),
    )
    for first, second in zip(a.epoch(1), b.epoch(1), strict=True):
        assert first.x.tobytes() == second.x.tobytes()
        assert first.y.tolist() == second.y.tolist()
