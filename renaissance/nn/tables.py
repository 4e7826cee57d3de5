"""Gradients of embedding tables in a fixed order, for compiled passes that have to repeat.

A row of a table is read once for each token that names it, and its gradient is the sum over those.
torch.compile adds them with atomics, whose order nobody knows; told to be deterministic, it adds up
the tokens of a row one after the other, so that a batch of padding waits for one thread block.
torch's own operation sorts the tokens and sums pieces of a row side by side, in an order that
depends on the tokens alone.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

_LIBRARY = torch.library.Library("renaissance", "FRAGMENT")
_LIBRARY.define(
    "table_gradient(Tensor g, Tensor ids, int rows, int padding, bool by_frequency) -> Tensor",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def _gradient(g: Tensor, ids: Tensor, rows: int, padding: int, by_frequency: bool) -> Tensor:
    found: Tensor = torch.ops.aten.embedding_dense_backward(g, ids, rows, padding, by_frequency)
    return found


def _fake(g: Tensor, ids: Tensor, rows: int, padding: int, by_frequency: bool) -> Tensor:
    return g.new_empty(rows, g.shape[-1])


for _device in ("CPU", "CUDA"):
    _LIBRARY.impl("table_gradient", _gradient, _device)
torch.library.register_fake("renaissance::table_gradient", _fake, lib=_LIBRARY)


def is_transformed() -> bool:
    """Whether one of ``torch.func``'s transforms is at work, which have rules for torch's alone."""
    return bool(torch._C._are_functorch_transforms_active())


class _Lookup(torch.autograd.Function):
    """Rows of a table; a compiler sees `table_gradient` behind it, and nothing inside that."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, table: Tensor, padding: int, by_frequency: bool) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.rest = table.shape[0], padding, by_frequency
        return F.embedding(ids, table)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        (ids,) = ctx.saved_tensors
        return None, torch.ops.renaissance.table_gradient(g, ids, *ctx.rest), None, None


def lookup(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    """`torch.nn.functional.embedding`, with a gradient that compilers leave as it is.

    Args:
        input: Integers of any shape (...).
        weight: (rows, features).
        padding_idx: Row without a gradient; negative ones count from the end.
        max_norm: Left to torch, as `norm_type`, `sparse`, and all inside ``torch.func``'s vmap,
            grad and jvp.
        norm_type: See `max_norm`.
        scale_grad_by_freq: Whether a row's gradient is divided by how often it is read.
        sparse: See `max_norm`.

    Returns:
        (..., features).
    """
    if max_norm is not None or sparse or is_transformed():
        return F.embedding(
            input, weight, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse
        )
    padding = -1 if padding_idx is None else padding_idx
    if padding_idx is not None and padding_idx < 0:
        padding += weight.shape[0]
    found: Tensor = _Lookup.apply(input, weight, padding, scale_grad_by_freq)
    return found
