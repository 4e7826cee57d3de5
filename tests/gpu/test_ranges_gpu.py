"""Range operations on a GPU give the host's bits, given equal gradients."""

import numpy as np
import pytest
import torch
from cases import OPTIMIZERS
from rig import Rig, same_bits
from torch import nn

from renaissance import _native, kernels
from renaissance.ema import Clip, Ema
from renaissance.nn import bind_dropouts
from renaissance.nn.dropout import Dropout
from renaissance.optim import LARS, SGD, AdamW
from renaissance.update.scalars import Scalars

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.timeout(300),
]


def assert_same(host, device):
    """All regions and all of S are equal, bit for bit."""
    first, second = host.everything(), device.everything()
    wrong = [name for name in first if not same_bits(first[name], second[name].cpu())]
    assert not wrong, f"regions differ: {wrong}"
    a, b = host.scalars.read(), device.scalars.read()
    assert [n for n in a.dtype.names if a[n].tobytes() != b[n].tobytes()] == []


def larger_net():
    return nn.Sequential(
        nn.Conv2d(3, 37, 3),
        nn.BatchNorm2d(37),
        nn.Flatten(),
        nn.Linear(333, 129),
        nn.LayerNorm(129),
        nn.Linear(129, 7, bias=False),
    )


def both(*args, **options):
    return Rig(*args, **options), Rig(*args, device="cuda", **options)


@pytest.mark.parametrize("case", OPTIMIZERS, ids=lambda case: case.name)
@pytest.mark.parametrize("dtype", [None, torch.bfloat16, torch.float16])
def test_100_steps_of_every_optimizer(case, dtype):
    rigs = both(
        case.optimizer,
        larger_net,
        ema=Ema(0.99, warmup=True),
        clip=Clip(norm=20.0),
        plan={"working_dtype": dtype},
    )
    for step in range(100):
        for rig in rigs:
            grads = rig.grads(step, scale=0.3)
            if step in (7, 50):
                grads["3.weight"][3, 5] = float("nan") if step == 7 else float("inf")
            rig.module[1].running_mean.add_(0.25)
            rig.step(grads, case.lr * (1 + np.cos(step / 30)) / 2)
    assert_same(*rigs)
    assert rigs[1].scalars["applied"] == 98 and rigs[1].scalars["skipped"] == 2


def test_splitting_at_groups_of_four_and_odd_lengths():
    s = Scalars(torch.zeros(_native.SCALARS_BYTES, dtype=torch.uint8))
    s.write(lr=0.1, beta1=0.9, beta2=0.99, eps=1e-8, nominal=1, loss_scale=1, factor=[1.0] * 16)
    for name, value in (("unscale", 0.5), ("clip", 0.75), ("bc1", 2.0), ("bc2", 3.0)):
        s.view(name).fill_(value)
    base = [torch.randn(1003) for _ in range(3)] + [torch.rand(1003)]
    host = [t.clone() for t in base]
    addresses = [t.data_ptr() for t in host]
    _native.update_range("adamw", *addresses, 0, 0, 0, 1003, s.address, 0, 1)
    scalars = s.bytes.cuda()
    for cuts in ([0, 1003], [0, 4, 8, 1003], [0, 500, 776, 1000, 1003]):
        device = [t.cuda() for t in base]
        for begin, end in zip(cuts, cuts[1:]):
            kernels.launch(
                "update_adamw",
                kernels.blocks(-(-(end - begin) // 4)),
                kernels.BLOCK,
                *(t.data_ptr() for t in device),
                0,
                np.int32(0),
                np.int64(begin),
                np.int64(end - begin),
                scalars.data_ptr(),
                np.int32(0),
            )
        assert all(same_bits(a, b.cpu()) for a, b in zip(host, device)), cuts


def test_gather_of_all_kinds_of_gradients():
    rigs = both(SGD(), larger_net, clip=Clip(value=0.5))
    for rig in rigs:
        grads = rig.grads(0)
        grads["0.weight"] = grads["0.weight"].contiguous(memory_format=torch.channels_last)
        grads["3.weight"] = grads["3.weight"].bfloat16().t().contiguous().t()
        grads["5.weight"] = grads["5.weight"].half()
        grads["1.weight"] = torch.tensor(0.25, device=rig.memory.device).expand(37)
        grads["0.bias"] = None
        for accumulate in (False, True):
            weight = torch.tensor(3.0 + accumulate, device=rig.memory.device)
            rig.updater.gather([grads[name] for name in rig.names], accumulate, weight)
        rig.scalars.write(lr=0.1)
        rig.updater.finish()
    assert_same(*rigs)
    assert same_bits(rigs[0].memory.region("G"), rigs[1].memory.region("G").cpu())


@pytest.mark.parametrize("count", [1, 255, 256, 4095, 4096, 4097, 1_000_003])
def test_norms(count):
    rigs = both(LARS(), lambda: nn.Linear(count, 1))
    for rig in rigs:
        rig.step(rig.grads(3), 0.1)
    assert_same(*rigs)
    for name in ("partials", "w_partials", "g_partials"):
        first, second = (getattr(rig.updater.tables, name).cpu() for rig in rigs)
        assert same_bits(first, second), name
    assert same_bits(rigs[0].memory.region("N"), rigs[1].memory.region("N").cpu())


def test_loss_scale_moves_alike():
    rigs = both(AdamW(), larger_net, loss_scaling=True, nominal=32.0, max_skipped=4)
    for rig in rigs:
        rig.scalars.write(growth_interval=3)
    trajectories = []
    for rig in rigs:
        seen = []
        for step in range(30):
            grads = rig.grads(step, scale=float(rig.scalars["loss_scale"]))
            if step in (2, 5, 6) or step >= 20:
                grads["3.weight"][0, 0] = float("inf")
            rig.step(grads, 0.01, torch.tensor(31.0, device=rig.memory.device))
            seen.append((rig.scalars["loss_scale"], rig.scalars["good"], rig.scalars["stop"]))
        trajectories.append(seen)
    assert trajectories[0] == trajectories[1]
    assert trajectories[0][-1][2] == 1 and len({scale for scale, *_ in trajectories[0]}) > 4
    assert_same(*rigs)
    assert rigs[1].updater.first_non_finite() == "3.weight"


def test_exchange_with_the_average_and_back():
    rig = Rig(AdamW(), larger_net, device="cuda", ema=Ema(0.5), plan={"working_dtype": torch.half})
    for step in range(5):
        rig.step(rig.grads(step), 0.1)
    before = rig.everything()
    rig.updater.exchange_ema()
    during = rig.everything()
    assert torch.equal(during["W"], before["E"][: before["W"].numel()])
    assert torch.equal(during["A"], during["W"].half())
    rig.updater.exchange_ema()
    after = rig.everything()
    assert all(same_bits(before[name].cpu(), after[name].cpu()) for name in before)


@pytest.mark.parametrize("kind", ["uniform", "normal", "trunc_normal"])
@pytest.mark.parametrize("count", [1, 2, 1_000_003])
def test_fills(kind, count):
    seed, offset = 0x123456789ABCDEF, (1 << 32) - 7
    host, device = torch.empty(count), torch.empty(count, device="cuda")
    getattr(_native, f"fill_{kind}")(host.data_ptr(), count, seed, offset, 0)
    grid = kernels.blocks(count)
    numbers = (np.int64(count), np.uint64(seed), np.uint64(offset))
    kernels.launch(f"fill_{kind}", grid, kernels.BLOCK, device.data_ptr(), *numbers)
    assert same_bits(host, device.cpu())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_dropout_forward_and_backward(dtype, layout):
    results = []
    for device in ("cpu", "cuda"):
        s = Scalars(torch.zeros(_native.SCALARS_BYTES, dtype=torch.uint8, device=device))
        s.write(seed=5, micro=3, nominal=1.0, loss_scale=1.0)
        drop = nn.Sequential(Dropout(0.3))
        bind_dropouts(drop, s.bytes)
        torch.manual_seed(0)
        x = torch.randn(7, 5, 3, 11).to(dtype).to(device).contiguous(memory_format=layout)
        x.requires_grad_()
        y = drop(x)
        (grad,) = torch.autograd.grad(y, x, torch.ones_like(y))
        assert torch.equal(grad == 0, y == 0) and 0.1 < float((y == 0).float().mean()) < 0.5
        results.append((y.detach().cpu(), grad.cpu()))
    for host, device in zip(*results):
        assert same_bits(host, device)


def test_operations_replay_from_a_graph():
    rigs = both(AdamW(), larger_net, ema=Ema(0.9), clip=Clip(norm=5.0))
    device = rigs[1]
    source = {n: torch.zeros_like(g) for n, g in device.grads(0).items()}
    window = [source[name] for name in device.names]
    device.updater.gather(window)  # compiles the kernels
    device.updater.finish()
    graph = torch.cuda.CUDAGraph()
    fresh = Rig(AdamW(), larger_net, device="cuda", ema=Ema(0.9), clip=Clip(norm=5.0))
    fresh.updater.begin_capture()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        fresh.updater.snapshot_buffers()
        fresh.updater.gather(window)
        fresh.updater.finish()
    fresh.updater.end_capture()
    for step in range(10):
        for name, grad in fresh.grads(step).items():
            source[name].copy_(grad)
        fresh.scalars.write(lr=0.1 / (step + 1))
        graph.replay()
        rigs[0].step(rigs[0].grads(step), 0.1 / (step + 1))
    torch.cuda.synchronize()
    assert_same(rigs[0], fresh)
