"""One list per kind of thing that is tested by a battery: a new member is a new row here."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from renaissance.optim import LARS, SGD, Adam, AdamW, Optimizer


@dataclass(frozen=True)
class OptimizerCase:
    """An optimizer value and, where the equations agree, torch's."""

    name: str
    optimizer: Optimizer
    peer: Callable[..., torch.optim.Optimizer] | None = None
    lr: float = 0.05


def _torch(kind, **settings):
    return lambda parameters, lr: kind(parameters, lr=lr, **settings)


OPTIMIZERS = [
    OptimizerCase("sgd", SGD(), _torch(torch.optim.SGD)),
    OptimizerCase("sgd_decoupled", SGD(weight_decay=0.1)),
    OptimizerCase("sgd_l2", SGD(l2=0.1), _torch(torch.optim.SGD, weight_decay=0.1)),
    OptimizerCase("momentum", SGD(momentum=0.9), _torch(torch.optim.SGD, momentum=0.9), 0.02),
    OptimizerCase("momentum_decoupled", SGD(momentum=0.9, weight_decay=0.1), lr=0.02),
    OptimizerCase(
        "momentum_l2",
        SGD(momentum=0.9, l2=0.1),
        _torch(torch.optim.SGD, momentum=0.9, weight_decay=0.1),
        0.02,
    ),
    OptimizerCase(
        "nesterov",
        SGD(momentum=0.9, nesterov=True, l2=0.01),
        _torch(torch.optim.SGD, momentum=0.9, nesterov=True, weight_decay=0.01),
        0.02,
    ),
    OptimizerCase("adam", Adam(), _torch(torch.optim.Adam)),
    OptimizerCase(
        "adam_coupled",
        Adam(beta1=0.8, beta2=0.99, eps=1e-6, weight_decay=0.1),
        _torch(torch.optim.Adam, betas=(0.8, 0.99), eps=1e-6, weight_decay=0.1),
    ),
    OptimizerCase("adamw", AdamW(), _torch(torch.optim.AdamW, weight_decay=0.01)),
    OptimizerCase(
        "adamw_strong",
        AdamW(beta1=0.95, beta2=0.95, weight_decay=0.3),
        _torch(torch.optim.AdamW, betas=(0.95, 0.95), weight_decay=0.3),
    ),
    OptimizerCase("lars", LARS(trust_coefficient=0.1), lr=0.5),
    OptimizerCase("lars_decay", LARS(trust_coefficient=0.1, weight_decay=0.01), lr=0.5),
    OptimizerCase(
        "lars_nesterov", LARS(trust_coefficient=0.1, weight_decay=0.01, nesterov=True), lr=0.5
    ),
]
