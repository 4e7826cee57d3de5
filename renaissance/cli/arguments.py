"""What several commands take: an experiment with overrides, a run, files that register things."""

from __future__ import annotations

import difflib
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from renaissance.cli.runfolder import CONFIG, FACTS, RunFolder
from renaissance.config.experiment import Experiment, load_experiment
from renaissance.config.yamltree import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

#: Lets ``--optimizer.lr=0.1`` through as an argument.
PASS_OVERRIDES = {"ignore_unknown_options": True}


def takes_imports(function: F) -> F:
    """``--import my.py``."""
    option = click.option(
        "--import",
        "imports",
        multiple=True,
        metavar="FILE.py",
        help="Run a file first that calls rn.register(...) for models or data sets of your own.",
    )
    return option(function)


def takes_experiment(function: F) -> F:
    """``FILE [key=value ...] [--import my.py]``."""
    overrides = click.argument("overrides", nargs=-1, type=click.UNPROCESSED)
    file = click.argument("file", metavar="FILE.yaml")
    return file(overrides(takes_imports(function)))


def takes_run(function: F) -> F:
    """``RUN [--checkpoint best] [--import my.py]``."""
    checkpoint = click.option(
        "--checkpoint",
        default="latest",
        show_default=True,
        metavar="NAME",
        help="Which checkpoint of a run folder: latest (newest intact), best, or a step's number.",
    )
    run = click.argument("run", metavar="RUN")
    return run(checkpoint(takes_imports(function)))


def read_experiment(file: str, overrides: Sequence[str], imports: Sequence[str]) -> Experiment:
    """The experiment of a command line; ConfigError or a usage error for a wrong one."""
    check_overrides(overrides)
    check_file(file)
    for path in imports:
        import_file(path)
    return load_experiment(file, overrides)


def check_file(file: str) -> None:
    """ConfigError for what is no file of settings: a folder, a run, a script."""
    place, text = Path(file), None
    if place.suffix == ".py":
        text = f"is a Python script; run it: python {file}"
    elif (place / CONFIG).is_file():
        text = f"is the folder of a run; its file is {place / CONFIG}"
    elif (place / FACTS).is_file():
        text = f"is {RunFolder(place).script_text(place)}"
    elif place.is_dir():
        text = "is a folder; it takes a YAML file, such as `renaissance new NAME` writes"
    if text is not None:
        raise ConfigError(f"{file}:1:1: {text}")


def check_overrides(overrides: Sequence[str]) -> None:
    """Refuse what looks like an option and is none, with the nearest one there is."""
    context = click.get_current_context()
    names = [name for parameter in context.command.params for name in parameter.opts]
    for text in overrides:
        if text.startswith("-") and "=" not in text:
            close = difflib.get_close_matches(text, [n for n in names if n.startswith("-")], n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise click.UsageError(
                f"No such option {text!r}.{hint} Settings are written key=value, such as "
                "fit.epochs=5",
                ctx=context,
            )


def import_file(path: str) -> None:
    """Run a Python file that the user named, for what it registers."""
    place = Path(path)
    if not place.is_file():
        raise click.BadParameter(f"there is no file {path!r}", param_hint="--import")
    spec = importlib.util.spec_from_file_location(place.stem, place)
    if spec is None or spec.loader is None:
        raise click.BadParameter(f"{path!r} is no Python file", param_hint="--import")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def find_run(run: str, checkpoint: str) -> tuple[RunFolder, Path]:
    """The run that a path belongs to, and the checkpoint (or folder of them) that is meant."""
    place = newest_run(run)
    folder = RunFolder.of(place)
    if place.resolve() != folder.path.resolve():
        return folder, place  # the path names a checkpoint or a pointer itself
    if checkpoint == "latest":
        return folder, folder.checkpoints
    is_step = checkpoint.isdecimal()
    meant = folder.checkpoint_of(int(checkpoint)) if is_step else folder.checkpoints / checkpoint
    if not meant.exists():
        raise click.BadParameter(
            f"{folder.path} keeps no checkpoint {checkpoint!r}; there are "
            f"{', '.join(folder.kept()) or 'none'}",
            param_hint="--checkpoint",
        )
    return folder, meant


def newest_run(path: str) -> Path:
    """The path itself, or of ``runs/<name>`` the run in it that began last, which is said."""
    found = RunFolder.all_in(Path(path))
    if not found:
        return Path(path)
    click.echo(f"run       {found[-1].path}", err=True)
    return found[-1].path
