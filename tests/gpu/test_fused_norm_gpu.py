"""Fused batch-norms on a CUDA device: torch's values in float64, the same bits every time."""

import copy

import norm_cases
import pytest
import torch
import torchvision
from torch import nn

import renaissance as rn
from renaissance import models
from renaissance.nn.fused_layers import FusedNorm

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(300),  # Triton and inductor compile, beside others
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 8e-3, torch.float16: 1e-3}
SHAPES = {
    torch.float32: (3, 24, 7, 6),
    torch.bfloat16: (8, 64, 57, 56),
    torch.float16: (4, 512, 7, 7),
}


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_outputs_gradients_and_statistics_are_torchs_in_float64(dtype):
    for case in norm_cases.all_cases():
        if dtype != torch.float32 and case[-1] != "two":
            continue
        found = norm_cases.errors(case, dtype, "cuda", SHAPES[dtype])
        assert max(found.values()) < TOLERANCE[dtype], (norm_cases.name(case), found)


@pytest.mark.parametrize("sizes", norm_cases.CONVOLUTIONS, ids=str)
def test_first_convolutions_in_another_form(sizes):
    found = norm_cases.convolution_errors(sizes, torch.bfloat16, "cuda", (64, 72))
    assert max(found.values()) < 8e-3, found


@pytest.mark.parametrize("case", norm_cases.SPARSE, ids=str)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_strided_convolutions_of_single_pixels(case, dtype, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    found = norm_cases.sparse_errors(case, dtype, "cuda", channels=64)
    assert max(found.values()) < TOLERANCE[dtype], found


@pytest.mark.parametrize("sizes", norm_cases.POOLS, ids=str)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_max_pools_alone_are_torchs(sizes, dtype):
    found = norm_cases.pool_errors(sizes, dtype, "cuda", (3, 72, 13, 12))
    assert not any(found.values()), found


def test_a_batch_norm_without_relu_and_a_pool_run_in_a_captured_step():
    """resnet9 and wide_resnet: pools before the batch-norm, additions without a ReLU."""
    for make, side in ((models.resnet9, 16), (lambda: models.wide_resnet(depth=10, widen=2), 16)):
        hashes = []
        for capture in ("auto", "off"):
            made = rn.Task(make(), seed=5, precision="bf16-mixed").loss(rn.CrossEntropyLoss())
            made.optimizer(rn.SGD(lr=0.02, momentum=0.9)).data(loader(side), loader(side))
            made.compile(report="none", capture=capture)
            assert "batch-norms run together" in made.executor.fused
            made.fit(epochs=2, verbose=0)
            hashes.append(made.state_hash())
            made.close()
        assert hashes[0] == hashes[1]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_a_frozen_batch_norm_behind_a_bias_sees_it(dtype):
    assert norm_cases.frozen_error(dtype, "cuda") < TOLERANCE[dtype]


def test_a_nan_is_seen_in_output_and_gradient():
    norm = norm_cases.fused.Norm.of(nn.BatchNorm2d(8).cuda())
    x = torch.randn(2, 8, 4, 4, device="cuda")
    x[0, 3, 0, 0] = float("nan")
    x = x.contiguous(memory_format=torch.channels_last).requires_grad_()
    y = norm_cases.fused.fused_norm(x, norm, relu=True)[0]
    (g,) = torch.autograd.grad(y.sum(), x)
    assert y[:, 3].isnan().all() and g[:, 3].isnan().all()
    assert not y[:, :3].isnan().any() and not g[:, 4:].isnan().any()


def loader(side=32):
    x = torch.randint(0, 256, (64, side, side, 3), generator=torch.Generator().manual_seed(1))
    return rn.Loader.from_arrays(
        x.to(torch.uint8).numpy(), torch.arange(64).numpy() % 10, num_classes=10, batch_size=24,
        shuffle=True, transforms=[rn.Normalize("cifar10")],
    )  # fmt: skip


def task(model, fuse, side=32, lr=0.02, **options):
    train = loader(side)
    made = rn.Task(model, seed=5, **options).loss(rn.CrossEntropyLoss(label_smoothing=0.1))
    made.optimizer(rn.SGD(lr=lr, momentum=0.9)).data(train, train)
    return made.compile(report="none", fuse=fuse)


def resnet():
    return torchvision.models.resnet18(num_classes=10)


@pytest.mark.parametrize("precision", ["bf16-mixed", "16-mixed", "32-true"])
def test_captured_equals_eager_bit_for_bit(precision):
    hashes = []
    for capture in ("auto", "off"):
        made = rn.Task(resnet(), seed=5, precision=precision)
        made.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.02, momentum=0.9))
        made.data(loader(), loader()).ema(0.9).compile(report="none", capture=capture)
        assert "20 batch-norms run together" in made.executor.fused
        made.fit(epochs=4, verbose=0)
        hashes.append(made.state_hash())
        made.close()
    assert hashes[0] == hashes[1]


def test_a_run_with_fused_layers_follows_one_without():
    """Pictures large enough and steps small enough that rounding stays what it is.

    Weights moved by 1e-5 of themselves move these losses by 3e-4 at most; on 32 x 32 pictures,
    whose last batch-norms see one pixel each, at a rate of 0.02 even 1e-7 moves them by a half.
    """
    losses = {}
    for fuse in ("auto", "off"):
        torch.manual_seed(0)
        made = task(copy.deepcopy(resnet()), fuse, side=96, lr=1e-3, precision="32-true")
        made.fit(epochs=2, verbose=0)
        losses[fuse] = made.history.history["loss"] + made.history.history["val_loss"]
        made.close()
    assert losses["auto"] == pytest.approx(losses["off"], rel=2e-3)


def test_vgg_biases_get_no_gradient_and_statistics_know_them():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 16 * 16, 10),
    )  # fmt: skip
    runs = {}
    for fuse in ("auto", "off"):
        torch.manual_seed(3)
        made = task(copy.deepcopy(model), fuse, precision="32-true")
        with torch.no_grad():
            made.model[0].bias.fill_(3.0)
        made.fit(epochs=1, verbose=0)
        runs[fuse] = {k: v.clone().cpu() for k, v in made.state_dict().items()}
        made.close()
    for key, value in runs["off"].items():
        torch.testing.assert_close(runs["auto"][key], value, rtol=2e-3, atol=2e-4, msg=key)


def test_a_frozen_stem_is_fused_too_and_stays_as_it_was():
    frozen = rn.Task(resnet(), seed=5, precision="bf16-mixed").loss(rn.CrossEntropyLoss())
    frozen.optimizer(rn.SGD(lr=0.02, momentum=0.9)).data(loader())
    frozen.freeze("conv1", "bn1", "layer1").compile(report="none")
    assert "20 batch-norms" in frozen.executor.fused
    before = {k: v.clone() for k, v in frozen.state_dict().items()}
    frozen.fit(epochs=1, verbose=0)
    for name, value in frozen.state_dict().items():
        is_frozen = name.startswith(("conv1", "bn1", "layer1"))
        is_counter = name.endswith("num_batches_tracked")
        assert is_counter or torch.equal(value, before[name]) == is_frozen, name


def test_an_addend_of_another_shape_or_type_is_added_by_torch():
    norm = nn.BatchNorm2d(8).cuda()
    layer = FusedNorm(copy.deepcopy(norm), relu=True)
    x = torch.randn(2, 8, 4, 4, device="cuda").contiguous(memory_format=torch.channels_last)
    for other in (x[:, :, :1, :1], x.half()):
        expected = torch.relu(norm(x) + other)
        torch.testing.assert_close(layer(x, other)[0], expected)
