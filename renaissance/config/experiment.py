"""Experiments as YAML: one file in, checked descriptions out, and back to a file that reads equal.

::

    experiment = load_experiment("examples/quickstart.yaml", ["fit.epochs=5"])
    experiment.optimizer            # AdamW(weight_decay=0.01)
    experiment.model.build()        # the torch module
    experiment.to_yaml()            # resolved: every default written, every path absolute

The tree of a file is the tree of constructors: what is a keyword there is a key here. Nothing is
imported by a file, no data is opened by reading one, and every problem is one line
``FILE:line:col: path: what is wrong, what is allowed``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import torch
import yaml

from renaissance.assembly.frozen import Frozen, freeze
from renaissance.config.factories import Call, IsPath, as_data
from renaissance.config.hints import OneOf
from renaissance.config.kinds import REGISTRY, Registry
from renaissance.config.reader import BROKEN, Reader
from renaissance.config.yamltree import (
    ConfigError,
    Entries,
    Text,
    apply_override,
    merge,
    plain_word,
    read_tree,
    refuse,
)
from renaissance.ema import Clip, Ema
from renaissance.init import Initializer
from renaissance.metrics import resolve_metrics
from renaissance.schedules.schedule import resolve_lr
from renaissance.settings import SettingsModel
from renaissance.task import Task

Whole = Annotated[int, pydantic.Strict()]
Word = Annotated[str, pydantic.Strict()]
Switch = Annotated[bool, pydantic.Strict()]


def _check_device(given: str) -> str:
    if not re.fullmatch(r"auto|cpu|cuda(:[0-9]{1,3})?", given):
        raise ValueError("auto, cpu, cuda or cuda:N")
    return given


Device = Annotated[Word, pydantic.AfterValidator(_check_device)]

#: Settings that only look at training or lie beside it; two runs that differ in them are one run.
LOOKS = (
    "fit.verbose",
    "fit.log_every",
    "fit.checkpoint",
    "fit.keep",
    "compile.report",
)


def _setting(default: Any, doc: str, **limits: Any) -> Any:
    return pydantic.Field(default, description=doc, **limits)


def _number_as(cls: type[Ema] | type[Clip], name: str) -> pydantic.BeforeValidator:
    """Lets a bare number stand for the description: ``ema: 0.999``."""

    def convert(given: Any) -> Any:
        is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
        try:
            return cls(**{name: given}) if is_number else given
        except TypeError as error:  # pydantic takes a ValueError as an answer only
            raise ValueError(str(error)) from None

    return pydantic.BeforeValidator(convert)


class FitSettings(SettingsModel):
    """``fit:``, the arguments of `Task.fit`."""

    epochs: Whole | None = _setting(None, "The final epoch, 1 or more.", ge=1)
    max_steps: Whole | None = _setting(None, "The final step, 1 or more.", ge=1)
    validation_freq: Whole | tuple[Literal["step", "epoch"], Whole] = _setting(
        1, "Epochs between validations, or [step, n]."
    )
    steps_per_epoch: Whole | None = _setting(None, "Only so many steps of each epoch.", ge=1)
    verbose: Literal["auto", 0, 1, 2] = _setting(
        "auto", "0 nothing, 1 a bar, 2 a line an epoch, auto."
    )
    log_every: Whole = _setting(50, "Steps between two logged ones.", ge=1)
    checkpoint: Whole | Word | None = _setting(
        "epoch", "When to save: epoch, a number of steps, a time such as 10min, or null."
    )
    keep: Whole | None = _setting(3, "Last checkpoints that stay; null keeps all.", ge=1)
    horizon: Literal["keep", "stretch"] | None = _setting(
        None, "What a schedule does when a resumed run gets more epochs."
    )


class CompileSettings(SettingsModel):
    """``compile:``, the arguments of `Task.compile`."""

    report: Literal["none", "summary", "memory", "graph", "schedule", "all"] = _setting(
        "summary", "What compile prints."
    )
    capture: Literal["auto", "off"] = _setting("auto", "Capture the step as one CUDA graph.")
    compile_model: Literal["auto", "off"] = _setting("auto", "Send the model to torch.compile.")
    fuse: Literal["auto", "off"] = _setting("auto", "Swap in fused layers where known.")


class PretrainedSettings(SettingsModel):
    """``pretrained:``, the arguments of `Task.pretrained`."""

    weights: Annotated[Word, IsPath()] = _setting(..., "A safetensors file.")
    skip: tuple[Word, ...] = _setting(
        (), "Patterns of tensor names that are not taken from it: fc.* for a new head."
    )


class DataSettings(SettingsModel):
    """``data:``, training data and validation data."""

    train: Annotated[Any, OneOf("dataset")] = _setting(..., "Training data.")
    valid: Annotated[Any, OneOf("dataset")] | None = _setting(None, "Validation data.")


class Experiment(SettingsModel):
    """One run, described: what a YAML file says, checked."""

    name: Word | None = _setting(None, "Name of the run; the model's class by default.")
    seed: Whole | None = _setting(None, "0 to 2**64 - 1; null draws one.", ge=0, lt=1 << 64)
    device: Device = _setting("auto", "auto, cpu, cuda or cuda:N.")
    precision: Literal["32-true", "tf32", "bf16-mixed", "16-mixed"] = _setting(
        "32-true", "Arithmetic of forward and backward."
    )
    deterministic: Switch | None = _setting(None, "Only deterministic kernels; null: with a seed.")
    threads: Whole | None = _setting(None, "torch's threads; null takes torch's count.", ge=1)
    model: Annotated[Any, OneOf("model")] = _setting(..., "The network.")
    data: DataSettings | None = _setting(None, "What it is trained on.")
    loss: Annotated[Any, OneOf("loss")] = _setting(..., "What is minimised.")
    optimizer: Annotated[Any, OneOf("optimizer")] = _setting(..., "How.")
    scheduler: Annotated[Any, OneOf("scheduler")] | None = _setting(
        None, "Learning rate over training; null: the optimizer's lr."
    )
    init: Literal["keep"] | Initializer | None = _setting(
        None, "Rules for initial weights; keep leaves the model's own."
    )
    pretrained: PretrainedSettings | None = _setting(
        None, "Weights to start from, read when training starts."
    )
    freeze: tuple[Word, ...] = _setting(
        (), "Layers that stay as they are, by name or pattern: conv1, bn1, layer1."
    )
    ema: Annotated[Ema, _number_as(Ema, "decay")] | None = _setting(
        None, "Average of the weights; a number is its decay."
    )
    clip: Annotated[Clip, _number_as(Clip, "norm")] | None = _setting(
        None, "Limit of the gradients; a number is the highest norm."
    )
    accumulate: Whole = _setting(1, "Loader batches for one update.", ge=1)
    metrics: tuple[Word | Annotated[Any, OneOf("metric")], ...] = _setting(
        (), "Beside the loss: accuracy, top5, or registered ones."
    )
    callbacks: tuple[Annotated[Any, OneOf("callback")], ...] = _setting(
        (), "What else happens during training."
    )
    compile: CompileSettings = CompileSettings()
    fit: FitSettings = FitSettings()

    @property
    def title(self) -> str:
        """Its name, or else that of its model."""
        return str(self.model.type) if self.name is None else self.name

    def to_dict(self) -> dict[str, Any]:
        """Every setting as data, defaults written out."""
        found: dict[str, Any] = as_data(self)
        return found

    def to_yaml(self) -> str:
        """A file that `load_experiment` reads as an equal experiment, wherever it lies."""
        return yaml.dump(
            self.to_dict(), Dumper=_Dumper, sort_keys=False, width=96, allow_unicode=True
        )

    def task(
        self, *, run_dir: str | os.PathLike[str] | None = None, with_data: bool = True
    ) -> Task:
        """The task described, with its data opened, not yet compiled.

        Args:
            run_dir: The run's own folder, see `Task`.
            with_data: False leaves the data out, and opens none.
        """
        task = Task(
            self.model.build(),
            name=self.name,
            seed=self.seed,
            device=self.device,
            precision=self.precision,
            deterministic=self.deterministic,
            threads=self.threads,
            run_dir=run_dir,
        )
        task.loss(made(self.loss)).optimizer(self.optimizer).accumulate(self.accumulate)
        if self.scheduler is not None:
            task.scheduler(self.scheduler)
        if with_data and self.data is not None:
            task.data(self.data.train.build(), made(self.data.valid))
        for name in ("init", "ema", "clip"):
            if getattr(self, name) is not None:
                getattr(task, name)(getattr(self, name))
        if self.pretrained is not None:
            task.pretrained(self.pretrained.weights, skip=self.pretrained.skip)
        task.freeze(*self.freeze).metrics(*map(made, self.metrics))
        return task.callbacks(*map(made, self.callbacks))

    def hash(self) -> str:
        """Eight hex digits over every setting that can change a result."""
        settings = {k: v for k, v in flatten(self.to_dict()).items() if k not in LOOKS}
        text = json.dumps(settings, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:8]


def made(thing: Any) -> Any:
    """What a call makes; anything else as it is."""
    return thing.build() if isinstance(thing, Call) else thing


class _Dumper(yaml.SafeDumper):
    """Lists of numbers on one line; quotes around texts that would read as something else."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def represent_text(self, data: str) -> yaml.ScalarNode:
        style = None if isinstance(plain_word(data), str) else "'"
        if not data.isprintable():
            style = '"'  # with escapes; other line breaks than ours would not come back
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)

    def represent_items(self, data: Sequence[Any]) -> yaml.SequenceNode:
        flat = not any(isinstance(item, (list, dict)) for item in data)
        return self.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=flat)


_Dumper.add_representer(str, _Dumper.represent_text)
_Dumper.add_representer(list, _Dumper.represent_items)


def load_experiment(
    path: str | Path, overrides: Sequence[str] = (), *, registry: Registry = REGISTRY
) -> Experiment:
    """Read a YAML file, lay overrides on it, and check everything.

    Args:
        path: The file; messages name it as given here.
        overrides: ``key=value`` or ``--key=value``, each typed by its setting.
        registry: What ``type`` can name.

    Raises:
        ConfigError: One line for each problem found.
    """
    tree = load_tree(path)
    for number, argument in enumerate(overrides, start=1):
        tree = apply_override(tree, argument, number)
    return experiment_of(tree, registry)


def load_tree(path: str | Path) -> Entries:
    """The tree of a file, laid on that of the one file it extends."""
    tree = read_tree(Path(path), str(path))
    named = tree.entries.get("extends")
    if named is None:
        return tree
    if not isinstance(named, Text) or named.is_null:
        refuse(named.mark, "extends", "must be the path of one file")
    base_name = Path(path).parent / named.text
    if not base_name.is_file():
        refuse(
            named.mark, "extends", f"there is no file {base_name}; a path is relative to this file"
        )
    base = read_tree(base_name, str(base_name))
    if "extends" in base.entries:
        refuse(base.keys["extends"], "extends", "is not allowed in a file that is itself extended")
    merged = merge(base, tree)
    assert isinstance(merged, Entries)
    return Entries(
        merged.mark, {k: v for k, v in merged.entries.items() if k != "extends"}, merged.keys
    )


def experiment_of(tree: Entries, registry: Registry = REGISTRY) -> Experiment:
    """The experiment that a tree describes."""
    reader = Reader(registry)
    found = reader.section(Experiment, tree, "")
    if found is not BROKEN:
        _check_together(found, tree, registry, reader)
    problems = reader.problems()
    if problems:
        raise ConfigError("\n".join(problems))
    experiment: Experiment = found
    return experiment


def _check_together(
    experiment: Experiment, tree: Entries, registry: Registry, reader: Reader
) -> None:
    """What concerns several settings: the learning rate, metrics of the loss, the model's sizes."""

    def check(key: str, work: Any) -> None:
        try:
            work()
        except (ValueError, TypeError) as error:
            reader.note(tree.entries.get(key, tree), key, str(error))

    def build_without_memory() -> None:
        found = registry.find("model", experiment.model.type)
        if found is not None and found.is_builtin:
            with torch.device("meta"):
                network = experiment.model.build()
            check("freeze", lambda: freeze(network, experiment.freeze, Frozen()))

    check("optimizer", lambda: resolve_lr(experiment.optimizer, experiment.scheduler))
    if not isinstance(experiment.loss, Call):
        texts = [metric for metric in experiment.metrics if isinstance(metric, str)]
        check("metrics", lambda: resolve_metrics(texts, experiment.loss))
    check("model", build_without_memory)


def flatten(data: Any, path: str = "") -> dict[str, Any]:
    """``{"optimizer.lr": 0.1, ...}``; lists and empty mappings are values."""
    if not isinstance(data, Mapping) or not data:
        return {path: data}
    found: dict[str, Any] = {}
    for key, part in data.items():
        found |= flatten(part, f"{path}.{key}" if path else str(key))
    return found


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """(path, in a, in b) of what differs between two experiments' data; None for absent ones."""
    left, right = flatten(a), flatten(b)
    for path in [*left, *(path for path in right if path not in left)]:
        if path not in left or path not in right or left[path] != right[path]:
            yield path, left.get(path), right.get(path)
