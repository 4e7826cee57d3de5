"""Commands that train: train, verify-resume, lr-find."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import click

from renaissance.cli.arguments import (
    PASS_OVERRIDES,
    newest_run,
    read_experiment,
    takes_experiment,
)
from renaissance.cli.proof import KillAt, verify_resume
from renaissance.cli.runfolder import RunFolder, facts_of
from renaissance.config.experiment import Experiment
from renaissance.config.yamltree import ConfigError
from renaissance.fit.identity import IDENTITY
from renaissance.hooks import Callback
from renaissance.interrupts import Interrupted
from renaissance.jsontext import dump_json
from renaissance.lrfinder import sweep
from renaissance.task import Task
from renaissance.tensorfile import CheckpointError


@click.command(
    context_settings=PASS_OVERRIDES, short_help="Train an experiment, or go on after a break."
)
@takes_experiment
@click.option(
    "--resume",
    metavar="auto|PATH",
    help="Continue: auto takes the newest run of this name and configuration; a path is a run "
    "folder, a checkpoint or a pointer file (latest, best).",
)
@click.option("--run-dir", metavar="FOLDER", help="The run's own folder; by default a new one.")
@click.option("--root", default="runs", show_default=True, help="Where new run folders go.")
@click.option(
    "--allow",
    multiple=True,
    type=click.Choice(list(IDENTITY)),
    help="A difference that a resume accepts.",
)
@click.option("--tensorboard", is_flag=True, help="Write TensorBoard files too.")
@click.option("--kill-at", type=int, hidden=True)
@click.option("--result", hidden=True)
def train(  # noqa: PLR0913 - one parameter for each option
    file: str,
    overrides: Sequence[str],
    imports: Sequence[str],
    resume: str | None,
    run_dir: str | None,
    root: str,
    allow: Sequence[str],
    tensorboard: bool,
    kill_at: int | None,
    result: str | None,
) -> None:
    """Train an experiment; its run folder gets configuration, metrics, checkpoints and curves.

    \b
    Examples:
      renaissance train digits.yaml
      renaissance train digits.yaml fit.epochs=40 --optimizer.weight_decay=0.1
      renaissance train digits.yaml --resume auto
      renaissance train digits.yaml fit.epochs=40 fit.horizon=stretch --resume runs/digits/...
    """
    experiment = read_experiment(file, overrides, imports)
    if experiment.fit.epochs is None and experiment.fit.max_steps is None:
        raise ConfigError(f"{file}:1:1: fit.epochs: is missing: how long to train")
    if experiment.data is None:
        raise ConfigError(f"{file}:1:1: data: is missing: what to train on")
    folder, source = choose_folder(experiment, resume, run_dir, Path(root))
    with folder.unless_it_fails():
        task = experiment.task(run_dir=folder.path)
        task.compile(**experiment.compile.model_dump())
    settled = experiment.model_copy(update={"seed": task.seed})
    for line in folder.changes(settled):
        click.echo(f"changed   {line}")
    task.noted = facts_of(experiment, task, Path(file))
    callbacks = folder.callbacks(settled, tensorboard=tensorboard)
    extra: list[Callback] = [] if kill_at is None else [KillAt(kill_at)]
    fit = experiment.fit.model_dump()
    try:
        with folder.unless_it_fails():
            task.fit(callbacks=[*callbacks, *extra], resume=source, allow=tuple(allow), **fit)
    except (KeyboardInterrupt, Interrupted):
        click.echo(
            f"stopped after step {task.attempted_steps}; a checkpoint is in {folder.path}; "
            f"continue with --resume {folder.path}",
            err=True,
        )
        raise
    finish(task, folder, result)


def choose_folder(
    experiment: Experiment, resume: str | None, run_dir: str | None, root: Path
) -> tuple[RunFolder, str | bool]:
    """The run folder, and what `Task.fit` resumes from."""
    if run_dir is None and int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise click.UsageError("several processes share one folder: name it with --run-dir")
    given = None if run_dir is None else RunFolder(run_dir)
    if resume is None:
        if given is not None and given.has_checkpoint():
            raise click.UsageError(
                f"{given.path} holds checkpoints of an earlier run; --resume auto continues it, "
                "another --run-dir starts afresh"
            )
        return given or RunFolder.fresh(root, experiment), False
    if resume == "auto":
        found = given or RunFolder.newest(root, experiment)
        if found is None:
            click.echo(
                f"resume: no run of {experiment.title!r} with configuration {experiment.hash()} in "
                f"{root}; a fresh start"
            )
            return RunFolder.fresh(root, experiment), False
        if not found.checkpoints.is_dir():  # killed before its first
            click.echo(f"resume: no checkpoint in {found.path} yet; a fresh start")
            return found, False
        return found, "auto"
    place = newest_run(resume)
    if not place.exists():
        raise click.BadParameter(f"there is nothing at {resume!r}", param_hint="--resume")
    try:
        return given or RunFolder.of(place), str(place)
    except CheckpointError:
        return RunFolder.fresh(root, experiment), str(place)  # a checkpoint that lies in no run


def finish(task: Task, folder: RunFolder, result: str | None) -> None:
    """Write the result, and say it in a few lines."""
    rows = task.history.rows()
    last = {n: float(v) for n, v in rows[-1].items() if n not in ("epoch", "steps")} if rows else {}
    folder.finish(task, last=last)
    if result is not None:
        found = {
            "state_hash": task.state_hash(),
            "attempted_steps": task.attempted_steps,
            "history": rows,
        }
        Path(result).write_bytes(dump_json(found, what="result"))
    values = "  ".join(f"{name} {value:.4g}" for name, value in last.items())
    click.echo(f"done      epoch {task.epoch}, step {task.attempted_steps}  {values}")
    click.echo(f"state     {task.state_hash()}")
    if folder.curves.is_file():
        click.echo(f"curves    {folder.curves}")
    click.echo(f"run       {folder.path}")


@click.command(
    "verify-resume",
    context_settings=PASS_OVERRIDES,
    short_help="Prove that resuming your configuration is exact.",
)
@takes_experiment
@click.option("--steps", type=int, required=True, help="Steps of the whole training.")
@click.option("--kill-at", type=int, required=True, help="The step after which it is killed.")
@click.option("--keep", metavar="FOLDER", help="Keep both run folders there, for a closer look.")
@click.pass_context
def verify(
    context: click.Context,
    file: str,
    overrides: Sequence[str],
    imports: Sequence[str],
    steps: int,
    kill_at: int,
    keep: str | None,
) -> None:
    """Prove on your own configuration that resuming is exact.

    Trains once without a break, once killed by SIGKILL and resumed, each in processes of their own,
    and compares every bit. Exit code 1 when they differ.

    \b
    Example:
      renaissance verify-resume digits.yaml --steps 60 --kill-at 37
    """
    read_experiment(file, overrides, imports)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        proof = verify_resume(
            file, overrides, folder, steps=steps, kill_at=kill_at, imports=imports
        )
    click.echo(proof.to_text())
    context.exit(0 if proof.holds else 1)


@click.command(
    "lr-find",
    context_settings=PASS_OVERRIDES,
    short_help="Sweep the learning rate and suggest one.",
)
@takes_experiment
@click.option("--low", type=float, default=1e-7, show_default=True, help="The first rate.")
@click.option("--high", type=float, default=1.0, show_default=True, help="The last rate.")
@click.option("--steps", type=int, default=100, show_default=True, help="Steps of the sweep.")
@click.option("--picture", metavar="FILE.png", help="Draw the loss over the rate.")
def lr_find(
    file: str,
    overrides: Sequence[str],
    imports: Sequence[str],
    low: float,
    high: float,
    steps: int,
    picture: str | None,
) -> None:
    """Sweep the learning rate upwards for some steps and suggest one; nothing is kept.

    \b
    Example:
      renaissance lr-find digits.yaml --low 1e-6 --high 10 --picture sweep.png
    """
    experiment = read_experiment(file, overrides, imports)
    if experiment.data is None:
        raise ConfigError(f"{file}:1:1: data: is missing: what to train on")
    task = experiment.task()
    task.compile(report="none")
    found = sweep(task, low=low, high=high, steps=steps)
    for rate, loss in zip(found.rates, found.losses):
        click.echo(f"{rate:10.3g}  {loss:.6g}")
    if picture is not None:
        click.echo(f"picture    {found.plot(picture)}")
    suggestion = found.suggestion
    if suggestion is None:
        click.echo("no rate in this range lowers the loss; widen it or take more steps")
    else:
        click.echo(f"suggested  {suggestion:.3g}, where the loss falls steepest")


COMMANDS = (train, verify, lr_find)
