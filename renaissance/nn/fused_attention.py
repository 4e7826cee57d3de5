"""Attention with keyed dropout as one operation on CUDA; its kernels stand beside this file."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
from typing import Any

import torch
from torch import Tensor

from renaissance import _native
from renaissance.nn.draws import threshold_of
from renaissance.random import DROPOUT

BITS = 64  #: Most keys, of each feature of a head, whose masks are stored.

#: Features of a head that the kernels take, and the types of their operands.
WIDTHS, DTYPES = (16, 32, 64, 128), (torch.bfloat16, torch.float16)

HAS_TRITON = importlib.util.find_spec("triton") is not None

_LIBRARY = torch.library.Library("renaissance", "FRAGMENT")
_TAGS = (torch.Tag.pt2_compliant_tag,)
_INPUTS = (
    "Tensor q, Tensor k, Tensor v, Tensor? bias, Tensor? scalars, int layer, float p, "
    "bool is_causal, float scale"
)
_LIBRARY.define(f"attention({_INPUTS}) -> (Tensor, Tensor, Tensor)", tags=_TAGS)
_LIBRARY.define(
    f"attention_backward(Tensor g, Tensor out, Tensor spread, Tensor kept, {_INPUTS}) "
    "-> (Tensor, Tensor, Tensor)",
    tags=_TAGS,
)


@dataclasses.dataclass(frozen=True)
class Tiles:
    """Queries and keys of a tile, warps of a thread block and stages of its pipeline."""

    queries: int
    keys: int
    warps: int = 4
    stages: int = 2


#: For heads of up to 64 features, and of 128 (benchmarks/bench_attention.py --sweep).
FORWARD = (Tiles(64, 64, 4, 3), Tiles(128, 64, 8))
OF_KEYS = (Tiles(64, 64, 4, 3), Tiles(128, 64, 8))
OF_QUERIES = (Tiles(64, 64, 4, 3), Tiles(128, 32, 8))
OF_MASKS = Tiles(64, 128)
#: In the place of the last of `OF_KEYS` on cards that are not of compute capability 9: the pipeline
#: of that one takes 114 KiB of shared memory on 8.x and 12.x, whose smallest have 99, and 258 on
#: 10.0, which has 227. This one takes 72 to 80.
OF_KEYS_ELSEWHERE = Tiles(64, 64, 8, 1)


class _Launch:
    """What the three kernels have in common: inputs and how they lie in memory."""

    def __init__(
        self, kept: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None,
        scalars: Tensor | None, layer: int, p: float, is_causal: bool, scale: float,
    ) -> None:  # fmt: skip
        self.n, self.heads, self.length, self.width = q.shape
        self.keys = k.shape[2]
        q, k, v = (x if x.stride(3) == 1 else x.contiguous() for x in (q, k, v))
        if bias is not None:
            bias = bias.expand(*bias.shape[:-1], self.keys)
            bias = bias if bias.stride(-1) == 1 else bias.contiguous()
            bias = bias.expand(*q.shape[:3], self.keys)
        self.kept, self.inputs = kept, (q, k, v, q if bias is None else bias, kept)
        fields = _native.scalars_layout()
        drawn_from = kept if scalars is None else scalars.view(torch.int64)
        self.draw = (drawn_from, layer, threshold_of(p), 1.0 / (1.0 - p), scale)
        self.sizes = (self.heads, self.length, self.keys)
        self.strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3])
        self.strides += (0, 0, 0) if bias is None else bias.stride()[:3]
        places = {name: fields[field][0] // 8 for name, field in _FIELDS.items()}
        self.of_masks: dict[str, Any] = {
            **places, "PURPOSE": DROPOUT, "CAUSAL": is_causal, "ALIGNED": self.keys % 4 == 0,
            "NARROW": self.heads * self.length * self.keys < 2**34,
        }  # fmt: skip
        self.constants: dict[str, Any] = {
            **self.of_masks, "MASK": _mask_of(p, kept), "HAS_BIAS": bias is not None,
            "D": self.width,
        }  # fmt: skip

    def draw_masks(self) -> None:
        """Fill the bits that are to be stored, if they are."""
        from renaissance.nn.fused_masks import draw

        if self.kept.numel():
            blocks = -(-self.length // OF_MASKS.queries) * -(-self.keys // OF_MASKS.keys)
            draw[(blocks * self.n * self.heads,)](
                self.kept, *self.draw[:3], *self.sizes, **self.of_masks,
                BM=OF_MASKS.queries, BN=OF_MASKS.keys, num_warps=OF_MASKS.warps,
            )  # fmt: skip

    def over_queries(self, kernel: Any, tiles: tuple[Tiles, Tiles], *between: Tensor) -> None:
        """Launch with a program for every tile of queries of every head."""
        tile = tiles[self.width > 64]
        self._launch(kernel, tile, -(-self.length // tile.queries), between)

    def over_keys(self, kernel: Any, tiles: tuple[Tiles, Tiles], *between: Tensor) -> None:
        """The same for every tile of keys."""
        device, tile = self.kept.device, tiles[self.width > 64]
        is_far = device.type == "cuda" and torch.cuda.get_device_capability(device)[0] != 9
        if self.width > 64 and is_far:
            tile = OF_KEYS_ELSEWHERE
        self._launch(kernel, tile, -(-self.keys // tile.keys), between)

    def _launch(self, kernel: Any, tile: Tiles, blocks: int, between: tuple[Tensor, ...]) -> None:
        grid = (blocks * self.n * self.heads,)
        kernel[grid](
            *self.inputs, *between, *self.draw, *self.sizes, *self.strides, **self.constants,
            BM=tile.queries, BN=tile.keys, num_warps=tile.warps, num_stages=tile.stages,
        )  # fmt: skip


_FIELDS = {"SEED": "seed", "MICRO": "micro", "ROW": "row_offset"}


def _attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scalars: Tensor | None, layer: int,
    p: float, is_causal: bool, scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    from renaissance.nn.fused_attention_kernels import attend  # Triton takes a second to import

    out, spread, kept = _empty(q, k, bias, scalars, layer, p)
    launch = _Launch(kept, q, k, v, bias, scalars, layer, p, is_causal, scale)
    launch.draw_masks()
    launch.over_queries(attend, FORWARD, out, spread)
    return out, spread, kept


def _attention_backward(
    g: Tensor, out: Tensor, spread: Tensor, kept: Tensor, q: Tensor, k: Tensor, v: Tensor,
    bias: Tensor | None, scalars: Tensor | None, layer: int, p: float, is_causal: bool,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    from renaissance.nn.fused_attention_kernels import gradient_of_keys, gradient_of_queries, shares

    launch = _Launch(kept, q, k, v, bias, scalars, layer, p, is_causal, scale)
    g, out = (x.transpose(1, 2).contiguous() for x in (g, out))
    spread = spread.contiguous()
    rows = launch.n * launch.length * launch.heads
    delta = spread.new_empty(rows)
    shares[(-(-rows // 64),)](g, out, delta, rows, D=launch.width, BM=64)
    gq, gk, gv = (_like(q, rows) for rows in (launch.length, launch.keys, launch.keys))
    launch.over_keys(gradient_of_keys, OF_KEYS, g, spread, delta, gk, gv)
    launch.over_queries(gradient_of_queries, OF_QUERIES, g, spread, delta, gq)
    return gq, gk, gv


def _like(q: Tensor, rows: int) -> Tensor:
    """A tensor (N, rows, heads, features) seen as (N, heads, rows, features)."""
    n, heads, _, width = q.shape
    return q.new_empty(n, rows, heads, width).transpose(1, 2)


def _mask_of(p: float, kept: Tensor) -> int:
    """Where the kernels have their masks from, as they number it."""
    from renaissance.nn.fused_masks import DRAWN, NONE, STORED

    mode = (STORED if kept.numel() else DRAWN) if p > 0 else NONE
    return int(mode.value)


def _empty(
    q: Tensor, k: Tensor, bias: Tensor | None, scalars: Tensor | None, layer: int, p: float,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Room for the output, for what is kept of each query, and for a bit of each weight.

    The bits are drawn again in backward, twice, where they would take more than inputs and output
    do together: for more than 64 keys a feature of a head.
    """
    n, heads, length, width = q.shape
    spread = q.new_empty(n, heads, 2, length, dtype=torch.float32)
    keys = k.shape[2]
    bits = (n, heads, length, -(-keys // 8)) if p > 0 and keys <= BITS * width else (0,)
    return _like(q, length), spread, q.new_empty(*bits, dtype=torch.uint8)


def _fake_backward(
    g: Tensor, out: Tensor, spread: Tensor, kept: Tensor, q: Tensor, k: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor]:
    return _like(q, q.shape[2]), _like(q, k.shape[2]), _like(q, k.shape[2])


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, bias, scalars, *ctx.rest = inputs
    ctx.save_for_backward(q, k, v, bias, scalars, *output)


def _backward(ctx: Any, g: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    q, k, v, bias, scalars, out, spread, kept = ctx.saved_tensors
    found = torch.ops.renaissance.attention_backward(
        g, out, spread, kept, q, k, v, bias, scalars, *ctx.rest
    )
    return (*found, *(None,) * 6)


def _nothing_to_save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    pass


def _refuse(ctx: Any, *_: Tensor) -> None:
    raise RuntimeError(
        "rn.nn.Attention: a gradient of its gradient (create_graph=True) is not implemented on "
        "CUDA for 16 bits; train in '32-true', where the weights are computed in full"
    )


for _name, _make, _stand_in in (
    ("attention", _attention, _empty),
    ("attention_backward", _attention_backward, _fake_backward),
):
    for _device in ("CPU", "CUDA"):  # on a CPU under Triton's interpreter alone
        _LIBRARY.impl(_name, _make, _device)
    torch.library.register_fake(f"renaissance::{_name}", _stand_in, lib=_LIBRARY)
torch.library.register_autograd(
    "renaissance::attention", _backward, setup_context=_save, lib=_LIBRARY
)
torch.library.register_autograd(
    "renaissance::attention_backward", _refuse, setup_context=_nothing_to_save, lib=_LIBRARY
)


def is_on_gpu(x: Tensor) -> bool:
    return x.is_cuda and HAS_TRITON


def takes(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> bool:
    """Whether the kernels take these: on CUDA, 16 bits, heads of 16, 32, 64 or 128 features."""
    is_whole = q.numel() > 0 and k.numel() > 0 and q.shape[3] == k.shape[3]
    is_whole = is_whole and k.shape[2:] == v.shape[2:]
    has_gradient = bias is not None and bias.requires_grad
    is_known = q.shape[3] in WIDTHS and all(
        x.dtype in DTYPES and x.dtype == q.dtype for x in (k, v)
    )
    return is_on_gpu(q) and is_whole and is_known and not has_gradient


def attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, *, scalars: Tensor | None, layer: int,
    p: float, is_causal: bool, scale: float | None = None,
) -> Tensor:  # fmt: skip
    """softmax(scale q k^T + bias), dropped with probability p, times v.

    Args:
        q: (N, H, L, D), which `takes` has taken. N and H may be 1 in some, as when broadcast.
        k: (N, H, S, D).
        v: (N, H, S, D).
        bias: Added to the scores, any that expands to (N, H, L, S); or None.
        scalars: Region S of the task; where p is 0, None will do.
        layer: 0 to 2**63 - 1.
        p: At least 0 and below 1.
        is_causal: Whether query i looks at keys 0 to i alone.
        scale: Of the scores, above 0; None is 1 / sqrt(D).

    Returns:
        (N, H, L, D); a query that looks at nothing gives zeros.
    """
    shapes = [x.shape[:-2] for x in (q, k, v)] + ([] if bias is None else [bias.shape[:-2]])
    heads = torch.broadcast_shapes(*shapes)
    q, k, v = (x.expand(*heads, *x.shape[2:]) for x in (q, k, v))
    scale = 1.0 / math.sqrt(q.shape[3]) if scale is None else float(scale)
    found: Tensor = torch.ops.renaissance.attention(
        q, k, v, bias, scalars, layer, p, is_causal, scale
    )[0]
    return found
