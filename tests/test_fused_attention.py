"""Attention with keyed dropout whose weights are never in memory: its kernels, interpreted."""

import fresh
import pytest
import torch
from droppers import Encoder

from renaissance import _native
from renaissance.nn import bind_dropouts, fused_attention, swap_dropouts

pytest.importorskip("triton")


@pytest.mark.timeout(120)
def test_kernels_against_float64():
    """Masks, output and gradients, for the cases of ``interpreted_attention.py``."""
    fresh.run("import os; os.environ['TRITON_INTERPRET'] = '1'; import interpreted_attention", 110)


def test_what_is_left_to_the_weights_in_full(monkeypatch):
    """A CPU, float32, heads of other widths, masks that are trained."""
    q = torch.zeros(2, 3, 5, 16, dtype=torch.bfloat16)
    assert not fused_attention.takes(q, q, q, None)
    monkeypatch.setattr(fused_attention, "is_on_gpu", lambda x: True)

    def takes(dtype=torch.bfloat16, width=16, bias=None, rows=5):
        x = torch.zeros(2, 3, rows, width, dtype=dtype)
        return fused_attention.takes(x, x, x, bias)

    assert takes() and takes(torch.float16, 128) and takes(bias=torch.zeros(5, 5))
    assert not takes(torch.float32) and not takes(width=24) and not takes(rows=0)
    assert not takes(bias=torch.zeros(5, 5, requires_grad=True))


@pytest.mark.parametrize("is_fused", [False, True])
def test_torch_compile_sees_one_graph(is_fused, monkeypatch):
    """What it cannot follow would cut the network into pieces that run by themselves."""
    if is_fused:
        monkeypatch.setattr(fused_attention, "WIDTHS", (4,))
        monkeypatch.setattr(fused_attention, "DTYPES", (torch.float32,))
        monkeypatch.setattr(fused_attention, "is_on_gpu", lambda x: True)
    graphs = []

    def look(graph, inputs):
        graphs.append(graph)
        return lambda *_: (torch.zeros(4, 3),)

    model = Encoder().train()
    swap_dropouts(model)
    bind_dropouts(model, torch.zeros(_native.SCALARS_BYTES, dtype=torch.uint8))
    torch.compile(model, backend=look, fullgraph=True)(torch.zeros(4, 5, 8))
    torch._dynamo.reset()
    called = [str(node.target) for node in graphs[0].graph.nodes]
    assert (
        len(graphs) == 1 and sum("renaissance.attention" in name for name in called) == 2 * is_fused
    )
