"""What a compiled pass that has to repeat runs in the place of torch's functions."""

import importlib

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from renaissance.nn import fused_attention
from renaissance.nn.ordered import EXCHANGED, attention, cache_keys, in_order

ROWS = 7
IDS = torch.tensor([[0, 3, 3, 6, 0], [6, 6, 1, 0, 3]])


class Tied(nn.Module):
    """A table that is looked up by its layer and by a function, and is the last layer too."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(ROWS, 4, padding_idx=0)

    def forward(self, ids):
        both = self.words(ids) + F.embedding(ids.flip(1), self.words.weight)
        return F.linear(both.tanh(), self.words.weight)


def looking(is_ordered, seen, has_end=True):
    """A backend that runs graphs behind the inductor's decompositions, and writes down calls."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func
    from torch._inductor.decomposition import select_decomp_table

    def look(graph, inputs):
        seen.extend(node.target for node in graph.graph.nodes if node.op == "call_function")
        if has_end:
            return make_boxed_func(graph)
        raise RuntimeError("seen")

    def backend(graph, inputs):
        compiler = aot_autograd(
            fw_compiler=look, bw_compiler=look, decompositions=select_decomp_table()
        )
        return compiler(in_order(graph) if is_ordered else graph, inputs)

    return backend


@pytest.mark.parametrize("is_ordered", [True, False])
@pytest.mark.timeout(60)
def test_gradients_of_tables_are_one_call(is_ordered):
    torch.manual_seed(0)
    model, seen = Tied(), []
    model(IDS).square().sum().backward()
    wanted, model.words.weight.grad = model.words.weight.grad, None
    compiled = torch.compile(model, backend=looking(is_ordered, seen), dynamic=False)
    compiled(IDS).square().sum().backward()
    torch._dynamo.reset()
    torch.testing.assert_close(model.words.weight.grad, wanted, rtol=1e-5, atol=1e-5)
    calls = seen.count(torch.ops.renaissance.table_gradient.default)
    assert calls == (2 if is_ordered else 0)


class Checkpointed(nn.Module):
    """A part of it is computed again in backward, and a part of that once more."""

    def __init__(self):
        super().__init__()
        self.inner = Tied()

    def again(self, ids):
        return checkpoint(self.inner, ids, use_reentrant=False).sin()

    def forward(self, ids):
        return checkpoint(self.again, ids, use_reentrant=False)


@pytest.mark.timeout(60)
def test_parts_that_are_checkpointed_have_ours_too():
    torch.manual_seed(0)
    model, seen = Checkpointed(), []
    table = model.inner.words.weight
    model(IDS).square().sum().backward()
    wanted, table.grad = table.grad, None
    compiled = torch.compile(model, backend=looking(True, seen), dynamic=False, fullgraph=True)
    compiled(IDS).square().sum().backward()
    torch._dynamo.reset()
    torch.testing.assert_close(table.grad, wanted, rtol=1e-5, atol=1e-5)
    assert seen.count(torch.ops.renaissance.table_gradient.default) == 2


class Looks(nn.Module):
    """Attention in float32 or 16 bits, as a network writes it."""

    def __init__(self, **options):
        super().__init__()
        self.inner, self.options = nn.Linear(16, 48), options

    def forward(self, x):
        q, k, v = self.inner(x).unflatten(2, (3, 1, 16)).transpose(1, 3).unbind(2)
        return F.scaled_dot_product_attention(q, k, v, **self.options)


@pytest.mark.timeout(120)
def test_attention_is_ours_where_it_is_trained_and_torchs_elsewhere(monkeypatch):
    monkeypatch.setattr(fused_attention, "is_on_gpu", lambda x: True)
    ours, x = torch.ops.renaissance.attention.default, torch.zeros(2, 5, 16)

    def calls(model, is_ordered=True, is_trained=True, autocast=True):
        seen = []
        backend = looking(is_ordered, seen, has_end=False)
        torch._dynamo.reset()
        with torch.set_grad_enabled(is_trained), torch.autocast("cpu", enabled=autocast):
            with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="seen"):
                torch.compile(model, backend=backend, fullgraph=True)(x)
        return seen.count(ours)

    assert calls(Looks()) == 1 and calls(Looks(is_causal=True)) == 1
    assert calls(Looks(attn_mask=torch.ones(5, 5, dtype=torch.bool))) == 1
    assert calls(Looks().bfloat16(), autocast=True) == 1
    layer = nn.TransformerEncoderLayer(16, 1, 32, 0.0, batch_first=True)
    assert calls(layer) == 1
    assert calls(Looks(), is_ordered=False) == 0 and calls(Looks(), is_trained=False) == 0
    assert calls(Looks(), autocast=False) == 0  # float32
    assert calls(Looks(scale=0.5)) == 1 and calls(Looks(scale=-0.5)) == 0
    assert calls(Looks(dropout_p=0.1)) == 0
    torch._dynamo.reset()


def test_attention_inside_a_transform_is_torchs(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("ours")

    monkeypatch.setattr(fused_attention, "is_on_gpu", lambda x: True)
    monkeypatch.setattr(fused_attention, "attention", refuse)
    q = torch.randn(2, 1, 5, 16, dtype=torch.float16, requires_grad=True)

    def change(f):
        return torch.func.grad(lambda x: f(x, x, x).sum())(q.detach())

    assert torch.equal(change(attention), change(F.scaled_dot_product_attention))
    with pytest.raises(AssertionError, match="ours"):
        attention(q, q, q)


@pytest.mark.parametrize(
    "options",
    [{}, {"is_causal": True}, {"scale": 2.0}, {"attn_mask": torch.eye(5).bool()}],
    ids=str,
)
def test_what_is_left_to_torch_is_torchs(options):
    q, k, v = torch.randn(3, 2, 4, 5, 16, requires_grad=True).unbind()
    wanted = F.scaled_dot_product_attention(q, k, v, **options)
    assert torch.equal(attention(q, k, v, **options), wanted)


def test_the_compilers_cache_keeps_our_graphs_and_knows_them_from_torchs():
    """By the name of torch's function, a graph of ours would have been taken for one of torch's."""
    from torch._functorch._aot_autograd.autograd_cache import (
        BypassAOTAutogradCache,
        check_cacheable,
    )
    from torch._inductor import config

    graphs = []

    def look(graph, inputs):
        graphs.append(graph)
        return graph

    layer = nn.TransformerEncoderLayer(16, 1, 32, 0.0, batch_first=True)
    model = nn.Sequential(nn.Embedding(ROWS, 16), layer)
    torch.compile(model, backend=look, fullgraph=True)(IDS)
    torch._dynamo.reset()
    check_cacheable(graphs[0])
    graph = in_order(graphs[0])
    with pytest.raises(BypassAOTAutogradCache):
        check_cacheable(graph)
    with config.patch(unsafe_marked_cacheable_functions=cache_keys()):
        check_cacheable(graph)
    assert len(cache_keys()) == 3
    assert all(name.startswith("renaissance.nn.") for name in cache_keys())
    for name in cache_keys():  # a key is made of names that are found again
        module, _, own = name.rpartition(".")
        assert getattr(importlib.import_module(module), own) in EXCHANGED.values()
