"""Mixup and CutMix: pixels, targets, keys and distributions."""

import numpy as np
import pytest
import scipy.stats
import torch

import renaissance as rn
from renaissance import _native
from renaissance.data.mix import mix_batch
from renaissance.data.program import compile_program


def batch(count=6, channels=3, dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(count, channels, 9, 11, generator=generator).to(dtype)
    return x, torch.arange(count) % 4, list(range(100, 100 + count))


def mixed(mixes, x, y, ids, seed=3, epoch=0):
    out = x.clone(memory_format=torch.preserve_format)
    return out, mix_batch(mixes, out, y, ids, num_classes=4, seed=seed, epoch=epoch)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_mixup_blends_pixels_and_targets_alike(dtype):
    x, y, ids = batch(dtype=dtype)
    out, targets = mixed([rn.Mixup(0.4)], x, y, ids)
    for k in range(0, 6, 2):
        weight = targets[k, y[k]]
        assert targets[k + 1, y[k + 1]] == weight
        a, b = x[k].float(), x[k + 1].float()
        assert torch.equal(out[k], (weight * a + (1 - weight) * b).to(dtype))
        assert torch.equal(out[k + 1], (weight * b + (1 - weight) * a).to(dtype))
    assert torch.equal(targets.sum(1), torch.ones(6))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_cutmix_exchanges_a_box(layout):
    x, y, ids = batch()
    x = x.contiguous(memory_format=layout)
    out, targets = mixed([rn.CutMix()], x, y, ids)
    for k in range(0, 6, 2):
        foreign = (out[k] != x[k]).any(0)  # (H, W)
        assert torch.equal(out[k][:, foreign], x[k + 1][:, foreign])
        assert torch.equal(out[k + 1][:, foreign], x[k][:, foreign])
        assert torch.equal(out[k + 1][:, ~foreign], x[k + 1][:, ~foreign])
        rows, columns = foreign.any(1).sum(), foreign.any(0).sum()
        assert foreign.sum() == rows * columns
        expected = 1 - foreign.sum().item() / 99
        assert targets[k, y[k]].item() == pytest.approx(expected, abs=1e-6)


def test_the_last_of_an_odd_batch_stays():
    x, y, ids = batch(5)
    out, targets = mixed([rn.Mixup()], x, y, ids)
    assert torch.equal(out[4], x[4]) and targets[4].tolist() == [1, 0, 0, 0]


def test_draws_belong_to_the_pair():
    draw = lambda seed, epoch, a, b: _native.draw_mix(1.0, 1.0, 1.0, seed, epoch, a, b, 32, 32)  # noqa: E731
    assert draw(1, 0, 5, 6) == draw(1, 0, 5, 6)
    others = [draw(2, 0, 5, 6), draw(1, 1, 5, 6), draw(1, 0, 6, 5), draw(1, 0, 5, 7),
              draw(1 + 2**32, 0, 5, 6)]  # fmt: skip
    assert len({draw(1, 0, 5, 6), *others}) == 6


@pytest.mark.parametrize("alpha", [0.2, 1.0, 4.0])
def test_weights_are_beta(alpha):
    weights = np.array(
        [_native.draw_mix(alpha, 0.0, 1.0, 9, 0, 2 * k, 2 * k + 1, 8, 8)[0] for k in range(40000)]
    )
    # The lower half alone: float32 resolves numbers near 0, but near 1 only to 6e-8, where
    # Beta(0.2, 0.2) has nearly 2 % of its mass.
    lower = weights[weights < 0.5]
    assert len(lower) / len(weights) == pytest.approx(0.5, abs=4 * 0.5 / 200)
    cdf = scipy.stats.beta(alpha, alpha).cdf
    assert scipy.stats.kstest(lower, lambda w: 2 * cdf(w)).pvalue > 0.01


@pytest.mark.parametrize("alpha", [0.5, 1.0])
def test_areas_are_those_of_the_paper(alpha):
    """A centre anywhere, sides by the root of 1 - w, what leaves the picture cut off."""
    height, width, count = 48, 64, 40000
    draws = [
        _native.draw_mix(0.0, alpha, 1.0, 9, 0, 2 * k, 2 * k + 1, height, width)
        for k in range(count)
    ]
    found = np.array([box_height * box_width for _, _, _, box_height, box_width in draws])
    weights = np.array([weight for weight, *_ in draws])
    assert np.allclose(weights, 1 - found / (height * width), atol=1e-6)
    rng = np.random.default_rng(0)
    reach = 0.5 * np.sqrt(1 - rng.beta(alpha, alpha, count))
    area = 1
    for size in (height, width):
        centre, half = rng.integers(0, size, count), (reach * size).astype(int)
        area = area * (np.minimum(centre + half, size) - np.maximum(centre - half, 0))
    assert scipy.stats.ks_2samp(found, area).pvalue > 0.01


def test_p_and_the_choice_of_both():
    draws = [_native.draw_mix(1.0, 1.0, 0.6, 9, 0, k, k + 1, 64, 64) for k in range(20000)]
    unmixed = np.mean([d[0] == 1.0 for d in draws])
    boxes = np.mean([d[3] > 0 for d in draws])
    assert unmixed == pytest.approx(0.4, abs=0.02)  # CutMix boxes of no area included
    assert boxes == pytest.approx(0.3, abs=0.02)


def test_what_is_refused():
    x, y, ids = batch()
    with pytest.raises(ValueError, match="takes a Mixup, a CutMix or both"):
        mixed([rn.Mixup(), rn.Mixup(0.2)], x, y, ids)
    with pytest.raises(ValueError, match="different p"):
        mixed([rn.Mixup(), rn.CutMix(p=0.5)], x, y, ids)
    with pytest.raises(ValueError, match="alpha"):
        rn.Mixup(0.0)
    with pytest.raises(ValueError, match="mixes finished batches"):
        compile_program([rn.Mixup()], channels=1, height=8, width=8)
