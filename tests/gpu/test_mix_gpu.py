"""Mixed batches on a GPU: from the workers, with the usual loss, captured as any other step."""

import numpy as np
import pytest

import renaissance as rn
from renaissance.models import mlp

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

rng = np.random.default_rng(0)
X = rng.integers(0, 256, size=(230, 8, 8, 1), dtype=np.uint8)
Y = rng.integers(0, 4, size=230)


BOTH = (rn.Mixup(0.4), rn.CutMix())


def make(device="cuda", *, mix=BOTH, precision="32-true", cache="auto", capture="auto"):
    form = {"num_classes": 4, "transforms": [rn.Normalize(mean=[0.5], std=[0.5])]}
    train = rn.Loader.from_arrays(X, Y, batch_size=32, shuffle=True, mix=mix, **form)
    valid = rn.Loader.from_arrays(X[:100], Y[:100], batch_size=32, device_cache=cache, **form)
    model = mlp([16], num_classes=4, in_features=64)
    task = rn.Task(model, seed=3, device=device, precision=precision)
    task.loss(rn.CrossEntropyLoss(label_smoothing=0.1)).optimizer(rn.AdamW(lr=0.01))
    return task.data(train, valid).compile(report="none", capture=capture, compile_model="off")


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed", "16-mixed"])
def test_captured_equals_eager(precision):
    captured, eager = make(precision=precision), make(precision=precision, capture="off")
    assert captured.executor.describe().endswith("data from workers)")
    assert captured.executor.passes.head is None
    captured.fit(epochs=3, verbose=0)
    eager.fit(epochs=3, verbose=0)
    assert captured.state_hash() == eager.state_hash()
    assert captured.history.history == eager.history.history


def test_batches_are_those_of_the_cpu():
    on_gpu, on_cpu = make(), make("cpu")
    for step in (0, 7):
        a, b = on_gpu.batch_at(1, step), on_cpu.batch_at(1, step)
        assert a.x.cpu().numpy().tobytes() == b.x.numpy().tobytes()
        assert a.y.cpu().numpy().tobytes() == b.y.numpy().tobytes()


@pytest.mark.parametrize("cache", ["auto", "off"])
def test_mixed_and_unmixed_data_are_evaluated_side_by_side(cache):
    on_gpu, on_cpu = make(cache=cache), make("cpu")
    for data in (on_gpu.settings.train, on_gpu.settings.valid, on_gpu.settings.train):
        found, expected = on_gpu.evaluate(data), on_cpu.evaluate(data)
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-4)
        assert found["accuracy"] == pytest.approx(expected["accuracy"], abs=0.02)


def test_a_fused_head_is_left_out_for_mixed_data_given_to_fit():
    task = make(precision="bf16-mixed", mix=())
    assert task.executor.passes.head is not None
    mixed = make(precision="bf16-mixed").settings.train
    task.fit(mixed, epochs=2, verbose=0)
    assert np.isfinite(task.history.history["loss"]).all()
    assert np.isfinite(task.evaluate(mixed)["loss"])
