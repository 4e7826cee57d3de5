"""A compiled, seeded step whose tokens are mostly one: the table's gradient is right and quick."""

import numpy as np
import pytest
import torch
from torch import nn

import renaissance as rn
from renaissance.nn.tables import lookup

pytestmark = pytest.mark.gpu
ROWS, SERIAL = 50, "indexing_backward"  # torch's kernel with one thread block for a row


class Reader(nn.Module):
    """Words, and one bit for each text."""

    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(ROWS, 32), nn.Linear(32, 2)

    def forward(self, ids):
        return self.head(self.words(ids).tanh().mean(1))


def texts(batch):
    x = np.random.default_rng(0).integers(1, ROWS, (batch, 600))
    x[:, 200:] = 0
    return x, np.arange(batch) % 2


def kernels(work):
    activities = [torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, acc_events=True) as profiler:
        work()
        torch.cuda.synchronize()
    cuda = torch.autograd.DeviceType.CUDA
    return [event.name for event in profiler.events() if event.device_type == cuda]


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_a_seeded_step_adds_no_row_up_in_series(precision):
    hashes = []
    for _ in range(2):
        task = rn.Task(Reader(), seed=5, device="cuda", precision=precision)
        task.loss(rn.CrossEntropyLoss()).optimizer(rn.AdamW(lr=1e-2))
        task.data(rn.Loader.from_arrays(*texts(64), batch_size=16))
        task.compile(report="none").fit(epochs=2, verbose=0)
        names = kernels(lambda task=task: task.fit(epochs=3, verbose=0))
        assert not [name for name in names if SERIAL in name]
        assert [name for name in names if "sum_and_scatter" in name or "embedding" in name]
        hashes.append(task.state_hash())
        task.close()
    assert hashes[0] == hashes[1]


def test_torchs_own_compiled_gradient_is_in_series():
    """What the test above looks for is there without us."""
    ids = torch.from_numpy(texts(16)[0]).cuda()
    model = torch.compile(Reader().cuda().bfloat16(), dynamic=False)
    torch.use_deterministic_algorithms(True)
    try:
        model(ids).sum().backward()
        names = kernels(lambda: model(ids).sum().backward())
    finally:
        torch.use_deterministic_algorithms(False)
    assert [name for name in names if SERIAL in name]


@pytest.mark.parametrize("count", [100, 5000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradient_against_float64(dtype, count):
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(0, ROWS, (count,), generator=generator)
    ids[: count // 2] = 3
    g = torch.randn(count, 24, generator=generator).to(dtype)
    exact = torch.zeros(ROWS, 24, dtype=torch.float64)
    exact.index_put_((ids,), g.double(), accumulate=True)
    exact[1] = 0
    table = torch.zeros(ROWS, 24, dtype=dtype, device="cuda", requires_grad=True)
    torch.use_deterministic_algorithms(True)
    try:
        found = [
            torch.autograd.grad(lookup(ids.cuda(), table, 1), table, g.cuda())[0] for _ in range(2)
        ]
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(*found)
    unit = 2.0**-8 if dtype == torch.bfloat16 else 2.0**-20
    bound = 2 * unit * float(exact.abs().max())
    assert float((found[0].cpu().double() - exact).abs().max()) < bound
