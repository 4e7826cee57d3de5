"""What compile does: from a module and a recipe to bound memory and an executor."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only
from torch.utils.dlpack import from_dlpack

from renaissance import _native
from renaissance import nn as layers
from renaissance.assembly.carried import Origin
from renaissance.assembly.fastpath import choose_passes
from renaissance.assembly.frozen import freeze
from renaissance.assembly.misfit import check_targets, judge_of
from renaissance.assembly.scan import (
    Scan,
    check_layers,
    check_random,
    check_reach,
    has_trained_statistics,
    scan,
)
from renaissance.data.batch import NO_TARGETS, on_host
from renaissance.data.loader import Loader
from renaissance.foreign_losses import CallableLoss
from renaissance.init import Initializer
from renaissance.losses import LossFunction
from renaissance.memory.plan import Memory, MemoryPlan
from renaissance.metrics import resolve_metrics
from renaissance.step.executor import StepExecutor
from renaissance.step.passes import Passes
from renaissance.step.tally import Tally
from renaissance.update.updater import Updater

if TYPE_CHECKING:
    from renaissance.assembly.recipe import Recipe
    from renaissance.precision import Precision
    from renaissance.task import Task

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

    def check_home(self) -> None:
        """RuntimeError when the step, or a callback, has put new tensors in place of bound ones."""
        edited = self.memory.edited(self.module)
        if edited := [name for name in edited if self.plan.segment(name).trainable]:
            raise RuntimeError(
                f"{', '.join(edited[:5])}: changed in place during training in mixed precision, "
                "where the next update rounds it anew from float32 weights, so that the change "
                "would be lost; make it in on_epoch_begin, or train in '32-true'"
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


def first_samples(loader: Loader, count: int = 2) -> tuple[Any, Tensor]:
    """The first samples of epoch 0 as tensors: what shapes are judged by; they need targets."""
    batch = loader.batch_at(0, 0, seed=0)
    if batch.y is None:
        raise ValueError(f"training data: {NO_TARGETS}")
    return as_tensors(batch.x, count), as_tensors(batch.y, count)


def as_tensors(x: Any, count: int) -> Any:
    if isinstance(x, Mapping):
        return {k: as_tensors(v, count) for k, v in x.items()}
    if isinstance(x, (tuple, list)):
        return type(x)(as_tensors(v, count) for v in x)
    return on_host(x)[:count]


def build(task: Task, options: CompileOptions) -> Built:
    """Everything of compile but the report; see `Task.compile`.

    What was built before is closed. If this fails the module is left with tensors of its own.
    """
    recipe, module = task.settings, task.model
    sample = None if recipe.train is None else first_samples(recipe.train)
    if sample is not None:
        _materialise(module, sample[0])
    check_layers(module, _smallest_batch(recipe))
    task.close()
    carried = task.carried
    task.frozen = freeze(module, recipe.freeze, task.frozen)
    if carried is None and not recipe.keep_weights and recipe.init is None:
        _check_untrained(module)
    with contextlib.ExitStack() as undo:
        keys_attention = task.seed_given or task.device.type != "cuda"
        swapped = layers.swap_dropouts(module, attention=keys_attention)
        undo.callback(layers.restore_dropouts, module, swapped)
        undo.callback(layers.bind_dropouts, module, None)
        found = None if sample is None else _scan(task, sample)
        built = _assemble(task, options, found, swapped, undo)
        built.executor.frozen_norms = task.frozen.norms
        built.origin.note(built.memory, weights=recipe.keep_weights)
        if carried is not None:
            carried.give(built)
        elif not recipe.keep_weights:
            built.initialise(recipe.init or Initializer(), task.seed, task.device)
        scalars = built.updater.scalars
        built.memory.count_batches_with(lambda: int(scalars["batches"]), task.frozen.norms)
        undo.callback(built.executor.close)
        built.executor.prepare(recipe.train, recipe.valid, recipe.accumulate)
        built.check_home()  # a capture has run steps
        undo.pop_all()
    return built


def _check_untrained(module: nn.Module) -> None:
    if has_trained_statistics(module):
        raise RuntimeError(
            "the module's batch-norm statistics are not a fresh constructor's, so it has been "
            "trained; say task.init('keep') to keep its weights, or task.init(rn.Initializer()) "
            "to start afresh"
        )


def _smallest_batch(recipe: Recipe) -> int | None:
    if recipe.train is None:
        return None
    rest = recipe.train.num_samples % recipe.train.batch_size
    return rest if rest and not recipe.train.drop_last else recipe.train.batch_size


def _materialise(module: nn.Module, x: Any) -> None:
    """Give lazy parameters their shapes, from one pass in evaluation mode."""
    lazy = (nn.parameter.UninitializedParameter, nn.parameter.UninitializedBuffer)
    tensors = [*module.parameters(), *module.buffers()]
    if any(isinstance(t, lazy) for t in tensors):
        training = module.training
        with torch.no_grad():
            module.eval()(x)
        module.train(training)


def _scan(task: Task, sample: tuple[Any, Tensor]) -> Scan:
    """One pass over two samples on the unbound module; its buffers are put back.

    Parameters that two samples do not reach are judged by the whole first batch.
    """
    module, recipe = task.model, task.settings
    assert recipe.loss is not None
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    x, y = _to(sample[0], device), sample[1].to(device)
    buffers = {n: b.clone() for n, b in module.named_buffers()}
    training = module.training
    module.train()
    layers.bind_dropouts(
        module, torch.zeros(_native.SCALARS_BYTES, dtype=torch.uint8, device=device)
    )
    function = recipe.loss.function(device)  # with tensors of its own, perhaps
    try:
        found = scan(module, lambda: _one_pass(module, recipe, function, x, y), (layers.Dropout,))
    finally:
        module.train(training)
        for name, buffer in module.named_buffers():
            buffer.copy_(buffers[name])
    if len(found.unused) == sum(1 for p in module.parameters() if p.requires_grad):
        raise ValueError(
            "there is nothing to train: the loss depends on none of the model's "
            f"{sum(1 for _ in module.parameters())} parameters, or none has requires_grad"
        )
    loader = recipe.train
    if found.unused and loader is not None and len(y) < min(loader.batch_size, loader.num_samples):
        return _scan(task, first_samples(loader, loader.batch_size))
    check_random(found, seeded=task.seed_given)
    if found.output_shape is not None and recipe.train is not None:
        check_targets(recipe.loss, recipe.train, found.output_shape)
        try:
            check_targets(recipe.loss, recipe.valid, found.output_shape)
        except ValueError as error:
            raise ValueError(f"validation data: {error}") from None
    return found


def _one_pass(
    module: nn.Module, recipe: Recipe, loss: LossFunction, x: Any, y: Tensor
) -> tuple[Any, Tensor]:
    assert recipe.loss is not None
    try:
        output = module(tree_map_only(Tensor, Tensor.detach, x))
    except RuntimeError as error:
        shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise ValueError(f"the model does not take samples of shape {shape}: {error}") from error
    if isinstance(output, Tensor):
        recipe.loss.check_target(y.cpu().numpy(), tuple(output.shape))
    elif recipe.loss.knows_targets:
        raise TypeError(
            f"the model gives {type(output).__name__}, {type(recipe.loss).__name__} takes one "
            "tensor; return that tensor, or give task.loss a function of (output, target)"
        )
    return output, loss(output, y)[0]


def _to(x: Any, device: torch.device) -> Any:
    if isinstance(x, Mapping):
        return {k: _to(v, device) for k, v in x.items()}
    if isinstance(x, (tuple, list)):
        return type(x)(_to(v, device) for v in x)
    return x.to(device)


def plan_of(
    module: nn.Module, recipe: Recipe, precision: Precision, unused: Sequence[str] = ()
) -> MemoryPlan:
    """The memory plan of a module trained by a recipe; pure data, no memory is taken.

    Args:
        module: Not bound; its tensors may be on the meta device.
        recipe: With a loss and an optimizer.
        precision: Resolved.
        unused: Parameters that no loss depends on.
    """
    assert recipe.loss is not None and recipe.optimizer is not None
    return MemoryPlan.build(
        module,
        moments=recipe.optimizer.moments,
        working_dtype=precision.working_dtype,
        ema=recipe.ema is not None,
        lars=recipe.optimizer.kernel.startswith("lars"),
        scalars_bytes=_native.SCALARS_BYTES,
        results_bytes=8 * Tally.size(len(resolve_metrics(recipe.metrics, recipe.loss))),
        lr_scales=recipe.optimizer.settings.lr_scales,
        unused=unused,
    )


def _assemble(
    task: Task,
    options: CompileOptions,
    found: Scan | None,
    swapped: list[str],
    undo: contextlib.ExitStack,
) -> Built:
    recipe, module, precision = task.settings, task.model, task.precision
    assert recipe.loss is not None and recipe.optimizer is not None
    metrics = resolve_metrics(recipe.metrics, recipe.loss)
    plan = plan_of(module, recipe, precision, found.unused if found is not None else ())
    check_reach(found, plan)
    memory = plan.allocate(task.device)
    undo.callback(memory.close)
    memory.bind(module)
    nominal = 1.0
    if recipe.train is not None and found is not None and found.output_shape is not None:
        samples = recipe.train.batch_size * recipe.accumulate
        nominal = recipe.loss.nominal_weight((samples, *found.output_shape[1:]))
    updater = Updater(
        memory,
        recipe.optimizer,
        clip=recipe.clip,
        ema=recipe.ema,
        loss_scaling=precision.loss_scaling,
        nominal=nominal,
        threads=task.threads,
    )
    updater.scalars.write(seed=task.seed)
    # A tensor of its own over S: autograd must not count what is written beside it in the arena.
    layers.bind_dropouts(module, from_dlpack(memory.region("S")))
    passes = Passes(module, recipe.loss.function(task.device), metrics, precision)
    is_foreign = isinstance(recipe.loss, CallableLoss)
    passes.takes_any_numbers = not is_foreign and all(isinstance(m, str) for m in recipe.metrics)
    parameters = [module.get_parameter(segment.name) for segment in plan.parameters]

    executor: StepExecutor
    is_captured = task.device.type == "cuda" and options.capture == "auto"
    if is_captured and (found is None or not found.not_capturable):
        from renaissance.step.capture import CapturedExecutor

        executor = CapturedExecutor(passes, memory, updater, parameters)
    else:
        executor = StepExecutor(passes, memory, updater, parameters)
    executor.judge = judge_of(recipe.loss, None if found is None else found.output_shape)
    if task.device.type == "cuda":
        choose_passes(executor, task, fuse=options.fuse, compile_model=options.compile_model)
    origin = Origin() if task.carried is None else task.carried.origin
    return Built(module, recipe, plan, memory, updater, executor, found, swapped, origin)
