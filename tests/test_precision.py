"""What the four names mean on a device, and what users' functions get."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import renaissance as rn
from renaissance.precision import NAMES, Precision, resolve_precision


@pytest.mark.parametrize(
    "name, device, working, tf32, scaling",
    [
        ("32-true", "cpu", None, False, False),
        ("32-true", "cuda:1", None, False, False),
        ("tf32", "cuda", None, True, False),
        ("tf32", "cpu", None, False, False),
        ("bf16-mixed", "cpu", torch.bfloat16, False, False),
        ("bf16-mixed", torch.device("cuda", 0), torch.bfloat16, False, False),
        ("16-mixed", "cuda", torch.float16, False, True),
    ],
)
def test_resolve(name, device, working, tf32, scaling):
    found = resolve_precision(name, device)
    assert found == Precision(name, working, working, tf32, scaling, found.note)


def test_a_drawback_is_said():
    assert "slower" in resolve_precision("bf16-mixed", "cpu").note
    assert "no effect" in resolve_precision("tf32", "cpu").note
    quiet = [resolve_precision(name, "cuda").note for name in NAMES]
    assert quiet == [""] * 4 and resolve_precision("32-true", "cpu").note == ""


def test_half_precision_needs_cuda():
    with pytest.raises(ValueError, match="'16-mixed' needs a CUDA device, this task runs on 'cpu'"):
        resolve_precision("16-mixed", "cpu")


@pytest.mark.parametrize(
    "wrong, right",
    [
        ("fp32", "32-true"),
        ("bf16", "bf16-mixed"),
        ("mixed_float16", "16-mixed"),
        ("bf16-mixd", "bf16-mixed"),
        ("TF32", "tf32"),
    ],
)
def test_near_names(wrong, right):
    with pytest.raises(ValueError, match=f"did you mean '{right}'\\?"):
        resolve_precision(wrong, "cpu")


def test_wrong_types_and_names():
    with pytest.raises(TypeError, match=r"precision = 16 \(int\)"):
        resolve_precision(16, "cpu")
    with pytest.raises(ValueError, match="'quarter' is not allowed; it takes one of"):
        resolve_precision("quarter", "cpu")


def some_mean(output, target):
    assert output.dtype == torch.float32
    return torch.softmax(output, 1).amax(1).mean()


def summed(output, target):
    return F.cross_entropy(output["logits"][0], target)


class Nested(nn.Sequential):
    """Gives its output in a tuple in a dict."""

    def forward(self, x):
        return {"logits": (super().forward(x),)}


@pytest.mark.parametrize("loss", [F.cross_entropy, summed])
def test_what_users_compute_of_16_bit_outputs_is_computed_in_32(loss):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(64, 6)).astype(np.float32), rng.integers(0, 10, size=64)

    def run(loss, kind=nn.Sequential):
        model = kind(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 10))
        task = rn.Task(model, seed=1, device="cpu", precision="bf16-mixed").loss(loss)
        task.optimizer(rn.SGD(lr=0.1)).data(rn.Loader.from_arrays(x, y, batch_size=64))
        if kind is nn.Sequential:
            task.metrics(some_mean)
        with task.compile(report="none"):
            task.fit(epochs=1, verbose=0)
            return task.history.history["loss"], task.state_dict()

    expected, weights = run(rn.CrossEntropyLoss())
    found, others = run(loss, Nested if loss is summed else nn.Sequential)
    assert found == pytest.approx(expected, rel=1e-6)
    assert all(torch.allclose(others[n], weights[n], rtol=1e-5, atol=1e-7) for n in weights)
