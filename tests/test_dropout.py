"""Masks and noise of a layer: the words of Philox they are made of, by the host and CUDA's text."""

import host_kernels
import numpy as np
import pytest
import torch
from torch import nn

from renaissance import _native, kernels
from renaissance.nn import Dropout, draws
from renaissance.random import DROPOUT, derive
from renaissance.update.scalars import Scalars

SEED, MICRO, ROW, LAYER = 2**63 + 5, 3, 2**32 - 2, 2**40 + 9
SHAPES = [
    (3, 8),  # wide on a GPU
    (5, 4, 16),
    (2, 700),  # several runs of quads, the last one whole
    (3, 13),  # a quad that is cut
    (4, 1),
    (0, 8),
]
PICTURES = [(2, 5, 4, 6), (2, 3, 3, 5), (3, 8, 2, 2), (2, 4, 1, 1)]
TYPES = [torch.float32, torch.bfloat16, torch.float16]


def scalars(**fields):
    made = Scalars(torch.zeros(_native.SCALARS_BYTES, dtype=torch.uint8))
    made.write(seed=SEED, micro=MICRO, row_offset=ROW, **fields)
    return made.bytes


def philox(counter, key):
    """Philox4x32-10 (Salmon et al. 2011) of counters (n, 4) as Python integers would have it."""
    c, k = [counter[:, i].astype(object) for i in range(4)], list(key)
    for _ in range(10):
        a, b = c[0] * 0xD2511F53, c[2] * 0xCD9E8D57
        c = [(b >> 32) ^ c[1] ^ k[0], b % 2**32, (a >> 32) ^ c[3] ^ k[1], a % 2**32]
        k = [(k[0] + 0x9E3779B9) % 2**32, (k[1] + 0xBB67AE85) % 2**32]
    return np.stack(c, 1).astype(np.uint64)


def words(shape):
    """A word for every place, in the logical order of the shape, uint64."""
    rows, inner = shape[0], int(np.prod(shape[1:]))
    quads, key = -(-inner // 4), derive(SEED, DROPOUT, LAYER, MICRO)
    samples = [ROW + r for r in range(rows)]
    counters = [(q, 0, s % 2**32, s >> 32) for s in samples for q in range(quads)]
    drawn = philox(np.array(counters, np.uint64).reshape(-1, 4), (key % 2**32, key >> 32))
    return drawn.reshape(rows, 4 * quads)[:, :inner].reshape(shape)


def inputs():
    """(values, memory format): row-major ones, pictures in both orders."""
    for shape in SHAPES + PICTURES:
        for order in (torch.contiguous_format, torch.channels_last)[: 1 + (len(shape) == 4)]:
            x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
            yield x.to(memory_format=order) if len(shape) == 4 else x


@pytest.fixture(params=[True, False], ids=["simd", "plain"])
def host(request):
    """The host's own code, with AVX2 and without."""
    _native.use_simd(request.param)
    _native.allow_avx2(request.param)
    yield
    _native.use_simd(True)
    _native.allow_avx2(True)


@pytest.mark.parametrize("dtype", TYPES)
def test_masks_are_the_words_below_the_threshold(host, dtype):
    for x in inputs():
        x = x.to(dtype)
        x[:1, :1] = torch.nan  # dropped as well
        found = draws.dropout(x, scalars(), LAYER, 0.3)
        kept = torch.from_numpy(words(x.shape) >= round(0.3 * 2**32))
        expected = torch.where(kept, (x.float() * np.float32(1 / 0.7)).to(dtype), 0)
        assert torch.equal(found.nan_to_num(7), expected.nan_to_num(7)), (x.shape, x.stride())
        assert found.stride() == x.stride() and found.dtype == dtype


def test_noise_is_box_and_mullers(host):
    for x in inputs():
        rows, inner = len(x), int(np.prod(x.shape[1:]))
        w = words((rows, -(-inner // 4) * 4)).astype(np.float64).reshape(-1, 2)
        radius = np.sqrt(-2 * np.log(((w[:, 0] // 256).astype(int) | 1) / 2**24))
        turn = 2 * np.pi * (w[:, 1] // 256) / 2**24
        pairs = np.stack([radius * np.cos(turn), radius * np.sin(turn)], 1)
        expected = pairs.reshape(rows, -(-inner // 4) * 4)[:, :inner].reshape(x.shape)
        found = draws.noise(x, scalars(), LAYER)
        np.testing.assert_allclose(found.numpy(), expected, rtol=2e-6, atol=2e-6)
        half = draws.noise(x.to(torch.bfloat16), scalars(), LAYER)
        assert torch.equal(half, found.to(torch.bfloat16)) and half.stride() == x.stride()


@pytest.mark.parametrize("threads", [1, 2])
def test_neither_threads_nor_the_cut_of_a_batch_matter(threads):
    x = torch.ones(40, 1000)
    usual = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        whole = draws.dropout(x, scalars(), LAYER, 0.5)
    finally:
        torch.set_num_threads(usual)
    moved = Scalars(scalars())
    moved.write(row_offset=ROW + 25)
    parts = [draws.dropout(x[:25], scalars(), LAYER, 0.5)]
    parts.append(draws.dropout(x[25:], moved.bytes, LAYER, 0.5))
    assert torch.equal(whole, torch.cat(parts))


@pytest.mark.skipif(host_kernels.COMPILER is None, reason="there is no g++")
@pytest.mark.timeout(120)
def test_cudas_text_gives_the_bits_of_the_host(tmp_path_factory):
    """Sixteen bytes at a time, quad by quad, and at places that are not aligned."""
    cuda = host_kernels.HostKernels("dropout.cu", tmp_path_factory.mktemp("dropout"))
    s = scalars()
    shift = [(dtype, at) for dtype in TYPES for at in (0, 1)]
    for x in inputs():
        for dtype, at in shift if x[:1].numel() in (8, 13, 120) else shift[::2]:
            kind, size = np.int32(draws.DTYPES[dtype]), list(map(np.int64, draws._sizes(x)))
            held = torch.zeros(2, x.numel() + 8, dtype=dtype)
            given, taken = (t[at : at + x.numel()].as_strided(x.shape, x.stride()) for t in held)
            given.copy_(x)
            numbers = (s.data_ptr(), np.uint64(LAYER))
            drop = (np.uint32(round(0.3 * 2**32)), np.float32(1 / 0.7))
            cuda.launch(
                "dropout", 1, 32, given.data_ptr(), taken.data_ptr(), *size, kind, *numbers, *drop
            )
            assert torch.equal(taken, draws.dropout(given, s, LAYER, 0.3)), (x.shape, dtype, at)
            cuda.launch("noise", 1, 32, taken.data_ptr(), *size, kind, *numbers)
            assert torch.equal(taken, draws.noise(given, s, LAYER)), (x.shape, dtype, at)
            assert not held[1, at + x.numel() :].any(), "written behind the end"


def test_backward_has_the_mask_of_forward_and_noise_has_none():
    drop = nn.Sequential(Dropout(0.4))
    drop[0].bind(scalars(), LAYER)
    x = torch.randn(6, 20, requires_grad=True)
    y = drop(x)
    (grad,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(grad == 0, y == 0) and 20 < int((y == 0).sum()) < 80
    assert not draws.noise(x, scalars(), LAYER).requires_grad


def test_float64_and_a_number_alone_have_the_masks_of_float32():
    x = torch.arange(1.0, 97.0, dtype=torch.float64).view(8, 12) * 1e300
    kept = draws.dropout(torch.ones(8, 12), scalars(), LAYER, 0.3) > 0
    assert 0 < int(kept.sum()) < 96
    found = draws.dropout(x.requires_grad_(), scalars(), LAYER, 0.3)
    torch.testing.assert_close(found, torch.where(kept, x / 0.7, 0.0), rtol=1e-15, atol=0)
    (gradient,) = torch.autograd.grad(found.sum(), x)
    torch.testing.assert_close(gradient, kept.double() / 0.7, rtol=1e-15, atol=0)
    first = draws.dropout(torch.ones(1), scalars(), 5, 0.3)
    assert float(draws.dropout(torch.tensor(1.0), scalars(), 5, 0.3)) == float(first) > 0
    assert float(draws.noise(torch.tensor(0.0), scalars(), 2)) == float(
        draws.noise(torch.zeros(1), scalars(), 2)
    )


def test_the_kernels_compile():
    pytest.importorskip("cuda.core")
    assert kernels.homes()["dropout"] == kernels.homes()["noise"] == "dropout.cu"
    assert len(kernels.compile_text("dropout.cu", "sm_90")) > 1000


def test_a_rate_next_to_one_and_what_is_no_number():
    """As a fraction of 2**32 it rounds up to all of them, which 32 bits do not hold."""
    x = torch.ones(64, 64)
    assert not draws.dropout(x, scalars(), LAYER, 1 - 2**-40).any()
    assert draws.threshold_of(1 - 2**-40) == 2**32 - 1 and draws.threshold_of(0.5) == 2**31
    for dtype in (torch.int64, torch.complex64, torch.bool):
        with pytest.raises(TypeError, match=r"floating-point numbers, received .*x.float\(\)"):
            draws.dropout(x.to(dtype), scalars(), LAYER, 0.5)
