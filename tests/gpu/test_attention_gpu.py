"""Attention with keyed dropout on a GPU: the CPU's masks, float64 references, and no weights."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import renaissance as rn
from renaissance import _native
from renaissance.nn import draws, fused_attention
from renaissance.update.scalars import Scalars

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

P, LAYER = 0.3, 2**60 + 5


def region(device):
    made = Scalars(torch.zeros(_native.SCALARS_BYTES, dtype=torch.uint8, device=device))
    made.write(seed=2**63 + 1, micro=9, row_offset=2**32 - 3)
    return made.bytes


def reference(q, k, v, bias, is_causal, p=P):
    """In float64 on the CPU, with its masks."""
    scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3])
    scores = scores if bias is None else scores + bias
    if is_causal:
        ahead = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(ahead, -math.inf)
    is_open = (scores > -math.inf).any(3, keepdim=True)
    weights = torch.where(is_open, scores, 0.0).softmax(3) * is_open
    kept = draws.dropout(torch.ones(scores.shape), region("cpu"), LAYER, p) if p else 1
    return (weights * kept) @ v


SHAPES = [
    (192, 192, True, ""),
    (100, 203, False, ""),
    (67, 132, False, "padding"),
    (96, 64, False, "all"),
]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("width", [16, 64, 128])
@pytest.mark.parametrize("length, keys, is_causal, masks", SHAPES)
def test_output_and_gradients_against_float64(dtype, width, length, keys, is_causal, masks):
    check(dtype, width, length, keys, is_causal, masks, P)


@pytest.mark.parametrize("p", [0, P])
@pytest.mark.parametrize("length, keys, is_causal, masks", SHAPES[:3])
def test_without_stored_masks(p, length, keys, is_causal, masks, monkeypatch):
    """Nothing dropped; masks that would take too much, and are drawn again in backward."""
    monkeypatch.setattr(fused_attention, "BITS", 0)
    check(torch.bfloat16, 64, length, keys, is_causal, masks, p)


def check(dtype, width, length, keys, is_causal, masks, p):
    rng = torch.Generator().manual_seed(0)
    given = [torch.randn(3, 2, n, width, generator=rng).to(dtype) for n in (length, keys, keys)]
    g = torch.randn(3, 2, length, width, generator=rng).to(dtype)
    bias = None
    if masks == "padding":
        bias = torch.zeros(3, 1, 1, keys)
        bias[0, ..., keys // 2 :] = bias[1] = -math.inf
    elif masks:
        bias = torch.randn(3, 2, length, keys, generator=rng)
    exact = [x.double().requires_grad_() for x in given]
    expected = reference(*exact, bias, is_causal, p)
    wanted = torch.autograd.grad(expected, exact, g.double())
    twice = []
    for _ in range(2):
        ours = [x.cuda().requires_grad_() for x in given]
        assert fused_attention.takes(*ours, bias)
        out = fused_attention.attention(
            *ours, None if bias is None else bias.cuda(), scalars=region("cuda") if p else None,
            layer=LAYER, p=p, is_causal=is_causal,
        )  # fmt: skip
        twice.append([out.detach(), *torch.autograd.grad(out, ours, g.cuda())])
    assert all(torch.equal(a, b) for a, b in zip(*twice)), "not deterministic"
    unit = 2.0 ** (-8 if dtype == torch.bfloat16 else -11)
    for found, right in zip(twice[0], (expected.detach(), *wanted)):
        scale = float(right.abs().max())
        assert float((found.cpu().double() - right).abs().max()) < 4 * unit * scale


class Writer(nn.Module):
    """A transformer whose heads have 16 features, with torch's layers and one of ours."""

    def __init__(self, dropout=0.1):
        super().__init__()
        self.words = nn.Embedding(11, 32)
        layer = nn.TransformerEncoderLayer(32, 2, 64, dropout, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.attend, self.head = rn.nn.Attention(2 * dropout), nn.Linear(32, 11)

    def forward(self, x):
        ahead = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        hidden = self.body(self.words(x), mask=ahead, src_key_padding_mask=x == 0, is_causal=True)
        heads = hidden.unflatten(2, (2, 16)).transpose(1, 2)
        hidden = hidden + self.attend(heads, heads, heads, is_causal=True).transpose(1, 2).flatten(
            2
        )
        return self.head(hidden).transpose(1, 2)


@pytest.mark.parametrize("compile_model", ["off", "auto"])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_captured_equals_eager(precision, compile_model):
    rng = np.random.default_rng(0)
    x = rng.integers(1, 11, (70, 22))
    x[::3, 15:] = 0
    train = rn.Loader.from_arrays(x, np.roll(x, -1, 1), batch_size=16, shuffle=True)
    hashes, losses = [], []
    torch._dynamo.utils.counters.clear()
    for capture in ("auto", "off"):
        task = rn.Task(Writer(), seed=3, device="cuda", precision=precision)
        task.loss(rn.CrossEntropyLoss()).optimizer(rn.AdamW(lr=1e-2)).data(train)
        task.compile(report="none", capture=capture, compile_model=compile_model)
        losses.append(task.fit(epochs=4, verbose=0).history["loss"])
        hashes.append(task.state_hash())
        task.close()
    assert losses[0][-1] < losses[0][0] and not torch._dynamo.utils.counters["graph_break"]
    if compile_model == "off":
        assert hashes[0] == hashes[1]


@pytest.mark.parametrize("seed", [3, None])
def test_what_drops_nothing_is_ours_too_under_a_seed(seed):
    """In torch's layers and in ours, where a step that has to repeat is compiled; it repeats."""
    x = np.random.default_rng(0).integers(1, 11, (64, 24))
    train = rn.Loader.from_arrays(x, np.roll(x, -1, 1), batch_size=16)
    hashes = []
    for _ in range(2):
        task = rn.Task(Writer(0.0), seed=seed, device="cuda", precision="bf16-mixed")
        task.loss(rn.CrossEntropyLoss()).optimizer(rn.AdamW(lr=1e-2)).data(train)
        task.compile(report="none")
        history = task.fit(epochs=4, verbose=0).history["loss"]
        assert history[-1] < history[0]
        hashes.append(task.state_hash())
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities, acc_events=True) as profile:
            next(iter(task.executor._graphs.values())).replay()
            torch.cuda.synchronize()
        names = [event.name for event in profile.events()]
        task.close()
        assert names.count("attend") == names.count("gradient_of_keys") == (3 if seed else 0)
    assert (hashes[0] == hashes[1]) or seed is None


def test_the_weights_are_never_in_memory():
    q = torch.randn(2, 4, 2048, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weights = 2 * 4 * 2048 * 2048 * 2
    options = {"scalars": region("cuda"), "layer": 1, "p": 0.1, "is_causal": True}
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = fused_attention.attention(q, q, q, None, **options)
    torch.autograd.grad(out.float().square().sum(), q)
    assert torch.cuda.max_memory_allocated() - before < weights / 2
