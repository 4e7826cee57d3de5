"""Kernels of Triton's that were compiled ahead are those that a launch takes."""

import pytest
import torch
import triton
import triton.language as tl

from renaissance.nn.ahead import compiled_ahead
from renaissance.nn.fused_kernels import kernel

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]


@kernel
def scaled(x, y, M, factor, BM: tl.constexpr, TWICE: tl.constexpr):
    """y = factor * x, or twice that."""
    place = tl.program_id(0) * BM + tl.arange(0, BM)
    value = tl.load(x + place, mask=place < M).to(tl.float32) * factor
    if TWICE:
        value *= 2
    tl.store(y + place, value.to(y.dtype.element_ty), mask=place < M)


def launch_all(x, y):
    for twice in (False, True):
        for size in (100, 96, 1):  # M is not baked in
            for a, b in ((x, y), (x[1:], y[1:]), (x.bfloat16(), y)):
                scaled[(triton.cdiv(size, 32),)](a, b, size, 3.0, BM=32, TWICE=twice)


def known():
    return sum(len(caches[0]) for caches in scaled.function.device_caches.values())


def test_a_launch_finds_what_was_compiled_ahead():
    x, y = torch.arange(128.0, device="cuda"), torch.zeros(128, device="cuda")
    with compiled_ahead():
        launch_all(x, y)
    torch.cuda.synchronize()
    assert not y.any(), "nothing was launched"
    assert known() == 6  # twice or not, times aligned, not aligned, and of another type
    launch_all(x, y)
    assert known() == 6, "and nothing more had to be compiled"
    assert torch.equal(y[:100], x[:100] * 6) and not y[101:].any()
    scaled[(1,)](x, y, 5, 3.0, BM=16, TWICE=False)
    assert known() == 7, "another one would be seen here"
