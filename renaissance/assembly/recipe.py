"""What a task is told: `Recipe`, the value behind `task.settings`, and the calls that fill it."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor
from typing_extensions import Self

from renaissance.assembly.frozen import check_patterns
from renaissance.assembly.pretrained import Pretrained
from renaissance.busy import FIT, Busy
from renaissance.data.foreign import as_loader, as_loaders
from renaissance.data.loader import Loader
from renaissance.ema import Clip, Ema
from renaissance.foreign_losses import as_loss
from renaissance.hooks import Callback, check_callback
from renaissance.init import Initializer
from renaissance.losses import Loss
from renaissance.optim import Optimizer
from renaissance.schedules.schedule import Schedule, resolve_lr

logger = logging.getLogger("renaissance")

NO_LOSS = "the task has no loss yet: task.loss(rn.CrossEntropyLoss()), then task.compile()"
NO_OPTIMIZER = (
    "the task has no optimizer yet, and only evaluates and predicts: "
    "task.optimizer(rn.AdamW(lr=1e-3)), then task.compile()"
)


@dataclasses.dataclass(frozen=True)
class Recipe:
    """The settings of a task, by name; `None` is what has not been said."""

    loss: Loss | None = None
    optimizer: Optimizer | None = None
    scheduler: Schedule | None = None
    train: Loader | None = None
    valid: Loader | None = None
    init: Initializer | None = None
    keep_weights: bool = False
    pretrained: Pretrained | None = None
    freeze: tuple[str, ...] = ()
    ema: Ema | None = None
    clip: Clip | None = None
    accumulate: int = 1
    callbacks: tuple[Callback, ...] = ()
    metrics: tuple[str | Callable[..., Any], ...] = ()

    def schedule(self) -> Schedule:
        """The schedule of the learning rate: the one given, or a constant from the optimizer."""
        if self.optimizer is None:
            raise RuntimeError(NO_OPTIMIZER)
        return resolve_lr(self.optimizer, self.scheduler)

    def identity(self) -> dict[str, Any]:
        """What a resumed run must find equal, as JSON."""
        parts = {
            "loss": self.loss,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "ema": self.ema,
            "clip": self.clip,
        }
        numbers = {"accumulate": self.accumulate, "freeze": list(self.freeze)}
        return {name: repr(part) for name, part in parts.items()} | numbers

    @property
    def trains(self) -> bool:
        """Whether there is an optimizer: without one a task evaluates and predicts."""
        return self.optimizer is not None

    @property
    def keeps_weights(self) -> bool:
        """Whether the module's own weights stay: told so, or only looked with and told nothing."""
        is_told = self.init is not None or self.pretrained is not None
        return self.keep_weights or not (self.trains or is_told)

    def require(self, *parts: str) -> None:
        """RuntimeError that says how to tell the first missing one of "loss" and "optimizer"."""
        for part, text in (("loss", NO_LOSS), ("optimizer", NO_OPTIMIZER)):
            if part in parts and getattr(self, part) is None:
                raise RuntimeError(text)

    def check(self) -> None:
        """RuntimeError that names the first thing still missing, or what contradicts itself."""
        if self.trains:
            self.require("loss")
            self.schedule()
        if self.keep_weights and self.pretrained is not None:
            raise RuntimeError(
                "init('keep') keeps the module's own weights and pretrained(...) brings others; "
                "take back one: init(rn.Initializer()) or pretrained(None)"
            )


class Told:
    """The fluent side of a task: each call notes one thing in the recipe and chains.

    What is told after compile takes effect at the next compile; until then fit refuses. What is
    told within fit waits, too, which is said.

    Attributes:
        busy: Which long calls are going on.
    """

    def __init__(self) -> None:
        self._recipe, self.busy = Recipe(), Busy()
        self._told_since: dict[str, None] = {}  # calls since the last compile, in order

    def __setattr__(self, name: str, value: Any) -> None:
        if name in Told.__dict__ and callable(Told.__dict__[name]):
            raise AttributeError(
                f"task.{name} is called, not assigned to: task.{name}({value!r:.60})"
            )
        if name in ("learning_rate", "lr"):
            raise AttributeError(
                f"task.{name} is the schedule's to say: "
                f"task.scheduler(rn.ConstantLR(base_lr={value!r:.60}))"
            )
        super().__setattr__(name, value)

    @property
    def settings(self) -> Recipe:
        """What the task has been told, by name."""
        return self._recipe

    def _tell(self, call: str, **changes: Any) -> Self:
        if FIT in self.busy:
            logger.warning(
                "task.%s inside fit waits for the next compile; for a learning rate that moves "
                "there are schedules, for any curve rn.LambdaLR",
                call,
            )
        self._recipe = dataclasses.replace(self._recipe, **changes)
        self._told_since[call] = None
        return self

    def loss(self, loss: Loss | Callable[[Any, Tensor], Tensor]) -> Self:
        """The loss: one of ``rn``'s, or any callable ``(output, target) -> scalar mean``."""
        return self._tell("loss", loss=as_loss(loss))

    def optimizer(self, optimizer: Optimizer | None) -> Self:
        """The optimizer's description; None for a task that only evaluates and predicts."""
        if optimizer is not None:
            optimizer = _expect(optimizer, Optimizer, "optimizer", "rn.AdamW(lr=1e-3)").ready()
        return self._tell("optimizer", optimizer=optimizer)

    def scheduler(self, scheduler: Schedule) -> Self:
        """The schedule of the learning rate; without one the optimizer's ``lr`` is constant."""
        checked = _expect(scheduler, Schedule, "scheduler", "rn.CosineAnnealingLR(base_lr=0.1)")
        return self._tell("scheduler", scheduler=checked)

    def data(self, train: Any, valid: Any = None) -> Self:
        """Training data, and validation data if any: loaders, or torch's DataLoaders."""
        train, valid = as_loaders(as_loader(train), valid)
        return self._tell("data", train=train, valid=valid)

    def init(self, initializer: Initializer | str) -> Self:
        """An `Initializer`, or "keep" for the module's own weights."""
        if initializer == "keep":
            return self._tell("init", init=None, keep_weights=True)
        checked = _expect(initializer, Initializer, "init", "rn.Initializer() or 'keep'")
        return self._tell("init", init=checked, keep_weights=False)

    def pretrained(
        self,
        weights: str | os.PathLike[str] | Mapping[str, Tensor] | None,
        *,
        skip: Sequence[str] = (),
    ) -> Self:
        """Weights and buffers to start from; what is skipped is initialised as always.

        Args:
            weights: A safetensors file, read at the first compile, `init_all` and `reset`, or a
                state dict; None takes an earlier one back.
            skip: Patterns of tensor names that are not taken, such as ``["fc.*"]`` for a new head.
        """
        return self._tell(
            "pretrained", pretrained=None if weights is None else Pretrained(weights, skip)
        )

    def freeze(self, *layers: str) -> Self:
        """Layers that stay as they are, parameters and batch-norm statistics; without any: none.

        Batch-norms in them work as in evaluation. (``requires_grad_(False)`` by hand stops the
        parameters alone, as torch has it.)

        Args:
            *layers: Names, ``"layer1"``, with all that they contain, or patterns as in a shell.
        """
        return self._tell("freeze", freeze=check_patterns(layers))

    def ema(self, decay: float | Ema, *, warmup: bool = False) -> Self:
        """Keep an exponential moving average of weights and buffers; see `Ema`."""
        return self._tell("ema", ema=decay if isinstance(decay, Ema) else Ema(decay, warmup=warmup))

    def clip(self, clip: float | Clip) -> Self:
        """Clip gradients: a number is the largest global norm; see `Clip`."""
        return self._tell(
            "clip", clip=(clip if isinstance(clip, Clip) else Clip(norm=clip)).ready()
        )

    def accumulate(self, batches: int) -> Self:
        """Loader batches for one update; gradients are means over the window's samples."""
        return self._tell("accumulate", accumulate=check_accumulate(batches))

    def callbacks(self, *callbacks: Callback) -> Self:
        """Callbacks of every fit of this task."""
        self._recipe = dataclasses.replace(
            self._recipe, callbacks=tuple(check_callback(callback) for callback in callbacks)
        )
        return self

    def metrics(self, *metrics: str | Callable[..., Any]) -> Self:
        """Metrics beside the loss: "accuracy", "top5" ..., or callables ``(output, target)``."""
        return self._tell("metrics", metrics=metrics)


def stale_text(calls: Sequence[str]) -> str:
    """What to do when a task was told something since its compile, by these calls."""
    named = ", ".join(f"task.{call}(...)" for call in calls)
    text = (
        f"a setting was changed after compile, by {named}: call task.compile() again (weights, "
        "buffers and counters stay, moments start from zero; task.reset() after it starts afresh)"
    )
    if list(calls) == ["data"]:
        text += (
            ". Other data of the same shapes needs no compile, and moments stay, where fit is "
            "given it: task.fit(train, validation_data=valid), in place of task.data(train, valid)"
        )
    return text


def _expect(given: Any, kind: type[Any], what: str, example: str) -> Any:
    if not isinstance(given, kind):
        of = type(given)
        name = f"{of.__module__}.{of.__name__}" if of.__module__ != "builtins" else repr(given)
        raise TypeError(f"{what}: {name:.60} is not allowed; write task.{what}({example})")
    return given


def check_accumulate(k: object) -> int:
    """Micro-batches of a step as an int of at least 1."""
    if isinstance(k, bool) or not isinstance(k, int):
        raise TypeError(f"accumulate({k!r}) is not allowed; it takes a whole number of batches")
    if k < 1:
        raise ValueError(f"accumulate({k}) is not allowed; it takes 1 or more batches")
    return k
