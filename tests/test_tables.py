"""Gradients of embedding tables: torch's numbers, and an operation that a compiler keeps whole."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from renaissance.nn.tables import lookup, with_sorted_gradients

ROWS = 7


def tokens(dtype=torch.int64):
    return torch.tensor([[0, 3, 3, 6, 0], [6, 6, 1, 0, 3]], dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize(
    "options",
    [{}, {"padding_idx": 3}, {"padding_idx": -1}, {"padding_idx": 0, "scale_grad_by_freq": True}],
    ids=str,
)
def test_numbers_are_torchs(options, dtype):
    table = torch.randn(ROWS, 4, requires_grad=True)
    g = torch.randn(2, 5, 4)
    found, wanted = (f(tokens(dtype), table, **options) for f in (lookup, F.embedding))
    assert torch.equal(found, wanted)
    ours, theirs = (torch.autograd.grad(y, table, g)[0] for y in (found, wanted))
    assert torch.equal(ours, theirs)
    assert not torch.equal(ours, torch.zeros(ROWS, 4))


def test_gradient_by_differences():
    table = torch.randn(ROWS, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: lookup(tokens(), t), (table,))


def test_sparse_gradients_and_bounded_norms_are_left_to_torch():
    table = torch.randn(ROWS, 3, requires_grad=True)
    lookup(tokens(), table, sparse=True).sum().backward()
    assert table.grad.is_sparse
    bounded = torch.full((ROWS, 3), 4.0)
    lookup(tokens(), bounded, max_norm=1.0)
    assert bounded[3].norm() == pytest.approx(1.0, rel=1e-5)
    assert bounded[2].norm() > 6  # no token names it


class Tied(nn.Module):
    """A table that is looked up by its layer and by a function, and is the last layer too."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(ROWS, 4, padding_idx=0)

    def forward(self, ids):
        both = self.words(ids) + F.embedding(ids.flip(1), self.words.weight)
        return F.linear(both.tanh(), self.words.weight)


@pytest.mark.parametrize("is_sorted", [True, False])
@pytest.mark.timeout(60)
def test_compiled_graphs_keep_the_operation_whole(is_sorted):
    """Behind torch.compile's own decompositions it is still one call; without us it is none."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.aot_autograd import make_boxed_func
    from torch._inductor.decomposition import select_decomp_table

    seen = []

    def look(graph, inputs):
        seen.extend(node.target for node in graph.graph.nodes if node.op == "call_function")
        return make_boxed_func(graph)

    def backend(graph, inputs):
        graph = with_sorted_gradients(graph) if is_sorted else graph
        compiler = aot_autograd(
            fw_compiler=look, bw_compiler=look, decompositions=select_decomp_table()
        )
        return compiler(graph, inputs)

    torch.manual_seed(0)
    model = Tied()
    model(tokens()).square().sum().backward()
    wanted, model.words.weight.grad = model.words.weight.grad, None
    torch.compile(model, backend=backend, dynamic=False)(tokens()).square().sum().backward()
    torch.testing.assert_close(model.words.weight.grad, wanted, rtol=1e-5, atol=1e-5)
    calls = seen.count(torch.ops.renaissance.table_gradient.default)
    assert calls == (2 if is_sorted else 0)
