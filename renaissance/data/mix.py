"""Mixup and CutMix: two samples of a batch mixed with each other, keyed by the pair.

``Loader(..., mix=[Mixup(0.2), CutMix()])`` mixes in the workers; `mix_batch` does the same to a
batch that is there. Samples 2k and 2k+1 of a batch form a pair; both are mixed with one weight,
both ways, and targets become probabilities. What a pair draws is a function of (seed, epoch, the
two ids): workers, prefetch and resuming change nothing. The last sample of an odd batch stays as it
is. (torchvision mixes a whole batch with one weight and its rolled self; a weight for each pair
varies more.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, NamedTuple

import torch

from renaissance import _native
from renaissance.data.ring import DTYPES
from renaissance.data.supply import LabelSpec
from renaissance.random import MIX, check_seed, derive
from renaissance.settings import Setting, Value, setting, value


class Mix(Value):
    """What mixes the samples of a finished batch."""

    alpha: Setting[float] = setting(
        default=1.0, kw_only=False, gt=0, le=100, doc="Of the weight's Beta(alpha, alpha)."
    )
    p: Setting[float] = setting(
        default=1.0, kw_only=False, ge=0, le=1, doc="Probability that a pair is mixed."
    )


@value
class Mixup(Mix):
    """x = w * x + (1 - w) * partner, and the targets likewise; w is Beta(alpha, alpha).

    References: Zhang et al., "mixup: Beyond Empirical Risk Minimization", 2017, arXiv 1710.09412.

    Args:
        alpha: Of the beta distribution, above 0 to 100; 0.2 is usual on ImageNet.
        p: Probability that a pair is mixed.
    """


@value
class CutMix(Mix):
    """A box of the partner in place of the own pixels; targets by the area that is left.

    The box has the area fraction 1 - w with w of Beta(alpha, alpha), a uniform centre, and is cut
    at the borders.

    References: Yun et al., "CutMix: Regularization Strategy to Train Strong Classifiers with
    Localizable Features", 2019, arXiv 1905.04899.

    Args:
        alpha: Of the beta distribution, above 0 to 100.
        p: Probability that a pair is mixed.
    """

    type_name: ClassVar[str] = "cutmix"


class MixPlan(NamedTuple):
    """What a loader does with the pairs of its batches: plain values.

    ``mixup`` and ``cutmix`` are alphas, 0 for what is not done.
    """

    mixup: float
    cutmix: float
    p: float
    num_classes: int

    @property
    def label(self) -> LabelSpec:
        """What y of one sample is: probabilities (num_classes,) float32."""
        return LabelSpec((self.num_classes,), torch.float32, self.num_classes)

    def native(self, seed: int) -> tuple[float, float, float, int, int]:
        """For the C++ feed: (mixup, cutmix, p, key, classes)."""
        return self.mixup, self.cutmix, self.p, derive(seed, MIX), self.num_classes


def plan_mix(mixes: Sequence[Mix], label: LabelSpec | None, name: str) -> MixPlan:
    """How to mix pictures with these labels.

    Args:
        mixes: As in `mix_batch`.
        label: What the loader knows of its labels.
        name: What an error calls the data set.

    Raises:
        ValueError: Labels are no class numbers, some are of no class (its ignore_index), or their
            number of classes is not known.
    """
    if label is None or label.shape or label.dtype != torch.int64:
        came = "no labels" if label is None else f"{label.dtype} labels of shape {label.shape}"
        raise ValueError(
            f"mix makes probabilities of class numbers, but {name} has {came}; give it one whole "
            "number for each sample"
        )
    if label.num_classes is None:
        raise ValueError(
            f"mix needs the number of classes, which {name} does not tell; give it an attribute "
            "num_classes"
        )
    uncounted = 0 if label.values is None else int((label.values == label.ignored).sum())
    if uncounted and label.values is not None:
        raise ValueError(
            f"{uncounted} of the {len(label.values)} labels of {name} are {label.ignored}, which "
            "is the number for samples that do not count (ignore_index). Mixup and CutMix blend "
            "the classes of two samples, and such a sample has none to give; train on the others: "
            f"rn.Subset(dataset, np.flatnonzero(labels != {label.ignored}))"
        )
    return MixPlan(*_settings(mixes), label.num_classes)


def as_mixes(given: Any) -> tuple[Mix, ...]:
    """One value or several, as a tuple.

    Raises:
        TypeError: Something that is no Mixup and no CutMix.
        ValueError: Two of a kind, or different p.
    """
    mixes = tuple(given) if isinstance(given, (list, tuple)) else (given,)
    for mix in mixes:
        if not isinstance(mix, Mix):
            hint = f"; write {mix.__name__}()" if mix in (Mixup, CutMix) else ""
            raise TypeError(
                f"mix = {mix!r} ({type(mix).__name__}) is not allowed; it takes a Mixup, a CutMix "
                f"or both, such as mix=[rn.Mixup(0.2), rn.CutMix()]{hint}"
            )
    if mixes:
        _settings(mixes)
    return mixes


def mix_batch(
    mixes: Iterable[Mix],
    x: torch.Tensor,
    y: torch.Tensor,
    ids: Sequence[int],
    *,
    num_classes: int,
    seed: int,
    epoch: int,
) -> torch.Tensor:
    """Mix a batch in place, on the host; returns its targets as probabilities.

    Args:
        mixes: One Mixup or CutMix, or one of each with the same p: each pair then takes either with
            equal chance.
        x: (B, C, H, W) float32, bfloat16 or float16 on the CPU, contiguous or channels-last.
        y: (B,) int64 class labels.
        ids: Data-set indices of the samples, B of them.
        num_classes: Width of the targets.
        seed: Of the run.
        epoch: Epoch.

    Returns:
        (B, num_classes) float32, rows of sum 1.
    """
    mixup, cutmix, p = _settings(mixes)
    channels, height, width = x.shape[1:]
    layout = 0 if x.is_contiguous() else 1
    if x.device.type != "cpu" or x.dtype not in DTYPES:
        raise ValueError(f"x is {x.dtype} on {x.device}; mixing takes floats on the CPU")
    if layout and not x.is_contiguous(memory_format=torch.channels_last):
        raise ValueError(f"x has strides {x.stride()}; it has to be contiguous or channels-last")
    targets = torch.nn.functional.one_hot(y, num_classes).float()  # (B, num_classes)
    key = derive(check_seed(seed), MIX)
    sample_bytes = x.stride(0) * x.element_size()
    for k in range(0, len(x) - 1, 2):
        drawn = _native.draw_mix(
            mixup, cutmix, p, key, epoch, int(ids[k]), int(ids[k + 1]), height, width
        )
        first = x.data_ptr() + k * sample_bytes
        _native.mix_pair(
            *drawn, DTYPES[x.dtype], layout, channels, height, width, first, first + sample_bytes
        )
        own = targets[k : k + 2].clone()
        targets[k : k + 2] = drawn[0] * own + (1.0 - drawn[0]) * own.flip(0)
    return targets


def _settings(mixes: Iterable[Mix]) -> tuple[float, float, float]:
    """(alpha of Mixup or 0, alpha of CutMix or 0, p) of one or two mixes."""
    given = list(mixes)
    kinds = [type(mix) for mix in given]
    if not given or len(set(kinds)) != len(given) or not set(kinds) <= {Mixup, CutMix}:
        raise ValueError(f"mix = {given!r} is not allowed; it takes a Mixup, a CutMix or both")
    chances = {mix.settings.p for mix in given}
    if len(chances) > 1:
        raise ValueError(f"{given!r} have different p; both take the same")
    alphas = {type(mix): mix.settings.alpha for mix in given}
    return alphas.get(Mixup, 0.0), alphas.get(CutMix, 0.0), chances.pop()
