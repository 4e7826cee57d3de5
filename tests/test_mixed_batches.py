"""Loaders that mix: the workers' batches are `mix_batch` of the unmixed ones, bit for bit."""

import numpy as np
import odd_pictures as odd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import renaissance as rn
from renaissance import _native
from renaissance.data.batch import DamagedSample
from renaissance.data.mix import mix_batch
from renaissance.data.preview import draw_batch
from renaissance.datasets import ImageFolder, Synthetic

pytestmark = pytest.mark.timeout(60)

BOTH = [rn.Mixup(0.4), rn.CutMix()]
PICTURES = Synthetic(41, size=12, seed=1)


def loader_of(dataset=PICTURES, **more):
    chain = (rn.RandomCrop(12, padding=2),)
    defaults = {"batch_size": 8, "shuffle": True, "seed": 5, "workers": 2, "transforms": chain}
    return rn.Loader(dataset, **(defaults | more))


def reference(plain, mixes, *, num_classes=10, seed=5, epoch=0):
    """The mixed form of an unmixed batch: (x, y) arrays."""
    x = torch.from_numpy(plain.x.copy())
    y = mix_batch(
        mixes, x, torch.from_numpy(plain.y), plain.ids,
        num_classes=num_classes, seed=seed, epoch=epoch,
    )  # fmt: skip
    return x.numpy(), y.numpy()


def assert_mixed(batch, plain, mixes, **options):
    x, y = reference(plain, mixes, **options)
    assert batch.ids.tolist() == plain.ids.tolist()
    assert batch.y.dtype == np.float32
    assert batch.x.tobytes() == x.tobytes() and batch.y.tobytes() == y.tobytes()


def same(first, second):
    pairs = list(zip(first, second, strict=True))
    return all(
        a.x.tobytes() == b.x.tobytes()
        and a.y.tobytes() == b.y.tobytes()
        and a.ids.tolist() == b.ids.tolist()
        for a, b in pairs
    )


@settings(max_examples=40, deadline=None)
@given(
    count=st.integers(1, 41),
    batch_size=st.integers(1, 11),
    workers=st.sampled_from([0, 1, 2, 7]),
    prefetch=st.integers(0, 5),
    mixes=st.sampled_from([[rn.Mixup(0.2)], [rn.CutMix(0.7)], BOTH, [rn.CutMix(p=0.5)]]),
    seed=st.sampled_from([0, 5, 5 + 2**32]),
    epoch=st.integers(0, 3),
    data=st.data(),
)
def test_batches_are_mix_batch_of_the_unmixed(
    count, batch_size, workers, prefetch, mixes, seed, epoch, data
):
    form = {"batch_size": batch_size, "seed": seed}
    dataset = Synthetic(count, size=12, seed=1)
    plain = list(loader_of(dataset, **form, workers=0).epoch(epoch))
    mixed = loader_of(dataset, **form, mix=mixes, workers=workers, prefetch=prefetch)
    found = list(mixed.epoch(epoch))
    for a, b in zip(plain, found, strict=True):
        assert_mixed(b, a, mixes, seed=seed, epoch=epoch)
    step = data.draw(st.integers(0, len(plain) - 1), "step")
    assert same([mixed.batch_at(epoch, step)], [found[step]])
    with mixed.stream(epoch=epoch, start_step=step) as stream:
        assert same([batch.as_numpy() for batch in stream], found[step:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("channels", [3, 4])
def test_every_form_of_output(dtype, layout, channels):
    form = {"dtype": dtype, "layout": layout, "channels": channels}
    with loader_of().stream(**form) as plain, loader_of(mix=BOTH).stream(**form) as mixed:
        for a, b in zip(plain, mixed, strict=True):
            x = a.x.clone(memory_format=torch.preserve_format)
            y = mix_batch(BOTH, x, a.y, a.ids, num_classes=10, seed=5, epoch=0)
            assert b.x.dtype == dtype and b.x.stride() == a.x.stride()
            assert torch.equal(b.x, x) and torch.equal(b.y, y)
            assert not torch.equal(b.x, a.x) or len(b) == 1


def test_simd_and_portable_blends_agree():
    loader = loader_of(mix=rn.Mixup())
    found = {}
    for wanted in (True, False):
        before = _native.allow_avx2(wanted)
        try:
            with loader.stream(dtype=torch.float16) as stream:
                found[wanted] = [batch.as_numpy() for batch in stream]
        finally:
            _native.allow_avx2(before)
    assert same(found[True], found[False])


def test_the_last_of_an_odd_batch_stays():
    loader = loader_of(batch_size=5, mix=rn.Mixup())
    for plain, mixed in zip(loader_of(batch_size=5).epoch(0), loader.epoch(0), strict=True):
        assert len(plain) in (5, 1)
        assert np.array_equal(plain.x[-1], mixed.x[-1])
        assert mixed.y[-1].tolist() == np.eye(10)[plain.y[-1]].tolist()


def test_slots_are_used_again_and_rewinding_forgets_half_made_pairs():
    loader = loader_of(mix=BOTH, prefetch=6, workers=7)
    expected = {e: list(loader.epoch(e)) for e in range(4)}
    with loader.stream() as stream:
        for number in range(60):
            epoch, step = number % 4, number % 6
            stream.rewind(epoch, step)
            assert same([next(stream).as_numpy()], [expected[epoch][step]])


def test_large_rings_mix_in_the_caches():
    """A ring of this size is written past the caches when nothing is mixed."""
    dataset = Synthetic(400, size=32, seed=1)
    form = {"transforms": (), "batch_size": 400, "prefetch": 4}
    plain, mixed = loader_of(dataset, **form), loader_of(dataset, **form, mix=BOTH)
    assert_mixed(mixed.batch_at(0, 0), plain.batch_at(0, 0), BOTH)
    assert same(list(mixed.epoch(0)), [mixed.batch_at(0, 0)])


@pytest.mark.parametrize("world", [2, 4])
def test_ranks_give_slices_of_the_same_batches(world):
    dataset = Synthetic(53, size=8, seed=1)
    loader = loader_of(dataset, batch_size=16, transforms=(), mix=BOTH)
    parts = []
    for rank in range(world):
        with loader.stream(rank=rank, world=world) as stream:
            parts.append([batch.as_numpy() for batch in stream])
    for whole, *slices in zip(loader.epoch(0), *parts, strict=True):
        assert np.array_equal(whole.x, np.concatenate([part.x for part in slices]))
        assert np.array_equal(whole.y, np.concatenate([part.y for part in slices]))
    with pytest.raises(ValueError, match="cannot be shared by 2; it takes a multiple of 4"):
        loader_of(batch_size=6, mix=BOTH).stream(world=2)
    loader_of(batch_size=6).stream(world=2).close()


class Own:
    """Read by Python, in threads of its own."""

    num_classes = 3

    def __len__(self):
        return 19

    def read(self, index):
        return np.full((6, 6, 1), 10 * index, np.uint8), index % 3


@pytest.mark.parametrize("workers", [0, 1, 4])
def test_data_sets_in_python(workers):
    form = {"batch_size": 7, "transforms": ()}
    plain = loader_of(Own(), **form, workers=0)
    mixed = loader_of(Own(), **form, workers=workers, mix=BOTH)
    for a, b in zip(plain.epoch(1), mixed.epoch(1), strict=True):
        assert_mixed(b, a, BOTH, num_classes=3, epoch=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """20 files in 2 classes, JPEG and PNG, the third one broken."""
    root = tmp_path_factory.mktemp("pictures")
    for index in range(20):
        kind = root / ("cat" if index < 10 else "dog")
        kind.mkdir(exist_ok=True)
        scene = odd.scene(20, 24, seed=index)
        data = odd.png(odd.Image.fromarray(scene)) if index % 4 == 1 else odd.jpeg(scene)
        (kind / f"{index:02}.jpg").write_bytes(b"" if index == 2 else data)
    return root


@pytest.mark.parametrize("policy", ["replace", "blank"])
def test_files_and_damaged_samples(folder, policy):
    chain = (rn.RandomResizedCrop(10), rn.RandomHorizontalFlip())
    form = {"transforms": chain, "on_error": policy, "batch_size": 5}
    dataset = ImageFolder(folder, in_memory=False)
    plain = list(loader_of(dataset, **form).epoch(0))
    for workers in (0, 1, 7):
        mixed = loader_of(dataset, **form, workers=workers, mix=BOTH)
        for a, b in zip(plain, mixed.epoch(0), strict=True):
            assert_mixed(b, a, BOTH, num_classes=2)


def test_a_damaged_sample_is_named_and_ends_the_stream(folder):
    dataset = ImageFolder(folder, in_memory=False)
    for workers in (0, 4):
        loader = loader_of(dataset, transforms=(rn.Resize((8, 8)),), workers=workers, mix=BOTH)
        with pytest.raises(DamagedSample, match=r"sample 2 .*02.jpg\): is empty"):
            list(loader.epoch(0))


def test_labels_that_change_under_a_loader_are_an_error_and_write_nowhere():
    y = np.arange(8) % 4
    loader = rn.Loader.from_arrays(
        np.zeros((8, 4, 4), np.uint8), y, num_classes=4, batch_size=4, seed=1, mix=rn.Mixup()
    )
    loader.batch_at(0, 1)
    y[6] = 1 << 40
    assert loader.batch_at(0, 0).y.shape == (4, 4)
    with pytest.raises(DamagedSample, match=r"sample 6: has label 1099511627776 now; with 4 cl"):
        loader.batch_at(0, 1)


def test_what_a_mixing_loader_says_of_itself():
    plain, mixed = loader_of(), loader_of(mix=rn.Mixup(0.2))
    assert mixed.mix == (rn.Mixup(0.2),) and plain.mix == ()
    assert "mix=(Mixup(0.2),)" in repr(mixed)
    assert "pairs of neighbours mixed by Mixup(0.2)" in mixed.report()
    label = mixed.sample_spec().label
    assert (label.shape, label.dtype, label.num_classes) == ((10,), torch.float32, 10)
    assert plain.resident() is not None and mixed.resident() is None
    assert mixed.identity() == plain.identity() | {"mix": ["Mixup(0.2)"]}
    assert loader_of(mix=[rn.Mixup(0.3)]).identity() != mixed.identity()


@pytest.mark.parametrize(
    "wanted, error, text",
    [
        (0.2, TypeError, r"mix = 0.2 \(float\) is not allowed; it takes a Mixup, a CutMix or both"),
        (rn.Mixup, TypeError, r"write Mixup\(\)"),
        ([rn.Mixup(), rn.RandomCrop(4)], TypeError, r"mix = RandomCrop\(4\)"),
        ([rn.Mixup(), rn.Mixup(0.2)], ValueError, "takes a Mixup, a CutMix or both"),
        ([rn.Mixup(), rn.CutMix(p=0.5)], ValueError, "different p"),
    ],
)
def test_wrong_mixes(wanted, error, text):
    with pytest.raises(error, match=text):
        loader_of(mix=wanted)


class Unnumbered(Own):
    num_classes = None


def test_data_that_cannot_be_mixed():
    def loader(x, y):
        return rn.Loader.from_arrays(x, y, batch_size=2, mix=rn.Mixup())

    pictures, rows = np.zeros((4, 4, 4), np.uint8), np.zeros((4, 3), np.float32)
    with pytest.raises(TypeError, match="transforms and mix work on uint8 pictures; x is float32"):
        loader(rows, np.arange(4))
    with pytest.raises(ValueError, match="mix makes probabilities of class numbers.*no labels"):
        loader(pictures, None)
    with pytest.raises(ValueError, match=r"has torch.float32 labels of shape \(3,\)"):
        loader(pictures, rows)
    with pytest.raises(ValueError, match="mix needs the number of classes.*num_classes"):
        loader_of(Unnumbered(), transforms=(), mix=rn.Mixup())
    with pytest.raises(ValueError, match="device_cache='on' is not allowed with mix"):
        loader_of(mix=rn.Mixup(), device_cache="on")
    with pytest.raises(ValueError, match=r"give it to the loader as mix=Mixup\(\)"):
        loader_of(transforms=(rn.Mixup(),))


def test_pictures_of_a_mixed_batch_name_both_classes(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        "PIL.ImageDraw.ImageDraw.text", lambda self, place, text, **options: drawn.append(text)
    )
    y = np.zeros((4, 3), np.float32)
    y[0, 2], y[1, 0], y[1, 1], y[2, 1] = 1.0, 0.25, 0.75, 0.5
    y[2, 2] = 0.5
    names = ("ant", "bee", "cow")
    program = loader_of()._program
    draw_batch(tmp_path / "a.png", rn.Batch(np.zeros((4, 3, 8, 8)), y, None), program, names, 3)
    assert drawn == ["cow: 100%", "bee: 75%, ant: 25%", "bee: 50%, cow: 50%"]
    drawn.clear()
    loader_of(mix=rn.Mixup()).show_batch(tmp_path / "b.png", count=2)
    assert len(drawn) == 2 and (tmp_path / "b.png").stat().st_size > 200
