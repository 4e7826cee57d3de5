"""float32 to and from 16 bits: every 16-bit number, and every float32 near a rounding, as torch."""

import numpy as np
import pytest
import torch
from rig import Rig
from torch import nn

from renaissance import _native
from renaissance.optim import SGD

KINDS = pytest.mark.parametrize("kind, dtype", [(1, torch.bfloat16), (2, torch.float16)])


def rounded(x, kind, dtype, wide=True):
    out = torch.empty(x.shape, dtype=dtype)
    was = _native.allow_avx2(wide)
    _native.round_range(x.data_ptr(), out.data_ptr(), kind, x.numel(), 1)
    _native.allow_avx2(was)
    return out


def assert_equal(found, expected):
    is_nan = torch.isnan(expected)
    assert torch.equal(torch.isnan(found), is_nan)
    assert torch.equal(found[~is_nan].view(torch.int16), expected[~is_nan].view(torch.int16))


@KINDS
@pytest.mark.parametrize("wide", [True, False])
def test_rounding_agrees_with_torch(kind, dtype, wide):
    # Every upper half of a float32 with the lower halves on, around and far from a tie.
    upper = torch.arange(1 << 16, dtype=torch.int64) << 16
    lower = [0, 1, 0x0FFF, 0x1000, 0x1001, 0x2FFF, 0x3000, 0x7FFF, 0x8000, 0x8001, 0xF000, 0xFFFF]
    bits = (upper[:, None] | torch.tensor(lower)[None]).reshape(-1)
    x = torch.from_numpy(bits.numpy().astype(np.uint32).view(np.float32))
    assert_equal(rounded(x, kind, dtype, wide), x.to(dtype))


@KINDS
def test_random_bit_patterns(kind, dtype):
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 21, dtype=np.uint32)
    x = torch.from_numpy(bits.view(np.float32))
    assert_equal(rounded(x, kind, dtype), x.to(dtype))


@KINDS
def test_widening_every_number(kind, dtype):
    x = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(dtype)
    rig = Rig(SGD(), lambda: nn.Linear(1 << 16, 1, bias=False))
    rig.updater.gather([x.view(1, -1)])
    found, expected = rig.memory.region("G"), x.float()
    is_nan = torch.isnan(expected)
    assert torch.equal(torch.isnan(found), is_nan)
    assert torch.equal(found[~is_nan].view(torch.int32), expected[~is_nan].view(torch.int32))
