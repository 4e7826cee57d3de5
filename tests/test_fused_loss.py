"""The loss of a classifier in one launch, its text run by g++: loss, gradient, accuracy, sums."""

import host_kernels
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from renaissance import _native, kernels
from renaissance.nn.fused_loss import classify
from renaissance.update.scalars import Scalars

pytestmark = [
    pytest.mark.skipif(host_kernels.COMPILER is None, reason="there is no g++"),
    pytest.mark.timeout(120),
]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    return host_kernels.HostKernels("loss.cu", tmp_path_factory.mktemp("loss"))


def run(z, target, smoothing=0.1):
    """(loss, weight, gradient, sums) for a seed of 1/8; the sums begin at 1, 2, 3, 4."""
    scalars = Scalars(torch.zeros(_native.SCALARS_BYTES, dtype=torch.uint8))
    scalars.write(loss_scale=0.5, nominal=4.0)
    sums = torch.tensor([1.0, 2.0, 3.0, 4.0], dtype=torch.float64)
    z = z.detach().requires_grad_()
    loss, weight = classify(z, target, smoothing=smoothing, scalars=scalars.bytes, sums=sums)
    (gradient,) = torch.autograd.grad(loss, z, torch.tensor(0.125))
    return loss.detach(), weight, gradient, sums


@pytest.mark.parametrize("rows, classes", [(1, 2), (200, 10), (256, 64), (613, 7)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_loss_gradient_and_sums(compiled, monkeypatch, rows, classes, dtype):
    monkeypatch.setattr(kernels, "launch", compiled.launch)
    generator = torch.Generator().manual_seed(rows)
    z = (3 * torch.randn(rows, classes, generator=generator)).to(dtype)
    target = torch.randint(0, classes, (rows,), generator=generator)
    loss, weight, gradient, sums = run(z, target)
    exact = z.double().requires_grad_()
    expected = F.cross_entropy(exact, target, label_smoothing=0.1, reduction="sum")
    (slope,) = torch.autograd.grad(expected, exact)
    expected = float(expected.detach())
    assert float(loss) == pytest.approx(expected, rel=1e-6) and float(weight) == rows
    assert gradient.dtype == dtype
    torch.testing.assert_close(gradient.double(), slope / 8, rtol=1e-2, atol=1e-4)
    # Of equal logits the class of the smallest number is the answer, as argmax says.
    correct = int((np.argmax(z.float().numpy(), 1) == target.numpy()).sum())
    assert sums[0].item() == pytest.approx(1.0 + expected, rel=1e-6)
    assert sums[1:].tolist() == [2.0 + rows, 3.0 + correct, 4.0 + rows]


def test_a_nan_is_in_loss_and_gradient_and_counts_as_wrong(compiled, monkeypatch):
    monkeypatch.setattr(kernels, "launch", compiled.launch)
    z = torch.zeros(5, 3, dtype=torch.bfloat16)
    z[:, 1] = 4.0
    z[2, 0] = torch.nan
    loss, _, gradient, sums = run(z, torch.ones(5, dtype=torch.int64), smoothing=0.0)
    assert torch.isnan(loss) and torch.isnan(gradient[2]).all()
    assert torch.isfinite(gradient[[0, 1, 3, 4]]).all() and sums[2].item() == 3.0 + 4


@pytest.mark.parametrize("label", [3, -1, -100, 2**32 + 1])
def test_a_label_of_no_class_makes_the_loss_a_nan_and_reads_nothing_else(
    compiled, monkeypatch, label
):
    monkeypatch.setattr(kernels, "launch", compiled.launch)
    z = torch.zeros(4, 3, dtype=torch.bfloat16)
    loss, _, gradient, sums = run(z, torch.tensor([1, label, 0, 2]))
    assert torch.isnan(loss) and torch.isnan(gradient[1]).all()
    assert torch.isfinite(gradient[[0, 2, 3]]).all() and sums[2].item() == 3.0 + 1
