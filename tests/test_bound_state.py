"""The state dict of a bound module is the plain module's, both ways."""

import copy
import io

import modules
import pytest
import torch
from binding_tools import BF16, bound, each_case, padding, same_bits
from torch import nn

import renaissance as rn


@each_case
@pytest.mark.parametrize("working", [None, BF16])
def test_state_dict_is_the_plain_module_s(name, working):
    module, _ = modules.build(name)
    plain = copy.deepcopy(module)
    memory = bound(module, working_dtype=working)
    ours, theirs = module.state_dict(), plain.state_dict()
    assert list(ours) == list(theirs)
    assert all(same_bits(ours[name], theirs[name]) for name in theirs)
    with torch.no_grad():
        memory.region("W").mul_(1.0 + 2.0**-20)  # what 16 bits cannot hold
        memory.refresh()
    plain.load_state_dict(module.state_dict(), strict=True)
    assert all(
        same_bits(plain.get_parameter(n), memory.view("W", n)) for n, _ in module.named_parameters()
    )


@each_case
@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("working", [None, BF16])
def test_load_state_dict_writes_masters_and_copies(name, working, assign):
    module, _ = modules.build(name)
    other = copy.deepcopy(module)
    with torch.no_grad():
        for tensor in [*other.parameters(), *other.buffers()]:
            tensor.copy_(tensor * 1.7 + 1)
    memory = bound(module, working_dtype=working)
    objects = list(module.parameters())
    module.load_state_dict(copy.deepcopy(other.state_dict()), strict=True, assign=assign)
    memory.verify(module)
    assert all(a is b for a, b in zip(module.parameters(), objects))  # ties stand again
    for name, value in other.state_dict().items():
        assert same_bits(module.state_dict()[name], value)
        segment = None if name in memory.plan.counters else memory.plan.segment(name)
        if segment is not None and segment.working:
            assert same_bits(module.get_parameter(name), value.to(BF16))
            assert same_bits(memory.view("W", name), value)
    assert not memory.verify(module)
    assert not padding(memory, "W").any()


def test_loading_rounds_once_from_the_master():
    value = 1.0 + 2.0**-9 + 2.0**-9 + 2.0**-40  # float64: above the midpoint of two bfloat16
    module = nn.Linear(1, 1, bias=False)
    memory = bound(module, working_dtype=BF16)
    module.load_state_dict({"weight": torch.tensor([[value]], dtype=torch.float64)})
    master = memory.view("W", "weight")
    assert same_bits(module.weight, master.to(BF16))


def test_batches_are_counted_outside_and_reported_by_name():
    module = modules.Convolutions()
    module.norm.num_batches_tracked.fill_(5)
    memory, batches = bound(module), [0]
    assert module.norm.num_batches_tracked is None
    memory.count_batches_with(lambda: batches[0])
    name = "norm.num_batches_tracked"
    batches[0] += 3
    assert memory.batches_tracked == {name: 8}
    assert module.state_dict()[name].dtype == torch.int64 and module.state_dict()[name] == 8
    assert module.norm.state_dict()["num_batches_tracked"] == 8  # of a part, too
    module.load_state_dict(module.state_dict() | {name: torch.tensor(100)})
    batches[0] += 1
    assert memory.batches_tracked == {name: 101}
    memory.close()
    assert module.norm.num_batches_tracked == 101


@pytest.mark.parametrize("norm", [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d])
def test_every_plain_batch_norm_does_without_its_counter(norm):
    module = norm(3)
    memory = bound(module)
    shape = {nn.BatchNorm1d: (4, 3), nn.BatchNorm2d: (4, 3, 2, 2), nn.BatchNorm3d: (4, 3, 2, 2, 2)}
    module(torch.randn(shape[norm]))
    assert memory.batches_tracked == {"num_batches_tracked": 0}
    assert module.running_mean.any()


@pytest.mark.parametrize(
    "make", [lambda: nn.BatchNorm1d(3, momentum=None), lambda: nn.SyncBatchNorm(3)]
)
def test_a_batch_norm_that_needs_its_counter_keeps_it_in_b(make):
    module = make()
    memory = bound(module)
    module.num_batches_tracked.add_(1)
    assert memory.view("B", "num_batches_tracked") == 1 and memory.batches_tracked == {}
    assert memory.plan.region("B'").nbytes == memory.plan.region("B").nbytes
    assert module.state_dict()["num_batches_tracked"] == 1
    assert not memory.verify(module)


def test_strict_loading_reports_what_is_missing_and_misshapen():
    module = modules.Convolutions()
    memory = bound(module, working_dtype=BF16)
    state = modules.Convolutions().state_dict()
    del state["norm.num_batches_tracked"]
    with pytest.raises(RuntimeError, match="Missing key.*norm.num_batches_tracked"):
        module.load_state_dict(state)
    module.load_state_dict(state, strict=False)
    before = memory.view("W", "head.weight").clone()
    with pytest.raises(RuntimeError, match="size mismatch for head.weight"):
        module.load_state_dict(state | {"head.weight": torch.ones(5, 5)}, strict=False)
    assert torch.equal(memory.view("W", "head.weight"), before)
    with pytest.raises(RuntimeError, match="Unexpected key.*more"):
        module.load_state_dict(module.state_dict() | {"more": torch.ones(1)})
    plain = dict(modules.Convolutions().state_dict())  # without torch's version record
    module.load_state_dict(plain, strict=True)
    assert torch.equal(memory.view("W", "head.weight"), plain["head.weight"])


def test_saving_a_state_dict_does_not_save_the_arena():
    module = modules.mlp()
    memory = bound(module, working_dtype=BF16, moments=2, ema=True)
    file = io.BytesIO()
    torch.save({"2.bias": module.state_dict()["2.bias"]}, file)
    assert file.tell() < 3000 < memory.plan.total_bytes


def test_a_resumed_task_has_the_batches_of_the_one_that_was_saved(tmp_path):
    x, y = torch.randn(24, 6).numpy(), torch.randint(0, 3, (24,)).numpy()

    def task():
        module = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
        made = rn.Task(module, seed=1, device="cpu").loss(rn.CrossEntropyLoss())
        made.optimizer(rn.SGD(lr=0.1)).data(rn.Loader.from_arrays(x, y, batch_size=8))
        return made.compile(report="none")

    name = "1.num_batches_tracked"
    with task() as first, task() as second:
        first.fit(epochs=2, verbose=0)
        first.save(tmp_path / "saved")
        second.load(tmp_path / "saved")
        assert first.state_dict()[name] == second.state_dict()[name] == 6
        second.fit(epochs=3, verbose=0)
        assert second.state_dict()[name] == 9
