"""A fused perceptron on a GPU: gradients that land in G, the same bits captured and eager."""

import numpy as np
import pytest
import torch

import renaissance as rn
from renaissance.models import mlp

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.timeout(300),
]

rng = np.random.default_rng(0)
X = rng.integers(0, 256, size=(230, 9, 8, 1), dtype=np.uint8)
Y = rng.integers(0, 10, size=230)


def make(*, accumulate=1, x=X, clip=1.0, cache="auto", **options):
    more = {name: options.pop(name) for name in ("capture", "fuse") if name in options}
    chain = [rn.RandomCrop((9, 8), padding=1), rn.Normalize(mean=[0.5], std=[0.5])]
    chain = chain if x.dtype == np.uint8 else []
    data = {"transforms": chain, "device_cache": cache if chain else "off"}
    train = rn.Loader.from_arrays(x, Y, num_classes=10, batch_size=32, shuffle=True, **data)
    valid = rn.Loader.from_arrays(x[:100], Y[:100], num_classes=10, batch_size=64, **data)
    task = rn.Task(
        mlp([96, 65], num_classes=10, in_features=72),
        **{"seed": 3, "device": "cuda", "precision": "bf16-mixed"} | options,
    )
    task.loss(rn.CrossEntropyLoss(label_smoothing=0.1)).optimizer(rn.AdamW(weight_decay=0.1))
    task.scheduler(rn.CosineAnnealingLR(base_lr=1e-2).warmup(5, unit="step"))
    task.ema(0.99, warmup=True).clip(clip).accumulate(accumulate).data(train, valid)
    return task.compile(report="none", **more)


def regions(task):
    names = [n for n in ("W", "A", "G", "M", "V", "E") if task.plan.has(n)]
    return {n: task.executor.memory.region(n).view(torch.uint8).cpu().clone() for n in names}


def assert_equal(first, second):
    a, b = regions(first), regions(second)
    assert [name for name in a if not torch.equal(a[name], b[name])] == []
    assert first.history.history == second.history.history
    assert first.state_hash() == second.state_hash()
    s, t = (task.executor.updater.scalars.read() for task in (first, second))
    names = [name for name in s.dtype.names if name != "inputs"]
    assert [name for name in names if s[name].tobytes() != t[name].tobytes()] == []


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed"])
@pytest.mark.parametrize("accumulate", [1, 2, 4])
def test_captured_equals_eager(precision, accumulate):
    """200 steps with moving rates, EMA, clip and partial batches; data on the GPU and fed."""
    options = {"precision": precision, "accumulate": accumulate}
    captured, eager = make(**options), make(capture="off", **options)
    assert captured.executor.how == eager.executor.how == "fused"
    assert captured.executor.passes.landing is not None
    captured.fit(max_steps=200, verbose=0)
    eager.fit(max_steps=200, verbose=0)
    assert_equal(captured, eager)
    rate = captured.learning_rate_at(captured.attempted_steps - 1)
    assert captured.executor.updater.scalars["lr"] == rate > 0


@pytest.mark.parametrize("accumulate", [1, 3])
def test_data_on_the_gpu_are_those_that_workers_feed(accumulate):
    """A graph makes the next one's batch: over ends of epochs, stops and evaluations too."""
    resident, fed = (make(cache=cache, accumulate=accumulate) for cache in ("on", "off"))
    assert "data on the GPU" in resident.executor.describe()
    for task in (resident, fed):
        task.fit(epochs=4, max_steps=19 // accumulate, verbose=0)  # in the middle of an epoch
        task.fit(epochs=6, verbose=0, horizon="stretch", validation_freq=("step", 2))
        batch = task.batch_at(0, 1)
        for one in batch if accumulate > 1 else [batch]:
            task.train_on_batch(one.x.float().cpu(), one.y.cpu())
        task.fit(epochs=7, verbose=0, horizon="stretch")
    assert_equal(resident, fed)


def test_dry_runs_and_sweeps_leave_the_next_batches_alone():
    first, second = make(cache="on"), make(cache="on")
    first.dry_run(steps=3)
    first.evaluate(first.settings.train, verbose=0)
    for task in (first, second):
        task.fit(epochs=2, verbose=0)
    assert_equal(first, second)


@pytest.mark.parametrize("accumulate", [1, 3])
def test_what_lands_is_what_a_gather_brings_but_for_its_rounding(accumulate):
    landed, gathered = make(accumulate=accumulate), make(accumulate=accumulate)
    for task in (landed, gathered):
        passes = task.executor.passes
        if task is gathered:  # from here on autograd hands out the gradients
            passes.forward._landing = passes.landing = None
        batches = task.batch_at(0, 0)
        window = batches if accumulate > 1 else [batches]
        executor = task.executor
        for place, batch in enumerate(window):
            first, last = place == 0, place == len(window) - 1
            executor.record(batch.x, batch.y, first=first, last=last)
    for name, gradient in landed.gradients().items():
        other = gathered.gradients()[name]
        assert float(other.abs().max()) > 0
        torch.testing.assert_close(gradient, other, rtol=1e-2, atol=float(other.abs().max()) / 100)
    s, t = (task.executor.updater.scalars for task in (landed, gathered))
    norm = sum(float(g.double().square().sum()) for g in landed.gradients().values()) ** 0.5
    assert s["norm"] == pytest.approx(norm, rel=1e-5)
    assert s["norm"] == pytest.approx(t["norm"], rel=1e-2)
    counted = ("micro", "window", "weight", "attempted", "applied", "seed_scale", "unscale")
    assert [s[name] for name in counted] == [t[name] for name in counted]
    assert s["micro"] == accumulate


@pytest.mark.parametrize("capture", ["auto", "off"])
def test_a_bad_sample_is_skipped_and_found(capture):
    x = rng.normal(size=(230, 72)).astype(np.float32)
    x[100, 3] = np.inf
    task = make(x=x, capture=capture)
    task.fit(epochs=2, verbose=0)
    assert task.skipped_steps == 2
    assert all(np.isfinite(v).all() for v in task.history.history["loss"])
    bad = make(x=np.full_like(x, np.nan), capture=capture)
    bad.executor.updater.scalars.write(max_skipped=5)
    with pytest.raises(RuntimeError, match="5 updates in a row"):
        bad.fit(epochs=3, verbose=0, log_every=2)
    assert bad.executor.updater.first_non_finite() in bad.gradients()
    assert bad.executor.updater.scalars["attempted"] == 5


def test_a_constant_rate_reaches_every_step():
    """It is copied once, and again after something else may have written region S."""
    task = make()
    task.scheduler(rn.ConstantLR(base_lr=3e-3)).compile(report="none")
    task.fit(epochs=2, verbose=0)
    assert task.executor.updater.scalars["lr"] == 3e-3
    task.executor.updater.scalars.write(lr=0.0)
    task.fit(epochs=3, verbose=0, horizon="stretch")
    assert task.executor.updater.scalars["lr"] == 3e-3
    batch = task.batch_at(0, 0)
    task.executor.updater.scalars.write(lr=0.0)
    task.train_on_batch(batch.x.float().cpu(), batch.y.cpu())
    assert task.executor.updater.scalars["lr"] == 3e-3
