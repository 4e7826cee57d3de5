"""Attention whose dropout is keyed: what torch's attention drops, from a task's seed."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from renaissance.nn import fused_attention
from renaissance.nn.dropout import Dropout


class Attention(Dropout):
    """Scaled dot-product attention with keyed dropout: softmax(q k^T / sqrt(D) + mask) v.

    Takes the place of ``F.scaled_dot_product_attention(..., dropout_p=p)`` in a forward, which a
    seed cannot repeat (Vaswani et al. 2017, arXiv:1706.03762). One layer for each place that
    attends. On CUDA, with 16 bits and heads of 16, 32, 64 or 128 features, the weights are never
    in memory, a bit for each at most; elsewhere they are computed in full. What is dropped is the
    same.

    Args:
        p: Probability that a weight is dropped in training, at least 0 and below 1.

    Shape:
        query (N, H, L, D), key and value (N, H, S, D), all of one floating-point type, give
        (N, H, L, D). `attn_mask` expands to (N, H, L, S): True, or a number that is added, where a
        query looks. A query that looks at nothing gives zeros.

    Example:
        >>> attend = rn.nn.Attention(0.1)  # in __init__
        >>> y = attend(q, k, v, is_causal=True)  # in forward
    """

    instead = "torch.nn.functional.scaled_dot_product_attention"

    def forward(  # type: ignore[override]
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        if attn_mask is not None and is_causal:
            raise ValueError("Attention: attn_mask and is_causal=True exclude each other")
        if query.dim() != 4 or key.dim() != 4 or value.dim() != 4:
            shapes = ", ".join(str(tuple(x.shape)) for x in (query, key, value))
            raise ValueError(
                "Attention takes query (N, H, L, D), key and value (N, H, S, D), received "
                f"{shapes}; of one head, write query.unsqueeze(1)"
            )
        if not self.training or self.p == 0:
            return F.scaled_dot_product_attention(query, key, value, attn_mask, is_causal=is_causal)
        if attn_mask is not None:
            attn_mask = added(attn_mask, query.dtype)
        return self.attend(query, key, value, attn_mask, is_causal)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, is_causal: bool
    ) -> Tensor:
        """What `forward` does in training; `bias` is added to the scores."""
        if fused_attention.takes(query, key, value, bias):
            return fused_attention.attention(
                query, key, value, bias, scalars=self._bound(), layer=self.layer, p=self.p,
                is_causal=is_causal,
            )  # fmt: skip
        if is_causal:
            shape = (query.shape[2], key.shape[2])
            ahead = torch.ones(shape, dtype=torch.bool, device=query.device).triu(1)
            causal = additive(ahead, query.dtype)
            bias = causal if bias is None else bias + causal
        return self.dropped(weights_of(query, key, bias)) @ value

    def dropped(self, weights: Tensor) -> Tensor:
        """Weights (N, H, L, S) after dropout."""
        return super().forward(weights)

    def plain(self) -> nn.Module:
        return PlainAttention(self.p)

    def _copy(self) -> Dropout:
        return Attention(self.p)


class PlainAttention(nn.Module):
    """`Attention` from torch's generators: what it is outside of a task."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        rate = self.p if self.training else 0.0
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p=rate, is_causal=is_causal
        )

    def extra_repr(self) -> str:
        return f"p={self.p}"


def weights_of(query: Tensor, key: Tensor, bias: Tensor | None) -> Tensor:
    """Weights (N, H, L, S) before dropout; rows sum to 1, or to 0 where nothing is looked at.

    Softmax has no numbers there, and its gradient has none either, whatever is made of them behind
    it: such rows are open before it and closed behind it.
    """
    scores = query * math.sqrt(1.0 / query.shape[3]) @ key.transpose(2, 3)
    if bias is None:
        return scores.softmax(-1).contiguous()
    closed = bias.isneginf().all(-1, keepdim=True)
    scores = scores + bias.masked_fill(closed, 0.0)
    return scores.softmax(-1).masked_fill(closed, 0.0).contiguous()


class MultiheadAttention(nn.MultiheadAttention):
    """torch.nn.MultiheadAttention (Vaswani et al. 2017, arXiv:1706.03762) with keyed dropout.

    ``task.compile()`` puts it in the place of torch's where that drops attention weights, as in
    every ``nn.TransformerEncoderLayer`` of torch's default ``dropout=0.1``. In evaluation, and with
    a probability of 0, it is torch's; in training it is an `Attention` between torch's projections.
    Weights that are asked for (``need_weights=True``) are those after dropout.

    It shares the parameters of the layer that it stands for: the same objects, the same names.
    """

    drop: Attention

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.drop = Attention(self.dropout)

    @classmethod
    def of(cls, plain: nn.MultiheadAttention) -> MultiheadAttention:
        """The keyed layer in the place of a plain one."""
        own = cls.__new__(cls)
        own.__dict__.update(plain.__dict__)
        own._modules = {**plain._modules, "drop": Attention(plain.dropout)}
        own.drop.train(plain.training)
        return own

    def plain(self) -> nn.MultiheadAttention:
        """The layer that draws from torch's generators, with the parameters of this one."""
        plain = nn.MultiheadAttention.__new__(nn.MultiheadAttention)
        plain.__dict__.update(self.__dict__)
        plain._modules = {name: part for name, part in self._modules.items() if name != "drop"}
        return plain

    def forward(  # noqa: PLR0913 - torch's own arguments
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        if not self.training or self.dropout == 0:
            return super().forward(
                query, key, value, key_padding_mask, need_weights, attn_mask,
                average_attn_weights, is_causal,
            )  # fmt: skip
        if is_causal and attn_mask is None:
            raise RuntimeError(
                "MultiheadAttention: is_causal=True says what kind attn_mask is; give attn_mask too"
            )
        is_single = query.dim() == 2  # (L, E), one sample by itself
        rows = [self._sample_first(x, is_single) for x in (query, key, value)]
        q, k, v = self._projected(rows, is_one=query is key and key is value)
        weights, is_said = None, is_causal and not need_weights  # is_causal says what attn_mask is
        bias = self._bias(None if is_said else attn_mask, key_padding_mask, q, k.shape[2])
        if need_weights:
            weights = self.drop.dropped(weights_of(q, k, bias))
            mixed = weights @ v
        else:
            mixed = self.drop.attend(q, k, v, bias, is_causal)
        mixed = mixed.transpose(1, 2).flatten(2)  # (N, L, E)
        output: Tensor = F.linear(mixed, self.out_proj.weight, self.out_proj.bias)
        if is_single:
            output = output.squeeze(0)
        elif not self.batch_first:
            output = output.transpose(0, 1)
        if weights is None:
            return output, None
        shown = weights.mean(1) if average_attn_weights else weights
        return output, shown.squeeze(0) if is_single else shown

    def _sample_first(self, x: Tensor, is_single: bool) -> Tensor:
        """(N, length, features)."""
        if is_single:
            return x.unsqueeze(0)
        return x if self.batch_first else x.transpose(0, 1)

    def _projected(self, rows: list[Tensor], *, is_one: bool) -> list[Tensor]:
        """Queries, keys and values (N, heads, length, E / heads) of the inputs (N, length, E)."""
        if is_one and self._qkv_same_embed_dim:
            parts = F.linear(rows[0], self.in_proj_weight, self.in_proj_bias).chunk(3, -1)
        else:
            biases: Any = (None,) * 3 if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
            weights: Any = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            if self._qkv_same_embed_dim:
                weights = self.in_proj_weight.chunk(3)
            parts = tuple(map(F.linear, rows, weights, biases))
        return [x.unflatten(2, (self.num_heads, self.head_dim)).transpose(1, 2) for x in parts]

    def _bias(
        self, mask: Tensor | None, padding: Tensor | None, q: Tensor, keys: int
    ) -> Tensor | None:
        """Both masks as what is added to scores, expanding to (N, heads, L, S)."""
        found = None
        if mask is not None:  # (L, S), or (N * heads, L, S)
            found = additive(mask, q.dtype)
            found = found if mask.dim() == 2 else found.view(*q.shape[:3], keys)
        if padding is not None:  # (N, S), of a sample by itself (S,)
            padding = additive(padding, q.dtype).view(len(q), 1, 1, keys)
            found = padding if found is None else found + padding
        return found


def added(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """`attn_mask` of torch's function, whose True is "to be looked at", as what is added."""
    return additive(mask.logical_not() if mask.dtype == torch.bool else mask, dtype)


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """A mask as what is added to scores: True, "not to be looked at", is minus infinity."""
    if mask.dtype != torch.bool:
        return mask.to(dtype)
    return torch.zeros_like(mask, dtype=dtype).masked_fill(mask, -math.inf)


def keyed_attention(layer: Any) -> MultiheadAttention | None:
    """The keyed layer in the place of one of torch's that drops; None for any other layer.

    Layers with learned or zero keys beside the inputs are left as they are.
    """
    if type(layer) is not nn.MultiheadAttention or not 0 < layer.dropout < 1:
        return None
    has_more_keys = layer.bias_k is not None or layer.add_zero_attn
    return None if has_more_keys else MultiheadAttention.of(layer)
