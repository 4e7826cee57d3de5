"""Initial values on a CUDA device: the bits of the CPU."""

import pytest
import torch
from torch import nn

import renaissance as rn
from renaissance.fills import Fill, fill

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

KINDS = ["normal", "uniform", "trunc_normal"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 2, 255, 256, 257, 4_000_001])
def test_bits_are_those_of_the_cpu(kind, count):
    rule, host, device = Fill(kind, 0.37, ""), torch.empty(count), torch.empty(count, device="cuda")
    for seed, name in ((0, "w"), (2**64 - 1, "layer.weight")):
        fill(host, rule, seed, name)
        fill(device, rule, seed, name)
        assert torch.equal(device.cpu(), host)
        drawn_on_host = torch.empty(count, device="cuda")
        fill(drawn_on_host, rule, seed, name, device=torch.device("cpu"))
        assert torch.equal(drawn_on_host, device)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_layouts_and_types(dtype):
    rule = Fill("normal", 0.37, "")
    host = torch.empty(8, 3, 5, 6, dtype=dtype)
    device = torch.empty(8, 3, 5, 6, dtype=dtype, device="cuda").to(
        memory_format=torch.channels_last
    )
    fill(host, rule, 3, "w")
    fill(device, rule, 3, "w")
    assert torch.equal(device.cpu(), host)


def test_a_whole_module():
    def made(device):
        module = nn.Sequential(
            nn.Conv2d(3, 8, 3),
            nn.BatchNorm2d(8),
            nn.Flatten(),
            nn.Linear(8, 5),
            nn.Embedding(9, 4, 2),
        ).to(device)
        for name, rule in rn.Initializer().resolve(module):
            fill(module.get_parameter(name), rule, 7, name)
        return {name: p.detach().cpu() for name, p in module.named_parameters()}

    host, device = made("cpu"), made("cuda")
    assert all(torch.equal(host[name], device[name]) for name in host)
