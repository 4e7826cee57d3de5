"""The CUDA side of the range operations without a GPU: its texts run by g++, against the host's."""

from contextlib import nullcontext

import host_kernels
import pytest
import torch
from cases import OPTIMIZERS
from rig import Rig, assert_same, same_bits
from torch import nn

from renaissance import kernels
from renaissance.ema import Clip, Ema
from renaissance.optim import LARS, SGD, AdamW
from renaissance.update import updater as update
from renaissance.update.device_ranges import DeviceRanges

pytestmark = [
    pytest.mark.skipif(host_kernels.COMPILER is None, reason="there is no g++"),
    pytest.mark.timeout(180),
]
KERNELS = {case.optimizer.kernel: case for case in OPTIMIZERS}


class Stream:
    """One after the other, as a single stream runs."""

    def __init__(self, device=None):
        pass

    def wait_stream(self, other):
        pass


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    return host_kernels.HostKernels("ranges.cu", tmp_path_factory.mktemp("kernels"))


@pytest.fixture
def on_device(compiled, monkeypatch):
    """Makes rigs whose operations are launches of CUDA kernels."""
    monkeypatch.setattr(kernels, "launch", compiled.launch)
    for name, stand_in in (("Stream", Stream), ("current_stream", Stream), ("stream", nullcontext)):
        monkeypatch.setattr(torch.cuda, name, stand_in)

    def make(*args, **options):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(update, "HostRanges", lambda m, t, s, threads: DeviceRanges(m, t, s))
            return Rig(*args, **options)

    return make


def tiny_net():
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.Flatten(), nn.Linear(70, 61))


def both(on_device, *args, **options):
    return Rig(*args, **options), on_device(*args, **options)


@pytest.mark.parametrize("case", KERNELS.values(), ids=lambda case: case.optimizer.kernel)
def test_every_optimizer_gives_the_hosts_bits(case, on_device):
    host, device = both(
        on_device,
        case.optimizer,
        tiny_net,
        ema=Ema(0.9, warmup=True),
        clip=Clip(norm=2.0),
        plan={"working_dtype": torch.bfloat16},
    )
    for step in range(2):
        for rig in (host, device):
            grads = rig.grads(step)
            if step == 1:
                grads["3.weight"][5, 5] = float("inf")  # skipped
            rig.module[1].running_mean.add_(1.0)
            rig.step(grads, case.lr)
        assert_same(host.everything(), device.everything())
        assert same_bits(host.scalars.bytes, device.scalars.bytes)
    assert host.scalars["applied"] == host.scalars["skipped"] == 1


def test_gather_of_all_kinds_of_gradients(on_device):
    host, device = both(on_device, SGD(), tiny_net, clip=Clip(value=0.5))
    for rig in (host, device):
        grads = rig.grads(0)
        grads["0.weight"] = grads["0.weight"].contiguous(memory_format=torch.channels_last)
        grads["3.weight"] = grads["3.weight"].bfloat16().t().contiguous().t()
        grads["1.weight"] = grads["1.weight"].half()
        grads["1.bias"] = torch.tensor(0.25).expand(5)
        grads["0.bias"] = None
        for accumulate in (False, True):
            weight = torch.tensor(3.0 + accumulate)
            rig.updater.gather([grads[name] for name in rig.names], accumulate, weight)
        rig.scalars.write(lr=0.1)
        rig.updater.finish()
    assert_same(host.everything(), device.everything())
    assert same_bits(host.memory.region("G"), device.memory.region("G"))
    assert same_bits(host.scalars.bytes, device.scalars.bytes)


def test_check_and_exchange(on_device):
    rigs = both(on_device, AdamW(), tiny_net, ema=Ema(0.5), plan={"working_dtype": torch.float16})
    for rig in rigs:
        rig.step(rig.grads(0), 0.1)
        rig.memory.region("G").mul_(3.0)
        rig.updater.check()
        rig.updater.finish()
        rig.updater.exchange_ema()
    assert_same(rigs[0].everything(), rigs[1].everything())
    assert same_bits(rigs[0].updater.tables.partials, rigs[1].updater.tables.partials)


def test_number_of_launches(on_device, monkeypatch):
    def launches(optimizer, depth):
        layers = [nn.Linear(4, 4) for _ in range(depth)]
        rig = on_device(optimizer, lambda: nn.Sequential(nn.BatchNorm1d(4), *layers), ema=Ema(0.9))
        names = []
        monkeypatch.setattr(kernels, "launch", lambda name, *_: names.append(name))
        rig.step(rig.grads(0), 0.1)
        return names

    assert launches(AdamW(), 2) == launches(AdamW(), 9) and len(launches(AdamW(), 2)) == 7
    assert launches(LARS(), 2) == launches(LARS(), 9) and len(launches(LARS(), 2)) == 9


def rates_on(rig, *rates):
    """Learning rates written ahead; two were used before."""
    table = rig.updater.rates
    table[0], table[1] = 2, 2 + len(rates)
    table[2:].view(torch.float64)[2 : 2 + len(rates)] = torch.tensor(rates, dtype=torch.float64)


def test_rates_written_ahead_are_taken_one_by_one_and_the_last_one_stays(on_device):
    host, device = both(on_device, AdamW(weight_decay=0.1), tiny_net)
    device.scalars.write(lr=9.0)
    rates_on(device, 0.1, 0.05)
    for step, rate in enumerate((0.1, 0.05, 0.05)):
        host.step(host.grads(step), rate)
        grads = device.grads(step)
        device.updater.gather([grads[name] for name in device.names])
        device.updater.finish()
        assert_same(host.everything(), device.everything())
        assert same_bits(host.scalars.bytes, device.scalars.bytes)
    assert device.updater.rates[:2].tolist() == [4, 4]
    device.step(device.grads(3), 0.7)  # none is left: what stands in S counts
    assert device.scalars["lr"] == 0.7 and host.updater.rates is None


def test_sums_are_closed_with_the_decision(on_device):
    rigs = both(on_device, AdamW(), tiny_net, max_skipped=2)
    sums = [torch.arange(1.0, 13.0, dtype=torch.float64).view(3, 4) for _ in rigs]
    for step in range(4):
        for rig, own in zip(rigs, sums):
            grads = rig.grads(step)
            if step > 0:
                grads["0.bias"][1] = float("nan")  # skipped, the last ones after a stop
            own[0] = torch.tensor([0.5, 2.0, 3.0, 4.0 + step])
            rig.updater.gather([grads[name] for name in rig.names])
            rig.updater.finish(own)
        assert same_bits(*sums)
        assert sums[0].tolist() == [
            [0.0] * 4, [0.5, 2.0, 3.0, 4.0 + step], [9.5, 12.0, 14.0, 16.0]
        ]  # fmt: skip
        assert same_bits(rigs[0].scalars.bytes, rigs[1].scalars.bytes)
    assert rigs[1].scalars["stop"] == 1 and rigs[1].updater.first_non_finite() == "0.bias"


class Landed:
    """What a backward leaves that fills G itself: here by the plan's own chunks."""

    def __init__(self, rig):
        self.partials = torch.zeros(rig.updater.tables.num_chunks)
        self.names = [f"piece {i}" for i in range(len(self.partials))]


def test_gradients_that_landed_by_themselves(on_device):
    host, device = both(on_device, AdamW(), tiny_net, clip=Clip(norm=0.5))
    landing = Landed(device)
    for step in range(3):
        for micro in range(2):
            grads, weight = host.grads(10 * step + micro), torch.tensor(3.0 + micro)
            if step == 1:
                grads["3.weight"][60, 69] = float("inf")
            host.updater.gather([grads[name] for name in host.names], micro == 1, weight)
            device.memory.region("G").copy_(host.memory.region("G"))
            landing.partials.copy_(host.updater.tables.partials)
            device.updater.landed(landing, accumulate=micro == 1, weight=weight, last=micro == 1)
        for rig in (host, device):
            rig.scalars.view("lr").fill_(0.1)
            rig.updater.finish()
        assert_same(host.everything(), device.everything())
        assert same_bits(host.scalars.bytes, device.scalars.bytes)
        if step == 1:
            place = host.scalars["bad_chunk"]
            assert place > 0 and device.updater.first_non_finite() == f"piece {place}"
    assert host.scalars["micro"] == 6 and host.scalars["skipped"] == 1
    grads = host.grads(0)  # a gather again: its own sums count
    for rig in (host, device):
        rig.updater.gather([grads[name] for name in rig.names])
        rig.updater.finish()
    assert same_bits(host.scalars.bytes, device.scalars.bytes)
