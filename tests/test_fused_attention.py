"""Attention with keyed dropout whose weights are never in memory: its kernels, interpreted."""

import types

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
    x, more = (torch.zeros(2, 3, n, 16, dtype=torch.bfloat16) for n in (5, 6))
    assert not fused_attention.takes(x, x, more, None) and fused_attention.takes(
        x, more, more, None
    )


class Launches:
    """In the place of a kernel: the grids and constants that it is asked for."""

    def __init__(self):
        self.grids, self.constants = [], []

    def __getitem__(self, grid):
        self.grids.append(grid)
        return lambda *_, **constants: self.constants.append(constants)


def exchange(monkeypatch):
    """Name -> `Launches` in the place of every kernel."""
    from renaissance.nn import fused_attention_kernels, fused_masks

    kernels = {"draw": Launches()}
    monkeypatch.setattr(fused_masks, "draw", kernels["draw"])
    for name in ("attend", "shares", "gradient_of_keys", "gradient_of_queries"):
        kernels[name] = Launches()
        monkeypatch.setattr(fused_attention_kernels, name, kernels[name])
    return kernels


def test_more_heads_than_a_grid_has_rows(monkeypatch):
    """Blocks of a grid are at most 65,535 but in its first dimension."""
    kernels = exchange(monkeypatch)
    q, k = (torch.zeros(17500, 4, n, 16, dtype=torch.float16) for n in (65, 1))
    options = {"scalars": torch.zeros(_native.SCALARS_BYTES, dtype=torch.uint8), "layer": 1}
    out = fused_attention.attention(
        q.requires_grad_(), k, k, None, p=0.5, is_causal=False, **options
    )
    torch.autograd.grad(out.sum(), q)
    grids = {name: kernel.grids for name, kernel in kernels.items()}
    rows = 17500 * 4 * 65
    assert grids == {
        "draw": [(2 * 70000,)],
        "attend": [(2 * 70000,)],
        "shares": [(-(-rows // 64),)],
        "gradient_of_keys": [(70000,)],
        "gradient_of_queries": [(2 * 70000,)],
    }


def test_a_gradient_of_the_gradient_is_refused(monkeypatch):
    """It came as zeros, with a warning."""
    exchange(monkeypatch)
    q = torch.zeros(1, 1, 4, 16, dtype=torch.float16, requires_grad=True)
    scalars = torch.zeros(_native.SCALARS_BYTES, dtype=torch.uint8)
    out = fused_attention.attention(q, q, q, None, scalars=scalars, layer=1, p=0.5, is_causal=False)
    (gradient,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="gradient of its gradient .* train in '32-true'"):
        gradient.sum().backward()


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


def shared_bytes(kernel, tile, capability):
    """What a kernel for heads of 128 and any mask takes of a card's shared memory."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    constants = {"SEED": 0, "MICRO": 1, "ROW": 2, "PURPOSE": 4, "MASK": 2, "HAS_BIAS": True}
    constants |= {"CAUSAL": False, "ALIGNED": False, "NARROW": True, "D": 128}
    constants |= {"BM": tile.queries, "BN": tile.keys}
    kinds = {"kept": "*u8", "spread": "*fp32", "delta": "*fp32", "scalars": "*i64", "scale": "fp32"}
    kinds |= {"layer": "i64", "threshold": "i64", "factor": "fp32"}
    kinds |= dict.fromkeys(("q", "k", "v", "bias", "g", "gk", "gv"), "*bf16")
    names = kernel.function.arg_names
    source = ASTSource(
        fn=kernel.function,
        signature={n: "constexpr" if n in constants else kinds.get(n, "i32") for n in names},
        constexprs={(names.index(name),): value for name, value in constants.items()},
    )
    options = {"num_warps": tile.warps, "num_stages": tile.stages}
    return triton.compile(source, GPUTarget("cuda", capability, 32), options).metadata.shared


@pytest.mark.timeout(120)
def test_heads_of_128_fit_cards_that_are_not_an_h200(tmp_path, monkeypatch):
    """Compiled for them, not run: the widest tile of a Hopper card needs more than others have."""
    from renaissance.nn.fused_attention_kernels import gradient_of_keys

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    hopper, elsewhere = fused_attention.OF_KEYS[1], fused_attention.OF_KEYS_ELSEWHERE
    most = {89: 99 * 1024, 100: 227 * 1024}
    assert shared_bytes(gradient_of_keys, hopper, 89) > most[89]
    for capability, limit in most.items():
        assert shared_bytes(gradient_of_keys, elsewhere, capability) <= limit


@pytest.mark.parametrize("major, is_hopper", [(8, False), (9, True), (10, False)])
def test_tiles_by_card(major, is_hopper, monkeypatch):
    q = torch.zeros(1, 1, 130, 128, dtype=torch.float16)
    kept = types.SimpleNamespace(device=torch.device("cuda"), numel=lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (major, 0))
    kernels = exchange(monkeypatch)
    launch = fused_attention._Launch(kept, q, q, q, None, None, 0, 0.1, False, 1.0)
    launch.over_keys(kernels["gradient_of_keys"], fused_attention.OF_KEYS)
    tile = fused_attention.OF_KEYS[1] if is_hopper else fused_attention.OF_KEYS_ELSEWHERE
    assert kernels["gradient_of_keys"].constants[0]["BM"] == tile.queries
    assert kernels["gradient_of_keys"].constants[0]["num_stages"] == tile.stages
