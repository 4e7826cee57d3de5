"""Commands that only look: plan, summary, schema, compare, data verify, config, new."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import click
import torch

from renaissance.cli.arguments import (
    PASS_OVERRIDES,
    import_file,
    newest_run,
    read_experiment,
    takes_experiment,
    takes_imports,
)
from renaissance.cli.planning import Outlook, batch_text, free_bytes, parse_bytes
from renaissance.cli.runfolder import RunFolder
from renaissance.cli.templates import digits
from renaissance.config.experiment import differences
from renaissance.config.schema import json_schema
from renaissance.data.folder import verify
from renaissance.describe import module_summary
from renaissance.report import compare as compare_runs
from renaissance.report import plot_compare, read_metrics


@click.command(
    context_settings=PASS_OVERRIDES,
    short_help="Memory, groups and schedule, without touching data.",
)
@takes_experiment
@click.option("--input-shape", metavar="C,H,W", help="Shape of a sample, where the model has none.")
@click.option("--max-batch", is_flag=True, help="Find the largest batch that fits.")
@click.option(
    "--memory", metavar="SIZE", help="Of the device, such as 80GiB; by default this one's."
)
def plan(
    file: str,
    overrides: Sequence[str],
    imports: Sequence[str],
    input_shape: str | None,
    max_batch: bool,
    memory: str | None,
) -> None:
    """Memory, groups, schedule and capture of an experiment, without touching any data.

    \b
    Examples:
      renaissance plan digits.yaml
      renaissance plan resnet50.yaml precision=bf16-mixed --max-batch --memory 80GiB
    """
    experiment = read_experiment(file, overrides, imports)
    outlook = Outlook.of(experiment, parse_shape(input_shape))
    if not max_batch:
        click.echo(outlook.to_text())
        return
    size = free_bytes() if memory is None else parse_bytes(memory)
    if size is None:
        raise click.UsageError("there is no CUDA device here; say how much: --memory 80GiB")
    click.echo(batch_text(outlook, size))


def parse_shape(text: str | None) -> tuple[int, ...] | None:
    """``3,224,224``."""
    if text is None:
        return None
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise click.BadParameter(
            f"{text!r} is no shape such as 3,224,224", param_hint="--input-shape"
        )
    return tuple(int(part) for part in parts)


@click.command(
    context_settings=PASS_OVERRIDES, short_help="Layers and parameters of an experiment's model."
)
@takes_experiment
def summary(file: str, overrides: Sequence[str], imports: Sequence[str]) -> None:
    """Layers of an experiment's model, with shapes and numbers of parameters."""
    experiment = read_experiment(file, overrides, imports)
    with torch.device("meta"):
        module = experiment.model.build()
    click.echo(module_summary(module))


@click.command(short_help="The JSON schema of experiments, for editors.")
@takes_imports
def schema(imports: Sequence[str]) -> None:
    """The JSON schema of experiments, for editors: redirect it into a file.

    \b
    Example, for VS Code and others with the YAML language server:
      renaissance schema > renaissance.schema.json
      and as the first line of a file: # yaml-language-server: $schema=renaissance.schema.json
    """
    for path in imports:
        import_file(path)
    click.echo(json.dumps(json_schema(), indent=1))


@click.command(short_help="Several runs in one table and one picture.")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...")
@click.option("--picture", default="compare.png", show_default=True, help="Where the curves go.")
@click.option("--no-picture", is_flag=True, help="Only the table.")
def compare(runs: Sequence[str], picture: str, no_picture: bool) -> None:
    """Several runs, or all runs of a folder of them, in one table and one picture.

    Runs of scripts, Task(..., run_dir="runs/try-3"), are taken too.

    \b
    Examples:
      renaissance compare runs/digits
      renaissance compare runs/digits/20260102-030405-1a2b3c4d runs/try-2
    """
    folders: list[RunFolder] = []
    for name in runs:
        folders += RunFolder.logged(name)
    found: dict[str, list[dict[str, float]]] = {}
    for label, folder in RunFolder.labelled(folders).items():
        metrics = folder.path / "metrics.csv"
        found[label] = read_metrics(metrics) if metrics.is_file() else []
    click.echo(compare_runs(found), nl=False)
    if not no_picture and any(found.values()):
        click.echo(f"picture  {plot_compare(found, picture)}")


@click.group()
def data() -> None:
    """Look after data on disk."""


@data.command("verify", short_help="Decode every picture of a folder.")
@click.argument("folder", metavar="FOLDER")
@click.pass_context
def verify_data(context: click.Context, folder: str) -> None:
    """Decode every picture of a folder of class folders; damaged ones are named (exit code 1)."""
    report = verify(folder)
    click.echo(report.to_text())
    context.exit(0 if report.is_sound else 1)


@click.group(short_help="Check, print and compare experiments.")
def config() -> None:
    """Check, print and compare experiments; none of these opens data."""


@config.command(context_settings=PASS_OVERRIDES, short_help="Say whether a file is right.")
@takes_experiment
def check(file: str, overrides: Sequence[str], imports: Sequence[str]) -> None:
    """Say whether a file is right; every problem is one line with its place (exit code 2)."""
    experiment = read_experiment(file, overrides, imports)
    click.echo(f"{file}: ok, configuration {experiment.hash()}")


@config.command(
    context_settings=PASS_OVERRIDES, short_help="Print a file with every default written out."
)
@takes_experiment
def show(file: str, overrides: Sequence[str], imports: Sequence[str]) -> None:
    """Print the resolved file, every default written out, as YAML."""
    click.echo(read_experiment(file, overrides, imports).to_yaml(), nl=False)


@config.command(
    context_settings=PASS_OVERRIDES, short_help="What overrides, another file or a run differ in."
)
@takes_experiment
@click.option("--with", "other", metavar="FILE|RUN", help="Compare with this file or run.")
def diff(file: str, overrides: Sequence[str], imports: Sequence[str], other: str | None) -> None:
    """What the overrides change in a file, or how it differs from another file or a run.

    \b
    Examples:
      renaissance config diff digits.yaml fit.epochs=5 optimizer=sgd optimizer.lr=0.1
      renaissance config diff digits.yaml --with runs/digits/20260102-030405-1a2b3c4d
    """
    after = read_experiment(file, overrides, imports)
    before = read_experiment(file if other is None else config_of(other), (), ())
    for path, old, new in differences(before.to_dict(), after.to_dict()):
        click.echo(f"{path}: {json.dumps(old)} -> {json.dumps(new)}")


def config_of(other: str) -> str:
    """The file itself, or that of a run."""
    return str(RunFolder.of(newest_run(other)).config) if Path(other).is_dir() else other


@click.command(short_help="Write a small complete experiment to start from.")
@click.argument("name")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def new(name: str, force: bool) -> None:
    """Write NAME.yaml, a small complete experiment with comments to start from."""
    place = Path(name if name.endswith((".yaml", ".yml")) else f"{name}.yaml")
    if place.exists() and not force:
        raise click.UsageError(f"{place} is there already; --force replaces it")
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(digits(place.stem), encoding="utf-8")
    click.echo(f"{place} is written; now: renaissance train {place}")


COMMANDS = (plan, summary, schema, compare, data, config, new)
