"""What compile does: from a module and a recipe to bound memory and an executor."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils.dlpack import from_dlpack

from renaissance import _native
from renaissance import nn as layers
from renaissance.assembly.carried import Origin
from renaissance.assembly.fastpath import choose_passes
from renaissance.assembly.frozen import freeze
from renaissance.assembly.misfit import judge_of
from renaissance.assembly.recipe import NO_LOSS
from renaissance.assembly.scan import (
    Scan,
    check_late_seed,
    check_layers,
    check_reach,
    first_look,
    has_trained_statistics,
)
from renaissance.assembly.trial import first_samples, materialise, smallest_batch, try_samples
from renaissance.foreign_losses import CallableLoss
from renaissance.init import Initializer
from renaissance.memory.plan import Memory, MemoryPlan
from renaissance.metrics import Metric, resolve_metrics
from renaissance.optim import SGD
from renaissance.step.executor import StepExecutor
from renaissance.step.passes import Passes
from renaissance.step.tally import Tally
from renaissance.update.updater import Updater

if TYPE_CHECKING:
    from renaissance.assembly.recipe import Recipe
    from renaissance.precision import Precision
    from renaissance.task import Task

#: What a task without an optimizer is planned with: no moments, and no range that it updates.
IDLE = SGD()

REPORTS = ("none", "summary", "memory", "graph", "schedule", "all")


@dataclasses.dataclass(frozen=True)
class CompileOptions:
    """The arguments of compile, checked."""

    report: str
    capture: str
    compile_model: str
    fuse: str


def check_compile_options(
    report: str, capture: str, compile_model: str, fuse: str
) -> CompileOptions:
    """ValueError that lists what is allowed."""
    if report not in REPORTS:
        raise ValueError(f"report = {report!r} is not allowed; it takes {', '.join(REPORTS)}")
    for name, given in (("capture", capture), ("compile_model", compile_model), ("fuse", fuse)):
        if given not in ("auto", "off"):
            raise ValueError(f"{name} = {given!r} is not allowed; it takes 'auto' or 'off'")
    return CompileOptions(report, capture, compile_model, fuse)


def check_module(module: object) -> None:
    """TypeError for what is no module."""
    if not isinstance(module, nn.Module):
        raise TypeError(
            f"model = {module!r:.80} ({type(module).__name__}) is not allowed; it takes a "
            "torch.nn.Module, an instance and not a class"
        )


@dataclasses.dataclass
class Built:
    """A compiled task: its memory and who works on it."""

    module: nn.Module
    recipe: Recipe
    plan: MemoryPlan
    memory: Memory
    updater: Updater
    executor: StepExecutor
    scan: Scan | None
    swapped: list[str]
    origin: Origin
    initialised: int = 0
    loaded: int = 0

    @functools.cached_property
    def needs_length(self) -> bool:
        """See `Schedule.needs_length`; asked at every single step, so settled once."""
        return self.recipe.schedule().needs_length

    def look_at_first_pass(self) -> None:
        """Without data at compile, let the first training pass tell what it draws."""
        if self.scan is None and self.recipe.trains:
            self.executor.look_at_first(lambda run: first_look(self.module, run))

    def take_seed(self) -> None:
        """RuntimeError when a seed that is given only now does not reach what is drawn."""
        check_late_seed(self.scan, self.module)
        self.look_at_first_pass()

    @property
    def goes_back(self) -> bool:
        """Whether a reset brings back the weights that compile found, where it else draws some."""
        recipe = self.recipe
        return recipe.keep_weights or (recipe.keeps_weights and self.origin.has_weights)

    @property
    def has_ema(self) -> bool:
        return self.plan.has("E")

    @property
    def moment_regions(self) -> tuple[str, ...]:
        return tuple(letter for letter in ("M", "V") if self.plan.has(letter))

    def initialise(self, initializer: Initializer | None, seed: int, device: torch.device) -> None:
        """The state of a fresh compile: zero moments, EMA equal to the weights.

        Weights come from Philox, with fresh statistics; without an initializer both are those
        that the first compile found, as other buffers always are. Pretrained ones come last.
        """
        self.origin.put_back(self.memory)
        self.origin.is_untold = initializer is None and not self.recipe.keep_weights
        if initializer is not None:
            self.initialised = self.origin.draw(self.memory, initializer, seed, device)
            self.memory.reset_statistics()
            if self.recipe.pretrained is not None:
                self.loaded = self.recipe.pretrained.load_into(self.module)
        self.restart_moments()
        self.memory.restart_average()

    def restart_moments(self) -> None:
        """M = V = 0, where the plan has them."""
        for letter in self.moment_regions:
            self.memory.region(letter).zero_()

    def clear_stop(self) -> None:
        """A run that too many skipped updates have stopped may go on; they are counted anew."""
        scalars = self.updater.scalars
        fields = scalars.read()[0]
        if fields["stop"] or fields["bad"] >= fields["max_skipped"] > 0:
            scalars.write(stop=0, bad=0)

    def verify(self) -> None:
        """Bring back tensors that have left their regions; see `Memory.verify`."""
        self.memory.verify(self.module)
        self.executor.forget_mode()

    def away(self) -> list[str]:
        """Names of tensors that have left their regions, or were changed apart from masters."""
        return self.memory.away(self.module) + self.memory.edited(self.module)

    def look_behind_hooks(self) -> None:
        """Before a step: what a hook has written into 16-bit copies would be lost in it.

        On a GPU nothing waits for the answer: `check_home` has it.
        """
        if self.memory.device.type == "cpu":
            self.check_home()
        else:
            self.memory.note_edits(self.module)

    def check_home(self) -> None:
        """RuntimeError when the step, or a callback, has put new tensors in place of bound ones.

        Or has changed 16-bit copies, now or when `look_behind_hooks` did.
        """
        edited = self.memory.edited(self.module)
        edited = [name for name in edited if self.plan.segment(name).trainable]
        if self.memory.noted_edits(self.module) or edited:
            raise RuntimeError(
                f"{', '.join(edited[:5]) or 'weights'}: changed in place during training in mixed "
                "precision, where the next update rounds it anew from float32 weights, so that the "
                "change would be lost; make it in on_epoch_begin, or train in '32-true'"
            )
        if away := self.memory.away(self.module):
            leaf = away[0].rpartition(".")[2]
            raise RuntimeError(
                f"{', '.join(away[:5])}{' ...' * (len(away) > 5)}: assigned anew during training, "
                "so that updates, skipped steps, checkpoints and the average pass them by; change "
                f"the tensor in place, self.{leaf}.mul_(...) or self.{leaf}.copy_(...), where it "
                f"now says self.{leaf} = ..."
            )

    def close(self) -> None:
        """Give the module its own tensors and dropouts back and free the regions."""
        self.executor.close()
        layers.restore_dropouts(self.module, self.swapped)
        layers.bind_dropouts(self.module, None)  # the user's own ones: they hold region S
        self.memory.unbind(self.module)
        self.memory.close()


def build(task: Task, options: CompileOptions) -> Built:
    """Everything of compile but the report; see `Task.compile`.

    What was built before is closed. If this fails the module is left with tensors of its own.
    """
    recipe, module = task.settings, task.model
    sample = None
    if recipe.train is not None:
        sample = first_samples(recipe.train, needs_targets=recipe.loss is not None)
        materialise(module, sample[0])
    if recipe.trains:
        check_layers(module, smallest_batch(recipe))
    task.close()
    carried = task.carried
    task.frozen = freeze(module, recipe.freeze, task.frozen)
    # Weights that a task only looked with are the module's own still: training starts afresh.
    is_untold = carried is None or carried.origin.is_untold
    is_fresh = is_untold and not recipe.keeps_weights
    if is_fresh and recipe.init is None:
        _check_untrained(module)
    with contextlib.ExitStack() as undo:
        keys_attention = task.seed_given or task.device.type != "cuda"
        swapped = layers.swap_dropouts(module, attention=keys_attention)
        undo.callback(layers.restore_dropouts, module, swapped)
        undo.callback(layers.bind_dropouts, module, None)
        found = try_samples(task, sample)
        built = _assemble(task, options, found, swapped, undo)
        built.executor.frozen_norms = task.frozen.norms
        is_left = is_untold and recipe.keeps_weights
        built.origin.note(built.memory, weights=recipe.keep_weights or is_left)
        built.origin.is_untold = is_left and not recipe.keep_weights
        if is_fresh:
            built.initialise(recipe.init or Initializer(), task.seed, task.device)
        elif carried is not None:
            carried.give(built)
        scalars = built.updater.scalars
        built.memory.count_batches_with(lambda: int(scalars["batches"]), task.frozen.norms)
        undo.callback(built.executor.close)
        built.executor.prepare(recipe.train, recipe.valid, recipe.accumulate)
        built.check_home()  # a capture has run steps
        if task.seed_given:
            built.look_at_first_pass()
        undo.pop_all()
    return built


def _check_untrained(module: nn.Module) -> None:
    if has_trained_statistics(module):
        raise RuntimeError(
            "the module's batch-norm statistics are not a fresh constructor's, so it has been "
            "trained; say task.init('keep') to keep its weights, or task.init(rn.Initializer()) "
            "to start afresh"
        )


def plan_of(
    module: nn.Module, recipe: Recipe, precision: Precision, unused: Sequence[str] = ()
) -> MemoryPlan:
    """The memory plan of a module trained by a recipe; pure data, no memory is taken.

    Args:
        module: Not bound; its tensors may be on the meta device.
        recipe: Without an optimizer nothing is trained: there is no G, M and V.
        precision: Resolved.
        unused: Parameters that no loss depends on.
    """
    optimizer = recipe.optimizer or IDLE
    return MemoryPlan.build(
        module,
        moments=optimizer.moments,
        working_dtype=precision.working_dtype,
        ema=recipe.ema is not None,
        lars=optimizer.kernel.startswith("lars"),
        scalars_bytes=_native.SCALARS_BYTES,
        results_bytes=8 * Tally.size(len(metrics_of(recipe))),
        lr_scales=optimizer.settings.lr_scales,
        unused=unused if recipe.trains else [name for name, _ in module.named_parameters()],
    )


def metrics_of(recipe: Recipe) -> tuple[Metric, ...]:
    """The metrics beside the loss; none without one, which says what they count."""
    return () if recipe.loss is None else resolve_metrics(recipe.metrics, recipe.loss)


def _no_loss(output: Any, target: Tensor) -> tuple[Tensor, Tensor]:
    """What a task has for a loss that was given none."""
    raise RuntimeError(NO_LOSS)


def _assemble(
    task: Task,
    options: CompileOptions,
    found: Scan | None,
    swapped: list[str],
    undo: contextlib.ExitStack,
) -> Built:
    recipe, module, precision = task.settings, task.model, task.precision
    loss, metrics = recipe.loss, metrics_of(recipe)
    plan = plan_of(module, recipe, precision, found.unused if found is not None else ())
    if recipe.trains:
        check_reach(found, plan)
    memory = plan.allocate(task.device)
    undo.callback(memory.close)
    memory.bind(module)
    nominal = 1.0
    if loss and recipe.train is not None and found is not None and found.output_shape is not None:
        samples = recipe.train.batch_size * recipe.accumulate
        nominal = loss.nominal_weight((samples, *found.output_shape[1:]))
    updater = Updater(
        memory,
        recipe.optimizer or IDLE,
        clip=recipe.clip,
        ema=recipe.ema,
        loss_scaling=precision.loss_scaling,
        nominal=nominal,
        threads=task.threads,
    )
    updater.scalars.write(seed=task.seed)
    # A tensor of its own over S: autograd must not count what is written beside it in the arena.
    layers.bind_dropouts(module, from_dlpack(memory.region("S")))
    function = _no_loss if loss is None else loss.function(task.device)
    passes = Passes(module, function, metrics, precision)
    is_foreign = isinstance(loss, CallableLoss)
    passes.takes_any_numbers = not is_foreign and all(isinstance(m, str) for m in recipe.metrics)
    parameters = [module.get_parameter(segment.name) for segment in plan.parameters]

    executor: StepExecutor
    is_captured = task.device.type == "cuda" and options.capture == "auto" and recipe.trains
    if is_captured and (found is None or not found.not_capturable):
        from renaissance.step.capture import CapturedExecutor

        executor = CapturedExecutor(passes, memory, updater, parameters)
    else:
        executor = StepExecutor(passes, memory, updater, parameters)
    if loss is not None:
        executor.judge = judge_of(loss, None if found is None else found.output_shape)
    if task.device.type == "cuda" and recipe.trains:
        choose_passes(executor, task, fuse=options.fuse, compile_model=options.compile_model)
    origin = Origin() if task.carried is None else task.carried.origin
    return Built(module, recipe, plan, memory, updater, executor, found, swapped, origin)
