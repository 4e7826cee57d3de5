"""Modules for tests of the memory plan: small, odd, and each a trap of its own."""

import torch
from torch import nn


def mlp():
    return nn.Sequential(nn.Linear(784, 64), nn.ReLU(), nn.Linear(64, 10))


class Tied(nn.Module):
    """An embedding whose table is the output layer's weight, and a layer under two names."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(11, 6)
        self.hidden = nn.Linear(6, 6)
        self.again = self.hidden
        self.out = nn.Linear(6, 11, bias=False)
        self.out.weight = self.table.weight

    def forward(self, ids):
        return self.out(self.again(torch.relu(self.hidden(self.table(ids)))))


class TiedLinears(nn.Module):
    """Two linear layers with one weight: both cast it whole, so it can be a 16-bit copy."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


class Odd(nn.Module):
    """Parameters on the root: a scalar, a vector, three dimensions, a transposed view, nothing."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.5))
        self.gamma = nn.Parameter(torch.ones(6))
        self.token = nn.Parameter(torch.randn(1, 1, 6))
        self.turned = nn.Parameter(torch.randn(6, 4).t())
        self.spread = nn.Parameter(torch.randn(1).expand(6))
        self.empty = nn.Parameter(torch.zeros(0, 3))
        self.register_buffer("position", torch.arange(6.0))
        self.register_buffer("index", torch.arange(6), persistent=False)
        self.register_buffer("mask", torch.ones(6, dtype=torch.bool))
        self.register_buffer("phase", torch.ones(3, dtype=torch.complex64))
        self.register_buffer("absent", None)

    def forward(self, x):
        y = (x * self.scale + self.token[0] + self.position) * self.gamma + self.spread
        return y[:, self.index].masked_fill(~self.mask, 0) @ self.turned.t()


class Norms(nn.Module):
    """Every norm of torch, one with a shape of two dimensions, one of the user's own."""

    def __init__(self):
        super().__init__()
        self.batch = nn.BatchNorm2d(4)
        self.layer = nn.LayerNorm((4, 5))
        self.group = nn.GroupNorm(2, 4)
        self.instance = nn.InstanceNorm2d(4, affine=True, track_running_stats=True)
        self.rms = nn.RMSNorm(5)
        self.own = OwnNorm(5)
        self.conv = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x):  # (N, 4, 5, 5)
        x = self.instance(self.group(self.batch(self.conv(x))))
        x = self.layer(x.transpose(1, 2)).transpose(1, 2)
        return self.own(self.rms(x))


class OwnNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.shift = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return x / (1 + x.abs().mean(-1, keepdim=True)) * self.scale + self.shift


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.deep = nn.Conv2d(8, 8, 3, padding=1, groups=2)
        self.up = nn.ConvTranspose2d(8, 4, 2, stride=2)
        self.head = nn.Linear(4, 5)

    def forward(self, x):  # (N, 3, H, W)
        x = torch.relu(self.norm(self.stem(x)))
        return self.head(self.up(torch.relu(self.deep(x))).mean((2, 3)))


class Attention(nn.Module):
    """Attention with one and with three projection matrices, and a key of biases."""

    def __init__(self):
        super().__init__()
        self.own = nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True)
        self.cross = nn.MultiheadAttention(8, 2, kdim=4, vdim=4, batch_first=True)

    def forward(self, x):  # (N, T, 8)
        x = x + self.own(x, x, x, need_weights=False)[0]
        return x + self.cross(x, x[..., :4], x[..., :4], need_weights=False)[0]


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(8, 6, batch_first=True)

    def forward(self, x):  # (N, T, 8)
        return self.lstm(x)[0]


class Parametrized(nn.Module):
    """Weights computed from others, with buffers that forward changes."""

    def __init__(self):
        super().__init__()
        self.conv = nn.utils.parametrizations.spectral_norm(nn.Conv2d(3, 4, 3))
        self.head = nn.utils.parametrizations.weight_norm(nn.Linear(4, 5))

    def forward(self, x):  # (N, 3, H, W)
        return self.head(self.conv(x).mean((2, 3)))


#: Name -> (constructor, inputs).
CASES = {
    "mlp": (mlp, lambda: torch.randn(4, 784)),
    "tied": (Tied, lambda: torch.randint(0, 11, (4,))),
    "tied_linears": (TiedLinears, lambda: torch.randn(4, 6)),
    "odd": (Odd, lambda: torch.randn(4, 6)),
    "norms": (Norms, lambda: torch.randn(3, 4, 5, 5)),
    "convolutions": (Convolutions, lambda: torch.randn(3, 3, 8, 8)),
    "attention": (Attention, lambda: torch.randn(2, 5, 8)),
    "parametrized": (Parametrized, lambda: torch.randn(2, 3, 6, 6)),
    "recurrent": (Recurrent, lambda: torch.randn(2, 5, 8)),
}


def build(name):
    """A module of `CASES` with fixed values, and an input for it."""
    torch.manual_seed(7)
    make, sample = CASES[name]
    return make(), sample()
