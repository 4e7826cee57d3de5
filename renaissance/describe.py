"""What compile and summary print: text about a task, made of its plan and recipe."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from renaissance.assembly.build import Built
    from renaissance.task import Task
    from renaissance.update.operations import RangeOp


LOOKS = "none: there is no task.optimizer(...), so the task only evaluates and predicts"


def human_bytes(count: int) -> str:
    """1536 -> '1.5 KiB'."""
    size = float(count)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    raise AssertionError("unreachable")


def compile_report(task: Task, report: str) -> str:
    """The text for ``compile(report=...)``; empty for "none"."""
    built = task.require()
    parts: dict[str, Callable[[], str]] = {
        "summary": lambda: _summary(task, built),
        "memory": lambda: built.plan.to_text(),
        "graph": lambda: _graph(built),
        "schedule": lambda: _schedule(task),
    }
    if report == "none":
        return ""
    chosen = parts if report == "all" else {report: parts[report]}
    return "\n\n".join(make() for make in chosen.values())


def _summary(task: Task, built: Built) -> str:
    plan, recipe = built.plan, task.settings
    weights = plan.parameters if recipe.trains else [s for s in plan.segments if s.region == "W"]
    count, kind = sum(s.count for s in weights), "trainable " * recipe.trains
    regions = "  ".join(f"{r.name} {human_bytes(r.nbytes)}" for r in plan.regions if r.nbytes)
    how = "deterministic" if task.deterministic else "fast kernels, not deterministic"
    lines = [
        f"{task.name}: {task.device}, {task.precision.name}, seed {task.seed}, {how}, "
        f"{task.threads} threads",
        f"  parameters  {count:,} {kind}in {len(weights)} tensors",
        f"  memory      {human_bytes(plan.total_bytes)} in all: {regions}",
    ]
    if recipe.trains:
        lines += [
            f"  groups      {_groups(built)}",
            f"  step        {built.executor.describe()}; "
            f"{len(operations_of(built))} range operations a step",
            f"  optimizer   {recipe.optimizer!r}",
            f"  schedule    {recipe.schedule()!r}",
        ]
    else:
        lines.append(f"  step        {LOOKS}")
    lines.append(f"  weights     {_weights(task, built)}")
    lines += [f"  note        {note}" for note in notes(task, built)]
    return "\n".join(lines)


def _groups(built: Built) -> str:
    texts = []
    for span in built.plan.ranges:
        factor = "" if span.lr_factor == 1 else f", lr x {span.lr_factor:g}"
        decay = "decayed" if span.decay else "no decay"
        inside = [s for s in built.plan.parameters if span.begin <= s.offset < span.end]
        count = sum(segment.count for segment in inside)  # without padding
        texts.append(f"{span.group} {count:,} elements ({decay}{factor})")
    frozen = [s.name for s in built.plan.segments if s.region == "W" and not s.trainable]
    if frozen:
        texts.append(f"frozen or unused: {', '.join(frozen[:4])}{' ...' * (len(frozen) > 4)}")
    return "; ".join(texts)


def _weights(task: Task, built: Built) -> str:
    if built.loaded and task.settings.pretrained is not None:
        return (
            f"{built.loaded} tensors from {task.settings.pretrained.source}, the rest initialised "
            f"from seed {task.seed}"
        )
    if built.initialised:
        return (
            f"initialised {built.initialised} tensors from seed {task.seed}; "
            'task.init("keep") keeps the module\'s own'
        )
    return "the module's own are kept" + "; moments start from zero" * built.recipe.trains


def notes(task: Task, built: Built) -> list[str]:
    """What a user should know and did not ask."""
    found = []
    if built.swapped:
        names = ", ".join(built.swapped[:8]) + " ..." * (len(built.swapped) > 8)
        found.append(f"dropout keyed by seed and step takes the place of {names}")
    if built.executor.fused:
        found.append(built.executor.fused)
    if built.scan is None:
        if task.settings.trains:
            found.append("compiled without data: parameters that no loss reaches cannot be told")
    elif built.scan.repeated:
        found.append(
            f"{', '.join(built.scan.repeated)} runs more than once in a forward and draws the same "
            "mask each time; give every place a Dropout of its own"
        )
    taken = task.settings.loss.takes_itself if task.settings.loss else None
    if built.scan is not None and taken is not None and built.scan.ending == taken:
        found.append(
            f"the model ends in {taken.lower()}, which {type(task.settings.loss).__name__} takes "
            "itself, of raw scores: leave it out of the model, or it is taken twice"
        )
    settings = task.settings.optimizer and task.settings.optimizer.settings
    if type(task.settings.optimizer).__name__ == "SGD" and getattr(settings, "weight_decay", 0) > 0:
        found.append("decoupled; a torch recipe's weight decay is .l2(x) here")
    if task.device.type == "cpu" and task.precision.working_dtype is not None:
        found.append("16-bit products are slower than float32 on most CPUs")
    if built.scan is not None and built.scan.not_capturable and task.settings.trains:
        first = built.scan.not_capturable[0]
        found.append(f"the step runs eagerly on CUDA too: {first} cannot be captured")
    return found


def operations_of(built: Built) -> list[RangeOp]:
    """Those that a step runs: no gather behind a backward that puts gradients into G itself."""
    lands = built.executor.passes.landing is not None
    return [op for op in built.updater.ops if not (lands and op.kernel == "gather")]


def _graph(built: Built) -> str:
    if not built.recipe.trains:
        return LOOKS
    rows = [f"{i:3}  {op}" for i, op in enumerate(operations_of(built))]
    return "range operations of a step, in order\n" + "\n".join(rows)


def _schedule(task: Task) -> str:
    if not task.settings.trains:
        return LOOKS
    schedule, horizon = task.settings.schedule(), task.horizon
    if horizon is None:
        return f"{schedule!r}: drawn over the steps of the first fit"
    total, per_epoch = horizon.total_steps, horizon.steps_per_epoch
    rates = schedule.simulate(total, per_epoch)
    places = sorted({0, *(total * i // 10 for i in range(10)), total - 1})
    rows = [f"  step {place:8}  lr {rates[place]:.6g}" for place in places]
    return f"{schedule!r}, {total} steps\n" + "\n".join(rows)


def module_summary(module: nn.Module) -> str:
    """Layers with their parameters: name, class, shapes, count."""
    rows = [("layer", "class", "parameters", "shapes")]
    total = trainable = 0
    for name, layer in module.named_modules():
        own = dict(layer.named_parameters(recurse=False))
        if not own:
            continue
        count = sum(p.numel() for p in own.values())
        total += count
        trainable += sum(p.numel() for p in own.values() if p.requires_grad)
        shapes = ", ".join(f"{n} {tuple(p.shape)}" for n, p in own.items())
        rows.append((name or "(root)", type(layer).__name__, f"{count:,}", shapes))
    widths = [max(len(row[i]) for row in rows) for i in range(4)]
    lines = [
        f"{a:<{widths[0]}}  {b:<{widths[1]}}  {c:>{widths[2]}}  {d}".rstrip() for a, b, c, d in rows
    ]
    lines.insert(1, "-" * max(len(line) for line in lines))
    return "\n".join([*lines, f"{total:,} parameters, {trainable:,} trainable"])
