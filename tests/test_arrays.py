"""Arrays as data: what a loader makes of their types and shapes, and what it refuses."""

import numpy as np
import pytest
import torch

import renaissance as rn

pytestmark = pytest.mark.timeout(60)


def test_drop_last_with_too_few_samples_is_refused():
    with pytest.raises(ValueError, match=r"batch_size = 8 leaves nothing of 5 samples"):
        rn.Loader.from_arrays(np.zeros((5, 2), np.float32), batch_size=8, drop_last=True)


def test_float_input_passes_untouched():
    x = np.random.default_rng(0).normal(size=(20, 3, 4)).astype(np.float32)
    x[3, 1, 2], x[4, 0, 0], x[5, 2, 3] = np.nan, -np.inf, -0.0
    x.view(np.uint32)[6, 0, 0] = 0x7FA12345  # a NaN with a payload
    loader = rn.Loader.from_arrays(x, batch_size=6, shuffle=True, seed=1, workers=2)
    for batch in loader.epoch(0):
        assert batch.x.tobytes() == x[batch.ids].tobytes()
        assert batch.y is None
    assert loader.sample_spec().shape == (3, 4)


def test_float64_becomes_float32_and_says_so(caplog):
    loader = rn.Loader.from_arrays(np.full((4, 2), 0.1), np.full(4, 0.2), batch_size=4, workers=0)
    assert [r.getMessage() for r in caplog.records] == [
        "x is float64 and becomes float32; pass float32 to silence this",
        "y is float64 and becomes float32; pass float32 to silence this",
    ]
    batch = loader.batch_at(0, 0)
    assert batch.x.dtype == batch.y.dtype == np.float32
    assert batch.x[0, 0] == np.float32(0.1)
    assert len(caplog.records) == 2


def test_integer_inputs_and_tensors():
    tokens = torch.arange(12).reshape(6, 2)
    loader = rn.Loader.from_arrays(tokens, torch.arange(6, dtype=torch.int32), batch_size=4)
    batch = loader.batch_at(0, 0)
    assert batch.x.dtype == np.int64 and batch.y.dtype == np.int64
    assert batch.x.tolist() == tokens[:4].tolist()
    assert loader.num_classes == 6


def test_targets_of_any_shape():
    y = np.random.default_rng(0).normal(size=(6, 2, 3)).astype(np.float32)
    loader = rn.Loader.from_arrays(np.zeros((6, 1), np.float32), y, batch_size=4)
    assert loader.batch_at(0, 1).y.tobytes() == y[4:].tobytes()
    label = loader.sample_spec().label
    assert (label.shape, label.dtype, label.num_classes) == ((2, 3), torch.float32, None)


def test_grey_pictures_without_channel_axis():
    x = np.arange(4 * 9, dtype=np.uint8).reshape(4, 3, 3)
    batch = rn.Loader.from_arrays(x, batch_size=4, workers=0).batch_at(0, 0)
    assert batch.x.shape == (4, 1, 3, 3)
    np.testing.assert_allclose(batch.x[:, 0], x / 255, rtol=1e-6)


SMALL = np.zeros((4, 2), np.float32)


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda: rn.Loader.from_arrays(SMALL[:0], batch_size=2), ValueError, "the data is empty"),
        (lambda: rn.Loader([], batch_size=2), ValueError, "list is empty: 0 samples"),
        (
            lambda: rn.Loader.from_arrays(SMALL, np.zeros(3), batch_size=2),
            ValueError,
            "x has 4 samples and y has 3 labels",
        ),
        (
            lambda: rn.Loader.from_arrays(SMALL, [0, 1, 7, 9], num_classes=3, batch_size=2),
            ValueError,
            r"label 7 of sample 2 .* with 3 classes it takes 0 to 2. 2 of 4",
        ),
        (lambda: rn.Loader(3, batch_size=2), TypeError, "int is no data set"),
        (lambda: rn.Loader.from_arrays(SMALL), TypeError, "needs the setting 'batch_size'"),
        (lambda: rn.Loader.from_arrays(SMALL, batch_size=0), ValueError, "batch_size = 0"),
        (lambda: rn.Loader.from_arrays(SMALL, batch_size=2.5), TypeError, "batch_size = 2.5"),
        (
            lambda: rn.Loader.from_arrays(SMALL, batch_size=2, num_workers=4),
            TypeError,
            "no setting 'num_workers'; did you mean 'workers'",
        ),
        (
            lambda: rn.Loader.from_arrays(SMALL, batch_size=2, shufle=True),
            TypeError,
            "did you mean 'shuffle'",
        ),
        (
            lambda: rn.Loader.from_arrays(SMALL, batch_size=2, workers=-1),
            ValueError,
            "workers = -1",
        ),
        (
            lambda: rn.Loader.from_arrays(SMALL, batch_size=2, workers="many"),
            (TypeError, ValueError),
            "workers = 'many'",
        ),
        (lambda: rn.Loader.from_arrays(SMALL, batch_size=2, seed=-1), ValueError, "seed = -1"),
        (
            lambda: rn.Loader.from_arrays(SMALL, batch_size=2, on_error="skip"),
            ValueError,
            "on_error = 'skip'",
        ),
        (
            lambda: rn.Loader.from_arrays(SMALL, batch_size=2, transforms=[rn.Pad(2)]),
            TypeError,
            "transforms and mix work on uint8 pictures; x is float32",
        ),
        (
            lambda: rn.Loader.from_arrays(np.zeros((4, 3, 32, 32), np.uint8), batch_size=2),
            ValueError,
            "looks like .N, C, H, W.",
        ),
        (
            lambda: rn.Loader.from_arrays(np.zeros((4, 7), np.uint8), batch_size=2),
            ValueError,
            "uint8 arrays are pictures",
        ),
        (
            lambda: rn.Loader.from_arrays(np.array(["a", "b"]), batch_size=2),
            TypeError,
            "x is text, such as .a.; it takes uint8",
        ),
        (
            lambda: rn.Loader.from_arrays([[1.0], [1.0, 2.0]], batch_size=2),
            ValueError,
            "x is no array: .*inhomogeneous",
        ),
    ],
)
def test_bad_input_is_refused_with_a_reason(make, kind, text):
    with pytest.raises(kind, match=text):
        make()
