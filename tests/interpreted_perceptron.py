"""Run by test_fused_linear.py with TRITON_INTERPRET=1: the kernels of a perceptron on the CPU.

float16 alone: the interpreter's products of bfloat16 are not those of bfloat16 numbers.
"""

import torch

from renaissance.nn.fused_linear import Landing, fused_perceptron

SIZES = (75, 130, 66, 10)  # more than one tile in each direction, none full
ROWS = 70


def network():
    """Layers as `fused_perceptron` takes them (the last without a bias), and an input."""
    torch.manual_seed(0)
    layers = []
    for i, (K, N) in enumerate(zip(SIZES, SIZES[1:])):
        weight = (torch.randn(N, K) / K**0.5).half().requires_grad_()
        bias = None if i == 2 else (torch.randn(N) * 0.1).half().requires_grad_()
        layers.append((weight, bias, i < 2))
    return layers, torch.randn(ROWS, SIZES[0]).half()


def reference(layers, x, g):
    """Output and gradients in float64, activations rounded where the kernels round them."""
    inputs, y = [], x.double()
    for weight, bias, relu in layers:
        inputs.append(y)
        y = y @ weight.double().T + (0.0 if bias is None else bias.double())
        y = (y.relu() if relu else y).half().double()
    found, g = [], g.double()
    for (weight, bias, _), inside in reversed(list(zip(layers, inputs))):
        found = [g.T @ inside, *([] if bias is None else [g.sum(0)]), *found]
        g = ((g @ weight.double()) * (inside > 0)).half().double()
    return y, found


def landing_for(layers):
    """Places full of NaN, which a write must not read; names w0, b0, ..."""
    places, named = [], {}
    for i, (weight, bias, _) in enumerate(layers):
        pair = [(f"w{i}", weight), None if bias is None else (f"b{i}", bias)]
        made = [None if p is None else (p[0], torch.full(p[1].shape, torch.nan)) for p in pair]
        places.append(tuple(made))
        named.update({name: tensor for name, tensor in filter(None, made)})
    return Landing.of(places), named


def main():
    layers, x = network()
    parameters = [t for layer in layers for t in layer[:2] if t is not None]
    g = torch.randn(ROWS, SIZES[-1]).half()
    y, expected = reference(layers, x, g)
    output = fused_perceptron(x, layers)
    torch.testing.assert_close(output.double(), y, rtol=2e-3, atol=2e-3)
    rounded = torch.autograd.grad(output, parameters, g)
    landing, named = landing_for(layers)
    for times in (1, 2):
        landing.is_sum = times == 2
        output = fused_perceptron(x, layers, landing)
        given = torch.autograd.grad(output, parameters, g, allow_unused=True)
        assert all(gradient is None for gradient in given)
        for place, exact, half in zip(named.values(), expected, rounded):
            torch.testing.assert_close(place.double(), times * exact, rtol=1e-3, atol=2e-2)
            assert times == 2 or torch.equal(place.half(), half)
        for name, place in named.items():
            own = torch.tensor([owner == name for owner in landing.names])
            torch.testing.assert_close(landing.partials[own].sum(), place.square().sum())
    assert list(dict.fromkeys(landing.names)) == list(named)
    assert len(landing.partials) == 3 * 2 + 3 + 2 * 3 + 2 + 1 * 2


main()
