"""Run by test_fused_attention.py with TRITON_INTERPRET=1: the kernels of attention on the CPU.

float16 alone: the interpreter's products of bfloat16 are not those of bfloat16 numbers.
"""

import math

import interpreted
import torch

from renaissance import _native
from renaissance.nn import draws, fused_attention
from renaissance.update.scalars import Scalars

P, LAYER = 0.25, 2**62 + 11


def region():
    made = Scalars(torch.zeros(_native.SCALARS_BYTES, dtype=torch.uint8))
    made.write(seed=2**63 + 7, micro=5, row_offset=2**32 - 1)
    return made.bytes


def reference(q, k, v, bias, is_causal, scalars, p=P, scale=None):
    """Attention with its weights in full, in float64."""
    scores = q @ k.transpose(2, 3) * (scale or 1 / math.sqrt(q.shape[3]))
    if bias is not None:
        scores = scores + bias
    if is_causal:
        ahead = torch.ones(scores.shape[2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(ahead, -math.inf)
    is_open = (scores > -math.inf).any(3, keepdim=True)
    weights = torch.where(is_open, scores, 0.0).softmax(3) * is_open
    kept = draws.dropout(torch.ones(scores.shape), scalars, LAYER, p) if p else 1
    return (weights * kept) @ v


def inputs(length, keys, width, is_packed):
    """q, k, v (2, 2, length, width) float16: views of one tensor, or each by itself."""
    if is_packed:
        packed = torch.randn(2, length, 3, 2, width).half()
        return [packed[:, :, part].transpose(1, 2) for part in range(3)]
    return [torch.randn(2, 2, n, width).half() for n in (length, keys, keys)]


def check(length, keys, width, is_causal, bias, is_packed=False, is_shared=False, p=P, scale=None):
    scalars = region()
    given = inputs(length, keys, width, is_packed)
    if is_shared:  # one sample's keys, and one head's values, for all
        given = [given[0], given[1][:1], given[2][:, :1]]
    given = [x.requires_grad_() for x in given]
    exact = [x.detach().double().requires_grad_() for x in given]
    out = fused_attention.attention(
        *given, bias, scalars=scalars if p else None, layer=LAYER, p=p, is_causal=is_causal,
        scale=scale,
    )  # fmt: skip
    expected = reference(*exact, bias, is_causal, scalars, p, scale)
    torch.testing.assert_close(out.double(), expected, rtol=2e-3, atol=2e-3)
    g = torch.randn(out.shape).half()
    found = torch.autograd.grad(out, given, g)
    wanted = torch.autograd.grad(expected, exact, g.double())
    for ours, theirs in zip(found, wanted):
        torch.testing.assert_close(ours.double(), theirs, rtol=5e-3, atol=5e-3)


def main():
    torch.manual_seed(0)
    fused_attention.FORWARD = (fused_attention.Tiles(32, 16),) * 2
    fused_attention.OF_KEYS = fused_attention.OF_QUERIES = (fused_attention.Tiles(16, 32),) * 2
    check(36, 36, 16, False, None, is_packed=True)
    check(33, 33, 16, True, None)  # and rows of weights that begin within a block of Philox
    check(17, 36, 32, True, None)
    padding = torch.zeros(2, 1, 1, 20)
    padding[0, ..., 15:] = -math.inf
    padding[1] = -math.inf  # nothing to look at: zeros, and no gradient
    check(24, 20, 16, False, padding)
    check(18, 20, 16, False, torch.randn(2, 2, 18, 20))
    check(24, 20, 16, True, padding)
    check(9, 12, 16, False, torch.randn(12, 9).t(), is_shared=True)
    hidden = torch.randn(2, 1, 9, 12)
    hidden[0, :, 3], hidden[1, :, 4] = torch.finfo(torch.float32).min, -1e18  # there all are alike
    hidden[1, ..., 7:] = -1e18
    check(9, 12, 16, False, hidden)
    check(36, 36, 16, True, None, p=0, scale=0.05)
    check(18, 21, 16, False, torch.randn(2, 2, 18, 21), p=0, scale=0.7)
    fused_attention.BITS = 1  # masks of more than 16 keys are drawn again in backward
    check(36, 36, 16, True, None)
    check(33, 21, 16, False, None)


interpreted.patch_once_a_launch()
main()
