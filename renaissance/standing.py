"""Where a task stands: what is compiled, position, counters and rates, and the tensors it holds."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from renaissance.assembly.build import Built
from renaissance.assembly.carried import Carried
from renaissance.assembly.frozen import Frozen
from renaissance.assembly.recipe import Told, stale_text
from renaissance.busy import FIT, LOOKING, not_inside
from renaissance.fit import evaluation, snapshot
from renaissance.fit.identity import Awaited
from renaissance.fit.options import Fitted, Horizon, Position
from renaissance.history import History
from renaissance.hooks import CallbackList
from renaissance.memory.plan import MemoryPlan
from renaissance.precision import Precision
from renaissance.schedules.schedule import ScheduleRun
from renaissance.step.executor import StepExecutor
from renaissance.switches import Switches

if TYPE_CHECKING:
    from renaissance.fit.resume import Checkpoints


logger = logging.getLogger("renaissance")


class _Unsaid(str):
    """A default that can be told from the same text given."""


UNSAID = _Unsaid("raw")


class Standing(Told):
    """The side of a task that one reads.

    Attributes:
        position: Epoch, step and attempted steps.
        history: A row for each closed epoch.
        best: The lowest validation loss and its epoch.
        frozen: What the last compile has frozen in the module.
        carried: What is left of the task as it was last closed.
        noted: Further facts for run.json, by name.
        fitted: The data of the last fit.
        awaited: The data of a checkpoint that was loaded before there was any to compare.
    """

    model: nn.Module
    name: str
    seed: int
    device: torch.device
    deterministic: bool
    precision: Precision
    threads: int
    awaited: Awaited | None

    def __init__(self) -> None:
        super().__init__()
        self.position = Position()
        self.history = History()
        self.open_epoch: dict[str, float] = {}
        self.stop_training = False
        self.horizon: Horizon | None = None
        self.noted: dict[str, Any] = {}
        self.fitted, self.awaited = Fitted(), None
        self._built: Built | None = None
        self.frozen = Frozen()
        self.carried: Carried | None = None
        self._rates: ScheduleRun | None = None
        self.best: dict[str, Any] = {}
        self.callback_states: list[dict[str, Any]] = []
        self._has_told_raw = False
        self.running_callbacks: CallbackList | None = None
        self.running_checkpoints: Checkpoints | None = None

    def __repr__(self) -> str:
        told = {name: getattr(self._recipe, name) for name in ("loss", "optimizer", "scheduler")}
        options = {"name": self.name, "seed": self.seed, "device": str(self.device)}
        options["precision"] = self.precision.name
        given = {**options, **{name: one for name, one in told.items() if one is not None}}
        where = "not compiled" if self._built is None else "compiled"
        return (
            f"<Task of {type(self.model).__name__}: "
            f"{', '.join(f'{name}={one!r}' for name, one in given.items())}; "
            f"{where}, {self.epoch} epochs, {self.attempted_steps} steps>"
        )

    def switches(self) -> Switches:
        """torch's global switches as this task wants them: a context manager."""
        return Switches(
            deterministic=self.deterministic, tf32=self.precision.tf32, threads=self.threads
        )

    def require(self, *parts: str) -> Built:
        """What compile made, with these parts of the recipe: "loss", "optimizer".

        Raises:
            RuntimeError: The task is not compiled, has changed since, or lacks a part.
        """
        if self._built is None:
            raise RuntimeError("the task is not compiled yet: call task.compile() first")
        if self._told_since and FIT not in self.busy:
            raise RuntimeError(stale_text(list(self._told_since)))
        self._built.recipe.require(*parts)
        return self._built

    @property
    def plan(self) -> MemoryPlan:
        """The memory plan: regions, segments, ranges, bytes."""
        return self.require().plan

    @property
    def executor(self) -> StepExecutor:
        return self.require().executor

    def learning_rate_at(self, attempted: int) -> float:
        """The learning rate of the update about to be taken after so many attempted ones."""
        horizon = self.horizon or Horizon(attempted + 1, 1)
        return self.rates.lr(attempted, horizon.total_steps, horizon.steps_per_epoch)

    @property
    def rates(self) -> ScheduleRun:
        """The schedule as it runs: a pure function, but for ReduceLROnPlateau's state."""
        if self._rates is None:
            recipe = self._recipe if self._built is None else self._built.recipe
            self._rates = recipe.schedule().start()
        return self._rates

    @property
    def global_step(self) -> int:
        """Updates applied so far (read from the device)."""
        return self._count("applied")

    @property
    def skipped_steps(self) -> int:
        """Updates skipped for infinities or NaN (read from the device)."""
        return self._count("skipped")

    def _count(self, name: str) -> int:
        if self._built is not None:
            return int(self._built.updater.scalars[name])
        return 0 if self.carried is None else int(self.carried.counters[name])

    @property
    def attempted_steps(self) -> int:
        return self.position.attempted

    @property
    def epoch(self) -> int:
        """Epochs that are closed."""
        return self.position.epoch

    def gradients(self) -> dict[str, Tensor]:
        """The last step's gradients by parameter name: copies, float32, before clipping.

        They are those of the mean loss over the step's window, the sum of its losses divided by the
        sum of their weights, as ``loss.backward()`` leaves them in ``.grad``: region G, which the
        backward fills from ``loss_scale / nominal``, times ``nominal / (weight * loss_scale)``.
        Zeros before the first step, and after one in which nothing counted.
        """
        built = self.require("optimizer")
        unscale = built.updater.scalars.view("unscale")[0]
        return {s.name: built.memory.view("G", s.name) * unscale for s in built.plan.parameters}

    @not_inside(*LOOKING)
    def state_hash(self) -> str:
        """SHA-256 over W, M, V, E, B, counters and loss scale, in hex."""
        return snapshot.state_hash(self.require())

    @not_inside(*LOOKING)
    def state_dict(self, weights: str | None = UNSAID) -> dict[str, Tensor]:
        """The module's state dict in float32 masters, copies.

        Args:
            weights: As in `export_module`.
        """
        self._tell_raw("state_dict", weights)
        if weights == "raw":
            return {name: t.detach().clone() for name, t in self.model.state_dict().items()}
        with self.switches(), evaluation.weights_of(self.require(), weights):
            return self.state_dict("raw")

    @not_inside(*LOOKING)
    def export_module(self, weights: str | None = UNSAID) -> nn.Module:
        """A plain module with float32 weights of its own, free of this task.

        Args:
            weights: "raw" for the weights that are trained, "ema" for their average (and that of
                the buffers), which validation, `evaluate` and `predict` use; None is the average
                when the task keeps one, as it is there. Raw ones by default, which is said once
                when there is an average.

        Raises:
            ValueError: "ema", and the task keeps no average.
        """
        self._tell_raw("export_module", weights)
        with self.switches(), evaluation.weights_of(self.require(), weights):
            return snapshot.export_module(self.require())

    def _tell_raw(self, call: str, weights: str | None) -> None:
        """Say once that what goes out by default is not what was validated."""
        keeps_average = self._built is not None and self._built.has_ema
        if weights is UNSAID and keeps_average and not self._has_told_raw:
            self._has_told_raw = True
            logger.warning(
                "task.%s gives the weights that are trained, while validation, evaluate and "
                "predict use their average (ema): task.%s('ema') gives that one, ('raw') means "
                "these",
                *(call, call),
            )

    @not_inside(*LOOKING)
    def snapshot_weights(self) -> dict[str, dict[str, Tensor]]:
        """Weights, buffers and their average if there is one, on the host."""
        return snapshot.copy_weights(self.require())

    @not_inside(*LOOKING)
    def restore_weights(self, weights: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Put back what `snapshot_weights` gave."""
        snapshot.put_weights(self.require(), weights)
