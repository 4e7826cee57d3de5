"""Attention with keyed dropout whose weights are never in memory: its kernels, interpreted."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch

from renaissance.nn import fused_attention

pytest.importorskip("triton")


@pytest.mark.timeout(200)
def test_kernels_against_float64():
    """Masks, output and gradients, for the cases of ``interpreted_attention.py``."""
    script = pathlib.Path(__file__).parent / "interpreted_attention.py"
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    command = [sys.executable, "-W", "ignore", str(script)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=190)
    assert run.returncode == 0, run.stderr[-3000:]


def test_what_is_left_to_the_weights_in_full():
    """A CPU, float32, heads of other widths, masks that are trained."""
    q = torch.zeros(2, 3, 5, 16, dtype=torch.bfloat16)
    assert not fused_attention.takes(q, q, q, None)

    class Pretends(torch.Tensor):
        is_cuda = True

    def takes(dtype=torch.bfloat16, width=16, bias=None, rows=5):
        x = torch.zeros(2, 3, rows, width, dtype=dtype).as_subclass(Pretends)
        return fused_attention.takes(x, x, x, bias)

    assert takes() and takes(torch.float16, 128) and takes(bias=torch.zeros(5, 5))
    assert not takes(torch.float32) and not takes(width=24) and not takes(rows=0)
    assert not takes(bias=torch.zeros(5, 5, requires_grad=True))
