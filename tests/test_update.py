"""Every optimizer of `cases.OPTIMIZERS` through the Updater, against float64 and against torch."""

import dataclasses

import numpy as np
import pytest
import reference
import torch
from cases import OPTIMIZERS
from hypothesis import given, settings
from hypothesis import strategies as st
from rig import Rig, assert_same
from torch import nn

from renaissance import _native
from renaissance.ema import Clip, Ema
from renaissance.optim import SGD, AdamW
from renaissance.update.host_ranges import HostRanges
from renaissance.update.updater import Updater

every_optimizer = pytest.mark.parametrize("case", OPTIMIZERS, ids=lambda case: case.name)


def double(tensors):
    return {name: tensor.double().numpy() for name, tensor in tensors.items()}


def moments_of(rig, name):
    return {
        region.lower(): rig.memory.view(region, name).double().numpy()
        for region in ("M", "V")
        if rig.memory.plan.has(region)
    }


@every_optimizer
def test_each_of_100_steps_is_the_formula(case):
    rig = Rig(case.optimizer)
    groups = {segment.name: segment.group for segment in rig.memory.plan.parameters}
    for step in range(100):
        lr = case.lr * (1 + np.cos(step / 30)) / 2
        before, grads = double(rig.tensors("W")), rig.grads(step, scale=0.3)
        states = {name: moments_of(rig, name) for name in rig.names}
        rig.step(grads, lr)
        after = double(rig.tensors("W"))
        for name in rig.names:
            inputs = (case.optimizer, before[name], grads[name].double().numpy())
            settings = {"lr": lr, "t": step + 1, "is_weights": groups[name] == "weights"}
            term, terms = reference.largest_terms(*inputs, states[name], **settings)
            expected = reference.optimizer_step(*inputs, states[name], **settings)
            assert np.all(np.abs(after[name] - expected) <= 5e-7 * term), (name, step)
            for region, moment in moments_of(rig, name).items():
                error = np.abs(moment - states[name][region])
                assert np.all(error <= 5e-7 * terms[region]), (name, region, step)
    assert rig.scalars["applied"] == rig.scalars["attempted"] == 100


@every_optimizer
def test_100_steps_stay_near_a_float64_run(case):
    rig = Rig(case.optimizer)
    groups = {segment.name: segment.group for segment in rig.memory.plan.parameters}
    weights = double(rig.tensors("W"))
    states = {name: {"m": np.zeros_like(w), "v": np.zeros_like(w)} for name, w in weights.items()}
    for step in range(100):
        grads = rig.grads(step, scale=0.3)
        rig.step(grads, case.lr)
        for name in rig.names:
            weights[name] = reference.optimizer_step(
                case.optimizer,
                weights[name],
                grads[name].double().numpy(),
                states[name],
                lr=case.lr,
                t=step + 1,
                is_weights=groups[name] == "weights",
            )
    for name, found in double(rig.tensors("W")).items():
        # 100 roundings of half an ulp each, of weights up to the largest one.
        assert np.abs(found - weights[name]).max() < 1e-5 * np.abs(weights[name]).max(), name


@pytest.mark.parametrize("case", [c for c in OPTIMIZERS if c.peer], ids=lambda case: case.name)
def test_torch_agrees(case):
    rig = Rig(case.optimizer)
    plan = rig.memory.plan
    theirs = {name: nn.Parameter(w.clone()) for name, w in rig.tensors("W").items()}
    undecayed = [theirs[s.name] for s in plan.parameters if s.group == "bias-like"]
    decayed = [theirs[s.name] for s in plan.parameters if s.group == "weights"]
    optimizer = case.peer(
        [{"params": undecayed, "weight_decay": 0.0}, {"params": decayed}], case.lr
    )
    for step in range(10):
        grads = rig.grads(step, scale=0.3)
        rig.step(grads, case.lr)
        for name, parameter in theirs.items():
            parameter.grad = grads[name].clone()
        optimizer.step()
    for name, found in rig.tensors("W").items():
        torch.testing.assert_close(found, theirs[name].detach(), rtol=1e-6, atol=1e-7)


@every_optimizer
def test_converges_on_a_quadratic(case):
    rig = Rig(case.optimizer)
    targets = {name: w + 0.1 * torch.sign(w) for name, w in rig.tensors("W").items()}

    def loss():
        return sum(((w - targets[n]) ** 2).sum() for n, w in rig.tensors("W").items())

    first = float(loss())
    for step in range(300):
        weights = rig.tensors("W")
        lr = case.lr * (1 - step / 300)
        rig.step({name: weights[name] - targets[name] for name in rig.names}, lr)
    decay = max(getattr(case.optimizer.settings, n, 0.0) for n in ("weight_decay", "l2"))
    assert float(loss()) < (0.02 if decay <= 0.01 else 0.5) * first


@every_optimizer
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_skipped_step_changes_nothing(case, bad):
    rig = Rig(case.optimizer, ema=Ema(0.9), plan={"working_dtype": torch.bfloat16})
    for step in range(3):
        rig.step(rig.grads(step), case.lr)
    before = rig.everything()
    grads = rig.grads(9)
    grads["3.weight"][3, 5] = bad
    rig.updater.snapshot_buffers()
    rig.module[1].running_mean.add_(1.0)  # what a forward does meanwhile
    rig.updater.gather([grads[name] for name in rig.names])
    rig.updater.finish()
    assert_same(before, rig.everything())
    assert rig.scalars["has_nan"] == 1 and rig.updater.first_non_finite() == "3.weight"
    assert (rig.scalars["applied"], rig.scalars["skipped"]) == (3, 1)
    rig.step(rig.grads(10), case.lr)
    assert rig.scalars["applied"] == 4 and rig.updater.first_non_finite() is None
    with pytest.raises(AssertionError, match="regions differ"):
        assert_same(before, rig.everything())


@every_optimizer
@pytest.mark.timeout(60)
def test_bits_do_not_depend_on_threads_or_vector_width(case):
    def run(threads, wide):
        was = _native.allow_avx2(wide)
        try:
            rig = Rig(
                case.optimizer,
                lambda: nn.Sequential(nn.Linear(301, 303), nn.BatchNorm1d(303), nn.Linear(303, 5)),
                threads=threads,
                clip=Clip(norm=1.0),
                ema=Ema(0.9),
                plan={"working_dtype": torch.float16},
            )
            for step in range(5):
                rig.step(rig.grads(step), case.lr)
            return rig.everything()
        finally:
            _native.allow_avx2(was)

    first = run(1, True)
    for threads, wide in [(2, True), (7, True), (1, False), (7, False)]:
        assert_same(first, run(threads, wide))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "case",
    [c for c in OPTIMIZERS if not c.optimizer.kernel.startswith("lars")],
    ids=lambda c: c.name,
)
@settings(max_examples=12, deadline=None)
@given(cuts=st.lists(st.integers(1, 6400), max_size=6), threads=st.sampled_from([1, 2, 7]))
def test_a_range_cut_anywhere_gives_the_same_bits(case, cuts, threads):
    def run(pieces):
        rig = Rig(case.optimizer, lambda: nn.Linear(99, 64), threads=threads)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(HostRanges, "_update", pieces)
            for step in range(2):
                rig.step(rig.grads(step), case.lr)
        return rig.everything()

    whole = HostRanges._update

    def in_pieces(ranges, op):
        end = op.begin + op.count
        inside = sorted({op.begin, end, *(c for c in cuts if op.begin < c < end)})
        for first, last in zip(inside, inside[1:]):
            whole(ranges, dataclasses.replace(op, begin=first, count=last - first))

    assert_same(run(whole), run(in_pieces))


def test_two_groups_have_their_own_decay():
    rig = Rig(AdamW(weight_decay=0.5))
    zeros = {name: torch.zeros_like(w) for name, w in rig.tensors("W").items()}
    before = rig.tensors("W")
    rig.step(zeros, 0.1)
    after = rig.tensors("W")
    for segment in rig.memory.plan.parameters:
        changed = not torch.equal(before[segment.name], after[segment.name])
        assert changed == (segment.group == "weights"), segment.name


def test_learning_rate_factors_of_ranges():
    rig = Rig(SGD(), plan={"lr_scales": (("5.*", 0.5), ("0.*", 0.0))})
    before, grads = rig.tensors("W"), rig.grads(0)
    rig.step(grads, 0.1)
    for name, after in rig.tensors("W").items():
        factor = {"5": 0.5, "0": 0.0}.get(name[0], 1.0)
        torch.testing.assert_close(after, before[name] - factor * 0.1 * grads[name])
    assert torch.equal(rig.tensors("W")["0.weight"], before["0.weight"])


def test_more_ranges_than_rows_is_an_error():
    net = nn.Sequential(*[nn.Linear(2, 2) for _ in range(9)])
    with pytest.raises(ValueError, match="18 update ranges; at most 16"):
        Rig(SGD(), lambda: net, plan={"lr_scales": [(f"{i}.*", 0.1 * (i + 1)) for i in range(9)]})


def test_a_plan_without_bias_like_tensors():
    rig = Rig(AdamW(), lambda: nn.Sequential(nn.Linear(5, 3, bias=False)))
    before = rig.tensors("W")
    rig.step(rig.grads(0), 0.1)
    assert [op.name for op in rig.updater.ops if "UPDATE" in op.name] == [
        "RANGE_UPDATE_WEIGHTS_ADAMW"
    ]
    assert not torch.equal(rig.tensors("W")["0.weight"], before["0.weight"])


@every_optimizer
def test_zero_learning_rate_leaves_weights(case):
    rig = Rig(case.optimizer)
    before = rig.tensors("W")
    for step in range(3):
        rig.step(rig.grads(step), 0.0)
    after = rig.tensors("W")
    assert all(torch.equal(before[name], after[name]) for name in rig.names)
    assert rig.scalars["applied"] == 3


def test_first_adam_update_is_lr_in_the_gradients_direction():
    rig = Rig(AdamW(weight_decay=0.0, eps=1e-12))
    before, grads = rig.tensors("W"), rig.grads(0)
    rig.step(grads, 0.1)
    for name, after in rig.tensors("W").items():
        torch.testing.assert_close(after, before[name] - 0.1 * torch.sign(grads[name]))


def test_number_of_operations_does_not_grow_with_layers():
    def names(depth, case):
        layers = [nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)] + [nn.Linear(4, 4)] * 1
        layers += [nn.Linear(4, 4) for _ in range(depth)]
        return [
            op.name
            for op in Rig(case.optimizer, lambda: nn.Sequential(*layers), ema=Ema(0.9)).updater.ops
        ]

    for case in OPTIMIZERS:
        few, many = names(1, case), names(20, case)
        assert few == many
        assert sum("UPDATE" in name for name in few) == 2
        assert len(few) <= (9 if case.name.startswith("lars") else 7)


def test_operations_print():
    rig = Rig(AdamW())
    lines = [str(op) for op in rig.updater.ops]
    assert any(
        line.startswith("RANGE_UPDATE_WEIGHTS_ADAMW") and "W G M V" in line for line in lines
    )


@pytest.mark.parametrize("nominal", [0.0, -1.0, float("nan"), float("inf")])
def test_nominal_is_checked(nominal):
    with pytest.raises(ValueError, match="above 0"):
        Rig(SGD(), nominal=nominal)


def test_moving_average():
    rig = Rig(SGD(), ema=Ema(0.99, warmup=True))
    average = double(rig.tensors("E"))
    for step in range(30):
        rig.step(rig.grads(step), 0.1)
        rig.module[1].running_mean.add_(0.5)
        rate = reference.ema_rate(step + 1, 0.99, True)
        for name, w in double(rig.tensors("W")).items():
            average[name] += rate * (w - average[name])
    for name, found in double(rig.tensors("E")).items():
        np.testing.assert_allclose(found, average[name], rtol=2e-6, atol=2e-6)
    mean = rig.memory.view("E", "1.running_mean")
    assert 0.5 < float(mean[0]) < 15.0  # behind the 15 that the buffer has reached


def test_exchange_with_the_average_and_back():
    rig = Rig(AdamW(), ema=Ema(0.5), plan={"working_dtype": torch.bfloat16})
    for step in range(5):
        rig.step(rig.grads(step), 0.1)
        rig.module[1].running_mean.add_(1.0)
    before = rig.everything()
    rig.updater.exchange_ema()
    during = rig.everything()
    assert torch.equal(during["W"], before["E"][: before["W"].numel()])
    assert torch.equal(during["A"], during["W"].bfloat16())
    assert torch.equal(
        rig.memory.view("E", "1.running_mean"), torch.full((5,), 5.0)
    ) and not torch.equal(rig.module[1].running_mean, torch.full((5,), 5.0))
    rig.updater.exchange_ema()
    assert_same(before, rig.everything())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_working_copy_is_the_rounded_weight(dtype):
    rig = Rig(AdamW(), plan={"working_dtype": dtype})
    for step in range(3):
        rig.step(rig.grads(step), 0.1)
    trained = rig.memory.region("G").numel()
    w, a = rig.memory.region("W")[:trained], rig.memory.region("A")[:trained]
    assert torch.equal(a, w.to(dtype))


def test_a_second_updater_on_the_same_memory_starts_from_its_counters():
    rig = Rig(AdamW())
    for step in range(3):
        rig.step(rig.grads(step), 0.1)
    state = rig.scalars.state()
    again = Updater(rig.memory, AdamW())
    again.scalars.load_state(state)
    assert again.scalars["applied"] == 3 and again.scalars.state() == state


@pytest.mark.parametrize(
    "weight, came",
    [
        (torch.tensor(8.0, dtype=torch.float64), "torch.float64"),
        (torch.tensor(8), "torch.int64"),
        (torch.ones(2), r"\(2,\)"),
        (torch.empty((), device="meta"), "meta"),
    ],
    ids=["float64", "int64", "two", "elsewhere"],
)
def test_a_weight_that_would_be_misread_is_refused(weight, came):
    rig = Rig(SGD())
    before = rig.tensors("W")
    with pytest.raises(TypeError, match=f"{came}.* it takes one float32 number"):
        rig.step(rig.grads(0), lr=0.1, weight=weight)
    assert all(torch.equal(before[name], now) for name, now in rig.tensors("W").items())
