"""A small task on the CPU, for tests of what happens around training."""

import numpy as np
import torch
from torch import nn

import renaissance as rn

rng = np.random.default_rng(0)
X = rng.normal(size=(64, 6)).astype(np.float32)
Y = rng.integers(0, 4, 64)


def loader(n=64, batch_size=8, shuffle=True):
    return rn.Loader.from_arrays(X[:n], Y[:n], batch_size=batch_size, shuffle=shuffle, workers=0)


class Net(nn.Module):
    """Batch-norm, dropout, a vector that no rule knows, a constant, and two buffers of its own."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(6, 8), nn.BatchNorm1d(8)
        self.drop, self.last = nn.Dropout(0.2), nn.Linear(8, 4)
        self.gain, self.scale = nn.Parameter(torch.full((4,), 0.3)), nn.Parameter(torch.tensor(2.0))
        self.register_buffer("mean", torch.full((4,), 0.5))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long), persistent=False)

    def forward(self, x):
        out = self.last(self.drop(torch.relu(self.norm(self.first(x))))) * self.gain * self.scale
        if self.training:
            with torch.no_grad():
                self.mean.mul_(0.9).add_(out.mean(0), alpha=0.1)
                self.seen.add_(1)
        return out + self.mean


def make(model=None, *, optimizer=None, train=None, valid=None, seed=1, **options):
    """A task that knows loss, optimizer and data; not compiled."""
    task = rn.Task(Net() if model is None else model, seed=seed, device="cpu", **options)
    task.loss(rn.CrossEntropyLoss()).optimizer(optimizer or rn.AdamW(lr=1e-2))
    return task.data(loader() if train is None else train, valid)


def compiled(*arguments, **options):
    return make(*arguments, **options).compile(report="none")
