"""The memory plan as pure data: segments, regions, ranges, text, hash; and what it refuses."""

import modules
import pytest
import torch
import torchvision
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from renaissance import MemoryPlan
from renaissance.memory.segments import SHARED
from renaissance.memory.tables import human, table


@st.composite
def random_modules(draw):
    """A sequence of layers of random kinds and sizes, some frozen, some tied."""
    make = {
        "linear": lambda a, b: nn.Linear(a, b, bias=a % 2 == 0),
        "conv": lambda a, b: nn.Conv2d(a, b, 1 + b % 3),
        "transposed": lambda a, b: nn.ConvTranspose2d(a, b, 2),
        "batch_norm": lambda a, b: nn.BatchNorm1d(a),
        "layer_norm": lambda a, b: nn.LayerNorm((a, b)),
        "embedding": lambda a, b: nn.Embedding(a, b),
        "prelu": lambda a, b: nn.PReLU(a),
    }
    size = st.integers(1, 140)
    drawn = draw(st.lists(st.tuples(st.sampled_from(sorted(make)), size, size), min_size=1))
    layers = [make[kind](a, b) for kind, a, b in drawn]
    module = nn.Sequential(*layers, *layers[:1])  # the first one twice
    for parameter in module.parameters():
        parameter.requires_grad_(draw(st.booleans()))
    return module


@settings(max_examples=60, deadline=None)
@given(
    module=random_modules(),
    moments=st.integers(0, 2),
    ema=st.booleans(),
    working=st.sampled_from([None, torch.bfloat16]),
    scales=st.lists(
        st.tuples(st.sampled_from(["0.*", "*.weight", "*"]), st.sampled_from([0.1, 1.0, 2.0])),
        max_size=3,
    ),
)
def test_segments_and_ranges_fill_their_regions(module, moments, ema, working, scales):
    names = [name for name, _ in module.named_parameters()]
    scales = [s for s in scales if s[0] != "*.weight" or any(n.endswith("weight") for n in names)]
    plan = MemoryPlan.build(
        module, moments=moments, ema=ema, working_dtype=working, lr_scales=scales
    )
    weights = [s for s in plan.segments if s.region == "W"]
    assert sum(s.count for s in weights) == sum(p.numel() for p in module.parameters())
    end = 0
    for segment in weights:  # one after the other: no overlap, no hole but the padding
        assert segment.offset == end and segment.offset % 128 == 0
        end = -(-(segment.offset + segment.count) // 128) * 128
    assert plan.region("W").count == end
    groups = [s.group for s in weights]
    assert groups == sorted(groups)  # bias-like, then weights, each in one piece

    covered = set()
    for item in plan.ranges:
        inside = [s for s in weights if item.begin <= s.offset < item.end]
        assert {(s.group, s.lr_factor, s.trainable) for s in inside} == {
            (item.group, item.lr_factor, True)
        }
        assert item.decay == (item.group == "weights")
        covered |= {s.name for s in inside}
    assert covered == {s.name for s in weights if s.trainable}
    assert len({(r.group, r.lr_factor) for r in plan.ranges}) == len(plan.ranges)

    position = 0
    for region in plan.regions:
        assert region.offset_bytes == position and region.offset_bytes % 512 == 0
        position += -(-region.nbytes // 512) * 512
    expected = {"M": moments > 0, "V": moments > 1, "E": ema, "A": working is not None}
    trained = bool(plan.ranges)
    assert {name: plan.has(name) for name in expected} == {
        name: wanted and (trained or name in "AE") for name, wanted in expected.items()
    }
    assert plan == MemoryPlan.build(
        module, moments=moments, ema=ema, working_dtype=working, lr_scales=scales
    )


def test_regions_stand_in_memory_order_and_only_where_needed():
    module = modules.Convolutions()
    full = MemoryPlan.build(
        module,
        moments=2,
        working_dtype=torch.bfloat16,
        ema=True,
        lars=True,
        inputs_bytes=1000,
        results_bytes=64,
        snapshot=True,
    )
    assert "".join(r.name for r in full.regions) == "BB'WAGMVENSIRC"
    assert full.region("I").nbytes == 1000 and full.region("R").nbytes == 64
    assert full.host_bytes == full.region("C").nbytes
    assert [r.name for r in full.snapshot] == ["B", "W", "M", "V", "E", "S"]
    assert all(full.region(r.name).nbytes == r.nbytes for r in full.snapshot)
    assert "".join(r.name for r in MemoryPlan.build(modules.mlp()).regions) == "WGS"
    assert full.total_bytes == sum(-(-r.nbytes // 512) * 512 for r in full.regions[:-1])


def test_kinds_and_groups_follow_the_owning_module():
    plan = MemoryPlan.build(modules.Norms())
    kinds = {s.name: (s.group, s.kind) for s in plan.segments if s.region == "W"}
    for name in ("batch", "layer", "group", "instance"):
        assert kinds[f"{name}.weight"] == ("bias-like", "norm_scale")  # (4, 5) of layer too
        assert kinds[f"{name}.bias"] == ("bias-like", "norm_shift")
    assert kinds["rms.weight"] == kinds["own.scale"] == ("bias-like", "norm_scale")
    assert kinds["own.shift"] == ("bias-like", "norm_shift")
    assert kinds["conv.weight"] == ("weights", "first_conv")

    plan = MemoryPlan.build(modules.Attention())
    kinds = {s.name: (s.group, s.kind) for s in plan.segments}
    assert kinds["own.in_proj_weight"] == ("weights", "linear")
    assert kinds["cross.k_proj_weight"] == ("weights", "linear")
    assert kinds["own.bias_k"] == kinds["own.in_proj_bias"] == ("bias-like", "bias")
    plan = MemoryPlan.build(modules.Recurrent())
    kinds = {s.name: (s.group, s.kind) for s in plan.segments}
    assert kinds["lstm.weight_hh_l0"] == ("weights", "other")
    assert kinds["lstm.bias_hh_l0"] == ("bias-like", "bias")

    plan = MemoryPlan.build(modules.Odd())
    kinds = {s.name: (s.group, s.kind) for s in plan.segments}
    assert kinds["scale"] == kinds["gamma"] == ("bias-like", "other")
    assert kinds["token"] == kinds["turned"] == ("weights", "other")


def test_order_inside_the_groups():
    kinds = [s.kind for s in MemoryPlan.build(modules.Convolutions()).segments]
    assert kinds == [
        *("norm_scale", "norm_shift", "bias", "bias", "bias"),
        *("linear", "first_conv", "conv", "conv", "running_mean", "running_var"),
    ]


def test_convolution_weights_are_channels_last_and_nothing_else_is():
    plan = MemoryPlan.build(modules.Convolutions())
    assert plan.segment("deep.weight").shape == (8, 4, 3, 3)
    assert plan.segment("deep.weight").strides == (36, 1, 12, 4)
    assert plan.segment("up.weight").channels_last  # (in, out, H, W)
    assert not plan.segment("head.weight").channels_last
    module = nn.Module()
    module.table = nn.Parameter(torch.zeros(2, 3, 4, 5))
    assert MemoryPlan.build(module).segment("table").strides == (60, 20, 5, 1)


def test_tied_tensors_come_once_with_every_name():
    plan = MemoryPlan.build(modules.Tied())
    assert plan.segment("table.weight").tied == ("out.weight",)
    assert plan.segment("again.bias") is plan.segment("hidden.bias")
    assert len(plan.parameters) == 3
    assert plan.segment("out.weight").kind == "embedding"


def test_frozen_and_unused_tensors_stand_behind_their_range():
    module = modules.Convolutions()
    module.stem.weight.requires_grad_(False)
    module.norm.bias.requires_grad_(False)
    plan = MemoryPlan.build(module, moments=1, unused={"deep.bias"})
    order = [s.name for s in plan.segments if s.region == "W"]
    assert order[2:5] == ["head.bias", "norm.bias", "deep.bias"]
    assert order[-1] == "stem.weight"
    begin, count = plan.range("W", "weights")
    assert begin + count == plan.segment("stem.weight").offset == plan.region("G").count
    assert plan.region("M").count == plan.region("G").count < plan.region("W").count
    text = plan.to_text()
    assert any("stem.weight" in line and "frozen" in line for line in text.splitlines())
    assert any("deep.bias" in line and "unused" in line for line in text.splitlines())


def test_a_module_without_bias_like_tensors_and_one_without_weights():
    plan = MemoryPlan.build(nn.Linear(3, 5, bias=False), moments=1)
    assert [r.group for r in plan.ranges] == ["weights"]
    assert plan.range("G", "bias-like") == (0, 0) and plan.range("G", "weights") == (0, 128)
    plan = MemoryPlan.build(nn.BatchNorm1d(5), lars=True)
    assert [r.group for r in plan.ranges] == ["bias-like"]
    assert not plan.has("N")


def test_an_entirely_frozen_module_has_parameters_but_no_range():
    module = modules.mlp().requires_grad_(False)
    plan = MemoryPlan.build(module, moments=2)
    assert plan.ranges == () and plan.parameters == ()
    assert [r.name for r in plan.regions] == ["W", "S"]


def test_learning_rate_factors_make_ranges():
    scales = [("*", 0.5), ("2.*", 1.0), ("0.bias", 3.0)]
    plan = MemoryPlan.build(modules.mlp(), lr_scales=scales)
    found = [(r.group, r.lr_factor) for r in plan.ranges]
    assert found == [("bias-like", 1), ("bias-like", 3), ("weights", 1), ("weights", 0.5)]
    assert plan.range("W", "bias-like") == (0, 256)
    assert plan.segment("0.weight").lr_factor == 0.5


def test_groups_and_working_copies_can_be_overridden():
    asked = []

    def group(name, parameter, module):
        asked.append((name, tuple(parameter.shape), type(module).__name__))
        return "bias-like" if name == "0.weight" else None

    plan = MemoryPlan.build(modules.mlp(), group=group)
    assert plan.segment("0.weight").group == "bias-like"
    assert plan.segment("2.weight").group == "weights"
    assert ("2.bias", (10,), "Linear") in asked
    answers = {"conv.weight": False, "own.scale": True}
    plan = MemoryPlan.build(
        modules.Norms(),
        working_dtype=torch.float16,
        working=lambda name, parameter, module: answers.get(name),
    )
    assert {s.name for s in plan.segments if s.working} == {"conv.bias", "own.scale"}


def test_working_copies_are_what_autocast_would_cast():
    working = {}
    for name, (make, _) in modules.CASES.items():
        plan = MemoryPlan.build(make(), working_dtype=torch.bfloat16)
        working[name] = {s.name for s in plan.segments if s.working}
    assert working["mlp"] == {"0.weight", "0.bias", "2.weight", "2.bias"}
    assert working["tied"] == {"hidden.weight", "hidden.bias"}  # the table is looked up in float32
    assert working["tied_linears"] == {"a.weight", "a.bias", "b.bias"}
    assert working["odd"] == set()
    assert working["norms"] == {"conv.weight", "conv.bias"}
    assert working["recurrent"] == set()
    assert working["attention"] == {
        *("own.in_proj_weight", "own.in_proj_bias", "own.out_proj.weight", "own.out_proj.bias"),
        *("cross.q_proj_weight", "cross.k_proj_weight", "cross.v_proj_weight"),
        *("cross.in_proj_bias", "cross.out_proj.weight", "cross.out_proj.bias"),
    }

    class Standardised(nn.Conv2d):
        def forward(self, x):
            return self._conv_forward(x, self.weight - self.weight.mean(), self.bias)

    plan = MemoryPlan.build(Standardised(3, 4, 1), working_dtype=torch.bfloat16)
    assert not any(s.working for s in plan.segments)  # float32 arithmetic on the weight


def test_buffers_that_change_come_first_and_have_a_shadow():
    plan = MemoryPlan.build(modules.Odd(), ema=True, constants=["position", "index"])
    buffers = [s for s in plan.segments if s.region == "B"]
    assert [s.name for s in buffers] == ["mask", "phase", "position", "index"]
    assert plan.region("B'").nbytes == 1024 and plan.region("B").nbytes == 2048
    assert plan.averaged == 0 and plan.region("E").count == plan.region("W").count
    plan = MemoryPlan.build(modules.Convolutions(), ema=True)
    assert plan.averaged == 256 == plan.region("B").count
    assert plan.range("E", "buffers") == (plan.region("W").count, 256)
    assert plan.range("B'", "buffers") == (0, 256)
    assert plan.counters == ("norm.num_batches_tracked",)


def test_plans_compare_and_hash():
    module = modules.mlp()
    plan = MemoryPlan.build(module, moments=1)
    assert plan == MemoryPlan.build(modules.mlp(), moments=1)
    assert plan.hash() == MemoryPlan.build(modules.mlp(), moments=1).hash()
    others = [
        MemoryPlan.build(module, moments=2),
        MemoryPlan.build(module, moments=1, working_dtype=torch.bfloat16),
        MemoryPlan.build(module, moments=1, working_dtype=torch.float16),
        MemoryPlan.build(module, moments=1, lr_scales=[("0.*", 0.1)]),
        MemoryPlan.build(module, moments=1, unused=["0.weight"]),
        MemoryPlan.build(nn.Sequential(nn.Linear(784, 64), nn.Linear(64, 10)), moments=1),
    ]
    assert len({plan, *others}) == len({plan.hash(), *(p.hash() for p in others)}) == 7


#: The hash is the same on every machine: the plan is values, hashed as JSON.
MLP_TEXT = """\
memory plan: 1.08 MiB on the device, hash 5ecbf77df69cd476

region                       offset  elements  dtype           size
W   float32 parameters            0    51,072  float32   199.50 KiB
A   16-bit working copy     204,288    51,072  bfloat16   99.75 KiB
G   gradients               306,688    51,072  float32   199.50 KiB
M   first moments           510,976    51,072  float32   199.50 KiB
V   second moments          715,264    51,072  float32   199.50 KiB
E   moving average          919,552    51,072  float32   199.50 KiB
S   scalars and counters  1,123,840     4,096  uint8       4.00 KiB

range      begin  elements  tensors  lr factor  weight decay
bias-like      0       256        2          1  no
weights      256    50,816        2          1  yes

tensor    region  group      kind    offset  shape         size
0.bias    W       bias-like  bias         0  64           256 B  16-bit in A
2.bias    W       bias-like  bias       128  10            40 B  16-bit in A
0.weight  W       weights    linear     256  64x784  196.00 KiB  16-bit in A
2.weight  W       weights    linear  50,432  10x64     2.50 KiB  16-bit in A"""


def test_the_text_of_an_mlp_and_its_hash_in_every_process():
    plan = MemoryPlan.build(modules.mlp(), moments=2, working_dtype=torch.bfloat16, ema=True)
    assert plan.to_text() == MLP_TEXT


def test_the_text_of_resnet18_has_everything():
    module = torchvision.models.resnet18()
    plan = MemoryPlan.build(module, moments=1)
    lines = plan.to_text().splitlines()
    rows = {line.split()[0]: line.split() for line in lines if line}
    for segment in plan.segments:
        assert rows[segment.name][4] == f"{segment.offset:,}"
    for region in plan.regions:
        assert f"{region.offset_bytes:,}" in rows[region.name]
    assert "20 num_batches_tracked counters in S" in lines[-1]
    # 11,689,512 parameters; padding: 10 vectors of 64, fc.bias of 1,000, conv1 of 9,408 elements
    assert len(plan.parameters) == 62
    assert plan.region("W").count == 11_689_512 + 10 * 64 + 24 + 64
    assert plan.total_bytes == 3 * 4 * 11_690_240 + 2 * 40_960 + 4096
    assert rows["memory"][2:4] == ["133.87", "MiB"]


def test_numbers_and_tables_for_people():
    assert [human(n) for n in (0, 1023, 1536, 5 << 20, 3 << 50)] == [
        *("0 B", "1023 B", "1.50 KiB", "5.00 MiB", "3072.00 TiB")
    ]
    assert table([("a", "size"), ("bcd", "1")], right=[1]) == ["a    size", "bcd     1"]


@pytest.mark.parametrize(
    "options, words",
    [
        ({"moments": 3}, "0, 1 or 2"),
        ({"working_dtype": torch.float64}, "torch.bfloat16"),
        ({"lr_scales": [("head.*", 0.1)]}, "none of the 4 parameters"),
        ({"lr_scales": [("*", float("nan"))]}, "finite"),
        ({"lr_scales": [("*", -1.0)]}, "at least 0"),
        ({"group": lambda *_: "biases"}, "'biases'.*'bias-like'"),
        ({"unused": ["0.wieght"]}, "0.wieght"),
        ({"constants": ["table"]}, "table"),
    ],
)
def test_bad_rules_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        MemoryPlan.build(modules.mlp(), **options)


def shared_memory():
    module = modules.TiedLinears()
    module.b.weight = nn.Parameter(module.a.weight.data)
    return module


@pytest.mark.parametrize(
    "make, words",
    [
        (nn.ReLU, "ReLU has no parameters"),
        (lambda: nn.Linear(3, 4).double(), "float64.*module.float"),
        (lambda: nn.Linear(3, 4).half(), "float16"),
        (lambda: nn.LazyLinear(3), "lazy"),
        (lambda: nn.Linear(3, 4, device="meta"), "meta"),
        (shared_memory, "share memory.*same nn.Parameter"),
    ],
)
def test_bad_modules_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        MemoryPlan.build(make())


def test_questions_that_have_no_answer():
    plan = MemoryPlan.build(modules.mlp())
    with pytest.raises(ValueError, match="no region 'M'; it has W, G, S"):
        plan.region("M")
    with pytest.raises(ValueError, match="no tensor '9.bias'"):
        plan.segment("9.bias")
    with pytest.raises(ValueError, match="no group 'buffers'"):
        plan.range("W", "buffers")
    with pytest.raises(ValueError, match="'xla' is not allowed"):
        plan.allocate("xla")
    assert SHARED == ("W", "A", "G", "M", "V", "E")
