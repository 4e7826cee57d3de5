"""Gradients of embedding tables: torch's numbers."""

import pytest
import torch
import torch.nn.functional as F

from renaissance.nn.ordered import in_order
from renaissance.nn.tables import lookup

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


def squares(table, f):
    return f(tokens(), table, padding_idx=3).square()


TRANSFORMED = {
    "vmap": lambda f, t: torch.vmap(lambda ids: f(ids, t, padding_idx=3))(tokens()),
    "grad": lambda f, t: torch.func.grad(lambda u: squares(u, f).sum())(t),
    "jvp": lambda f, t: torch.func.jvp(lambda u: squares(u, f), (t,), (t.cos(),))[1],
}


@pytest.mark.parametrize("name", TRANSFORMED)
@pytest.mark.timeout(60)
def test_transforms_have_torchs(name):
    """Also in a graph, whose transforms a compiler has taken apart before it is ours."""
    table = torch.randn(ROWS, 4, requires_grad=True)
    wanted = TRANSFORMED[name](F.embedding, table)
    assert torch.equal(TRANSFORMED[name](lookup, table), wanted)

    def run(graph, inputs):
        return in_order(graph)

    compiled = torch.compile(lambda t: TRANSFORMED[name](F.embedding, t), backend=run)
    assert torch.equal(compiled(table), wanted)
    torch._dynamo.reset()


def test_sparse_gradients_and_bounded_norms_are_left_to_torch():
    table = torch.randn(ROWS, 3, requires_grad=True)
    lookup(tokens(), table, sparse=True).sum().backward()
    assert table.grad.is_sparse
    bounded = torch.full((ROWS, 3), 4.0)
    lookup(tokens(), bounded, max_norm=1.0)
    assert bounded[3].norm() == pytest.approx(1.0, rel=1e-5)
    assert bounded[2].norm() > 6  # no token names it
