"""Initial values: which rule meets which parameter, and the errors of choosing."""

import math
import warnings

import pytest
import torch
import torchvision
from torch import nn

import renaissance as rn
from renaissance.init import Fill, fans, fill


def plan(module, initializer=None):
    return dict((initializer or rn.Initializer()).resolve(module))


class Everything(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(8, 16, 3, groups=4)
        self.up = nn.ConvTranspose2d(16, 8, 2, groups=2)
        self.batch_norm = nn.BatchNorm2d(16)
        self.layer_norm = nn.LayerNorm((4, 5))
        self.group_norm = nn.GroupNorm(2, 16)
        self.rms_norm = nn.RMSNorm(6)
        self.table = nn.Embedding(10, 4, padding_idx=3)
        self.bag = nn.EmbeddingBag(10, 4)
        self.head = nn.Linear(12, 5)
        self.pair = nn.Bilinear(2, 3, 4)
        self.lstm = nn.LSTM(4, 6)
        self.cell = nn.GRUCell(4, 6)
        self.attention = nn.MultiheadAttention(8, 2, add_bias_kv=True)
        self.cross = nn.MultiheadAttention(8, 2, kdim=4, vdim=6)
        self.slope = nn.PReLU(6)
        self.token = nn.Parameter(torch.randn(1, 1, 8))
        self.scale = nn.Parameter(torch.full((6,), 1e-6))
        self.temperature = nn.Parameter(torch.tensor(0.07))
        self.nothing = nn.Parameter(torch.empty(0))


def test_the_defaults_of_every_kind_of_parameter():
    found = plan(Everything())
    sources = {name: rule.source for name, rule in found.items()}
    assert list(found) == [name for name, _ in Everything().named_parameters()]
    zeros, scale, shift = "zeros", "ones", "shift of a norm"
    assert sources == {
        "token": "kaiming_uniform fan_in 8",
        "scale": "the module's constant",
        "temperature": "the module's constant",
        "nothing": "the module's constant",
        "conv.weight": "kaiming_normal fan_out 144",
        "conv.bias": zeros,
        "up.weight": "kaiming_normal fan_out 64",
        "up.bias": zeros,
        "batch_norm.weight": scale,
        "batch_norm.bias": shift,
        "layer_norm.weight": scale,
        "layer_norm.bias": shift,
        "group_norm.weight": scale,
        "group_norm.bias": shift,
        "rms_norm.weight": scale,
        "table.weight": "normal 0.02",
        "bag.weight": "normal 0.02",
        "head.weight": "kaiming_uniform fan_in 12",
        "head.bias": zeros,
        "pair.weight": "kaiming_uniform fan_in 6",
        "pair.bias": zeros,
        "lstm.weight_ih_l0": "kaiming_uniform fan_in 4",
        "lstm.weight_hh_l0": "kaiming_uniform fan_in 6",
        "lstm.bias_ih_l0": zeros,
        "lstm.bias_hh_l0": zeros,
        "cell.weight_ih": "kaiming_uniform fan_in 4",
        "cell.weight_hh": "kaiming_uniform fan_in 6",
        "cell.bias_ih": zeros,
        "cell.bias_hh": zeros,
        "attention.in_proj_weight": "xavier_uniform fan_avg 16",
        "attention.in_proj_bias": zeros,
        "attention.bias_k": "xavier_uniform fan_avg 8",
        "attention.bias_v": "xavier_uniform fan_avg 8",
        "attention.out_proj.weight": "xavier_uniform fan_avg 8",
        "attention.out_proj.bias": zeros,
        "cross.q_proj_weight": "xavier_uniform fan_avg 8",
        "cross.k_proj_weight": "xavier_uniform fan_avg 6",
        "cross.v_proj_weight": "xavier_uniform fan_avg 7",
        "cross.in_proj_bias": zeros,
        "cross.out_proj.weight": "xavier_uniform fan_avg 8",
        "cross.out_proj.bias": zeros,
        "slope.weight": "the module's constant",
    }
    assert found["temperature"].scale == pytest.approx(0.07)
    assert found["slope.weight"] == Fill("constant", 0.25, "the module's constant")
    assert found["table.weight"].zero_row == 3 and found["bag.weight"].zero_row is None


def test_every_parameter_can_be_filled():
    module = Everything()
    for name, rule in plan(module).items():
        fill(module.get_parameter(name), rule, 1, name)
    assert all(bool(p.isfinite().all()) for p in module.parameters())
    assert torch.equal(module.table.weight[3], torch.zeros(4))
    assert bool((module.table.weight[2] != 0).all())
    assert module.head.weight.requires_grad and module.head.weight.grad is None


@pytest.mark.parametrize(
    "shape",
    [(5, 12), (16, 2, 3, 3), (16, 4, 2, 2), (8, 3, 7), (4, 2, 3), (3, 5, 2, 2, 2), (1, 1, 8)],
)
def test_fans_are_torchs(shape):
    expected = nn.init._calculate_fan_in_and_fan_out(torch.empty(shape))
    found = fans(shape)
    assert (found["fan_in"], found["fan_out"]) == expected
    assert found["fan_avg"] == sum(expected) / 2


@pytest.mark.parametrize(
    "rule, distribution, scale",
    [
        ("kaiming_normal", "normal", math.sqrt(2 / 12)),
        ("kaiming_uniform", "uniform", math.sqrt(6 / 12)),
        ("xavier_normal", "normal", math.sqrt(2 / (12 + 5))),
        ("xavier_uniform", "uniform", math.sqrt(6 / (12 + 5))),
        ("normal", "normal", 0.02),
        ("trunc_normal", "trunc_normal", 0.02),
        ("uniform", "uniform", 0.05),
        ("zeros", "constant", 0.0),
        ("ones", "constant", 1.0),
        (0.5, "constant", 0.5),
        ({"kind": "normal", "std": 3}, "normal", 3.0),
        (rn.InitRule("kaiming_normal", fan="fan_out"), "normal", math.sqrt(2 / 5)),
        (rn.InitRule("kaiming_normal", fan="fan_avg"), "normal", math.sqrt(2 / 8.5)),
        (rn.InitRule("kaiming_normal", gain=1), "normal", math.sqrt(1 / 12)),
        (rn.InitRule("xavier_normal", gain=3), "normal", 3 * math.sqrt(2 / 17)),
    ],
)
def test_scales_of_rules(rule, distribution, scale):
    found = plan(nn.Linear(12, 5), rn.Initializer().linear(rule))["weight"]
    assert found.kind == distribution and found.scale == pytest.approx(scale, rel=1e-14)


def test_fan_and_gain_of_the_initializer_and_of_a_rule():
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Linear(12, 5))
    whole = rn.Initializer().fan("fan_in").gain(1.0)
    assert plan(module, whole)["0.weight"].scale == pytest.approx(math.sqrt(1 / 27))
    assert plan(module, whole)["1.weight"].scale == pytest.approx(math.sqrt(3 / 12))
    own = whole.conv(rn.InitRule("kaiming_normal", fan="fan_out", gain=2))
    assert plan(module, own)["0.weight"].scale == pytest.approx(2 * math.sqrt(1 / 72))


def test_the_last_pattern_that_matches_goes_first():
    module = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
    initializer = rn.Initializer().parameter("*", "ones").parameter("1.*", "zeros")
    found = plan(module, initializer.parameter("1.bias", 0.5))
    assert [found[n].scale for n in ("0.weight", "0.bias", "1.weight", "1.bias")] == [1, 1, 0, 0.5]
    assert initializer == rn.Initializer(parameters={"*": "ones", "1.*": "zeros"})


def test_keep_leaves_a_parameter_alone():
    module = nn.Linear(3, 3)
    before = module.weight.detach().clone()
    rule = plan(module, rn.Initializer().parameter("weight", "keep"))["weight"]
    fill(module.weight, rule, 0, "weight")
    assert torch.equal(module.weight, before)


def test_tied_parameters_come_once():
    module = nn.ModuleDict({"table": nn.Embedding(10, 4), "head": nn.Linear(4, 10, bias=False)})
    module["head"].weight = module["table"].weight
    assert list(plan(module)) == ["table.weight"]


class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.positions = nn.Parameter(torch.arange(3.0))


def test_a_vector_without_rule_is_an_error_that_names_the_ways_out():
    with pytest.raises(ValueError) as caught:
        plan(Odd())
    text = str(caught.value)
    assert "'positions' of shape (3,)" in text
    assert ".parameter('positions', 'zeros')" in text and "init('keep')" in text
    assert plan(Odd(), rn.Initializer().parameter("pos*", "keep"))["positions"].kind == "keep"


def test_constants_are_remembered_when_the_values_have_moved():
    module = Everything()
    rules = plan(module)
    with torch.no_grad():
        module.scale.copy_(torch.arange(6.0))
    fill(module.scale, rules["scale"], 0, "scale")
    assert torch.equal(module.scale, torch.full((6,), 1e-6))


def test_errors_of_resolving():
    with pytest.raises(
        ValueError, match=r"'0.weigth', ...\) matches no parameter of Sequential; did"
    ):
        plan(nn.Sequential(nn.Linear(2, 2)), rn.Initializer().parameter("0.weigth", "ones"))
    with pytest.raises(ValueError, match="'kaiming_normal' cannot fill 'bias' of shape .* a fan"):
        plan(nn.Linear(2, 2), rn.Initializer().bias("kaiming_normal"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some versions of torch say that lazy modules are new
        lazy = nn.LazyLinear(3)
    with pytest.raises(ValueError, match="'weight' has no shape yet"):
        plan(lazy)


@pytest.mark.parametrize(
    "make, error, text",
    [
        (lambda: rn.Initializer().conv("kaming_normal"), ValueError, "did you mean 'kaiming_norm"),
        (lambda: rn.Initializer(conf="zeros"), TypeError, "no setting 'conf'; did you mean 'conv'"),
        (lambda: rn.Initializer().conv(None), TypeError, "conv = None"),
        (lambda: rn.Initializer().conv(True), (TypeError, ValueError), "conv = True"),
        (lambda: rn.Initializer().conv({"kind": "normal", "std": -1}), ValueError, "std = -1"),
        (lambda: rn.Initializer().conv({"type": "sgd"}), ValueError, "a rule, not a 'sgd'"),
        (lambda: rn.Initializer().fan("in"), ValueError, "fan = 'in' .* 'fan_in', 'fan_out'"),
        (lambda: rn.Initializer().gain(0), ValueError, "gain = 0 .* above 0"),
        (lambda: rn.Initializer().gain(math.nan), ValueError, "finite"),
        (lambda: rn.InitRule("normal", std=0), ValueError, "std = 0 .* above 0"),
        (lambda: rn.InitRule("normal", std=math.inf), ValueError, "finite"),
        (lambda: rn.InitRule("normal", gain=2), ValueError, "gain = 2.0 has no effect on 'normal'"),
        (lambda: rn.InitRule("ones", constant=2), ValueError, "takes no number"),
        (lambda: rn.InitRule("gaussian"), ValueError, "kind = 'gaussian'"),
        (lambda: rn.InitRule(), TypeError, "needs the setting 'kind'"),
    ],
)
def test_wrong_values(make, error, text):
    with pytest.raises(error, match=text):
        make()


class Block(nn.Module):
    last_norm = "second"

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.BatchNorm2d(4), nn.GroupNorm(2, 4)


@pytest.mark.parametrize(
    "module, zeros",
    [
        (nn.Sequential(Block(), Block()), {"0.second.weight", "1.second.weight"}),
        (
            torchvision.models.resnet18(),
            {f"layer{i}.{j}.bn2.weight" for i in range(1, 5) for j in range(2)},
        ),
    ],
)
def test_the_last_scale_of_residual_blocks(module, zeros):
    found = plan(module, rn.Initializer().zero_last_scale())
    assert {n for n, r in found.items() if r.source == "zero_last_scale"} == zeros
    assert all(found[name].scale == 0.0 for name in zeros)
    over = rn.Initializer().zero_last_scale().parameter("*.weight", "ones")
    assert all(plan(module, over)[name].scale == 1.0 for name in zeros)


def test_no_residual_block_is_an_error():
    with pytest.raises(ValueError, match="finds no residual block in Linear; .* last_norm"):
        plan(nn.Linear(2, 2), rn.Initializer().zero_last_scale())
