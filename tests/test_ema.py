"""Averages and clipping as descriptions; their arithmetic is tested with the updates."""

import pytest

import renaissance as rn


def test_ema():
    assert rn.Ema(0.999).warmup() == rn.Ema(0.999, warmup=True) != rn.Ema(0.999)
    assert rn.Ema(0).settings.decay == 0.0


@pytest.mark.parametrize("decay", [-0.1, 1.0, float("nan")])
def test_decay_out_of_range(decay):
    with pytest.raises(ValueError, match="Ema: decay = "):
        rn.Ema(decay)


def test_clip_takes_exactly_one_limit():
    assert rn.Clip(norm=1).ready() == rn.Clip().norm(1.0)
    assert rn.Clip(value=0.5).ready().settings.value == 0.5
    with pytest.raises(ValueError, match="norm=1.0 and value=0.5 are both given"):
        rn.Clip(norm=1.0, value=0.5)
    with pytest.raises(ValueError, match="neither norm nor value"):
        rn.Clip().ready()


@pytest.mark.parametrize("limit", [0.0, -1.0, float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["norm", "value"])
def test_limits_out_of_range(name, limit):
    with pytest.raises(ValueError, match=f"Clip: {name} = "):
        rn.Clip(**{name: limit})
