"""Outputs and targets of every form, and a loss with its gradient from ours and from torch."""

import torch

SHAPES = {"rows": (7, 5), "lines": (3, 5, 4), "pictures": (2, 5, 3, 4)}
WEIGHTS = (0.5, 2.0, 0.0, 1.0, 3.0)


def draw(shape, seed=0, dtype=torch.float64):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def classes(shape, seed=1, ignored=None):
    generator = torch.Generator().manual_seed(seed)
    target = torch.randint(0, shape[1], (shape[0], *shape[2:]), generator=generator)
    if ignored is not None:
        target[torch.rand(target.shape, generator=generator) < 0.3] = ignored
    return target


def probabilities(shape, seed=2):
    return torch.softmax(draw(shape, seed), 1)


def both(loss, output, target):
    """(mean, gradient of the mean) of a loss of ours."""
    output = output.detach().clone().requires_grad_()
    total, weight = loss.function("cpu")(output, target)
    (gradient,) = torch.autograd.grad(total / weight, output)
    return (total / weight).detach(), gradient


def reference(function, output, target):
    output = output.detach().double().clone().requires_grad_()
    mean = function(output, target)
    (gradient,) = torch.autograd.grad(mean, output)
    return mean.detach(), gradient
