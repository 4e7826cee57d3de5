"""Normal noise inside a network: its distribution, its key, and what is left outside of a task."""

import numpy as np
import pytest
import torch
from torch import nn

import renaissance as rn
from renaissance import _native
from renaissance.nn import bind_dropouts
from renaissance.nn.noise import PlainNoise

scipy = pytest.importorskip("scipy.stats")


def bound(path="noise"):
    layer = nn.ModuleDict({path: rn.nn.Noise()})
    bind_dropouts(layer, torch.zeros(_native.SCALARS_BYTES, dtype=torch.uint8))
    return layer[path]


def test_it_is_standard_normal():
    drawn = bound()(torch.empty(200, 10, 25)).double().flatten()
    count = drawn.numel()
    assert scipy.kstest(drawn.numpy(), "norm").pvalue > 0.01
    assert abs(drawn.mean()) < 4 / count**0.5 and abs(drawn.var() - 1) < 4 * (2 / count) ** 0.5
    assert abs(drawn[1:] @ drawn[:-1] / count) < 4 / count**0.5, "neighbours know each other"
    assert len(drawn.unique()) > 0.99 * count and drawn.isfinite().all()


def test_shape_type_and_evaluation():
    noise = bound()
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        found = noise(torch.ones(4, 3, 2, dtype=dtype))
        assert found.shape == (4, 3, 2) and found.dtype == dtype
    assert torch.equal(noise.eval()(torch.ones(4, 3)), torch.zeros(4, 3))


def test_it_is_a_function_of_step_layer_and_place():
    x = torch.empty(6, 5)
    assert torch.equal(bound()(x), bound()(x)) and torch.equal(bound()(x)[:4], bound()(x[:4]))
    assert not torch.equal(bound("a")(x), bound("b")(x))
    with pytest.raises(
        RuntimeError, match=r"rn.nn.Noise draws from a task's seed.*torch.randn_like"
    ):
        rn.nn.Noise()(x)


class Variational(nn.Module):
    def __init__(self, own=True):
        super().__init__()
        self.encoder, self.decoder = nn.Linear(6, 4), nn.Linear(2, 6)
        self.noise = rn.nn.Noise() if own else torch.randn_like

    def forward(self, x):
        mean, spread = self.encoder(x).chunk(2, 1)
        return self.decoder(mean + self.noise(mean) * (spread / 2).exp()), mean, spread


def evidence(output, x):
    again, mean, spread = output
    rebuilt = (again - x).square().sum(1)
    return (rebuilt - 0.5 * (1 + spread - mean**2 - spread.exp()).sum(1)).mean()


def made(seed, model=None, **options):
    x = np.random.default_rng(0).normal(size=(24, 6)).astype(np.float32)
    task = rn.Task(model or Variational(), seed=seed, device="cpu", **options).loss(evidence)
    task.optimizer(rn.Adam(lr=1e-2)).data(rn.Loader.from_arrays(x, x, batch_size=8, shuffle=True))
    return task.compile(report="none")


def test_a_seed_repeats_a_variational_autoencoder():
    hashes = []
    for seed in (1, 1, 2):
        task = made(seed)
        losses = task.fit(epochs=3, verbose=0).history["loss"]
        hashes.append(task.state_hash())
    assert hashes[0] == hashes[1] != hashes[2] and np.isfinite(losses).all()
    with pytest.raises(RuntimeError, match="rn.nn.Noise is for torch.randn_like"):
        made(1, Variational(own=False))


def test_the_gradient_is_that_of_the_numbers_drawn():
    model = Variational()
    task = made(1, model)
    batch = task.batch_at(0, 0)
    drawn = []
    hook = model.noise.register_forward_hook(lambda layer, x, y: drawn.append(y.clone()))
    before = {name: tensor.clone() for name, tensor in task.state_dict().items()}
    task.train_on_batch(batch.x, batch.y)
    hook.remove()
    plain = Variational()
    plain.load_state_dict(before)
    plain.noise.forward = lambda mean: drawn[0]
    loss = evidence(plain(torch.as_tensor(batch.x)), torch.as_tensor(batch.y))
    loss.backward()
    for name, parameter in plain.named_parameters():
        assert torch.allclose(task.gradients()[name], parameter.grad, rtol=1e-4, atol=1e-6)


def test_outside_of_a_task_torchs_generators_draw():
    model = Variational()
    with made(1, model) as task:
        task.fit(epochs=1, verbose=0)
        plain = task.export_module()
    assert type(plain.noise) is PlainNoise and type(model.noise) is rn.nn.Noise
    x = torch.ones(4, 6)
    assert not torch.equal(plain.train()(x)[0], plain(x)[0])
    assert torch.equal(plain.eval()(x)[0], plain(x)[0])
