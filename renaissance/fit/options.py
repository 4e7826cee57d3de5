"""The arguments of `Task.fit`, checked, and the position and horizon they are measured against."""

from __future__ import annotations

import dataclasses
import logging
import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from renaissance.data.loader import Loader
from renaissance.fit.evaluation import check_whole
from renaissance.schedules.schedule import ConstantLR, Schedule
from renaissance.settings import unknown_name

if TYPE_CHECKING:
    from renaissance.assembly.recipe import Recipe

logger = logging.getLogger("renaissance")


@dataclasses.dataclass
class Position:
    """Where training stands.

    Attributes:
        epoch: Epochs that are closed, which is the index of the one that runs or comes next.
        step: Steps taken in that epoch (all of them, while validation has not been written).
        attempted: Steps taken in all, skipped ones included.
    """

    epoch: int = 0
    step: int = 0
    attempted: int = 0

    def __str__(self) -> str:
        """'step 1,306, in the middle of epoch 3', or 'step 938, after epoch 2'."""
        place = (
            f"in the middle of epoch {self.epoch + 1}" if self.step else f"after epoch {self.epoch}"
        )
        return f"step {self.attempted:,}, {place}"

    def regroup(self, before: int, recipe: Recipe) -> None:
        """The same place in the epoch's data, in steps of the recipe's number of batches.

        Args:
            before: Loader batches of a step until now.
            recipe: What is trained with from now on.
        """
        if self.step == 0 or recipe.accumulate == before:
            return
        batches, is_over = self.step * before, False
        if recipe.train is not None:
            is_over = batches >= recipe.train.steps_per_epoch
        self.step, rest = divmod(batches, recipe.accumulate)
        if rest and is_over:
            self.step += 1
        elif rest:
            logger.warning(
                "accumulate = %d, after %d batches of epoch %d: %d of them come once more",
                *(recipe.accumulate, batches, self.epoch + 1, rest),
            )


@dataclasses.dataclass(frozen=True)
class Fitted:
    """The data of the last fit, which counts while the task is told no other.

    Attributes:
        train, valid: What it took.
        told_train, told_valid: What the recipe had then, which it may have replaced.
    """

    train: Loader | None = None
    valid: Loader | None = None
    told_train: Loader | None = None
    told_valid: Loader | None = None

    def over(
        self, train: Loader | None, valid: Loader | None
    ) -> tuple[Loader | None, Loader | None]:
        """(train, valid) of the last fit, or these, which the recipe has, where they count."""
        has_train = self.train is not None and self.told_train is train
        has_valid = self.valid is not None and self.told_valid is valid
        return self.train if has_train else train, self.valid if has_valid else valid


@dataclasses.dataclass(frozen=True)
class Horizon:
    """What a schedule is drawn over: total updates, and updates of an epoch."""

    total_steps: int
    steps_per_epoch: int


@dataclasses.dataclass(frozen=True)
class FitOptions:
    """The arguments of one call of fit, checked.

    Attributes:
        epochs: The final epoch; None where only steps are limited.
        max_steps: The final step, counted from the first of the run; None: no limit.
        accumulate: Loader batches of an update.
        steps_per_epoch, micro_batches: Updates of an epoch, and the loader batches they take.
    """

    epochs: int | None
    max_steps: int | None
    accumulate: int
    steps_per_epoch: int
    micro_batches: int
    validation: Loader | None
    validation_freq: int
    validation_unit: str
    log_every: int
    checkpoint_steps: int | None
    checkpoint_seconds: float | None
    checkpoint_epochs: bool

    @property
    def has_checkpoints(self) -> bool:
        """Whether any are asked for."""
        return bool(self.checkpoint_epochs or self.checkpoint_steps or self.checkpoint_seconds)

    def last_step(self, position: Position) -> int:
        """Attempted steps at which this fit ends, from where training stands.

        Epochs decide, whatever steps led here: shorter epochs, batches of another size, or
        `train_on_batch`.
        """
        ends = [] if self.max_steps is None else [self.max_steps]
        if self.epochs is not None:
            left = (self.epochs - position.epoch) * self.steps_per_epoch - position.step
            ends.append(position.attempted + max(0, left))
        return min(ends)


def parse_checkpoint(checkpoint: object) -> tuple[int | None, float | None, bool]:
    """(steps, seconds, at epoch ends) from "epoch", a number of steps, "10min", "30s" or None."""
    if checkpoint is None:
        return None, None, False
    if checkpoint == "epoch":
        return None, None, True
    if isinstance(checkpoint, int) and not isinstance(checkpoint, bool) and checkpoint > 0:
        return checkpoint, None, False
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|min|h)", str(checkpoint))
    if match:
        unit = {"s": 1.0, "min": 60.0, "h": 3600.0}[match[2]]
        return None, float(match[1]) * unit, False
    raise ValueError(
        f"checkpoint = {checkpoint!r} is not allowed; it takes 'epoch', a number of steps, a time "
        "such as '10min', or None"
    )


def parse_validation_freq(freq: object) -> tuple[int, str]:
    """(n, "epoch" or "step") from n epochs or ("step", n)."""
    unit = "epoch"
    if isinstance(freq, (tuple, list)) and len(freq) == 2:
        unit, freq = freq
    if unit in ("epoch", "step") and isinstance(freq, int) and not isinstance(freq, bool):
        if freq >= 1:
            return freq, str(unit)
    raise ValueError(
        f"validation_freq = {freq!r} is not allowed; it takes a number of epochs, 1 or more, or "
        "('step', n)"
    )


def steps_of(train: Loader, accumulate: int, steps_per_epoch: int | None) -> tuple[int, int]:
    """(updates of an epoch, loader batches they take); ValueError when more is asked than is."""
    available = train.steps_per_epoch
    possible = math.ceil(available / accumulate)
    if steps_per_epoch is None:
        return possible, available
    if not 1 <= steps_per_epoch <= possible:
        raise ValueError(
            f"steps_per_epoch = {steps_per_epoch} is not allowed; the data gives 1 to {possible} "
            f"steps ({available} batches, accumulate={accumulate})"
        )
    return steps_per_epoch, min(available, steps_per_epoch * accumulate)


#: Arguments of fit beside the named ones, with their defaults.
FIT_DEFAULTS: Mapping[str, Any] = {
    "validation_freq": 1,
    "steps_per_epoch": None,
    "log_every": 50,
    "checkpoint": "epoch",
    "keep": 3,
    "resume": False,
    "allow": (),
    "horizon": None,
}

_FIRST = "training data is the first argument: task.fit(train, epochs=...)"
_BY_NAME = "validation data is named so: task.fit(train, validation_data=valid)"

#: Arguments that Keras and others have in compile, in evaluate and predict ("look") and in fit,
#: and what to write here.
KERAS: Mapping[str, Mapping[str, str]] = {
    "compile": {
        "optimizer": "it is told before: task.optimizer(rn.AdamW(lr=1e-3)), then task.compile()",
        "loss": "it is told before: task.loss(rn.CrossEntropyLoss()), then task.compile()",
        "metrics": 'they are told before: task.metrics("top5"), then task.compile()',
    },
    "look": {
        "x": "the data is the first argument: task.evaluate((x, y)), task.predict(x)",
        "y": "targets belong to the data: task.evaluate((x, y))",
        "batch_size": "it belongs to the data: rn.Loader.from_arrays(x, batch_size=...)",
    },
    "fit": {
        "class_weight": "it belongs to the loss: rn.CrossEntropyLoss(class_weights=[...])",
        "sample_weight": "it travels with the target, for a loss that you write: see rn.Fields",
        "batch_size": "the batch size belongs to the data: rn.Loader(dataset, batch_size=...)",
        "validation_split": "split the data first: a, b = rn.split(dataset, 0.2, seed=1)",
        "x": "fit takes a loader: task.fit(rn.Loader.from_arrays(x, y, batch_size=...))",
        "y": "fit takes a loader: task.fit(rn.Loader.from_arrays(x, y, batch_size=...))",
        **dict.fromkeys(("data", "dataset", "train_data", "train_dataset", "train_loader"), _FIRST),
        **dict.fromkeys(
            ("valid", "valid_data", "val_data", "eval_dataset", "val_loader"), _BY_NAME
        ),
        **{"train_dataloaders": _FIRST, "val_dataloaders": _BY_NAME},
    },
}


def check_fit_arguments(options: Mapping[str, Any], more: Sequence[Any] = ()) -> dict[str, Any]:
    """All arguments of fit with defaults; TypeError for an unknown one, with the way out.

    Args:
        options: By name.
        more: By position, behind the training data.
    """
    if more and isinstance(more[0], (Loader, torch.utils.data.DataLoader)):
        raise TypeError(f"fit has no second argument by position: {_BY_NAME}")
    options = {**options, **({"y": more[0]} if more else {})}
    for name in options:
        if name in KERAS["fit"]:
            raise TypeError(f"fit has no argument {name!r}: {KERAS['fit'][name]}")
        if name not in FIT_DEFAULTS:
            known = [
                *FIT_DEFAULTS,
                "epochs",
                "max_steps",
                "validation_data",
                "callbacks",
                "verbose",
            ]
            raise TypeError(unknown_name("fit", name, known).replace("setting", "argument"))
    return {**FIT_DEFAULTS, **options}


def fit_options(
    train: Loader,
    valid: Loader | None,
    accumulate: int,
    epochs: int | None,
    max_steps: int | None,
    chosen: Mapping[str, Any],
) -> FitOptions:
    """The checked options of one fit."""
    for name, given in (("epochs", epochs), ("max_steps", max_steps)):
        if given is not None and (isinstance(given, bool) or not isinstance(given, int)):
            raise TypeError(f"{name} = {given!r} is not allowed; it takes a whole number")
        if given is not None and given < 1:
            raise ValueError(f"{name} = {given} is not allowed; it takes 1 or more")
    steps, batches = steps_of(train, accumulate, chosen["steps_per_epoch"])
    if epochs is None and max_steps is None:
        epochs = 1
    if valid is not None:
        check_whole(valid, "validation data")
    freq, unit = parse_validation_freq(chosen["validation_freq"])
    every, seconds, at_ends = parse_checkpoint(chosen["checkpoint"])
    log_every = chosen["log_every"]
    if isinstance(log_every, bool) or not isinstance(log_every, int) or log_every < 1:
        raise ValueError(f"log_every = {log_every!r} is not allowed; it takes 1 step or more")
    return FitOptions(
        epochs=epochs,
        max_steps=max_steps,
        accumulate=accumulate,
        steps_per_epoch=steps,
        micro_batches=batches,
        validation=valid,
        validation_freq=freq,
        validation_unit=unit,
        log_every=log_every,
        checkpoint_steps=every,
        checkpoint_seconds=seconds,
        checkpoint_epochs=at_ends,
    )


def horizon_for(
    wanted: Horizon, current: Horizon | None, choice: str | None, schedule: Schedule
) -> Horizon:
    """The horizon a schedule is drawn over: the first fit's, unless a longer one is stretched.

    A constant rate and ReduceLROnPlateau end nowhere; what warm-up the latter has stays in place.
    """
    if choice not in (None, "keep", "stretch"):
        raise ValueError(f"horizon = {choice!r} is not allowed; it takes 'keep' or 'stretch'")
    if current is None or isinstance(schedule, ConstantLR) or choice == "stretch":
        return wanted
    is_longer = wanted.total_steps > current.total_steps
    if is_longer and choice is None and not schedule.is_stateful:
        raise ValueError(
            f"the schedule was drawn over {current.total_steps} steps, this fit goes on to "
            f"{wanted.total_steps}: horizon='keep' holds the last rate, horizon='stretch' draws "
            "the schedule anew over all steps (fit.horizon=keep on the command line)"
        )
    return current
