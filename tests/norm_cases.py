"""Fused batch-norms against torch's layers in float64, on any device that runs the kernels.

As a script, under TRITON_INTERPRET=1, it prints two lines of JSON from the CPU: the errors of all
cases, and those of a frozen batch-norm.
"""

import itertools
import json

import interpreted
import torch
import torch.nn.functional as F
from torch import nn

from renaissance.nn import fused_norm as fused
from renaissance.nn.fused_kernels import PLAIN, SECOND, SHORTCUT
from renaissance.nn.fused_layers import FusedConvolution, FusedNorm
from renaissance.nn.fused_pool import max_pool

WINDOWS = {"3 by 2": (3, 2, 1), "2 by 2": (2, 2, 0), "3 by 3": (3, 3, 0)}
USERS = ("one", "two", "evaluation")


def all_cases():
    """(form, relu, window, users)."""
    plain = itertools.product((PLAIN, SHORTCUT, SECOND), (False, True), (None,), USERS)
    return [*plain, *itertools.product((PLAIN,), (True,), WINDOWS, USERS)]


def relative(found, expected):
    """Norm of the difference over the norm of what is right; 0 where both are."""
    right = expected.detach().double()
    return float((found.detach().double() - right).norm() / right.norm().clamp_min(1e-30))


def pictures(shape, dtype, device, seed, shift=0.0):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator) * 2 + shift
    return values.to(device, dtype).contiguous(memory_format=torch.channels_last)


def layers(channels, device):
    """A batch-norm in float64 and the same tensors in float32 for the kernels."""
    generator = torch.Generator().manual_seed(channels)
    right = nn.BatchNorm2d(channels).double()
    for tensor in (right.weight, right.bias, right.running_mean):
        tensor.data.copy_(torch.randn(channels, generator=generator))
    right.running_var.uniform_(0.5, 2.0, generator=generator)
    ours = nn.BatchNorm2d(channels)
    ours.load_state_dict({k: v.float() for k, v in right.state_dict().items()})
    return right.to(device), ours.to(device)


def run_right(x, other, right, form, relu, window, training):
    first, second = right
    first.train(training)
    second.train(training)
    z = first(x)
    if form == SHORTCUT:
        z = z + other
    if form == SECOND:
        z = z + second(other)
    z = F.relu(z) if relu else z
    return z if window is None else F.max_pool2d(z, *WINDOWS[window])


def errors(case, dtype, device, shape=(2, 16, 5, 4)):
    """Relative errors by name: output, gradients, running statistics."""
    form, relu, window, users = case
    pairs = [layers(shape[1], device), layers(shape[1], device)]
    right = [one for one, _ in pairs]
    norms = [fused.Norm.of(ours) for _, ours in pairs]
    x = pictures(shape, dtype, device, 1, shift=5.0).requires_grad_()
    other = pictures(shape, dtype, device, 2).requires_grad_()
    xd, od = x.detach().double().requires_grad_(), other.detach().double().requires_grad_()
    expected = run_right(xd, od, right, form, relu, window, users != "evaluation")
    added = (other if form else None, norms[1] if form == SECOND else None)
    square = None if window is None else fused.Window(*WINDOWS[window])
    if users == "evaluation":
        with torch.no_grad():
            found = fused.evaluated_norm(x, norms[0], *added, relu=relu, window=square)
        return {"output": relative(found, expected)}
    outputs = fused.fused_norm(x, norms[0], *added, relu=relu, window=square)
    gradients = [pictures(expected.shape, dtype, device, 3 + i) for i in range(2)]
    count = 2 if users == "two" else 1
    mine = {"x": x, "weight": norms[0].weight, "bias": norms[0].bias}
    theirs = {"x": xd, "weight": right[0].weight, "bias": right[0].bias}
    if form:
        mine["other"], theirs["other"] = other, od
    if form == SECOND:
        mine |= {"weight2": norms[1].weight, "bias2": norms[1].bias}
        theirs |= {"weight2": right[1].weight, "bias2": right[1].bias}
    got = torch.autograd.grad(outputs[:count], list(mine.values()), gradients[:count])
    want = torch.autograd.grad(
        expected, list(theirs.values()), sum(g.double() for g in gradients[:count])
    )
    found = {name: relative(a, b) for name, a, b in zip(mine, got, want)}
    found["output"] = relative(outputs[0], expected)
    found["mean"] = relative(norms[0].running_mean, right[0].running_mean)
    found["variance"] = relative(norms[0].running_var, right[0].running_var)
    return found


#: Side, stride and padding of a first convolution, and channels of the pictures.
CONVOLUTIONS = [(7, 2, 3, 3), (3, 1, 1, 3), (3, 2, 1, 1), (5, 2, 0, 4)]


def convolution_errors(sizes, dtype, device, sides=(10, 12)):
    """Relative errors of output and gradients of a first convolution in another form."""
    side, stride, padding, few = sizes
    layer = nn.Conv2d(few, 8, side, stride, padding).to(device, dtype)
    layer.weight.data = layer.weight.data.contiguous(memory_format=torch.channels_last)
    x = pictures((2, few, *sides), dtype, device, 7)
    ours = FusedConvolution(layer, is_biased=True, is_first=True)
    found = ours._product(x, layer, layer.bias)
    tensors = [layer.weight.double(), layer.bias.double()]
    expected = F.conv2d(x.double(), *tensors, stride, padding)
    g = pictures(expected.shape, dtype, device, 8)
    got = torch.autograd.grad(found, [layer.weight, layer.bias], g)
    want = torch.autograd.grad(expected, tensors, g.double())
    return {
        "output": relative(found, expected),
        "weight": relative(got[0], want[0]),
        "bias": relative(got[1], want[1]),
    }


#: Stride and groups of 1x1 convolutions, and height and width of what they read.
SPARSE = [(2, 1, (6, 8)), (2, 4, (7, 5)), (3, 1, (7, 8))]


def sparse_errors(case, dtype, device, channels=16):
    """Relative errors of output and gradients of a strided 1x1 convolution in another form."""
    stride, groups, sides = case
    layer = nn.Conv2d(channels, 24 if groups == 1 else channels, 1, stride, groups=groups)
    layer = layer.to(device, dtype)
    x = pictures((3, channels, *sides), dtype, device, 11).requires_grad_()
    ours = FusedConvolution(layer, is_biased=True, is_first=False)
    found = ours._dense(x, layer, layer.bias)
    tensors = [x.detach().double().requires_grad_(), layer.weight.double(), layer.bias.double()]
    expected = F.conv2d(*tensors, stride, groups=groups)
    g = pictures(expected.shape, dtype, device, 12)
    got = torch.autograd.grad(found, [x, layer.weight, layer.bias], g)
    want = torch.autograd.grad(expected, tensors, g.double())
    named = dict(zip(("input", "weight", "bias"), map(relative, got, want)))
    return named | {"output": relative(found, expected)}


#: Side, stride and padding of max-pools.
POOLS = [(2, 2, 0), (3, 2, 1), (3, 1, 1), (1, 2, 0)]


def pool_errors(sizes, dtype, device, shape=(2, 16, 7, 6)):
    """Of a max-pool of small whole numbers, many of them equal, and infinite: all differences.

    From torch's on the CPU: on CUDA it lets gradients go astray where a whole window is -inf.
    """
    x = pictures(shape, dtype, device, 13).mul(3).round()
    x[0, 0] = -torch.inf
    x[1, 1, 2, 3] = torch.inf
    x.requires_grad_()
    xd = x.detach().cpu().double().requires_grad_()
    expected = F.max_pool2d(xd, *sizes)
    found = max_pool(x, fused.Window(*sizes))
    g = pictures(expected.shape, dtype, device, 14).mul(4).round()
    (got,) = torch.autograd.grad(found, x, g)
    (want,) = torch.autograd.grad(expected, xd, g.cpu().double())
    with torch.no_grad():
        is_same = torch.equal(max_pool(x, fused.Window(*sizes)), found)
    return {
        "output": float((found.cpu().double() != expected).sum()),
        "input": float((got.cpu().double() != want).sum()),
        "without gradients": float(not is_same),
    }


def frozen_error(dtype, device, bias=3.0):
    """A frozen batch-norm behind a convolution whose bias was left out, against torch's layers."""
    right, ours = layers(16, device)
    convolution = nn.Conv2d(16, 16, 1).to(device)
    convolution.bias.data.fill_(bias)
    layer = FusedNorm(ours.eval().requires_grad_(False), relu=True, before=convolution)
    x = pictures((2, 16, 5, 4), dtype, device, 9)
    expected = F.relu(right.eval()(x.double() + bias))
    return relative(layer._fast(x, None)[0], expected)


def name(case):
    form, relu, window, users = case
    return f"{('plain', 'shortcut', 'second')[form]} relu={relu} pool={window} {users}"


if __name__ == "__main__":
    interpreted.patch_once_a_launch()
    fused.SUMS = fused.STATISTICS = fused.Tiles(16, 8, programs=4)
    fused.WHOLE = fused.Tiles(16, 8)
    answer = {
        f"{name(case)} {dtype}": errors(case, dtype, "cpu")
        for dtype in (torch.float32, torch.bfloat16)
        for case in all_cases()
        if dtype == torch.float32 or case[-1] == "two"
    }
    for sizes in CONVOLUTIONS:
        answer[f"convolution {sizes} torch.float32"] = convolution_errors(
            sizes, torch.float32, "cpu"
        )
    for case in SPARSE:
        answer[f"sparse {case} torch.float32"] = sparse_errors(case, torch.float32, "cpu")
    for sizes in POOLS:
        for dtype in (torch.float32, torch.bfloat16):
            answer[f"pool {sizes} {dtype}"] = pool_errors(sizes, dtype, "cpu")
    print(json.dumps(answer))  # noqa: T201
    print(json.dumps({str(d): frozen_error(d, "cpu") for d in (torch.float32, torch.bfloat16)}))  # noqa: T201
