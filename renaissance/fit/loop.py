"""The loop of `Task.fit`: epochs, steps, validation, callbacks, checkpoints, signals.

The position of a task is (epoch, step within it, attempted steps). A step is one update; with
``accumulate(k)`` it takes k loader batches. An epoch is *open* from its first step until its
validation has been written to the history, and an open epoch is part of a checkpoint: a run that
stops anywhere continues as if it had not.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from renaissance.assembly.misfit import refuse_samples
from renaissance.busy import EVALUATION
from renaissance.data.loader import Loader
from renaissance.fit.evaluation import Watch, evaluate
from renaissance.fit.failures import note_epoch, note_step
from renaissance.fit.nonfinite import NonFiniteError, describe_non_finite
from renaissance.fit.options import FitOptions
from renaissance.fit.resume import Checkpoints
from renaissance.hooks import HOOKS, CallbackList
from renaissance.interrupts import Interrupts
from renaissance.logs import LazyLogs
from renaissance.progress import make_progress, values

if TYPE_CHECKING:
    from renaissance.task import Task


logger = logging.getLogger("renaissance")


def _unit_of(train: Loader) -> str:
    """What a sample is called; torch's loaders are not asked, they would read a batch."""
    has_pictures = isinstance(train, Loader) and len(train.sample_spec().shape) == 3
    return "images" if has_pictures else "samples"


class FitLoop:
    """One call of fit.

    Args:
        task: The task, compiled.
        train: Its training data.
        options: The checked arguments.
        callbacks: Callbacks of the task and of this call.
        end: Attempted steps at which it ends.
        verbose: 0 silent, 1 a bar, 2 a line an epoch.
        checkpoints: Where periodic checkpoints go.
    """

    def __init__(
        self,
        task: Task,
        train: Loader,
        options: FitOptions,
        callbacks: CallbackList,
        end: int,
        verbose: int,
        checkpoints: Checkpoints,
    ) -> None:
        self.task, self.train, self.options, self.callbacks = task, train, options, callbacks
        self.end = end
        self.executor, self.position = task.executor, task.position
        self.checkpoints, self.interrupts = checkpoints, Interrupts()
        self.progress = make_progress(
            verbose,
            epochs=options.epochs,
            steps_per_epoch=options.steps_per_epoch,
            unit=_unit_of(train),
        )
        self._hears_steps = callbacks.listens("on_train_batch_end")
        # Hooks of somebody else may write 16-bit copies, which the next update would round anew.
        has_copies, hears = task.plan.has("A"), callbacks.listens_outside
        self._looks_always = has_copies and hears("on_train_batch_begin", "on_train_batch_end")
        self._looks_later = has_copies and hears("on_log", *(h for h in HOOKS if "_test_" in h))
        self._looks_now = False
        task.require().memory.noted_edits(task.model)  # of a fit that was broken off
        self._is_first_step, self._rates_left = True, 0
        self._last_save, self._kept = time.monotonic(), self._place()
        self._skipped = int(self.executor.updater.scalars["skipped"])

    def run(self) -> None:
        """Train until the last epoch, a stop, a signal or an error."""
        self.task.stop_training = False
        with self.interrupts:
            try:
                self.callbacks.on_train_begin({})
                while self._has_more() and not self.task.stop_training and self._epoch():
                    pass
                self._check_finite()  # of the steps since the last log
                self._end()
            finally:
                self.progress.close()
                self.callbacks.close()
                self.checkpoints.close()

    def _end(self) -> None:
        """The last hook, and a checkpoint of what it leaves where there is none of that yet.

        Callbacks that stopped the run may put other weights back; those are what one wants to find.
        """
        is_stopped, states = self.task.stop_training, self.callbacks.state_dict()
        before = self.task.state_hash() if is_stopped else ""
        self.callbacks.on_train_end({})
        is_changed = is_stopped and self.task.state_hash() != before
        if self.options.has_checkpoints and (self._kept != self._place() or is_changed):
            # A run that was stopped stays so when it is resumed: what callbacks knew before.
            self.checkpoints.save(callbacks=states)
        self.progress.say(*self._last_words())

    def _last_words(self) -> list[str]:
        """Why fit ended before its last epoch, if it did."""
        position, words = self.position, []
        if position.step:
            words.append(f"ended at {position}: {'  '.join(values(self._epoch_logs()))}")
        elif self.task.stop_training:
            words.append(f"stopped after epoch {position.epoch}")
        return words + self.callbacks.reasons() if self.task.stop_training else words

    def _place(self) -> tuple[int, int, int]:
        return self.position.epoch, self.position.step, self.position.attempted

    def _has_more(self) -> bool:
        return self.position.attempted < self.end or self._is_open()

    def _is_open(self) -> bool:
        return self.position.step >= self.options.steps_per_epoch

    def _epoch(self) -> bool:
        """The rest of the running epoch; False when training is to stop."""
        options, position = self.options, self.position
        if position.step == 0:
            self.executor.tally.epoch.zero_()
            self.task.open_epoch = {}
            self.callbacks.on_epoch_begin(position.epoch, {})
        self.progress.start_epoch(position.epoch, position.step)
        if position.step < options.steps_per_epoch and not self._steps():
            return False
        self._close_epoch()
        return not self._stopped()

    def _steps(self) -> bool:
        """Steps up to the end of the epoch; False when training is to stop in the middle."""
        options, position = self.options, self.position
        k, built = options.accumulate, self.task.require()
        if built.away():
            built.verify()  # a hook since the last epoch
        with self.executor.batches(
            self.train,
            seed=self.task.seed,
            epoch=position.epoch,
            start_step=position.step * k,
            steps=options.micro_batches,
        ) as batches:
            while position.step < options.steps_per_epoch:
                self._step(batches, min(k, options.micro_batches - position.step * k))
                if self._after_step():
                    return self._is_open() and not self.task.stop_training
        return True

    def _step(self, batches: Any, micro_batches: int) -> None:
        position = self.position
        self.callbacks.on_train_batch_begin(position.step, {})
        if self._looks_always or self._looks_now:
            self.task.require().look_behind_hooks()
            self._looks_now = False
        if self._rates_left == 0:
            self._set_rates()
        self._rates_left -= 1
        try:
            count = self.executor.step(batches, micro_batches)
        except Exception as error:
            self._blame(error)
            raise
        if self._is_first_step:
            self.task.require().check_home()
        position.step += 1
        position.attempted += 1
        self.progress.step(count)

    def _blame(self, error: Exception) -> None:
        """Note on an error of a step where it was; ValueError for samples that do not fit."""
        try:
            if isinstance(error, RuntimeError):
                refuse_samples(error, self.task.require(), *self.train.sample_spec()[:2])
        except Exception as refusal:
            note_step(refusal, self.task, self.train, self.options)
            raise
        note_step(error, self.task, self.train, self.options)

    def _set_rates(self) -> None:
        """Learning rates of the steps to come: within an epoch, nothing measured moves them."""
        position, options = self.position, self.options
        left = min(options.steps_per_epoch - position.step, self.end - position.attempted)
        soon = max(8, position.step)  # first a few, so that an epoch's first step need not wait
        self._rates_left = min(left, soon, self.executor.rates_ahead)
        steps = range(position.attempted, position.attempted + self._rates_left)
        self.executor.set_rates([self.task.learning_rate_at(step) for step in steps])

    def _after_step(self) -> bool:
        """Hooks and upkeep after a step; True when no further step of this epoch is to be taken."""
        options, position = self.options, self.position
        is_logged = position.attempted % options.log_every == 0
        if self._hears_steps or is_logged:
            logs = LazyLogs(self._last_logs)
            self.callbacks.on_train_batch_end(position.step - 1, logs)
            if is_logged:
                self._log(logs)
        is_heard = self._hears_steps or self._looks_always or self._looks_later
        if is_heard and (is_logged or self._is_first_step):
            self.task.require().check_home()  # an update would hide what a hook has written
        self._is_first_step = False
        unit = options.validation_unit
        if unit == "step" and position.attempted % options.validation_freq == 0:
            self.task.open_epoch = self._validate()
            self._looks_now = self._looks_later
        if self._checkpoint_due():
            self._save()
        return self._stopped() or position.attempted >= self.end

    def _log(self, logs: LazyLogs) -> None:
        if self.executor.may_have_stopped():
            self._check_finite()
        if self.progress.wants_logs:
            self.progress.logs(self._epoch_logs())
        self.callbacks.on_log(self.position.attempted, logs)

    def _close_epoch(self) -> None:
        options, position = self.options, self.position
        self._check_finite()
        self.task.require().check_home()
        self._tell_skipped()
        logs = self._epoch_logs()
        if options.validation_unit == "step":
            logs |= self.task.open_epoch
        elif (position.epoch + 1) % options.validation_freq == 0:
            logs |= self._validate()
        self.progress.end_epoch(logs)
        self.callbacks.on_epoch_end(position.epoch, logs, record=self._record)
        if options.checkpoint_epochs:
            self._save(best=self._has_best)

    def _record(self, logs: Mapping[str, float]) -> None:
        """Close the epoch: plateau's decision, whether it is best, its row, the position behind."""
        position = self.position
        self._observe(logs)
        self._has_best = self._is_best(logs)  # now: callbacks may save
        self.task.history.append(position.epoch, position.attempted, logs)
        position.epoch, position.step = position.epoch + 1, 0

    def _observe(self, logs: Mapping[str, float]) -> None:
        """Let ReduceLROnPlateau see the epoch, unless it awaits a validation that was not due."""
        rates = self.task.rates
        if rates.monitor is None:
            return
        if rates.monitor in logs:
            rates.observe(logs[rates.monitor])
        elif self.options.validation is None or rates.monitor not in self._validation_names():
            raise ValueError(
                f"{type(rates.schedule).__name__} watches {rates.monitor!r}, which the epoch's "
                f"logs do not have; they have {', '.join(logs)}"
            )

    def _validation_names(self) -> list[str]:
        return [f"val_{name}" for name in self.executor.tally.names]

    def _is_best(self, logs: Mapping[str, float]) -> bool:
        """Whether the validation loss of the running epoch is the lowest; then it is noted."""
        loss = float(logs.get("val_loss", math.nan))
        if not loss < self.task.best.get("val_loss", math.inf):
            return False
        self.task.best = {"val_loss": loss, "epoch": self.position.epoch}
        return True

    def _validate(self) -> dict[str, float]:
        """Means over the validation data under ``val_`` names; {} without such data."""
        data = self.options.validation
        if data is None:
            return {}
        watch = Watch("validation", self.callbacks, self.progress)
        with self.task.busy.doing(EVALUATION):
            watch.start(data.steps_per_epoch)
            try:
                means = evaluate(self.task.require(), data, seed=self.task.seed, watch=watch)
            except Exception as error:
                note_epoch(error, self.position)
                raise
            logs = {f"val_{name}": mean for name, mean in means.items()}
            watch.end(logs)
        return logs

    def _last_logs(self) -> dict[str, float]:
        return self.executor.tally.means("last") | {"learning_rate": self._rate()}

    def _epoch_logs(self) -> dict[str, float]:
        return self.executor.tally.means("epoch") | {"learning_rate": self._rate()}

    def _rate(self) -> float:
        return self.task.learning_rate_at(max(0, self.position.attempted - 1))

    def _check_finite(self) -> None:
        if self.executor.updater.scalars["stop"]:
            raise NonFiniteError(
                describe_non_finite(self.task, self.train, self.options.steps_per_epoch)
            )

    def _tell_skipped(self) -> None:
        """Once an epoch: a loss that looks well says nothing of updates that did not happen."""
        skipped = int(self.executor.updater.scalars["skipped"])
        count, self._skipped = skipped - self._skipped, skipped
        if count:
            logger.warning(
                "epoch %d: %d of %d updates met infinities or NaN and were skipped; the epoch's "
                "loss and metrics leave their samples out",
                self.position.epoch + 1,
                count,
                self.options.steps_per_epoch,
            )

    def _stopped(self) -> bool:
        if self.interrupts.received is not None:
            self._save(wait=True)
            self.interrupts.raise_received()
        return self.task.stop_training

    def _checkpoint_due(self) -> bool:
        options = self.options
        if options.checkpoint_steps is not None:
            return self.position.attempted % options.checkpoint_steps == 0
        if options.checkpoint_seconds is not None:
            return time.monotonic() - self._last_save >= options.checkpoint_seconds
        return False

    def _save(self, *, best: bool = False, wait: bool = False) -> None:
        self._last_save, self._kept = time.monotonic(), self._place()
        self.checkpoints.save(best=best, wait=wait)
