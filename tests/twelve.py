"""A task that sorts twelve numbers into four classes."""

import numpy as np
import torch
from torch import nn

import renaissance as rn
from renaissance.models import mlp

rng = np.random.default_rng(0)
X = rng.normal(size=(230, 12)).astype(np.float32)
Y = (X @ rng.normal(size=(12, 4))).argmax(1)


def loader(n=230, batch_size=32, shuffle=True, **options):
    return rn.Loader.from_arrays(X[:n], Y[:n], batch_size=batch_size, shuffle=shuffle, **options)


def small(dropout=0.0):
    return mlp([16, 16], num_classes=4, in_features=12, dropout=dropout)


def make(model=None, *, seed=1, batch_size=32, n=230, valid=True, optimizer=None, **options):
    task = rn.Task(model or small(), seed=seed, device="cpu", **options)
    task.loss(rn.CrossEntropyLoss())
    task.optimizer(optimizer or rn.AdamW(lr=1e-2))
    task.data(loader(n, batch_size), loader(n, 100, shuffle=False) if valid else None)
    return task


def quiet(task, **options):
    task.compile(report="none")
    task.fit(verbose=0, **options)
    return task


class Normed(nn.Module):
    """Batch-norm and dropout in a few lines."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(12, 16), nn.BatchNorm1d(16)
        self.drop, self.last = nn.Dropout(0.2), nn.Linear(16, 4)

    def forward(self, x):
        return self.last(self.drop(torch.relu(self.norm(self.first(x)))))


class Pair(nn.Module):
    """Gives its outputs and its input."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(X.shape[1], 4)

    def forward(self, x):
        return self.last(x), x
