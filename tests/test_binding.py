"""Tensors that leave their regions are brought back or refused; a module has one owner."""

import copy
import gc
import io
import logging

import modules
import pytest
import torch
from binding_tools import BF16, bound, channels_last, each_case, same_bits
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef

from renaissance import MemoryPlan


@each_case
def test_nothing_is_a_stranger_after_ordinary_use(name):
    module, x = modules.build(name)
    memory = bound(module)
    module(x).square().sum().backward()
    module.eval().train().float().zero_grad()
    module.load_state_dict(module.state_dict())
    assert memory.verify(module) == []


def test_strangers_are_copied_in_with_one_line(caplog):
    module = modules.Recurrent()
    memory = bound(module)
    weights = list(module.lstm.parameters())
    flat = torch.cat([w.detach().reshape(-1) for w in weights]) + 1  # as cuDNN flattens them
    for weight, part in zip(weights, flat.split([w.numel() for w in weights])):
        weight.data = part.view(weight.shape)
    with caplog.at_level(logging.WARNING):
        assert memory.verify(module) == [f"lstm.{n}" for n, _ in module.lstm.named_parameters()]
    assert len(caplog.records) == 1
    assert "4 tensors had left their regions" in caplog.text and "lstm.weight_ih_l0" in caplog.text
    assert torch.equal(torch.cat([w.detach().reshape(-1) for w in weights]), flat)
    assert all(a is b for a, b in zip(module.lstm._flat_weights, weights))
    assert memory.verify(module) == []


def test_memory_formats_are_undone():
    module = modules.Convolutions()
    module.table = nn.Parameter(torch.randn(2, 3, 4, 5))
    values = module.table.detach().clone()
    memory = bound(module)
    module.to(memory_format=torch.channels_last)
    assert memory.verify(module) == ["table"]  # convolution weights are channels-last already
    assert module.table.is_contiguous() and torch.equal(module.table, values)
    module.to(memory_format=torch.contiguous_format)
    memory.verify(module)
    assert module.deep.weight.stride() == memory.plan.segment("deep.weight").strides


@pytest.mark.parametrize("working", [None, BF16])
@pytest.mark.parametrize("convert", [nn.Module.half, nn.Module.double])
def test_conversions_of_precision_are_refused(working, convert):
    module = modules.Convolutions()
    memory = bound(module, working_dtype=working)
    before = memory.region("W").clone()
    convert(module)
    with pytest.raises(
        RuntimeError, match=r"'stem.weight' is now .* torch.float(16|64) .*precision"
    ):
        memory.verify(module)
    assert torch.equal(memory.region("W"), before)
    memory.close()
    assert all(p.dtype == torch.float32 for p in module.parameters())


def test_a_conversion_of_16_bit_copies_keeps_the_masters():
    module = modules.mlp()
    memory = bound(module, working_dtype=BF16)
    before = memory.region("W").clone()
    module.float()
    assert len(memory.verify(module)) == 4
    assert torch.equal(memory.region("W"), before) and module[0].weight.dtype == BF16
    module[0].weight.data = module[0].weight.data.clone()
    module[0].bias.data = module[0].bias.data.float() + 1
    assert memory.verify(module) == ["0.weight", "0.bias"]
    assert torch.equal(memory.view("W", "0.weight"), before_view(memory, before, "0.weight"))
    assert same_bits(module[0].bias, memory.view("W", "0.bias").to(BF16))
    assert not torch.equal(memory.view("W", "0.bias"), before_view(memory, before, "0.bias"))


def before_view(memory, flat, name):
    segment = memory.plan.segment(name)
    return flat[segment.offset :].as_strided(segment.shape, segment.strides)


def test_a_wrong_shape_is_refused_and_nothing_moves():
    module = modules.mlp()
    memory = bound(module)
    module[0].bias.data = torch.ones(64)
    module[2].bias.data = torch.ones(11)
    with pytest.raises(RuntimeError, match=r"'2.bias' is now \(11,\) .* its plan has \(10,\)"):
        memory.verify(module)
    assert not (memory.view("W", "0.bias") == 1).any()


def test_tied_strangers_must_agree():
    module = modules.TiedLinears()
    memory = bound(module)
    state = {n: torch.full_like(v, 2.0) for n, v in module.state_dict().items()}
    module.load_state_dict(state, assign=True)
    assert memory.verify(module) == ["a.weight", "a.bias", "b.bias"]
    assert module.a.weight is module.b.weight and (module.b.weight == 2).all()
    module.load_state_dict(state | {"b.weight": torch.zeros(6, 6)}, assign=True)
    with pytest.raises(RuntimeError, match="tied tensors a.weight, b.weight hold different"):
        memory.verify(module)


def test_one_of_two_tied_places_may_not_get_a_value_of_its_own():
    module = modules.TiedLinears()
    memory = bound(module)
    module.b.weight = nn.Parameter(module.a.weight.detach().clone())
    assert memory.verify(module) == ["a.weight"] and module.a.weight is module.b.weight
    module.b.weight = nn.Parameter(module.a.weight.detach() + 1)
    with pytest.raises(RuntimeError, match="tied tensors a.weight, b.weight hold different"):
        memory.verify(module)


def change_freeze(module):
    module[0].weight.requires_grad_(False)


def change_tie(module):
    module[2].bias = module[0].bias


def change_add(module):
    module[0].register_parameter("extra", nn.Parameter(torch.ones(2)))


def change_remove(module):
    module[2].bias = None


def change_layer(module):
    module[0] = nn.Linear(784, 64, bias=False)


@pytest.mark.parametrize(
    "change, words",
    [
        (change_freeze, "'0.weight' is frozen now"),
        (change_tie, "'2.bias' is tied to '0.bias' now"),
        (change_add, "'0.extra' is new"),
        (change_remove, "'2.bias' is gone"),
        (change_layer, "'0.bias' is gone"),
    ],
)
def test_changes_that_need_a_new_plan(change, words):
    module = modules.mlp()
    memory = bound(module)
    assert memory.changes(module) == []
    change(module)
    assert words in memory.changes(module)
    with pytest.raises(RuntimeError, match=f"{words}.*compile"):
        memory.verify(module)


def test_unfreezing_is_a_change_and_an_unused_parameter_is_none():
    module = modules.mlp()
    module[0].weight.requires_grad_(False)
    memory = bound(module, unused=["0.bias"])
    assert memory.changes(module) == []
    module[0].weight.requires_grad_(True)
    assert memory.changes(module) == ["'0.weight' is trainable now"]


# -- whose the module is, and the end --------------------------------------------------------------


def test_a_module_belongs_to_one_task():
    module = modules.mlp()
    memory = bound(module)
    for attempt in (lambda: MemoryPlan.build(module), lambda: bound(nn.Sequential(module))):
        with pytest.raises(RuntimeError, match="belongs to another task.*close"):
            attempt()
    other = MemoryPlan.build(modules.mlp()).allocate("cpu")
    with pytest.raises(RuntimeError, match="belongs to another task"):
        other.bind(module)
    with pytest.raises(RuntimeError, match="has a module already"):
        memory.bind(modules.mlp())
    with pytest.raises(RuntimeError, match="not bound to this memory"):
        other.verify(module)
    memory.close()
    other.bind(module)
    assert other.module is module and memory.module is None


def test_a_module_of_another_shape_is_refused():
    memory = MemoryPlan.build(modules.mlp()).allocate("cpu")
    with pytest.raises(ValueError, match=r"'0.bias' differs .*\(\(64,\), .* found \(\(32,\)"):
        memory.bind(nn.Sequential(nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, 10)))


def count_hooks(module):
    return [
        (len(part._state_dict_hooks), len(part._load_state_dict_pre_hooks))
        for part in module.modules()
    ]


@each_case
@pytest.mark.parametrize("working", [None, BF16])
def test_closing_gives_the_module_its_own_float32_tensors(name, working):
    module, x = modules.build(name)
    twin, objects = channels_last(module), list(module.parameters())
    attributes = {path: set(vars(part)) for path, part in module.named_modules()}
    hooks = count_hooks(module)
    memory = bound(module, working_dtype=working)
    arena = StorageWeakRef(memory.region("W").untyped_storage())
    memory.close()
    memory.close()
    assert arena.expired()
    assert attributes == {path: set(vars(part)) for path, part in module.named_modules()}
    assert all(a is b for a, b in zip(module.parameters(), objects))
    for key, value in twin.state_dict().items():
        assert same_bits(module.state_dict()[key], value)
    assert same_bits(module(x), twin(x))
    assert hooks == count_hooks(module)
    if name != "parametrized":  # torch itself refuses to pickle those
        torch.save(module, io.BytesIO())
    with pytest.raises(RuntimeError, match="closed"):
        memory.region("W")


@pytest.mark.parametrize("working", [None, BF16])
def test_closing_takes_strangers_along(working):
    module, other = modules.Convolutions(), modules.Convolutions()
    memory = bound(module, working_dtype=working)
    module.load_state_dict(other.state_dict(), assign=True)
    module.norm.running_mean = torch.full((8,), 3.0)
    memory.close()
    expected = other.state_dict() | {"norm.running_mean": torch.full((8,), 3.0)}
    assert all(same_bits(module.state_dict()[name], v) for name, v in expected.items())
    bound(module).close()


@pytest.mark.parametrize("working", [None, BF16])
def test_a_forgotten_memory_gives_the_module_back_too(working):
    module = modules.Convolutions()
    before = copy.deepcopy(module.state_dict())
    memory = bound(module, working_dtype=working)
    arena = StorageWeakRef(memory.region("W").untyped_storage())
    del memory
    gc.collect()
    assert arena.expired()
    assert all(same_bits(module.state_dict()[n], v) for n, v in before.items())
    bound(module).close()


def test_a_module_can_go_before_its_memory():
    module = modules.Convolutions()
    memory = bound(module, working_dtype=BF16)
    del module
    gc.collect()
    assert memory.module is None
    arena = StorageWeakRef(memory.region("W").untyped_storage())
    memory.bind(modules.Convolutions())  # the bytes may serve another one
    memory.close()
    assert arena.expired()


def test_a_cycle_of_task_and_module_is_collected():
    class Task:
        pass

    task = Task()
    task.model = modules.mlp()
    task.model.task = [task]
    task.memory = bound(task.model)
    arena = StorageWeakRef(task.memory.region("W").untyped_storage())
    del task
    gc.collect()
    assert arena.expired()


def test_copies_of_a_bound_module_are_its_own_or_refused():
    module = modules.Tied()
    memory = bound(module)
    for twin in (copy.deepcopy(module), pickled(module)):
        assert twin.out.weight.data_ptr() != module.out.weight.data_ptr()
        assert list(twin.state_dict()) == list(module.state_dict())
        bound(twin).close()
    memory.close()
    for make, options, lost in (
        (modules.mlp, {"working_dtype": BF16}, "float32 masters"),
        (modules.Norms, {}, "num_batches_tracked"),
    ):
        module = make()
        memory = bound(module, **options)
        for attempt in (copy.deepcopy, pickled):
            with pytest.raises(TypeError, match=f"lose its {lost}.*export_module"):
                attempt(module)
        memory.close()
        assert list(pickled(module).state_dict()) == list(copy.deepcopy(module).state_dict())


def pickled(module):
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def test_as_a_context_manager():
    module = modules.mlp()
    with MemoryPlan.build(module).allocate("cpu") as memory:
        memory.bind(module)
    assert memory.module is None
    with pytest.raises(RuntimeError, match="bind a module before"):
        memory.count_batches_with(int)
