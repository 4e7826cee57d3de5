"""Our entropy decoder of JPEG files gives what libjpeg-turbo's gives, damage included."""

import numpy as np
import odd_pictures as odd
import pytest
from coded_scans import FLAT, LONG, coded_scan
from hypothesis import given, settings
from hypothesis import strategies as st

import renaissance as rn
from renaissance import _native

pytestmark = [
    pytest.mark.timeout(60),
    pytest.mark.skipif(not _native.use_huffman(True), reason="libjpeg-turbo missing or unknown"),
]

SAMPLINGS = {
    "4:4:4": ((1, 1), (1, 1), (1, 1)),
    "4:2:2": ((2, 1), (1, 1), (1, 1)),
    "4:2:0": ((2, 2), (1, 1), (1, 1)),
    "4:4:0": ((1, 2), (1, 1), (1, 1)),
    "4:1:1": ((4, 1), (1, 1), (1, 1)),
    "uneven": ((2, 2), (2, 1), (1, 2)),
    "grey": ((1, 1),),
    "grey, 2 by 2": ((2, 2),),
    "four inks": ((1, 1),) * 4,
    "four inks, 4:2:0": ((2, 2), (1, 1), (1, 1), (2, 2)),
}


def outcome(data, channels=3):
    """Shape and bytes of the picture, or the text of the error."""
    try:
        pixels = _native.decode_jpeg(data, channels)
    except ValueError as error:
        return str(error)
    return pixels.shape, pixels.tobytes()


def counted(run):
    """What run() gives, and the pictures (ours, started over, the library's) meanwhile."""
    before = _native.huffman_counts()
    found = run()
    counts = zip(_native.huffman_counts(), before, strict=True)
    return found, tuple(now - then for now, then in counts)


def by_library(run):
    _native.use_huffman(False)
    try:
        return run()
    finally:
        _native.use_huffman(True)


def assert_ours_is_the_librarys(data, channels=3):
    ours, counts = counted(lambda: outcome(data, channels))
    theirs, others = counted(lambda: by_library(lambda: outcome(data, channels)))
    assert ours == theirs
    assert not isinstance(ours, str), ours
    assert counts == (1, 0, 0) and others == (0, 0, 1)


@pytest.mark.parametrize("options", [{}, {"optimize": True}], ids=["standard", "optimized"])
@pytest.mark.parametrize("subsampling", odd.COLOURS.values(), ids=odd.COLOURS)
def test_every_quality(options, subsampling):
    pixels = odd.scene(37, 45)
    for quality in range(1, 101):
        data = odd.jpeg(pixels, quality=quality, subsampling=subsampling, **options)
        assert_ours_is_the_librarys(data)


@pytest.mark.parametrize("size", [(1, 1), (7, 9), (8, 8), (16, 33), (37, 75), (130, 41)])
@pytest.mark.parametrize("channels", [1, 3, 4])
def test_sizes_of_noise_and_of_smooth_pictures(size, channels):
    noise = np.random.default_rng(0).integers(0, 256, (*size, channels)).astype(np.uint8)
    flat = np.full_like(noise, 77)
    for pixels in (noise, flat, odd.scene(*size, channels)):
        for wanted in (1, 3):
            assert_ours_is_the_librarys(odd.jpeg(pixels, quality=97), wanted)


@pytest.mark.parametrize("lengths", [FLAT, LONG], ids=["flat", "long"])
@pytest.mark.parametrize("sampling", SAMPLINGS.values(), ids=SAMPLINGS)
def test_random_coefficients_of_any_sampling(sampling, lengths):
    rng = np.random.default_rng(1)
    for density in (0, 0.03, 0.3, 0.9, 1):
        for size in ((1, 1), (19, 50), (33, 16)):
            data = coded_scan(rng, *size, sampling=sampling, density=density, lengths=lengths)
            assert_ours_is_the_librarys(data)
            assert_ours_is_the_librarys(data, 1)


def test_restart_markers_and_progressive_files_stay_with_the_library():
    rng = np.random.default_rng(2)
    pixels = odd.scene(50, 60)
    files = [
        odd.jpeg(pixels, progressive=True),
        odd.jpeg(pixels, restart_marker_blocks=3),
        coded_scan(rng, 50, 60, sampling=SAMPLINGS["4:2:0"], restart=2),
    ]
    for data in files:
        ours, counts = counted(lambda data=data: outcome(data))
        assert counts == (0, 0, 1)
        assert ours == by_library(lambda data=data: outcome(data))
        assert not isinstance(ours, str)


class Encoded:
    num_classes = 10

    def __init__(self, files):
        self.files = files

    def __len__(self):
        return len(self.files)

    def read(self, index):
        return self.files[index], 0


@settings(max_examples=60, deadline=None)
@given(
    size=st.tuples(st.integers(9, 90), st.integers(9, 130)),
    sampling=st.sampled_from(list(SAMPLINGS.values())),
    density=st.sampled_from([0.02, 0.2, 0.8]),
    seed=st.integers(0, 1000),
    crop=st.integers(1, 9),
)
def test_crops(size, sampling, density, seed, crop):
    data = coded_scan(np.random.default_rng(seed), *size, sampling=sampling, density=density)
    for transform in (rn.RandomCrop(crop), rn.RandomResizedCrop(8, scale=(0.05, 0.6))):
        loader = rn.Loader(
            Encoded([data] * 12), batch_size=12, transforms=(transform,), workers=0, seed=seed
        )
        ours, counts = counted(lambda loader=loader: loader.batch_at(0, 0).x.tobytes())
        assert counts == (12, 0, 0)
        assert ours == by_library(lambda loader=loader: loader.batch_at(0, 0).x.tobytes())


def scan_of(data):
    """First and last place of the coded bytes."""
    start = data.index(b"\xff\xda")
    return start + 2 + int.from_bytes(data[start + 2 : start + 4], "big"), len(data) - 2


def damaged(rng, data):
    """One byte overwritten, put in or left out within the scan, or the scan cut short."""
    first, last = scan_of(data)
    place = int(rng.integers(first, last))
    byte = bytes([int(rng.choice([0, 0xFF, 0xD0, 0xD9, rng.integers(256), rng.integers(256)]))])
    return [
        data[:place] + byte + data[place + 1 :],
        data[:place] + byte + data[place:],
        data[:place] + data[place + 1 :],
        data[:place] + b"\xff\xd9",
        data[:last] + byte + b"\xff\xd9",
    ][int(rng.integers(5))]


@pytest.mark.parametrize("kind", ["photo", "sparse", "long", "grey"])
def test_damage_gives_what_the_library_gives(kind):
    rng = np.random.default_rng(3)
    whole = {
        "photo": lambda: odd.jpeg(odd.scene(24, 40), subsampling=2),
        "sparse": lambda: odd.jpeg(odd.scene(40, 40), quality=10),
        "long": lambda: coded_scan(rng, 17, 30, sampling=SAMPLINGS["4:2:2"], lengths=LONG),
        "grey": lambda: coded_scan(rng, 30, 30, sampling=SAMPLINGS["grey"], density=0.05),
    }[kind]()
    files = [damaged(rng, whole) for _ in range(1500)]
    ours, counts = counted(lambda: [outcome(data) for data in files])
    assert ours == by_library(lambda: [outcome(data) for data in files])
    assert sum(isinstance(found, str) for found in ours) > 300
    assert counts[0] > 10 and counts[1] > 300  # both: taken as it is, and found to be irregular


def test_damage_of_crops_gives_what_the_library_gives():
    rng = np.random.default_rng(4)
    whole = odd.jpeg(odd.scene(60, 70), subsampling=2)

    def batch(data, seed):
        loader = rn.Loader(
            Encoded([data] * 3), batch_size=3, transforms=(rn.RandomCrop(20),), workers=0, seed=seed
        )
        try:
            return loader.batch_at(0, 0).x.tobytes()
        except ValueError as error:
            return str(error)

    found = []
    for seed in range(150):
        data = damaged(rng, whole)
        found.append(batch(data, seed))
        assert found[-1] == by_library(lambda data=data, seed=seed: batch(data, seed))
    assert 10 < sum(isinstance(one, str) for one in found) < 140


def test_bytes_before_the_end_marker_are_not_ours_to_judge():
    data = odd.jpeg(odd.scene(24, 40))
    for extra in (b"\0", b"\x12" * 3, b"\x12" * 40):
        padded = data[:-2] + extra + data[-2:]
        ours, counts = counted(lambda padded=padded: outcome(padded))
        assert counts == (0, 1, 0)
        assert ours == by_library(lambda padded=padded: outcome(padded))
