"""Where bound tensors are: own storages over regions, zero between them, bytes kept while used."""

import copy

import modules
import pytest
import torch
from binding_tools import BF16, bound, each_case, padding, same_bits
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from renaissance import MemoryPlan


@each_case
def test_every_tensor_has_its_own_storage_over_the_region(name):
    module, _ = modules.build(name)
    objects = dict(module.named_parameters(remove_duplicate=False))
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    memory = bound(module, working_dtype=BF16)
    assert dict(module.named_parameters(remove_duplicate=False)) == objects  # ties and identity
    storages = set()
    for segment in memory.plan.segments:
        region = "A" if segment.working else segment.region
        for name in segment.names:
            tensor = module.get_parameter(name) if region != "B" else module.get_buffer(name)
            assert tensor.grad is None and tensor.shape == segment.shape
            if segment.count:
                size = memory.region(region).element_size()
                scale = size if region != "B" else segment.dtype.itemsize
                assert tensor.data_ptr() == memory.address(region) + segment.offset * scale
                assert tensor.data_ptr() == tensor.untyped_storage().data_ptr()
                assert tensor.untyped_storage().nbytes() == tensor.numel() * tensor.element_size()
                assert not tensor._is_view() and tensor.stride() == segment.strides
                storages.add(tensor.untyped_storage()._cdata)
    assert len(storages) == sum(s.count > 0 for s in memory.plan.segments)


@each_case
def test_regions_hold_the_values_and_zero_between_them(name):
    module, _ = modules.build(name)
    before = {n: p.detach().clone() for n, p in module.named_parameters(remove_duplicate=False)}
    memory = bound(module, working_dtype=BF16, moments=2, ema=True)
    for name, value in before.items():
        assert same_bits(memory.view("W", name), value)
        assert same_bits(memory.view("E", name), value)
        assert same_bits(memory.view("A", name), value.to(BF16))
    module.load_state_dict({n: v + 1 for n, v in module.state_dict().items()}, strict=False)
    memory.refresh()
    for region in ("W", "A", "E"):
        assert not padding(memory, region).any()
    assert all(not memory.region(r).any() for r in ("G", "M", "V", "S"))


@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 140), st.integers(1, 9)), min_size=1, max_size=5),
    working=st.sampled_from([None, BF16, torch.float16]),
)
def test_bind_and_unbind_give_the_module_back(sizes, working):
    layers = [
        nn.Sequential(nn.Conv2d(a, b, 2), nn.BatchNorm2d(b), nn.Linear(b, a)) for a, b in sizes
    ]
    module = nn.Sequential(*layers)
    before = copy.deepcopy(module.state_dict())
    memory = bound(module, working_dtype=working, ema=True)
    assert not padding(memory, "W").any()
    memory.unbind(module)
    after = module.state_dict()
    assert list(before) == list(after)
    assert all(same_bits(before[name], after[name]) for name in before)


def test_without_values_parameters_are_zero_and_buffers_kept():
    module = modules.Odd()
    memory = bound(module, keep_values=False)
    assert not memory.region("W").any() and not module.gamma.any()
    assert torch.equal(module.position, torch.arange(6.0))


def test_views_go_by_name_and_refuse_what_is_elsewhere():
    module = modules.Convolutions()
    memory = bound(module, moments=1, ema=True)
    assert memory.view("G", "deep.weight").stride() == module.deep.weight.stride()
    memory.view("M", "head.bias")[2] = 5.0
    assert memory.region("M")[memory.plan.segment("head.bias").offset + 2] == 5
    assert torch.equal(memory.view("E", "norm.running_var"), torch.ones(8))
    for region, name in (("B", "head.bias"), ("M", "norm.running_var")):
        with pytest.raises(ValueError, match=f"{name!r}.*no place in region '{region}'"):
            memory.view(region, name)
    with pytest.raises(ValueError, match="no region 'V'; it has .*'B', .*'S'"):
        memory.view("V", "head.bias")
    module = modules.Convolutions()
    module.stem.weight.requires_grad_(False)
    frozen = MemoryPlan.build(module, ema=True).allocate("cpu")
    with pytest.raises(ValueError, match="'stem.weight' .weights, frozen. has no place .* 'G'"):
        frozen.view("G", "stem.weight")
    assert frozen.view("E", "stem.weight").shape == (8, 3, 3, 3)


def test_average_and_statistics_start_again():
    module = modules.Convolutions()
    memory = bound(module, ema=True, working_dtype=BF16)
    memory.set_batches_tracked("norm.num_batches_tracked", 9)
    with torch.no_grad():
        memory.region("W").copy_(torch.where(memory.region("W") != 0, 3.0, 0.0))
        module.norm.running_mean.fill_(4)
    memory.refresh()
    assert torch.equal(module.head.weight, torch.full((5, 4), 3.0, dtype=BF16))
    memory.restart_average()
    assert torch.equal(memory.view("E", "head.weight"), memory.view("W", "head.weight"))
    assert torch.equal(memory.view("E", "norm.running_mean"), torch.full((8,), 4.0))
    memory.reset_statistics()
    assert not module.norm.running_mean.any() and (module.norm.running_var == 1).all()
    assert memory.batches_tracked == {"norm.num_batches_tracked": 0}
    with pytest.raises(ValueError, match="'norm' is no counter"):
        memory.set_batches_tracked("norm", 1)


def test_a_tensor_in_use_keeps_the_bytes():
    module = modules.mlp()
    memory = bound(module)
    arena = StorageWeakRef(memory.region("W").untyped_storage())
    alias, expected = module[0].weight.data, module[0].weight.detach().clone()
    memory.close()
    assert not arena.expired() and torch.equal(alias, expected)
    del alias
    assert arena.expired()


def test_the_snapshot_has_the_regions_by_name():
    module = modules.Convolutions()
    memory = bound(module, moments=1, snapshot=True)
    for part in memory.plan.snapshot:
        memory.region(part.name, saved=True).copy_(memory.region(part.name))
    with torch.no_grad():
        memory.region("W").zero_()
    assert same_bits(
        memory.view("B", "norm.running_var", saved=True), memory.view("B", "norm.running_var")
    )
    assert memory.view("W", "head.weight", saved=True).any() and not module.head.weight.any()
    total = sum(memory.region(part.name).nbytes for part in memory.plan.snapshot)
    assert memory.region("C").nbytes == total
    with pytest.raises(ValueError, match="the snapshot has no region 'G'"):
        memory.region("G", saved=True)
    with pytest.raises(ValueError, match="the snapshot has no region 'W'; it has none at all"):
        bound(modules.mlp()).region("W", saved=True)
