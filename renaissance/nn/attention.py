"""Attention whose dropout is keyed: torch's MultiheadAttention with masks from a task's seed."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from renaissance.nn.dropout import Dropout


class MultiheadAttention(nn.MultiheadAttention):
    """torch.nn.MultiheadAttention (Vaswani et al. 2017, arXiv:1706.03762) with keyed dropout.

    ``task.compile()`` puts it in the place of torch's where that drops attention weights, as in
    every ``nn.TransformerEncoderLayer`` of torch's default ``dropout=0.1``. In evaluation, and with
    a probability of 0, it is torch's; in training the weights are computed here in full, (N, heads,
    L, S), since what is dropped must be the same on every device.

    It shares the parameters of the layer that it stands for: the same objects, the same names.
    """

    drop: Dropout

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.drop = Dropout(self.dropout)

    @classmethod
    def of(cls, plain: nn.MultiheadAttention) -> MultiheadAttention:
        """The keyed layer in the place of a plain one."""
        own = cls.__new__(cls)
        own.__dict__.update(plain.__dict__)
        own._modules = {**plain._modules, "drop": Dropout(plain.dropout)}
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
        weights = self.drop(self._weights(rows[0], rows[1], key_padding_mask, attn_mask))
        values = self._heads(self._projected(rows[2], 2))
        mixed = (weights @ values).transpose(1, 2).flatten(2)  # (N, L, E)
        output: Tensor = F.linear(mixed, self.out_proj.weight, self.out_proj.bias)
        if is_single:
            output = output.squeeze(0)
        elif not self.batch_first:
            output = output.transpose(0, 1)
        if not need_weights:
            return output, None
        shown = weights.mean(1) if average_attn_weights else weights
        return output, shown.squeeze(0) if is_single else shown

    def _sample_first(self, x: Tensor, is_single: bool) -> Tensor:
        """(N, length, features)."""
        if is_single:
            return x.unsqueeze(0)
        return x if self.batch_first else x.transpose(0, 1)

    def _projected(self, x: Tensor, part: int) -> Tensor:
        """Queries (part 0), keys (1) or values (2) of the inputs, (N, length, E)."""
        bias = None if self.in_proj_bias is None else self.in_proj_bias.chunk(3)[part]
        if self._qkv_same_embed_dim:
            weight = self.in_proj_weight.chunk(3)[part]
        else:
            weight = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)[part]
        return F.linear(x, weight, bias)

    def _heads(self, x: Tensor) -> Tensor:
        """(N, length, E) as (N, heads, length, E / heads)."""
        heads: Tensor = x.unflatten(2, (self.num_heads, self.head_dim))
        return heads.transpose(1, 2)

    def _weights(
        self, query: Tensor, key: Tensor, padding: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        """Attention weights (N, heads, L, S) before dropout; rows sum to 1."""
        queries = self._heads(self._projected(query, 0)) * math.sqrt(1.0 / self.head_dim)
        scores = queries @ self._heads(self._projected(key, 1)).transpose(-2, -1)
        if mask is not None:  # (L, S), or (N * heads, L, S)
            mask = _additive(mask, scores.dtype)
            scores = scores + (mask if mask.dim() == 2 else mask.view_as(scores))
        if padding is not None:  # (N, S), of a sample by itself (S,)
            scores = scores + _additive(padding, scores.dtype).view(len(scores), 1, 1, -1)
        return scores.softmax(-1).contiguous()


def _additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
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
