"""`Task`: a module, a loss, an optimizer, a schedule and data, and what can be done with them."""

from __future__ import annotations

import logging
import os
import pathlib
import sys
from collections.abc import Collection, Sequence
from types import TracebackType
from typing import Any

import torch
from torch import nn
from typing_extensions import Self

from renaissance.assembly.build import build, check_compile_options, check_module
from renaissance.assembly.carried import Carried
from renaissance.assembly.misfit import explaining
from renaissance.busy import FIT, LOOKING, not_inside
from renaissance.data.batch import Batch
from renaissance.data.foreign import as_loaders
from renaissance.data.given import as_looked_at
from renaissance.data.loader import Loader
from renaissance.describe import compile_report, module_summary
from renaissance.devices import resolve_device
from renaissance.fit import evaluation, resume
from renaissance.fit.call import run_fit
from renaissance.fit.dryrun import dry_run
from renaissance.fit.options import KERAS, Position, check_fit_arguments, fit_options
from renaissance.history import History
from renaissance.hooks import Callback
from renaissance.init import Initializer
from renaissance.precision import resolve_precision
from renaissance.progress import resolve_verbose
from renaissance.random import Generator, check_seed, default_seed, derive, fresh_seed
from renaissance.standing import Standing
from renaissance.switches import check_gradients

logger = logging.getLogger("renaissance")


class Task(Standing):
    """A module and how it is trained.

    Args:
        model: The module. It belongs to one task; ``task.model`` always has raw (not EMA) weights.
        name: Any text; the model's class in lower case by default.
        seed: 0 to 2**64 - 1. None draws one, prints and records it, and leaves fast
            non-deterministic kernels allowed.
        device: "auto", "cpu", "cuda" or "cuda:N".
        precision: "32-true", "tf32", "bf16-mixed" or "16-mixed" (CUDA only).
        deterministic: Whether only deterministic kernels run; by default when a seed is given.
        run_dir: The run's own folder, made absolute; None writes nothing to disk.
        threads: torch's intra-op threads, pinned at the first run; None takes torch's count then.

    Example:
        >>> task = Task(mlp([64], num_classes=10, in_features=64), seed=1)
        >>> task.loss(rn.CrossEntropyLoss()).optimizer(rn.AdamW(lr=1e-3)).data(train, valid)
        >>> task.compile()
        >>> history = task.fit(epochs=10)
    """

    def __init__(  # noqa: PLR0913 - what a run is made of
        self,
        model: nn.Module,
        *,
        name: str | None = None,
        seed: int | None = None,
        device: str | torch.device = "auto",
        precision: str = "32-true",
        deterministic: bool | None = None,
        run_dir: str | os.PathLike[str] | None = None,
        threads: int | None = None,
    ) -> None:
        super().__init__()
        check_module(model)
        self.model = model
        self.name = name if name is not None else type(model).__name__.lower()
        seed = default_seed() if seed is None else seed
        self.seed_given = seed is not None
        self.seed = fresh_seed() if seed is None else check_seed(seed)
        self.deterministic = self.seed_given if deterministic is None else deterministic
        self.device = resolve_device(device)
        self.precision = resolve_precision(precision, self.device)
        self.run_dir = None if run_dir is None else pathlib.Path(run_dir).absolute()
        self.threads = threads if threads is not None else torch.get_num_threads()
        self.generator = Generator(derive(self.seed, "user"))
        if not self.seed_given:
            logger.warning(
                "no seed given: drew seed %d; Task(seed=%d) repeats", self.seed, self.seed
            )

    # Compile.

    @not_inside(FIT, *LOOKING, instead=KERAS["compile"])
    def compile(
        self,
        *,
        report: str = "summary",
        capture: str = "auto",
        compile_model: str = "auto",
        fuse: str = "auto",
    ) -> Self:
        """Plan the memory, bind the module, initialise, and prepare the step.

        A second compile, also after `close`, keeps weights, buffers, counters, the average, and
        the state of an unchanged schedule. It rebuilds the plan; moments start from zero, and with
        them `global_step`, which Adam's bias correction counts by. Only what this task has never
        initialised, loaded or trained is initialised. After one that failed the module has weights
        and buffers of its own, and the task can compile again. Without an optimizer the task only
        evaluates and predicts, with weights of the module or loaded; without a loss it predicts.

        Args:
            report: What to print: "none", "summary", "memory", "graph", "schedule" or "all".
            capture: "auto" captures the step as one CUDA graph where there is CUDA; "off" is eager.
            compile_model: "auto" sends forward and backward through torch.compile on CUDA; "off".
            fuse: "auto" swaps in fused layers where they are known; "off".

        Raises:
            RuntimeError: Loss or learning rate is missing, or a trained module's init.
            ValueError: Shapes of data, output and targets do not fit.
        """
        options = check_compile_options(report, capture, compile_model, fuse)
        self._recipe.check()
        if self._recipe.trains and torch.is_inference_mode_enabled():
            check_gradients("task.compile")  # what is made there takes part in none later
        with self.switches():
            self._built = build(self, options)
        if self.carried is not None:
            self.position.regroup(self.carried.accumulate, self._recipe)
        if self._rates and self._recipe.trains and self.rates.schedule != self._recipe.schedule():
            self._rates = None
        self._told_since.clear()
        if report != "none":
            sys.stdout.write(compile_report(self, report) + "\n")
        return self

    @not_inside(*LOOKING)
    def init_all(self, device: str | torch.device | None = None) -> Self:
        """Fill every parameter from Philox, keyed by (seed, parameter name, element).

        Resets buffers, statistics and moments too. The bits are the same on CPU and GPU.

        Args:
            device: Where the numbers are drawn; the task's device by default.
        """
        built = self.require()
        where = self.device if device is None else resolve_device(device)
        with self.switches():
            built.initialise(self._recipe.init or Initializer(), self.seed, where)
        return self

    # Train.

    @not_inside(FIT, *LOOKING)
    def fit(
        self,
        train: Any = None,
        *arrays: Any,
        epochs: int | None = None,
        max_steps: int | None = None,
        validation_data: Any = None,
        callbacks: Sequence[Callback] = (),
        verbose: int | str = "auto",
        **options: Any,
    ) -> History:
        """Train up to the final epoch (``epochs`` is the last one, not "more").

        A later fit continues from the task's position, mid-epoch too.

        Args:
            train: Data in place of ``task.data``'s; of the same shapes it needs no compile.
            epochs: The final epoch; 1 by default, unbounded when max_steps is given.
            max_steps: The final step.
            validation_data: Validation data in place of ``task.data``'s.
            callbacks: Callbacks of this call, after the task's own.
            verbose: 0 silent, 1 a bar, 2 a line an epoch, "auto" a bar on a terminal.
            **options: ``validation_freq=1`` (n epochs, or ("step", n)), ``steps_per_epoch=None``,
                ``log_every=50`` steps, ``checkpoint="epoch"`` (or n steps, "10min", None),
                ``keep=3`` checkpoints, ``resume=False`` ("auto" or a path), ``horizon=None``
                ("keep" or "stretch", for an ``epochs`` beyond the schedule's), ``allow=()``
                (differences that a resume accepts; see `load`).

        Returns:
            The task's `History`; also at ``task.history``.

        Raises:
            NonFiniteError: 50 updates in a row were skipped for infinities or NaN.
            KeyboardInterrupt, Interrupted: After SIGINT or SIGTERM, once the step is done.
        """
        self.require("optimizer")
        check_gradients("task.fit")
        arguments = check_fit_arguments(options, arrays)
        loader, valid = as_loaders(train, validation_data)
        loader, valid = loader or self._recipe.train, valid or self._recipe.valid
        if loader is None:
            raise RuntimeError("the task has no data yet: task.data(train), or task.fit(train)")
        chosen = fit_options(loader, valid, self._recipe.accumulate, epochs, max_steps, arguments)
        run_fit(self, loader, chosen, arguments, callbacks, resolve_verbose(verbose))
        return self.history

    @not_inside(FIT, *LOOKING)
    def train_on_batch(self, x: Any, y: Any) -> dict[str, float]:
        """One update from one batch; returns its loss, metrics and learning rate.

        Raises:
            RuntimeError: The schedule needs the run's length, which neither a fit nor
                ``task.horizon = rn.Horizon(total_steps, steps_per_epoch)`` has said.
        """
        built = self.require("optimizer")
        check_gradients("task.train_on_batch")
        if self.horizon is None and built.needs_length:
            raise RuntimeError(
                f"train_on_batch: {built.recipe.schedule()!r} is drawn over the run's length, "
                "which is not known outside of fit; write task.horizon = "
                "rn.Horizon(total_steps=..., steps_per_epoch=...), or take a constant rate"
            )
        with self.switches():
            built.verify()
            built.clear_stop()
            rate = self.learning_rate_at(self.position.attempted)
            built.executor.set_rates([rate])
            with explaining(built, batch := built.executor.place(x, y)):
                built.executor.step(iter([batch]), 1)
        self.position.attempted += 1
        return built.executor.tally.means("last") | {"learning_rate": rate}

    @not_inside(*LOOKING)
    def test_on_batch(self, x: Any, y: Any) -> dict[str, float]:
        """Loss and metrics of one batch with raw weights; changes nothing."""
        built = self.require("loss")
        with self.switches():
            return evaluation.test_on_batch(built, x, y)

    @not_inside(FIT, *LOOKING)
    def reset(self, seed: int | None = None) -> Self:
        """Start afresh without compiling again: weights, moments, counters, history, position.

        Buffers, and after ``init("keep")`` the weights, are those that the first compile found. A
        fit that follows has the bits of a new task's first, which a seed must not be too late for.
        """
        built = self.require()
        if seed is not None:
            built.take_seed()
            self.seed, self.seed_given = check_seed(seed), True
        self.generator = Generator(derive(self.seed, "user"))
        self.position, self.history, self.open_epoch = Position(), History(), {}
        self.horizon = self._rates = self.awaited = None
        self.best, self.callback_states = {}, []
        built.updater.scalars.restart(self.seed)
        built.memory.region("R").zero_()
        initializer = None if built.goes_back else self._recipe.init or Initializer()
        with self.switches():
            built.initialise(initializer, self.seed, self.device)
        return self

    # Evaluate and predict.

    @not_inside(*LOOKING, instead=KERAS["look"])
    def evaluate(
        self,
        data: Any,
        weights: str | None = None,
        *,
        callbacks: Sequence[Callback] = (),
        verbose: int | str = "auto",
    ) -> dict[str, float]:
        """Loss and metrics over a data set, means over samples; EMA weights where there are any.

        Args:
            data: A loader, a torch DataLoader, or one batch as it gives it: a dict or (x, y).
            weights: "raw" or "ema"; None takes EMA weights when the task keeps them.
            callbacks: Callbacks of this call, after the task's own: their ``on_test_*`` hooks.
            verbose: As in `fit`, on standard error; "auto" says nothing in the first second.
        """
        loader = as_looked_at(data, "evaluate")
        return evaluation.evaluate_task(self, loader, weights, callbacks, verbose)

    @not_inside(*LOOKING, instead=KERAS["look"])
    def predict(
        self,
        data: Any,
        weights: str | None = None,
        *,
        callbacks: Sequence[Callback] = (),
        verbose: int | str = "auto",
    ) -> Any:
        """Raw outputs in index order, (N, ...) float32 NumPy, in the model's tuples and dicts.

        Args:
            data: A loader, an array of inputs as the model takes them, or one batch as a torch
                DataLoader gives it: a dict, or (x, y), of which the targets are left out.
            weights, callbacks, verbose: As in `evaluate`; the hooks are ``on_predict_*``.
        """
        loader = as_looked_at(data, "predict")
        return evaluation.predict_task(self, loader, weights, callbacks, verbose)

    @not_inside(*LOOKING)
    def batch_at(self, epoch: int, step: int) -> Batch | list[Batch]:
        """What the step sees at a position, as tensors; a list when accumulating."""
        built = self.require()
        train, k = built.recipe.train, built.recipe.accumulate
        if train is None:
            raise RuntimeError("the task has no data yet: task.data(train)")
        first, last = step * k, min((step + 1) * k, train.steps_per_epoch)
        if not 0 <= first < train.steps_per_epoch:
            raise IndexError(f"step {step} is outside an epoch of {train.steps_per_epoch} batches")
        found = built.executor.copies(train, self.seed, epoch, range(first, last))
        return found if k > 1 else found[0]

    def show_batch(self, path: str | os.PathLike[str], **where: int) -> None:
        """Writes a PNG of the training loader's first batch as the step sees it.

        Args:
            path: The file.
            **where: ``epoch=0``, ``step=0`` (of the loader's batches), ``count=16`` pictures.
        """
        train = self._recipe.train
        if not isinstance(train, Loader):
            raise RuntimeError("show_batch draws what an rn.Loader gives: task.data(train)")
        train.show_batch(path, seed=self.seed, **where)

    def summary(self) -> str:
        """Layers, shapes and parameters as a table."""
        return module_summary(self.model)

    # State.

    @not_inside(*LOOKING)
    def save(self, folder: str | os.PathLike[str]) -> pathlib.Path:
        """Write one checkpoint and return after its commit; makes parents.

        Raises:
            CheckpointError: The place is taken by something that is no checkpoint.
        """
        return resume.save(self, folder)

    @not_inside(*LOOKING)
    def load(
        self,
        folder: str | os.PathLike[str],
        weights_only: bool = False,
        *,
        allow: Collection[str] = (),
    ) -> Self:
        """Load a checkpoint: everything, or weights and buffers only.

        Args:
            folder: A checkpoint, a pointer file, or a run folder (its newest intact one).
            weights_only: Leave moments, counters, history and position alone, as a task without an
                optimizer always does. Whatever else the run was, its weights need to fit; the
                average of a task with `ema` is loaded too, or starts at the weights.
            allow: Differences to accept by name: "seed", "data", "validation", "recipe", "plan",
                "environment" (what does not fit starts afresh, which is said). Data that the task
                has not got yet is compared by the next fit.

        Raises:
            CheckpointError: It is damaged, or its tensors do not fit; nothing is loaded then.
            ValueError: The run differs in something not allowed by name.
        """
        if not weights_only:
            self.busy.check("task.load, but for weights_only=True,", FIT)
        with self.switches():
            resume.load(self, folder, weights_only=weights_only, allow=allow)
        return self

    @not_inside(FIT, *LOOKING)
    def dry_run(self, steps: int = 2) -> dict[str, float]:
        """Train, validate and undo: whether everything works, before the long run.

        Returns:
            Loss and metrics of the last of `steps` steps; the task is as it was.
        """
        return dry_run(self, steps)

    @not_inside(FIT, *LOOKING)
    def close(self) -> None:
        """Free the regions; the module keeps float32 tensors of its own.

        Compiled again, the task goes on from there as after any second `compile`.
        """
        built, self._built = self._built, None
        if built is not None:
            try:
                self.carried = Carried.of(built)
            finally:
                built.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
