"""Damaged samples under every policy: error, replacement, blank; limit and report."""

import numpy as np
import odd_pictures as odd
import pytest
from PIL import Image

import renaissance as rn
from renaissance import _native
from renaissance.data.folder import verify
from renaissance.datasets import ImageFolder

pytestmark = pytest.mark.timeout(60)

BAD = {7: "cut", 20: "overwritten", 33: "empty", 41: "text"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """50 pictures in 2 classes, JPEG and PNG, four of them damaged, three ways."""
    root = tmp_path_factory.mktemp("pictures")
    for index in range(50):
        kind = root / ("cat" if index < 25 else "dog")
        kind.mkdir(exist_ok=True)
        data = odd.jpeg(odd.scene(40, 48, seed=index))
        if index % 10 == 3 and index not in BAD:
            data = odd.png(Image.fromarray(odd.scene(40, 48, seed=index)))
        damage = BAD.get(index)
        if damage == "cut":
            data = data[:-300]
        elif damage == "overwritten":
            data = odd.overwritten(data)
        elif damage is not None:
            data = b"" if damage == "empty" else b"<html>not found</html>"
        (kind / f"{index:03}.jpg").write_bytes(data)
    return root


needs_jpeg = pytest.mark.skipif(not _native.has_jpeg(), reason="overwritten bytes go unnoticed")


def loader_of(folder, **settings):
    defaults = {
        "batch_size": 8,
        "shuffle": True,
        "seed": 4,
        "workers": 2,
        # Damage below a random crop would not be met, as nothing there is decoded.
        "transforms": (rn.Resize((16, 16)), rn.RandomHorizontalFlip()),
    }
    return rn.Loader(ImageFolder(folder, in_memory=False), **(defaults | settings))


@needs_jpeg
def test_raise_names_index_and_file(folder):
    loader = loader_of(folder, shuffle=False)
    with pytest.raises(ValueError, match=r"sample 7 \(.*cat/007.jpg\): truncated.*\d+ bytes"):
        list(loader.epoch(0))
    with pytest.raises(ValueError, match=r"sample 20 \(.*cat/020.jpg\): .*Corrupt"):
        loader.batch_at(0, 2)
    with pytest.raises(ValueError, match=r"sample 33 \(.*dog/033.jpg\): is empty"):
        loader.batch_at(0, 4)
    with pytest.raises(ValueError, match=r"sample 41 \(.*dog/041.jpg\): is no picture"):
        loader.batch_at(0, 5)
    assert loader.batch_at(0, 1).x.shape == (8, 3, 16, 16)


def test_the_first_position_is_named_whatever_worker_comes_first(folder):
    for workers in (0, 1, 7):
        with pytest.raises(ValueError, match="sample 7 "):
            list(loader_of(folder, shuffle=False, workers=workers, batch_size=50).epoch(0))


@needs_jpeg
@pytest.mark.parametrize("policy", ["replace", "blank"])
def test_policies_keep_every_batch_whole_and_do_not_depend_on_workers(folder, policy):
    expected = list(loader_of(folder, on_error=policy, workers=0).epoch(2))
    assert [len(batch) for batch in expected] == [8] * 6 + [2]
    for workers, prefetch in ((1, 0), (2, 2), (7, 5)):
        loader = loader_of(folder, on_error=policy, workers=workers, prefetch=prefetch)
        for a, b in zip(expected, loader.epoch(2), strict=True):
            assert a.x.tobytes() == b.x.tobytes()
            assert (a.y.tolist(), a.ids.tolist()) == (b.y.tolist(), b.ids.tolist())


@needs_jpeg
def test_replacements_are_other_sound_samples_with_their_labels(folder):
    loader = loader_of(folder, on_error="replace")
    order = rn.Permutation(50, 4, 0)
    labels = ImageFolder(folder).labels()
    replaced = []
    for step, batch in enumerate(loader.epoch(0)):
        assert batch.y.tolist() == labels[batch.ids].tolist()
        wanted = order[step * 8 : step * 8 + 8]
        replaced += [(int(w), int(i)) for w, i in zip(wanted, batch.ids) if w != i]
    assert {w for w, _ in replaced} == set(BAD)
    assert all(i not in BAD for _, i in replaced)
    other = {int(i) for e in range(1, 5) for b in loader.epoch(e) for i in b.ids}
    assert not other & set(BAD)
    report = loader.report()
    assert "4 damaged samples (replace):" in report
    assert "007.jpg: truncated" in report and "first replaced by" in report


@needs_jpeg
def test_blank_keeps_label_and_id(folder):
    loader = loader_of(folder, on_error="blank", shuffle=False)
    labels = ImageFolder(folder).labels()
    for batch in loader.epoch(0):
        assert batch.y.tolist() == labels[batch.ids].tolist()
        for x, id in zip(batch.x, batch.ids):
            assert x.any() == (int(id) not in BAD)


@needs_jpeg
def test_a_limit_ends_the_run(folder):
    loader = loader_of(folder, on_error="replace", damage_limit=2, shuffle=False)
    assert loader.damage_limit == 2
    with pytest.raises(
        ValueError, match="sample 33 .*3 samples are damaged, more than the limit of 2"
    ):
        list(loader.epoch(0))
    assert loader_of(folder, on_error="replace").damage_limit == 16


def test_nothing_sound_left_is_an_error(tmp_path):
    (tmp_path / "a").mkdir()
    for k in range(3):
        (tmp_path / "a" / f"{k}.jpg").write_bytes(b"\xff\xd8\xff nothing")
    loader = loader_of(tmp_path, on_error="replace", batch_size=3)
    with pytest.raises(ValueError, match="so were 16 samples drawn in place of sample"):
        list(loader.epoch(0))


def test_a_python_data_set_is_replaced_too():
    class Own:
        num_classes = 3

        def __len__(self):
            return 20

        def read(self, index):
            if index in (3, 11):
                raise OSError("disk on fire")
            return odd.scene(8, 8, seed=index), index % 3

    batches = {
        workers: list(rn.Loader(Own(), batch_size=6, on_error="replace", workers=workers).epoch(0))
        for workers in (0, 3)
    }
    ids = np.concatenate([batch.ids for batch in batches[0]])
    assert not {3, 11} & set(ids.tolist()) and len(ids) == 20
    for a, b in zip(*batches.values(), strict=True):
        assert a.x.tobytes() == b.x.tobytes() and a.ids.tolist() == b.ids.tolist()
    with pytest.raises(ValueError, match='on_error="blank" needs labels that are known'):
        rn.Loader(Own(), batch_size=6, on_error="blank")


def test_a_picture_too_small_for_its_crop_is_damage(tmp_path):
    (tmp_path / "a").mkdir()
    for k, side in enumerate((30, 12, 31)):
        (tmp_path / "a" / f"{k}.jpg").write_bytes(odd.jpeg(odd.scene(side, 30)))
    loader = loader_of(tmp_path, transforms=(rn.RandomCrop(24),), shuffle=False)
    with pytest.raises(ValueError, match="sample 1 .*12x30 is smaller than the crop of 24x24"):
        loader.batch_at(0, 0)
    again = loader_of(tmp_path, transforms=(rn.RandomCrop(24),), shuffle=False, on_error="replace")
    assert 1 not in again.batch_at(0, 0).ids.tolist()


@needs_jpeg
def test_verify_lists_every_damaged_file(folder):
    report = verify(folder)
    assert [found.path[-7:] for found in report.damaged] == [f"{k:03}.jpg" for k in sorted(BAD)]
    assert not report.is_sound and report.num_files == 50
    assert report.to_text().splitlines()[0].endswith("50 pictures in 2 classes, 4 damaged")


@needs_jpeg
def test_in_memory_reading_meets_the_same_damage(folder):
    with pytest.raises(ValueError, match=r"cat/007.jpg: truncated"):
        ImageFolder(folder, in_memory=True).as_arrays()
    auto = ImageFolder(folder)
    assert auto.as_arrays() is None  # left to on_error, sample by sample
    a = rn.Loader(auto, batch_size=50, on_error="replace", seed=1, workers=0).batch_at(0, 0)
    assert not set(a.ids.tolist()) & set(BAD)
