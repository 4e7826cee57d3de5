"""A small bound module with an Updater, fed with gradients of the test's choice."""

import torch
from torch import nn

from renaissance.memory.plan import MemoryPlan
from renaissance.optim import LARS
from renaissance.update.updater import Updater

DEVICE = "cpu"


def small_net():
    """Odd sizes on purpose: nothing is a multiple of 4 but by accident."""
    return nn.Sequential(
        nn.Conv2d(3, 5, 3),
        nn.BatchNorm2d(5),
        nn.Flatten(),
        nn.Linear(45, 17),
        nn.LayerNorm(17),
        nn.Linear(17, 7, bias=False),
    )


class Rig:
    """Memory, Updater and the trained tensors by name.

    Args:
        optimizer: An optimizer value.
        module: Makes the module, once torch is seeded.
        plan: Keywords of ``MemoryPlan.build`` beyond what the optimizer asks for.
        updater: Keywords of `Updater`; one thread unless it says otherwise.
    """

    def __init__(self, optimizer, module=small_net, *, device=DEVICE, plan=(), seed=0, **updater):
        torch.manual_seed(seed)
        self.module = module().to(device)
        built = MemoryPlan.build(
            self.module,
            **(
                {
                    "moments": optimizer.moments,
                    "lars": isinstance(optimizer, LARS),
                    "ema": updater.get("ema") is not None,
                }
                | dict(plan)
            ),
        )
        self.memory = built.allocate(device)
        self.memory.bind(self.module)
        self.updater = Updater(self.memory, optimizer, **({"threads": 1} | updater))
        self.scalars = self.updater.scalars
        self.names = [segment.name for segment in built.parameters]

    def grads(self, seed, scale=1.0):
        """Random gradients, contiguous whatever the stored layout, by name."""
        generator = torch.Generator().manual_seed(seed)
        made = {}
        for segment in self.memory.plan.parameters:
            drawn = torch.randn(segment.shape, generator=generator) * scale
            made[segment.name] = drawn.to(self.memory.device)
        return made

    def step(self, grads, lr, weight=None):
        """One window of one micro-step."""
        self.scalars.write(lr=lr)
        self.updater.snapshot_buffers()
        self.updater.gather([grads[name] for name in self.names], False, weight)
        self.updater.finish()

    def tensors(self, region):
        """Copies of the trained tensors of a region, by name."""
        return {name: self.memory.view(region, name).detach().clone() for name in self.names}

    def everything(self):
        """Copies of all regions that an update may touch."""
        names = ("B", "W", "A", "M", "V", "E")
        return {
            name: self.memory.region(name).clone() for name in names if self.memory.plan.has(name)
        }


def same_bits(a, b):
    """Whether two tensors hold the same bytes."""
    return a.dtype == b.dtype and torch.equal(
        a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8)
    )


def assert_same(first, second):
    """All regions of two `Rig.everything` are equal, bit for bit."""
    assert first.keys() == second.keys()
    wrong = [name for name in first if not same_bits(first[name], second[name])]
    assert not wrong, f"regions differ: {wrong}"
