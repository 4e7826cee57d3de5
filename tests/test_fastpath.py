"""Fused passes are chosen, follow the module's own, and are left without a trace."""

import small
import torch
from torch import nn

import renaissance as rn
from renaissance.assembly.fastpath import choose_passes
from renaissance.describe import compile_report, operations_of

PICTURES = torch.randint(0, 256, (24, 8, 8, 3), generator=torch.Generator().manual_seed(1))


def network():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3),
        nn.BatchNorm2d(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3),
    )  # fmt: skip


def made(model=None, seed=1):
    train = rn.Loader.from_arrays(
        PICTURES.to(torch.uint8).numpy(), torch.arange(24).numpy() % 3, num_classes=3,
        batch_size=8, transforms=[rn.Normalize("cifar10")],
    )  # fmt: skip
    task = rn.Task(model or network(), seed=seed, device="cpu", threads=1)
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.1, momentum=0.9)).data(train, train)
    return task.compile(report="none")


def test_a_run_with_fused_layers_is_the_modules_own():
    plain, fused = made(), made()
    choose_passes(fused.executor, fused, fuse="auto", compile_model="off")
    assert fused.executor.fused == "2 batch-norms run together with what follows them"
    for task in (plain, fused):
        task.fit(epochs=3, verbose=0)
    for name, value in plain.state_dict().items():
        torch.testing.assert_close(fused.state_dict()[name], value, rtol=1e-4, atol=1e-5, msg=name)
    assert plain.history.history["val_accuracy"] == fused.history.history["val_accuracy"]


def test_off_is_off_and_a_reason_is_told():
    task = made()
    choose_passes(task.executor, task, fuse="off", compile_model="off")
    assert task.executor.passes.forward is None and task.executor.fused == ""
    other = made(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Tanh(), nn.Flatten(),
                               nn.Linear(288, 3)))  # fmt: skip
    choose_passes(other.executor, other, fuse="auto", compile_model="off")
    assert other.executor.fused.startswith("not fused: Tanh") and other.executor.how == "plain"


def test_an_eager_step_without_a_seed_runs_torchs_layers(monkeypatch):
    """One with a seed has a captured step's bits; a captured one costs no launches."""
    task = made(seed=None)
    choose_passes(task.executor, task, fuse="auto", compile_model="off")
    assert task.executor.passes.forward is None
    assert task.executor.fused.startswith("not fused: an eager step without a seed")
    monkeypatch.setattr(task.executor, "is_captured", True)
    choose_passes(task.executor, task, fuse="auto", compile_model="off")
    assert task.executor.fused.startswith("2 batch-norms run together")


def test_a_backward_that_fills_g_itself_has_no_gather_in_the_report():
    task = made()
    names = [op.name for op in operations_of(task.require())]
    assert "RANGE_GATHER" in names and "RANGE_GATHER" in compile_report(task, "graph")
    task.executor.passes.landing = object()
    names.remove("RANGE_GATHER")
    assert [op.name for op in operations_of(task.require())] == names
    assert "RANGE_GATHER" not in compile_report(task, "graph")


def test_plain_passes_after_fused_ones_bring_gradients_the_plain_way():
    """What a capture that fails falls back to; a landing left behind would train on zeros."""
    task = small.make()
    task.compile(report="none")
    passes = task.executor.passes
    passes.forward = passes.head = passes.landing = object()
    task.executor.be_plain()
    before = task.state_hash()
    task.fit(max_steps=1, verbose=0)
    assert task.state_hash() != before and task.gradients()
    assert passes.forward is passes.head is passes.landing is None
    assert all(bool(g.any()) for g in task.gradients().values())
