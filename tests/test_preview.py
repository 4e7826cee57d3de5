"""Report, counters, benchmark and picture of a loader."""

import numpy as np
import odd_pictures as odd
import pytest
from PIL import Image

import renaissance as rn
from renaissance import _native
from renaissance.datasets import ImageFolder, Synthetic

pytestmark = pytest.mark.timeout(60)


def loader_of(dataset, **settings):
    return rn.Loader(dataset, **({"batch_size": 8, "workers": 2, "seed": 1} | settings))


def test_report_says_what_is_read_and_how():
    loader = loader_of(
        Synthetic(100, size=16), shuffle=True, transforms=(rn.Pad(2), rn.RandomCrop(16))
    )
    lines = loader.report().splitlines()
    assert lines[0] == "100 samples of 10 classes: pictures in memory, read by C++ workers"
    assert lines[1] == "13 batches of 8, shuffled, 2 workers"
    assert [line.split()[0] for line in lines[2:]] == ["picture", "Pad(2)", "RandomCrop(16)"]
    assert "arrays in memory" in rn.Loader.from_arrays(np.zeros((4, 2)), batch_size=2).report()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "a").mkdir()
    for k in range(12):
        (tmp_path / "a" / f"{k:02}.jpg").write_bytes(odd.jpeg(odd.scene(40, 50, seed=k)))
    return tmp_path


def test_a_build_without_libjpeg_gives_the_same_bytes_and_says_so(folder, monkeypatch):
    settings = {"transforms": (rn.RandomResizedCrop(16), rn.RandomHorizontalFlip())}
    files = ImageFolder(folder, in_memory=False)
    usual = loader_of(files, **settings)
    expected = list(usual.epoch(0))
    assert ("libjpeg-turbo in C++" in usual.report()) == _native.has_jpeg()
    monkeypatch.setattr(_native, "has_jpeg", lambda: False)
    for workers in (0, 2):
        other = loader_of(files, workers=workers, **settings)
        assert "JPEG: torchvision, as this build found no jpeglib.h" in other.report()
        for a, b in zip(expected, other.epoch(0), strict=True):
            assert a.x.tobytes() == b.x.tobytes() and a.y.tolist() == b.y.tolist()


def test_counters_add_up_over_streams(folder):
    loader = loader_of(ImageFolder(folder, in_memory=False), transforms=(rn.Resize((20, 20)),))
    assert loader.stats()["images"] == 0
    for epoch in range(3):
        assert len(list(loader.epoch(epoch))) == 2
    stats = loader.stats()
    assert stats["images"] == 36
    assert stats["augment_ms"] > 0
    assert (stats["decode_ms"] > 0) == _native.has_jpeg()
    with loader.stream() as stream:
        list(stream)
        assert stream.stats()["images"] == 12
        assert loader.stats()["images"] == 48


def test_bench_counts_what_it_made():
    figures = loader_of(Synthetic(200, size=8)).bench(seconds=0.2)
    assert figures["images"] >= 200 and figures["images_per_second"] > 0
    assert figures["images_per_second_per_core"] > 0 and figures["workers"] == 2


@pytest.mark.parametrize("channels", [1, 3])
def test_show_batch_draws_the_pictures_that_the_model_sees(tmp_path, channels):
    dataset = Synthetic(9, size=96, channels=channels)
    mean, std = (0.2,) * channels, (0.3,) * channels
    loader = loader_of(dataset, transforms=(rn.Normalize(mean=mean, std=std),))
    loader.show_batch(tmp_path / "new" / "batch.png", count=5)
    sheet = np.asarray(Image.open(tmp_path / "new" / "batch.png"))
    assert sheet.shape == (2 * 114, 3 * 100, 3)
    x = dataset.as_arrays()[0]
    for k in range(5):
        top, left = k // 3 * 114 + 2, k % 3 * 100 + 2
        drawn = sheet[top : top + 96, left : left + 96]
        assert np.array_equal(drawn, np.broadcast_to(x[k], (96, 96, 3)))


def test_show_batch_is_for_pictures(tmp_path):
    loader = rn.Loader.from_arrays(np.zeros((4, 2), np.float32), batch_size=2)
    with pytest.raises(ValueError, match="show_batch draws pictures; x is float32"):
        loader.show_batch(tmp_path / "batch.png")
