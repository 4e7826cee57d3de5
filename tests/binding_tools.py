"""Shared by the tests of bound modules."""

import copy

import modules
import pytest
import torch
from torch import nn

from renaissance import MemoryPlan

BF16 = torch.bfloat16

each_case = pytest.mark.parametrize("name", sorted(modules.CASES))


def bits(tensor):
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))


def bound(module, keep_values=True, **options):
    memory = MemoryPlan.build(module, **options).allocate("cpu")
    memory.bind(module, keep_values)
    return memory


def channels_last(module):
    """A copy in the plan's layouts: torch's kernels round differently for different strides."""
    twin = copy.deepcopy(module)
    for parameter in twin.parameters():
        parameter.data = parameter.data.contiguous()
    for part in twin.modules():
        weight = part._parameters.get("weight")  # a parametrized one is not there
        if isinstance(part, (nn.Conv2d, nn.ConvTranspose2d)) and weight is not None:
            weight.data = weight.data.to(memory_format=torch.channels_last)
    return twin


def padding(memory, region):
    """What lies in a region outside every parameter."""
    outside = memory.region(region)[: memory.region("W").numel()].clone()
    for segment in memory.plan.segments:
        if segment.region == "W":
            outside[segment.offset : segment.offset + segment.count] = 0
    return outside
