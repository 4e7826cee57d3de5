"""Networks: torchvision's keys and bits, shapes, blueprints and errors that name the layer."""

import copy

import pytest
import torch
import torchvision
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from renaissance import models
from renaissance.init import Initializer
from renaissance.models import seq
from renaissance.nn.pooling import GlobalMax, GlobalMean, GridMean

pytestmark = pytest.mark.usefixtures("one_thread")

RESNETS = ["resnet18", "resnet34", "resnet50", "resnet101"]
VGGS = ["vgg11_bn", "vgg13_bn", "vgg16_bn", "vgg19_bn"]


def perturb(network):
    """Scales, shifts and statistics that hide nothing: no ones, no zeros."""
    generator = torch.Generator().manual_seed(0)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (*module.parameters(), module.running_mean, module.running_var):
                tensor.data.add_(torch.rand(tensor.shape, generator=generator) * 0.2)
            module.num_batches_tracked.fill_(3)
    return network


def assert_same_bits(ours, theirs, x):
    """Outputs in evaluation, then outputs, gradients and statistics in training."""
    ours.load_state_dict(perturb(theirs).state_dict(), strict=True)
    with torch.no_grad():
        expected = theirs.eval()(x)
        assert expected.isfinite().all() and torch.equal(ours.eval()(x), expected)
    outputs = []
    for network in (ours, theirs):
        torch.manual_seed(5)  # dropout of the VGG head
        output = network.train()(x)
        output.square().sum().backward()
        outputs.append(output.detach())
    assert torch.equal(*outputs)
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters()):
        assert other.grad.isfinite().all() and torch.equal(mine.grad, other.grad), name
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], tensor), name


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_resnet_has_torchvisions_bits(name):
    theirs = getattr(torchvision.models, name)(num_classes=7)
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    assert_same_bits(getattr(models, name)(num_classes=7), theirs, x)


def test_vgg_has_torchvisions_bits():
    with torch.device("meta"):  # the 4096-wide head is compared by keys and shapes below
        ours, theirs = models.vgg11_bn(), torchvision.models.vgg11_bn()
    for network in (ours, theirs):
        network.features.to_empty(device="cpu")
        network.classifier[0] = nn.Linear(512 * 7 * 7, 8)
        network.classifier[3] = nn.Linear(8, 8)
        network.classifier[6] = nn.Linear(8, 3)
    for module in theirs.features:
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    x = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    assert_same_bits(ours, theirs, x)


@pytest.mark.parametrize("name", [*RESNETS, *VGGS])
def test_torchvisions_keys_and_shapes_in_order(name):
    with torch.device("meta"):
        ours, theirs = getattr(models, name)(), getattr(torchvision.models, name)()
    assert [(k, v.shape, v.dtype) for k, v in ours.state_dict().items()] == [
        (k, v.shape, v.dtype) for k, v in theirs.state_dict().items()
    ]


def test_parameter_counts_of_the_docstrings():
    millions = {
        "resnet18": 11.7,
        "resnet34": 21.8,
        "resnet50": 25.6,
        "resnet101": 44.5,
        "vgg11_bn": 132.9,
        "vgg13_bn": 133.1,
        "vgg16_bn": 138.4,
        "vgg19_bn": 143.7,
        "wide_resnet28_10": 36.5,
        "resnet9": 6.6,
    }
    for name, expected in millions.items():
        with torch.device("meta"):
            network = getattr(models, name)()
        count = sum(p.numel() for p in network.parameters())
        assert round(count / 1e6, 1) == expected, name
        assert f"{expected} million" in getattr(models, name).__doc__


def test_cifar_stem_keeps_the_picture_and_the_keys():
    network = models.resnet18(num_classes=10, stem="cifar", in_channels=1)
    assert network.conv1.weight.shape == (64, 1, 3, 3)
    assert network(torch.zeros(2, 1, 32, 32)).shape == (2, 10)
    shapes = []
    network.layer1.register_forward_hook(lambda module, args, out: shapes.append(out.shape))
    network(torch.zeros(2, 1, 32, 32))
    assert shapes == [(2, 64, 32, 32)]
    assert network.state_dict().keys() == models.resnet18().state_dict().keys()


@pytest.mark.parametrize("name,last", [("resnet18", "bn2"), ("resnet50", "bn3")])
def test_zero_init_last_makes_every_block_its_shortcut(name, last):
    network = getattr(models, name)(num_classes=3, stem="cifar", zero_init_last=True)
    zeros = {n for n, p in network.named_parameters() if n.endswith(".weight") and not p.any()}
    expected = {n for n, _ in network.named_parameters() if n.endswith(f"{last}.weight")}
    assert zeros == expected
    for module, wanted in [(network, zeros), (getattr(models, name)(), set())]:
        rules = Initializer().resolve(module)
        assert {n for n, rule in rules if n.endswith("weight") and not rule.scale} == wanted
    block = network.layer2[1].eval()
    x = torch.rand(1, block.bn1.num_features * block.expansion // network.layer2[0].expansion, 4, 4)
    if name == "resnet18":
        assert torch.equal(block(x), x)


def test_wide_resnet_shapes_dropout_and_depth():
    network = models.wide_resnet(10, 2, num_classes=5, dropout=0.3, in_channels=1)
    assert network(torch.zeros(2, 1, 32, 32)).shape == (2, 5)
    assert sum(isinstance(module, nn.Dropout) for module in network.modules()) == 3
    assert network.layer3[0].conv1.stride == (2, 2) and network.layer3[0].shortcut is not None
    with pytest.raises(ValueError, match=r"depth = 12 is not allowed; it must be 6 \* n \+ 4"):
        models.wide_resnet(12, 1)


@pytest.mark.parametrize("side", [8, 32, 40])
def test_resnet9_halves_three_times_and_scales_its_scores(side):
    network = models.resnet9(num_classes=5, width=4, in_channels=1)
    shapes = []
    for layer in (network.residual1, network.stage2, network.residual3, network.maximum):
        layer.register_forward_hook(lambda module, args, out: shapes.append(tuple(out.shape)))
    x = torch.rand(2, 1, side, side)
    scores = network(x)
    assert scores.shape == (2, 5)
    half, quarter, eighth = side // 2, side // 4, side // 8
    assert shapes == [(2, 8, half, half), (2, 16, quarter, quarter), (2, 32, eighth, eighth),
                      (2, 32, 1, 1)]  # fmt: skip
    network.scale = 1.0
    torch.testing.assert_close(network(x) / 8, scores)


def test_resnet9_is_made_of_what_page_describes():
    network = models.resnet9()
    convolutions = [m for m in network.modules() if isinstance(m, nn.Conv2d)]
    assert [m.out_channels for m in convolutions] == [64, 128, 128, 128, 256, 512, 512, 512]
    assert network.fc.bias is None and network.fc.in_features == 512
    pooled = [type(layer).__name__ for layer in network.stage3]
    assert pooled == ["Conv2d", "MaxPool2d", "BatchNorm2d", "ReLU"]
    assert [type(layer).__name__ for layer in network.stem] == ["Conv2d", "BatchNorm2d", "ReLU"]
    with pytest.raises(ValueError, match="resnet9: scale = 0 is not allowed; it must be above 0"):
        models.resnet9(scale=0)


def test_global_max_is_adaptive_pooling_and_shares_the_gradient():
    x = torch.randn(2, 3, 5, 4, requires_grad=True)
    assert torch.equal(GlobalMax()(x), nn.AdaptiveMaxPool2d(1)(x))
    even = torch.ones(1, 1, 2, 2, requires_grad=True)
    GlobalMax()(even).sum().backward()
    assert even.grad.flatten().tolist() == [0.25] * 4


def test_cifar_head_of_vgg():
    network = models.vgg11_bn(num_classes=10, head="cifar")
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)
    assert network.classifier.weight.shape == (10, 512)


@pytest.mark.parametrize("height,width", [(1, 1), (2, 3), (7, 7), (8, 13), (14, 14), (15, 9)])
def test_grid_mean_is_adaptive_pooling(height, width):
    x = torch.rand(2, 3, height, width, dtype=torch.float64, requires_grad=True)
    y = x.detach().clone().requires_grad_()
    ours, theirs = GridMean(7)(x), nn.AdaptiveAvgPool2d(7)(y)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    weight = torch.rand(2, 3, 7, 7, dtype=torch.float64)
    (ours * weight).sum().backward()
    (theirs * weight).sum().backward()
    torch.testing.assert_close(x.grad, y.grad, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_global_mean_is_adaptive_pooling_bit_for_bit(layout):
    x = torch.randn(4, 64, 7, 9).contiguous(memory_format=layout)
    assert torch.equal(GlobalMean()(x), nn.AdaptiveAvgPool2d(1)(x))


def test_no_network_contains_adaptive_pooling():
    with torch.device("meta"):
        for name in [*RESNETS, *VGGS, "wide_resnet28_10", "resnet9"]:
            for module in getattr(models, name)().modules():
                assert not isinstance(module, (nn.AdaptiveAvgPool2d, nn.AdaptiveMaxPool2d)), name


def test_mlp_flattens_and_follows_its_widths():
    network = models.mlp([8, 4], num_classes=3, in_features=12, dropout=0.1, activation="tanh")
    assert [type(layer).__name__ for layer in network] == [
        *("Flatten", "Linear", "Tanh", "Dropout", "Linear", "Tanh", "Dropout", "Linear")
    ]
    assert network(torch.zeros(5, 1, 3, 4)).shape == (5, 3)
    assert type(network).__name__ == "MLP"
    assert len(models.mlp([], num_classes=2, in_features=4)) == 2
    copy.deepcopy(network)


@pytest.mark.parametrize(
    "arguments,error,message",
    [
        ({"hidden": 64}, TypeError, "hidden = 64 is not allowed; it must be a list of widths"),
        ({"hidden": [0]}, ValueError, "hidden width = 0 is not allowed"),
        ({"hidden": [1.5]}, TypeError, r"hidden width = 1.5 \(float\)"),
        ({"num_classes": True}, TypeError, "num_classes = True"),
        ({"dropout": 1.0}, ValueError, "dropout = 1.0 is not allowed; it must be at least 0"),
        ({"dropout": float("nan")}, ValueError, "dropout = nan"),
        ({"activation": "rellu"}, ValueError, "unknown activation 'rellu'; did you mean 'relu'"),
    ],
)
def test_mlp_refuses(arguments, error, message):
    with pytest.raises(error, match=message):
        models.mlp(**{"hidden": [4], "num_classes": 2, "in_features": 3, **arguments})


def test_choices_are_checked():
    with pytest.raises(ValueError, match="stem = 'cifar10'; did you mean 'cifar'"):
        models.resnet18(stem="cifar10")
    with pytest.raises(ValueError, match="head = 'x'. Allowed: imagenet, cifar"):
        models.vgg11_bn(head="x")


CIFAR_NET = (
    "conv 16 3, bn, relu, maxpool 2, 2 * (conv 32 3 stride=2, gn 4, silu), "
    "mean, flatten, dropout 0.1, linear 10"
)


def test_seq_infers_shapes():
    network = seq(CIFAR_NET, input_shape=(3, 32, 32))
    x = torch.zeros(2, 3, 32, 32)
    for (name, module), shape in zip(network.named_children(), network.shapes.values()):
        x = module(x)
        assert x.shape == (2, *shape), name
    assert x.shape == (2, 10)
    assert list(network.shapes)[:5] == ["conv1", "bn1", "relu1", "maxpool1", "conv2"]


def test_seq_of_a_list_equals_seq_of_a_text():
    listed = [
        {"type": "conv", "channels": 16, "kernel": 3},
        "bn, relu",
        "maxpool 2",
        "2 * (conv 32 3 stride=2, gn 4, silu)",
        "mean",
        "flatten",
        {"type": "dropout", "p": 0.1},
        {"type": "linear", "features": 10},
    ]
    assert repr(seq(listed, (3, 32, 32))) == repr(seq(CIFAR_NET, (3, 32, 32)))


def test_seq_leaves_out_the_bias_only_in_front_of_a_batch_norm():
    network = seq("conv 4 3, bn, conv 4 3, conv 4 3 bias=true, bn, flatten, linear 2", (1, 8, 8))
    biased = {name for name, _ in network.named_parameters() if name.endswith("bias")}
    assert biased == {"bn1.bias", "conv2.bias", "conv3.bias", "bn2.bias", "linear1.bias"}
    assert seq("linear 4 bias=false, ln, relu, linear 2", (3,)).linear1.bias is None


@pytest.mark.parametrize(
    "layers,shape,message",
    [
        ("convv 64 3", (3, 8, 8), r"layer 1 'convv 64 3': unknown layer 'convv'; did you mean 'co"),
        ("conv 64", (3, 8, 8), r"layer 1 'conv 64': kernel is missing; write 'conv CHANNELS KERN"),
        ("relu, conv 64 3 1", (3, 8, 8), "layer 2 'conv 64 3 1': conv takes CHANNELS KERNEL, rec"),
        ("conv 64 3 strid=2", (3, 8, 8), "conv has no option 'strid'; did you mean 'stride'"),
        ("conv 64 3 kernel=3", (3, 8, 8), "kernel is given twice"),
        ("conv 0 3", (3, 8, 8), "conv: channels = 0 is not allowed"),
        ("conv x 3", (3, 8, 8), "channels = 'x' is not allowed; it must be a whole number"),
        ("conv 4 3 bias=maybe", (3, 8, 8), "bias = 'maybe' is not allowed"),
        ("conv 4 3 groups=2", (3, 8, 8), "groups = 2 must divide 3"),
        ("linear 10", (3, 8, 8), r"layer 1 'linear 10', whose input is \(3, 8, 8\): it needs flat"),
        ("flatten, conv 4 3", (3, 8, 8), r"layer 2 'conv 4 3', whose input is \(192,\): it needs"),
        ("maxpool 2, maxpool 9", (3, 8, 8), r"layer 2 .* a window of 9 does not fit into 4"),
        ("gn 2", (3, 8, 8), "groups = 2 must divide the 3 channels"),
        ("dropout 1.5", (3,), "p = 1.5 is not allowed"),
        ("2 * conv 4 3", (3, 8, 8), "a repetition is written"),
        ("2 * (conv 4 3", (3, 8, 8), "parentheses"),
        ("relu,, relu", (3,), "nothing between two commas, at part 2"),
        ("", (3,), "no layers"),
        ("relu", (3, 8), r"input_shape = \(3, 8\) is not allowed"),
        ("relu", 3, "input_shape = 3 is not allowed"),
        ([{"typ": "conv"}], (3,), "unknown layer ''"),
        ([{"type": "linear", "featuress": 3}], (3,), "did you mean 'features'"),
    ],
)
def test_seq_names_the_layer(layers, shape, message):
    with pytest.raises(ValueError, match=message):
        seq(layers, shape)


def test_seq_refuses_other_items():
    with pytest.raises(TypeError, match="layer 1 '3': int is not allowed"):
        seq([3], (3,))


@settings(max_examples=40, deadline=None)
@given(
    side=st.integers(1, 20),
    kernel=st.integers(1, 6),
    stride=st.integers(1, 4),
    padding=st.integers(0, 3),
    layer=st.sampled_from(["conv 2", "maxpool", "avgpool"]),
)
def test_inferred_shapes_are_the_real_ones(side, kernel, stride, padding, layer):
    text = f"{layer} {kernel} stride={stride} padding={padding}"
    try:
        network = seq(text, (2, side, side + 1))
    except ValueError as error:
        assert "does not fit" in str(error) or "at most half" in str(error)
        return
    (shape,) = network.shapes.values()
    assert network(torch.zeros(1, 2, side, side + 1)).shape == (1, *shape)


def test_networks_train_under_deterministic_algorithms():
    x = torch.randn(2, 3, 32, 32)
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        networks = [models.resnet18(2, stem="cifar"), models.vgg11_bn(2, head="cifar")]
        for network in (*networks, models.resnet9(2, width=8)):
            network(x).sum().backward()
    finally:
        torch.use_deterministic_algorithms(before)
