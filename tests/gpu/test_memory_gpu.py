"""The memory plan on a CUDA device: the same code, the same promises."""

import copy

import modules
import pytest
import torch
from binding_tools import BF16, channels_last, each_case, same_bits

from renaissance import MemoryPlan

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@each_case
@pytest.mark.filterwarnings("ignore:RNN module weights are not part of single contiguous chunk")
def test_a_module_moves_to_the_device_when_it_is_bound(name):
    module, x = modules.build(name)
    twin, x = channels_last(module).cuda(), x.cuda()
    memory = MemoryPlan.build(module, moments=1).allocate("cuda")
    memory.bind(module)
    assert memory.device == torch.device("cuda", torch.cuda.current_device())
    assert same_bits(module(x), twin(x))
    assert memory.verify(module) == []
    memory.close()
    assert all(p.is_cuda for p in module.parameters())


def test_leaving_the_device_is_undone():
    module = modules.mlp()
    memory = MemoryPlan.build(module, working_dtype=BF16).allocate("cuda")
    memory.bind(module)
    before = memory.region("W").clone()
    module.cpu()
    assert len(memory.verify(module)) == 4
    assert all(p.is_cuda and p.dtype == BF16 for p in module.parameters())
    assert torch.equal(memory.region("W"), before)


def test_the_snapshot_is_pinned_and_the_arena_one_allocation():
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    module = modules.mlp()
    plan = MemoryPlan.build(module, moments=2, snapshot=True)
    memory = plan.allocate("cuda")
    assert torch.cuda.memory_allocated() - before == plan.total_bytes
    assert memory.region("C").is_pinned() and memory.region("M", saved=True).is_pinned()
    memory.close()
    assert torch.cuda.memory_allocated() == before


@pytest.mark.timeout(300)
def test_16_bit_weights_give_the_bits_of_autocast_on_float32():
    torch.manual_seed(0)
    module, x = modules.Convolutions(), torch.randn(4, 3, 16, 16, device="cuda")
    twin = channels_last(copy.deepcopy(module)).cuda()
    memory = MemoryPlan.build(module, working_dtype=BF16).allocate("cuda")
    memory.bind(module)
    with torch.autocast("cuda", BF16, cache_enabled=False):
        assert same_bits(module(x), twin(x))
    assert memory.verify(module) == []
