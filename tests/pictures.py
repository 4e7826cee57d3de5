"""Helpers for tests of transforms: pictures, and a program run over them."""

import numpy as np
import torch

from renaissance import _native
from renaissance.data.program import compile_program
from renaissance.random import AUGMENT, derive

DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
LAYOUTS = {"nchw": 0, "nhwc": 1}


def pictures(count, height, width, channels, seed=0):
    """(N, H, W, C) uint8: smooth shapes with noise, the extremes 0 and 255 included."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    phase = rng.uniform(0, 6.3, (count, 1, 1, channels))
    wave = 120 * np.sin(0.4 * x[..., None] + phase) * np.cos(0.3 * y[..., None] - phase)
    found = np.clip(128 + wave + rng.normal(0, 30, (count, height, width, channels)), 0, 255)
    found = found.astype(np.uint8)
    found[:, 0, 0], found[:, -1, -1] = 0, 255
    return found


def run(program, x, ids=None, *, seed=1, epoch=0, **output):
    """The program's output for pictures x[ids] of (N, H, W, C), as a tensor (N, C, H, W).

    `output`: dtype (torch.float32), layout ("nchw") channels (0: the program's) and
    by_element (False; True: computed as on a GPU).
    """
    dtype, layout = output.get("dtype", torch.float32), output.get("layout", "nchw")
    channels = output.get("channels", 0)
    ids = np.arange(len(x)) if ids is None else np.asarray(ids)
    ids = np.ascontiguousarray(ids, np.int64)
    c, h, w = program.shape
    c = max(c, channels)
    shape = (len(ids), c, h, w) if layout == "nchw" else (len(ids), h, w, c)
    out = torch.full(shape, 77.0, dtype=dtype)
    program.native.run(
        x.ctypes.data,
        list(x.shape[1:]),
        list(x.strides),
        ids.ctypes.data,
        len(ids),
        derive(seed, AUGMENT),
        epoch,
        out.data_ptr(),
        DTYPES[dtype],
        LAYOUTS[layout],
        channels,
        None if output.get("by_element") else _native.Scratch(),
    )
    return out if layout == "nchw" else out.permute(0, 3, 1, 2)


def compiled(transforms, x):
    """The program of a chain for pictures like x."""
    return compile_program(transforms, height=x.shape[1], width=x.shape[2], channels=x.shape[3])


def levels(transforms, x, ids=None, **options):
    """The chain's result in levels 0-255, (N, C, H, W) float64."""
    return run(compiled(transforms, x), x, ids, **options).double() * 255.0


def planes(x):
    """(N, H, W, C) uint8 as torchvision wants it: (N, C, H, W) float32, levels."""
    return torch.from_numpy(x).permute(0, 3, 1, 2).float()


def bits(x):
    """A tensor as integers, so that equality is equality of bits."""
    return x.contiguous().view(torch.int32 if x.dtype == torch.float32 else torch.int16)
