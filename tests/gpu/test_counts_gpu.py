"""What a captured step is made of, counted from a profile: kernels, and waits of the host."""

import collections

import numpy as np
import pytest
import torch
import torchvision

import renaissance as rn
from renaissance.models import mlp

pytestmark = pytest.mark.gpu

PHASE = ("gather", "scalars", "update_", "average_ranges", "restore_buffers", "count_micro")
WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize", "cudaMemcpy")


def make(model, shape, optimizer, *, samples=64, **options):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (samples, *shape), np.uint8), rng.integers(0, 10, samples)
    channels = shape[-1]
    normalize = rn.Normalize(mean=[0.5] * channels, std=[0.5] * channels)
    train = rn.Loader.from_arrays(
        x, y, num_classes=10, batch_size=32, shuffle=True, transforms=[normalize]
    )
    task = rn.Task(model, seed=1, device="cuda", precision="bf16-mixed")
    task.loss(rn.CrossEntropyLoss()).optimizer(optimizer).data(train)
    return task.compile(report="none", compile_model="off", **options)


def profiled(work, activity):
    with torch.profiler.profile(activities=[activity], acc_events=True) as profile:
        work()
        torch.cuda.synchronize()
    return list(profile.events())


def optimizer_phase(task):
    """Kernels of a replayed step by name, those of the phase after backward."""
    task.fit(epochs=1, verbose=0)
    graph = next(iter(task.executor._graphs.values()))
    events = profiled(graph.replay, torch.profiler.ProfilerActivity.CUDA)
    names = [e.name for e in events if e.device_type == torch.autograd.DeviceType.CUDA]
    return collections.Counter(n for n in names if n.startswith(PHASE))


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "optimizer, most", [(rn.AdamW(lr=1e-3), 7), (rn.SGD(lr=0.1, momentum=0.9), 7)]
)
def test_the_optimizer_phase_does_not_grow_with_layers(optimizer, most):
    small = optimizer_phase(make(mlp([32], 10, 64), (8, 8, 1), optimizer, fuse="off"))
    fused = optimizer_phase(make(mlp([32, 16], 10, 64), (8, 8, 1), optimizer))
    resnet = torchvision.models.resnet50(num_classes=10)
    large = optimizer_phase(make(resnet, (64, 64, 3), optimizer))
    updates = [n for n in large if n.startswith("update_")]
    assert sum(large[n] for n in updates) == sum(small[n] for n in updates) == 2
    assert large["gather"] == small["gather"] == 1
    del large["restore_buffers"]  # a network without buffers has none to restore
    assert large == small
    assert sum(large.values()) + 1 <= most + 1  # the gather beside the phase
    assert fused == small - collections.Counter(gather=1)  # its backward has filled G


@pytest.mark.timeout(600)
def test_lars_has_a_constant_number_of_launches():
    lars = rn.LARS(lr=0.1)
    small = optimizer_phase(make(mlp([32], 10, 64), (8, 8, 1), lars, fuse="off"))
    large = optimizer_phase(make(torchvision.models.resnet18(num_classes=10), (64, 64, 3), lars))
    del large["restore_buffers"]
    assert large == small and sum(large.values()) <= 9


@pytest.mark.timeout(300)
def test_no_wait_of_the_host_in_the_steady_state():
    task = make(mlp([32], 10, 64), (8, 8, 1), rn.AdamW(lr=1e-3), samples=32_032)
    task.fit(epochs=1, verbose=0)
    counted = {}

    class Window(rn.Callback):
        def on_train_batch_begin(self, batch, logs):
            if batch == 1:
                self.profile = torch.profiler.profile(
                    activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True
                )
                self.profile.start()
            if batch == 1000:
                self.profile.stop()
                names = [event.name for event in self.profile.events()]
                counted.update(collections.Counter(n for n in names if n in WAITS))

    task.fit(epochs=2, verbose=0, log_every=10_000, horizon="keep", callbacks=[Window()])
    # Waiting for room in the ring of inputs is the one wait allowed: for a copy, not for a result.
    assert set(counted) <= {"cudaEventSynchronize"}
    assert not counted.get("cudaMemcpy")
