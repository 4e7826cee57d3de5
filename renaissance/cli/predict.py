"""Commands that use a trained run: evaluate, predict."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np
import numpy.typing as npt

from renaissance.cli.arguments import PASS_OVERRIDES, find_run, read_experiment, takes_run
from renaissance.cli.runfolder import RunFolder
from renaissance.config.experiment import Experiment, made
from renaissance.config.factories import Call
from renaissance.data.dataset import IGNORED
from renaissance.data.index import EXTENSIONS
from renaissance.data.loader import Loader
from renaissance.data.rows import targets_of
from renaissance.foreign_losses import as_loss
from renaissance.jsontext import dump_json
from renaissance.report import ClassReport
from renaissance.saver import open_checkpoint
from renaissance.task import Task
from renaissance.tensorfile import CheckpointError


@click.command(context_settings=PASS_OVERRIDES, short_help="Loss and metrics of a trained run.")
@takes_run
@click.argument("overrides", nargs=-1, type=click.UNPROCESSED)
@click.option("--data", "part", type=click.Choice(["valid", "train"]), help="Which of the run's.")
@click.option("--folder", "pictures", metavar="FOLDER", help="Class folders of pictures instead.")
@click.option("--weights", type=click.Choice(["raw", "ema"]), help="By default EMA if there is.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on one line.")
@click.option("--report", metavar="FOLDER", help="Write accuracy by class, with pictures, there.")
def evaluate(  # noqa: PLR0913 - one parameter for each option
    run: str,
    overrides: Sequence[str],
    checkpoint: str,
    imports: Sequence[str],
    part: str | None,
    pictures: str | None,
    weights: str | None,
    as_json: bool,
    report: str | None,
) -> None:
    """Loss and metrics of a trained run, over its validation data or any folder of pictures.

    \b
    Examples:
      renaissance evaluate runs/digits/20260102-030405-1a2b3c4d
      renaissance evaluate runs/digits/... --checkpoint best --weights raw
      renaissance evaluate runs/digits/... --folder photos/ --report report/
    """
    folder, place, experiment = open_run(run, checkpoint, overrides, imports)
    loader = evaluation_data(folder, experiment, part, pictures)
    with telling_size(folder, loader):
        task = trained(experiment, place, loader)
        found = task.evaluate(loader, weights=weights)
    if as_json:
        click.echo(dump_json(found, what="metrics", indent=None).decode(), nl=False)
    else:
        width = max(12, *map(len, found))
        for name, value in found.items():
            click.echo(f"{name:{width}} {value:.6g}")
    if report is not None:
        write_report(task, loader, weights, Path(report))


def open_run(
    run: str, checkpoint: str, overrides: Sequence[str], imports: Sequence[str]
) -> tuple[RunFolder, Path, Experiment]:
    """A run, the checkpoint that is meant, and its experiment."""
    folder, place = find_run(run, checkpoint)
    return folder, place, read_experiment(str(folder.config), overrides, imports)


def evaluation_data(
    folder: RunFolder, experiment: Experiment, part: str | None, pictures: str | None
) -> Loader:
    """The loader that an evaluation reads; training data comes unmixed, with its class numbers."""
    call = run_data(experiment, part)
    if pictures is not None:
        from renaissance.datasets import ImageFolder

        classes, channels = folder.classes(), folder.channels()
        return read_as(call, ImageFolder(pictures, classes=classes, channels=channels))
    mix = "loader_mix" if "loader_mix" in call.arguments else "mix"
    loader: Loader = replace(call, arguments={**call.arguments, mix: ()}).build()
    return loader


def run_data(experiment: Experiment, part: str | None) -> Call:
    """The description of a run's own data; of None the validation data, if there is any."""
    data = experiment.data
    if data is None:
        raise click.UsageError("the run says nothing of data, so nothing of how samples are read")
    if part == "valid" and data.valid is None:
        raise click.UsageError("the run has no validation data; --data train does, or pictures")
    call: Call = data.train if part == "train" or data.valid is None else data.valid
    return call


def read_as(call: Call, dataset: Any) -> Loader:
    """A loader over other data, in batches and with transforms as the run's own."""
    settings = {name: call.arguments[name] for name in ("batch_size", "transforms")}
    return Loader(dataset, **settings)


def trained(experiment: Experiment, place: Path, loader: Loader) -> Task:
    """The task with the weights and averages of a checkpoint, ready to evaluate and predict."""
    checkpoint, rejected = open_checkpoint(place)
    for path, reason in rejected:
        click.echo(f"passed over {path}: {reason}", err=True)
    if checkpoint is None:
        raise CheckpointError(f"no intact checkpoint in {place}")
    task = experiment.task(with_data=False)
    if loader.sample_spec().label is not None:
        task.data(loader, loader)
    task.optimizer(None).init("keep").pretrained(None).compile(report="none")
    return task.load(checkpoint.path)


@contextmanager
def telling_size(folder: RunFolder, loader: Loader) -> Iterator[None]:
    """Around work on pictures: where they are refused, the size that the run was trained on."""
    try:
        yield
    except ValueError as error:
        known, given = folder.facts().get("sample_shape"), loader.sample_spec().shape
        if not isinstance(error.__cause__, RuntimeError) or known in (None, list(given)):
            raise
        raise ValueError(
            f"samples of shape {given} come out of the run's transforms, it was trained on "
            f"{tuple(known)}; pictures of other sizes need a resize among the transforms of its "
            f"data, or are resized before. {error}"
        ) from error


def write_report(task: Task, loader: Loader, weights: str | None, folder: Path) -> None:
    """Accuracy by class, as text and as pictures."""
    targets = targets_of(loader, task.seed)
    loss: Any = task.settings.loss
    counted = targets != (loss.settings.ignore_index if loss.is_classification else IGNORED)
    scores = task.predict(loader, weights=weights)
    report = ClassReport(targets[counted], scores[counted], loader.classes)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "classes.txt").write_text(report.to_text(), encoding="utf-8")
    report.plot_confusion(folder / "confusion.png")
    report.plot_per_class(folder / "classes.png")
    click.echo(report.to_text(), nl=False)


class PictureFiles:
    """Picture files without labels, as a data set.

    Args:
        paths: In the order of the answers.
        channels: 1 or 3.
    """

    def __init__(self, paths: Sequence[str], channels: int) -> None:
        self.paths, self.channels = list(paths), channels

    def __len__(self) -> int:
        return len(self.paths)

    def files(self) -> tuple[list[str], None]:
        return self.paths, None

    def read(self, index: int, /) -> tuple[bytes, None]:
        return Path(self.paths[index]).read_bytes(), None


@click.command(short_help="Classes of picture files, or a run's own data.")
@takes_run
@click.argument("files", nargs=-1, metavar="[FILES...]")
@click.option("--data", "part", type=click.Choice(["valid", "train"]), help="The run's own data.")
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Classes for each picture.",
)
@click.option("--weights", type=click.Choice(["raw", "ema"]), help="By default EMA if there is.")
@click.option("--output", metavar="FILE.npy", help="Write the raw outputs as an array too.")
def predict(  # noqa: PLR0913 - one parameter for each option
    run: str,
    files: Sequence[str],
    checkpoint: str,
    imports: Sequence[str],
    part: str | None,
    top: int,
    weights: str | None,
    output: str | None,
) -> None:
    """Classes of picture files, or of all pictures in folders: file, class, probability.

    With --data the samples are the run's own, and their numbers stand in place of the files.

    \b
    Examples:
      renaissance predict runs/digits/20260102-030405-1a2b3c4d a.png b.png
      renaissance predict runs/digits/... photos/ --top 3 --output scores.npy
      renaissance predict runs/digits/... --data valid
    """
    folder, place, experiment = open_run(run, checkpoint, (), imports)
    names, loader = prediction_data(folder, experiment, files, part)
    with telling_size(folder, loader):
        task = trained(experiment, place, loader)
        outputs = task.predict(loader, weights=weights)
    if not isinstance(outputs, np.ndarray):
        raise TypeError(
            f"the model gives {type(outputs).__name__}, and a line or a file holds one array; use "
            "task.predict from Python"
        )
    if output is not None:
        Path(output).parent.mkdir(parents=True, exist_ok=True)
        np.save(output, outputs)
    is_choice = as_loss(made(experiment.loss)).is_classification and outputs.ndim == 2
    for name, row in zip(names, outputs):
        if is_choice:
            for chosen, share in best(row, folder.classes(), top):
                click.echo(f"{name}\t{chosen}\t{share:.4f}")
        else:
            click.echo(f"{name}\t" + "\t".join(f"{number:.6g}" for number in row.reshape(-1)))


def prediction_data(
    folder: RunFolder, experiment: Experiment, files: Sequence[str], part: str | None
) -> tuple[Sequence[str], Loader]:
    """Names of what is predicted, and a loader over it in that order, each sample once."""
    if (part is None) == (not files):
        raise click.UsageError("name picture files or folders, or the run's own data: --data valid")
    call = run_data(experiment, part)
    if part is not None:
        dataset = call.build().dataset
        return list(map(str, range(len(dataset)))), read_as(call, dataset)
    paths = picture_paths(files)
    return paths, read_as(call, PictureFiles(paths, folder.channels()))


def picture_paths(files: Sequence[str]) -> list[str]:
    """Files as given; folders as the pictures in them, sorted by bytes."""
    found: list[str] = []
    for name in files:
        if os.path.isdir(name):
            inside = sorted(Path(name).rglob("*"), key=os.fsencode)
            found += [str(p) for p in inside if p.suffix.lower() in EXTENSIONS and p.is_file()]
        elif os.path.isfile(name):
            found.append(name)
        else:
            raise click.BadParameter(f"there is no file {name!r}", param_hint="FILES")
    if not found:
        raise click.BadParameter("the folders hold no pictures", param_hint="FILES")
    return found


def best(
    outputs: npt.NDArray[np.float32], classes: Sequence[str] | None, top: int
) -> list[tuple[str, float]]:
    """(class, probability) of the highest outputs; of equal ones the first class."""
    wide = outputs.astype(np.float64)
    shares = np.exp(wide - wide.max())
    shares /= shares.sum()
    order = np.argsort(-wide, kind="stable")[:top]
    return [(str(k) if classes is None else classes[k], float(shares[k])) for k in order]


COMMANDS = (evaluate, predict)
