"""Outputs in 16 bits as losses see them: float32, and of a dict only what is read."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_map

import renaissance as rn
from renaissance import outputs
from renaissance.outputs import widened

pytestmark = pytest.mark.timeout(60)

BF16 = torch.bfloat16


@pytest.fixture
def casts(monkeypatch):
    """Shapes of the tensors that were cast."""
    found, cast = [], outputs._as_float32

    def noting(tensor):
        if tensor.dtype in outputs.HALVES:
            found.append(tuple(tensor.shape))
        return cast(tensor)

    monkeypatch.setattr(outputs, "_as_float32", noting)
    return found


def given():
    return {
        "scores": torch.full((4, 3), 1 / 3, dtype=BF16),
        "maps": (torch.ones(4, 7, dtype=torch.float16), {"deep": torch.ones(4, 9, dtype=BF16)}),
        "labels": torch.arange(4),
        "none": None,
    }


def eager(output):
    return tree_map(
        lambda x: x.float() if getattr(x, "dtype", None) in outputs.HALVES else x, output
    )


def test_what_is_not_read_of_a_dict_is_not_cast(casts):
    output = widened(given())
    assert list(output) == ["scores", "maps", "labels", "none"] and len(output) == 4
    assert "maps" in output and output["none"] is None and output["labels"].dtype == torch.int64
    assert casts == []
    assert output["scores"].dtype == torch.float32 and output["scores"] is output["scores"]
    assert casts == [(4, 3)]
    pair = output["maps"]
    assert casts == [(4, 3), (4, 7)] and pair[0].dtype == torch.float32
    assert pair[1]["deep"].dtype == torch.float32 and casts == [(4, 3), (4, 7), (4, 9)]


def test_who_takes_one_of_a_tuple_takes_all(casts):
    first, second = widened((torch.ones(2, dtype=BF16), torch.ones(3, dtype=BF16)))
    assert first.dtype == second.dtype == torch.float32 and casts == [(2,), (3,)]


def test_what_has_nothing_in_16_bits_is_as_it_was(casts):
    for output in ({"a": torch.ones(2)}, (torch.ones(2),), torch.ones(2), {"a": None}):
        assert widened(output) is output or isinstance(output, torch.Tensor)
    assert casts == []


def keywords(**options):
    return options


READS = {
    "items": lambda d: dict(d.items()),
    "values": lambda d: dict(zip(d, d.values())),
    "keys": lambda d: {k: d[k] for k in d.keys()},
    "get": lambda d: {k: d.get(k) for k in ("scores", "maps", "labels", "none", "odd")},
    "dict": dict,
    "stars": lambda d: {**d},
    "keywords": lambda d: keywords(**d),
    "more keywords": lambda d: keywords(more=1, **d),
    "copy": lambda d: d.copy(),
    "copied": lambda d: dict(copy.copy(d)),
    "deep": lambda d: dict(copy.deepcopy(d)),
    "or": lambda d: d | {"more": 1},
    "ror": lambda d: {"more": 1} | d,
    "updated": lambda d: (lambda e: e.update(d) or e)({}),
    "reversed": lambda d: {k: d[k] for k in reversed(d)},
    "popped": lambda d: {"scores": d.pop("scores"), "rest": list(d), "size": len(d)},
    "written": lambda d: (d.update(more=1), d.__delitem__("none"), dict(d))[-1],
    "or in place": lambda d: dict(d.__ior__({"more": 1})),
    "default": lambda d: (d.setdefault("more", 1), dict(d))[-1],
    "equal": lambda d: {"equal": d == 3, "is": isinstance(d, dict), "true": bool(d)},
    "missing": lambda d: {"error": pytest.raises(KeyError, d.__getitem__, "odd").type},
    "tree": lambda d: tree_map(lambda x: x, d),
    "text": lambda d: {"text": repr(d)},
}


def plain(found):
    if isinstance(found, dict):
        return {key: plain(value) for key, value in found.items()}
    if isinstance(found, tuple):
        return tuple(plain(value) for value in found)
    return (found.dtype, found.tolist()) if isinstance(found, torch.Tensor) else found


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_it_is_read_as_a_dict_is(read):
    found, expected = plain(read(widened(given()))), plain(read(eager(given())))
    assert found == expected and list(found) == list(expected)


def test_gradients_reach_what_was_first_read_without_them():
    source = torch.rand(4, 3).to(BF16).requires_grad_()
    output = widened({"a": source})
    with torch.no_grad():
        assert output["a"].sum() > 0
    (output["a"] * torch.arange(3.0)).sum().backward()
    assert torch.equal(source.grad, torch.arange(3.0).to(BF16).expand(4, 3))
    with torch.no_grad():
        assert not widened({"a": torch.rand(4).to(BF16)})["a"].requires_grad


class Several(nn.Module):
    """Scores, and features that only some look at."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 16), nn.Linear(16, 3)

    def forward(self, x):
        features = self.body(x)
        return {"scores": self.head(features), "features": features}


rng = np.random.default_rng(0)
X, Y = rng.normal(size=(16, 6)).astype(np.float32), rng.integers(0, 3, size=16)


def score_loss(output, target):
    assert output["scores"].dtype == torch.float32
    return nn.functional.cross_entropy(output["scores"], target)


def size(output, target):
    return output["features"].abs().mean()


def trained(*metrics):
    task = rn.Task(Several(), seed=1, device="cpu", threads=1, precision="bf16-mixed")
    task.loss(score_loss).metrics(*metrics).optimizer(rn.SGD(lr=0.1))
    task.data(rn.Loader.from_arrays(X, Y, batch_size=8, workers=0)).compile(report="none")
    task.fit(epochs=2, verbose=0)
    return task


def test_a_step_casts_what_loss_and_metrics_read(casts, monkeypatch):
    found = trained()
    assert casts == [(8, 3)] * 4
    casts.clear()
    trained(size)
    assert casts == [(8, 3), (8, 16)] * 4
    monkeypatch.setattr("renaissance.passes.widened", eager)
    assert trained().state_hash() == found.state_hash()


def test_torch_compile_sees_a_dict():
    @torch.compile(fullgraph=True, backend="eager")
    def step(x):
        output = widened({"a": x, "b": x + 1})
        return output["a"] * 2

    assert step(torch.ones(3, dtype=BF16)).dtype == torch.float32
