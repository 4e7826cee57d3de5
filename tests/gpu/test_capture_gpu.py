"""One captured graph a step: the same bits as the eager step, and nothing on the host."""

import numpy as np
import pytest
import torch
from torch import nn

import renaissance as rn
from renaissance.models import mlp

pytestmark = pytest.mark.gpu

rng = np.random.default_rng(0)
X = rng.integers(0, 256, size=(230, 8, 8, 1), dtype=np.uint8)
Y = rng.integers(0, 4, size=230)


class Net(nn.Module):
    """Convolution, batch-norm and dropout: what has state or randomness of its own."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8)
        self.drop, self.last = nn.Dropout(0.3), nn.Linear(288, 4)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.last(self.drop(x.flatten(1)))


def make(device="cuda", *, capture="auto", compile_model="off", accumulate=1, model=None, **more):
    x = more.pop("x", X)
    transforms = [rn.Normalize(mean=[0.5], std=[0.5])] if x.dtype == np.uint8 else []
    train = rn.Loader.from_arrays(x, Y, batch_size=32, shuffle=True, transforms=transforms)
    valid = rn.Loader.from_arrays(x[:100], Y[:100], batch_size=64, transforms=transforms)
    task = rn.Task(model or Net(), seed=3, device=device, **more)
    task.loss(rn.CrossEntropyLoss(label_smoothing=0.1)).optimizer(rn.AdamW(weight_decay=0.1))
    task.scheduler(rn.CosineAnnealingLR(base_lr=1e-2).warmup(5, unit="step"))
    task.ema(0.99, warmup=True).clip(1.0).accumulate(accumulate).data(train, valid)
    return task.compile(report="none", capture=capture, compile_model=compile_model, fuse="off")


def regions(task):
    names = [n for n in ("W", "A", "M", "V", "E", "B") if task.plan.has(n)]
    return {n: task.executor.memory.region(n).view(torch.uint8).cpu().clone() for n in names}


def equal(a, b):
    assert a.keys() == b.keys()
    return [name for name in a if not torch.equal(a[name], b[name])] == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "precision, accumulate, compile_model",
    [
        ("32-true", 1, "off"),
        ("32-true", 2, "off"),
        ("32-true", 4, "off"),
        ("bf16-mixed", 2, "off"),
        ("16-mixed", 1, "off"),
        ("16-mixed", 4, "off"),
        ("bf16-mixed", 1, "auto"),
        ("32-true", 2, "auto"),
    ],
)
def test_captured_equals_eager(precision, accumulate, compile_model):
    """200 steps with moving lr, EMA, clip, dropout, batch-norm and partial batches."""
    options = {"precision": precision, "accumulate": accumulate, "compile_model": compile_model}
    captured, eager = make(**options), make(capture="off", **options)
    captured.fit(max_steps=200, verbose=0)
    eager.fit(max_steps=200, verbose=0)
    assert equal(regions(captured), regions(eager))
    assert captured.history.history == eager.history.history
    assert captured.state_hash() == eager.state_hash()


@pytest.mark.timeout(300)
def test_a_bad_step_is_skipped_in_the_graph():
    x = rng.normal(size=(230, 12)).astype(np.float32)
    x[100, 3] = np.inf
    captured = make(model=mlp([16], num_classes=4, in_features=12), x=x)
    captured.fit(epochs=2, verbose=0)
    assert captured.skipped_steps == 2
    assert all(np.isfinite(v).all() for v in captured.history.history["loss"])
    assert all(torch.isfinite(t).all() for t in captured.state_dict().values())


@pytest.mark.timeout(300)
def test_initial_weights_and_masks_are_those_of_the_cpu():
    a, b = make("cpu"), make("cuda")
    for name, tensor in a.state_dict().items():
        assert torch.equal(tensor, b.state_dict()[name].cpu()), name
    x = torch.ones(64, 8, 6, 6)
    for layout in (torch.contiguous_format, torch.channels_last):
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            on_cpu = a.model.drop.train()(x.to(dtype).contiguous(memory_format=layout))
            on_gpu = b.model.drop.train()(x.cuda().to(dtype).contiguous(memory_format=layout))
            assert torch.equal(on_cpu, on_gpu.cpu())
    assert 0.2 < (on_cpu == 0).float().mean() < 0.4


@pytest.mark.timeout(300)
def test_memory_is_flat_over_many_compiles():
    used = []
    for _ in range(12):
        task = make()
        task.fit(max_steps=3, verbose=0)
        task.close()
        del task
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        used.append(torch.cuda.memory_allocated())
    assert max(used[3:]) <= used[2] + 1024


@pytest.mark.timeout(300)
def test_exact_resume_across_processes_of_the_graph(tmp_path):
    whole = make()
    whole.fit(epochs=3, verbose=0)
    first = make(run_dir=tmp_path)
    first.fit(epochs=3, max_steps=11, verbose=0, checkpoint=1)
    second = make(run_dir=tmp_path)
    second.fit(epochs=3, verbose=0, resume="auto", horizon="stretch")
    third = make()
    third.fit(epochs=3, max_steps=11, verbose=0)
    third.fit(epochs=3, verbose=0, horizon="stretch")
    assert second.state_hash() == third.state_hash()
    assert whole.attempted_steps == second.attempted_steps


@pytest.mark.parametrize("capture", ["auto", "off"])
def test_a_class_that_there_is_not_never_reaches_the_device(capture):
    """There it would end in an assertion that no later call survives."""
    x, labels = X.reshape(230, 1, 8, 8).astype(np.float32) / 255, torch.from_numpy(Y).clone()
    labels[70] = 99
    data = torch.utils.data.TensorDataset(torch.from_numpy(x), labels)
    task = rn.Task(Net(), seed=3, device="cuda")
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.AdamW(lr=1e-3))
    task.data(torch.utils.data.DataLoader(data, batch_size=32, drop_last=True))
    task.compile(report="none", capture=capture, compile_model="off")
    with pytest.raises(ValueError, match=r"batch 2 of epoch 0, .*target\[6\] = 99 is no class"):
        task.fit(epochs=1, verbose=0)
    with pytest.raises(ValueError, match=r"target\[1\] = -3 is no class"):
        task.train_on_batch(x[:32], np.r_[0, -3, Y[2:32]])
    assert torch.ones(3, device="cuda").sum().item() == 3.0
    assert task.train_on_batch(x[:32], Y[:32])["loss"] > 0.0
    task.close()
