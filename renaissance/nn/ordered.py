"""A backend of torch.compile for passes that have to repeat: what is slow there in other ways.

Two of torch's functions are deterministic when they are told to, and slow: the gradient of a table
(`renaissance.nn.tables`), and attention (`renaissance.nn.fused_attention`). A graph that is to be
compiled gets ours in their place, wherever a network calls them.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, fx

from renaissance.nn import fused_attention as attending
from renaissance.nn import tables
from renaissance.nn.attention import added


def attention(  # noqa: PLR0913 - torch's own arguments
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
    dropout_p: float = 0.0, is_causal: bool = False, scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:  # fmt: skip
    """`torch.nn.functional.scaled_dot_product_attention`, by our kernels where it is trained.

    Args:
        query: (N, H, L, D), as the others of one floating-point type; see `takes` of
            `renaissance.nn.fused_attention` for what the kernels take. All else is torch's, and
            what is inside of ``torch.func``'s vmap, grad and jvp.
        key: (N, H, S, D).
        value: (N, H, S, D).
        attn_mask: Expands to (N, H, L, S): True, or a number that is added, where a query looks.
        dropout_p: Left to torch unless it is 0.
        is_causal: Whether query i looks at keys 0 to i alone.
        scale: Of the scores; None is 1 / sqrt(D). Left to torch unless it is above 0.
        enable_gqa: Whether there may be fewer heads of keys; if so, left to torch.

    Returns:
        (N, H, L, D).
    """
    parts, mask = (query, key, value), attn_mask
    is_usual = dropout_p == 0 and (scale is None or scale > 0) and not enable_gqa
    is_usual = is_usual and all(x.dim() == 4 and x.shape[:2] == query.shape[:2] for x in parts)
    is_usual = is_usual and not (is_causal and mask is not None)
    if is_usual and query.requires_grad and not tables.is_transformed():
        q, k, v = map(_as_autocast, parts)
        if attending.takes(q, k, v, mask):
            mask = None if mask is None else added(mask, q.dtype)
            return attending.attention(
                q, k, v, mask, scalars=None, layer=0, p=0.0, is_causal=is_causal, scale=scale
            )
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _as_autocast(x: Tensor) -> Tensor:
    """What autocast makes of an argument of torch's attention."""
    kind = x.device.type
    is_cast = torch.is_autocast_enabled(kind) and x.dtype == torch.float32
    return x.to(torch.get_autocast_dtype(kind)) if is_cast else x


def _with_ours(function: Any) -> Any:
    """One of torch's own functions, which a graph holds in one piece, that finds our attention."""
    names = {**vars(F), "scaled_dot_product_attention": attention}
    names["has_torch_function"] = lambda _: False  # else a tracer would begin with torch's again
    copy = types.FunctionType(
        function.__code__, names, function.__name__, function.__defaults__, function.__closure__
    )
    copy.__kwdefaults__, copy.__module__ = function.__kwdefaults__, __name__
    return copy


multi_head_attention_forward = _with_ours(F.multi_head_attention_forward)

#: torch's function -> ours, which takes the same arguments.
EXCHANGED: dict[Callable[..., Any], Callable[..., Any]] = {
    F.embedding: tables.lookup,
    F.scaled_dot_product_attention: attention,
    F.multi_head_attention_forward: multi_head_attention_forward,
}


def in_order(graph: fx.GraphModule) -> fx.GraphModule:
    """The graph, with what is exchanged in the place of torch's; parts that are checkpointed too.

    Those, of `torch.utils.checkpoint`, are graphs by themselves that a call takes.
    """
    for node in graph.graph.nodes:
        if node.op == "call_function":
            node.target = EXCHANGED.get(node.target, node.target)
        if node.target is torch.ops.higher_order.tag_activation_checkpoint:
            in_order(cast("fx.GraphModule", graph.get_submodule(node.args[0].target)))
    graph.recompile()
    return graph


@functools.cache
def cache_keys() -> dict[str, str]:
    """Names of ours, and what they are: torch.compile's cache of graphs on disk goes by it.

    It would not keep a graph with functions that it does not know.
    """
    traced = (sys.modules[__name__], tables, attending, sys.modules[added.__module__])
    key = hashlib.sha256("".join(map(inspect.getsource, traced)).encode()).hexdigest()
    return {f"{own.__module__}.{own.__name__}": key for own in EXCHANGED.values()}


def ordered_inductor(
    graph: fx.GraphModule, inputs: Sequence[Any], *, options: dict[str, Any] | None = None
) -> Any:
    """The inductor, behind `in_order`: ``torch.compile(f, backend=ordered_inductor)``."""
    from torch._inductor import config  # seconds to import
    from torch._inductor.compile_fx import compile_fx

    known = {**config.unsafe_marked_cacheable_functions, **cache_keys()}
    patches = {**(options or {}), "unsafe_marked_cacheable_functions": known}
    return compile_fx(in_order(graph), list(inputs), config_patches=patches)
