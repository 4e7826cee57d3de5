"""The folder of one run: its configuration, its facts, its metrics, its checkpoints.

::

    runs/<name>/<yyyymmdd-hhmmss>-<config hash>/
      config.yaml    resolved; loads back equal    run.json      versions, hardware, seed, result
      metrics.csv    a row an epoch                steps.jsonl   an object a logged step
      plan.txt       the memory plan               curves.png    metrics by epoch
      checkpoints/   step-00011730 ..., latest, best
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from renaissance.callbacks import LambdaCallback
from renaissance.config.experiment import Experiment, differences, load_experiment
from renaissance.config.kinds import REGISTRY, Registry
from renaissance.facts import git_commit, read_facts, replace_text
from renaissance.hooks import Callback, Phase
from renaissance.loggers import CSVLogger, JSONLogger, TensorBoard
from renaissance.saver import (
    BEST,
    LATEST,
    checkpoint_folders,
    newest_intact,
    step_name,
    step_of,
)
from renaissance.task import Task
from renaissance.tensorfile import CheckpointError

CONFIG, FACTS, CURVES = "config.yaml", "run.json", "curves.png"

_STAMP = r"\d{8}-\d{6}"


class RunFolder:
    """The folder of one run.

    Args:
        path: It need not exist yet.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)

    @classmethod
    def fresh(cls, root: Path, experiment: Experiment) -> RunFolder:
        """A folder of its own for a new run, made here and now."""
        parent = root / slug(experiment.title)
        while True:
            place = parent / f"{time.strftime('%Y%m%d-%H%M%S')}-{experiment.hash()}"
            try:
                place.mkdir(parents=True)
                return cls(place)
            except FileExistsError:
                time.sleep(0.1)  # another run of this configuration began in this second

    @classmethod
    def newest(cls, root: Path, experiment: Experiment) -> RunFolder | None:
        """The run of this name and configuration that began last, or None."""
        parent = root / slug(experiment.title)
        found = _run_names(parent, experiment.hash())
        return cls(parent / found[-1]) if found else None

    @classmethod
    def all_in(cls, parent: Path) -> list[RunFolder]:
        """The runs in ``runs/<name>``, in the order in which they began."""
        names = _run_names(parent, "[0-9a-f]+")
        return [cls(parent / name) for name in names if (parent / name / CONFIG).is_file()]

    @classmethod
    def of(cls, path: str | os.PathLike[str]) -> RunFolder:
        """The run that a path belongs to: itself, a checkpoint, a pointer, or any file in it.

        Raises:
            CheckpointError: There is no run folder at or above the path, or it is a script's.
        """
        start = Path(path)
        if (found := cls._around(start)) is not None:
            if not found.config.is_file():
                raise CheckpointError(f"{start} is {found.script_text(start)}")
            return found
        hint = ""
        if inside := cls.begun_in(start):
            hint = f". There are runs of scripts in {', '.join(str(run.path) for run in inside)}"
        if named := [str(run.path.parent) for run in cls._below(start)]:
            hint = f". There are runs in {', '.join(dict.fromkeys(named))}"
        raise CheckpointError(
            f"{start} is no run folder and lies in none: a run folder has a {CONFIG}, and "
            f"`renaissance train` makes one; a run of a script is read by task.load(...){hint}"
        )

    @classmethod
    def logged(cls, path: str | os.PathLike[str]) -> list[RunFolder]:
        """The runs whose metrics a path stands for, of scripts too: one, or all in a folder.

        Raises:
            CheckpointError: There are none.
        """
        start = Path(path)
        if not (found := cls.begun_in(start)) and (own := cls._around(start)) is not None:
            found = [own]
        return found or [cls.of(start)]

    @classmethod
    def begun_in(cls, parent: Path) -> list[RunFolder]:
        """The runs in a folder that have begun, whatever their names, sorted by these."""
        places = sorted(parent.iterdir()) if parent.is_dir() else []
        return [cls(place) for place in places if _is_run(place)]

    @classmethod
    def _below(cls, parent: Path) -> list[RunFolder]:
        """The runs of the folders in a folder, ``runs``."""
        places = sorted(parent.iterdir()) if parent.is_dir() else []
        return [run for place in places for run in cls.all_in(place)]

    @classmethod
    def _around(cls, start: Path) -> RunFolder | None:
        """The run at or above a path, a script's too."""
        return next(map(cls, filter(_is_run, (start, *start.absolute().parents))), None)

    def script_text(self, path: Path) -> str:
        """What a path in a run without a configuration is of, and how to use it."""
        command = self.facts().get("command")  # of somebody else's run.json anything
        script = Path(str(command[0])).name if isinstance(command, list) and command else ""
        named = f" ({script})" if script.endswith(".py") and "ipykernel" not in script else ""
        return (
            f"of a script's run{named}, which has no {CONFIG} to say what its network and data "
            "are. Use it from Python, with a task that is built as there: task.compile(); "
            f"task.load({str(path)!r}); task.evaluate(valid); task.predict(x). "
            "`renaissance compare` takes such runs, too"
        )

    def experiment(self, registry: Registry = REGISTRY) -> Experiment:
        """What was run."""
        return load_experiment(self.config, registry=registry)

    @property
    def config(self) -> Path:
        return self.path / CONFIG

    @property
    def curves(self) -> Path:
        return self.path / CURVES

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @contextlib.contextmanager
    def unless_it_fails(self) -> Iterator[None]:
        """Around what comes before the first file: an error leaves no empty folder behind."""
        try:
            yield
        except BaseException:
            with contextlib.suppress(OSError):  # not empty: of an earlier run, which stays
                self.path.rmdir()
                self.path.parent.rmdir()
            raise

    def checkpoint_of(self, step: int) -> Path:
        """Where the checkpoint of a step is, if it is kept."""
        return self.checkpoints / step_name(step)

    def kept(self) -> list[str]:
        """What ``--checkpoint`` can name: pointers, then steps."""
        pointers = [name for name in (LATEST, BEST) if (self.checkpoints / name).is_file()]
        return pointers + [str(step_of(place)) for place in checkpoint_folders(self.checkpoints)]

    @staticmethod
    def labelled(runs: Sequence[RunFolder]) -> dict[str, RunFolder]:
        """Runs, each once, by short names for a table: their folders', and of runs that lie in
        several places as many of the folders above as tell them apart.
        """
        places = {run.path.resolve(): run for run in runs}
        depth = 1 if len({place.parent for place in places}) == 1 else 2
        while True:
            found = {"/".join(place.parts[-depth:]): run for place, run in places.items()}
            if len(found) == len(places):
                return found
            depth += 1

    def classes(self) -> list[str] | None:
        """Names of the classes, None where the data has none."""
        return self.facts().get("classes")

    def channels(self) -> int:
        """Channels of the pictures that the network was trained on.

        Raises:
            CheckpointError: It was not trained on pictures.
        """
        shape = self.facts().get("sample_shape", ())
        if len(shape) != 3 or shape[0] not in (1, 3):
            raise CheckpointError(
                f"{self.path}: the network was trained on samples of shape {list(shape)}; picture "
                "files have 1 or 3 channels"
            )
        return int(shape[0])

    def has_checkpoint(self) -> bool:
        """Whether an intact checkpoint is there."""
        return newest_intact(self.checkpoints)[0] is not None

    def facts(self) -> dict[str, Any]:
        """What run.json holds; {} before the run has begun."""
        place = self.path / FACTS
        return read_facts(place) if place.is_file() else {}

    def changes(self, experiment: Experiment) -> list[str]:
        """Lines on how a configuration differs from that of an earlier start in this folder."""
        if not self.config.is_file():
            return []
        before = self.experiment().to_dict()
        return [
            f"{path}: {a!r} before, {b!r} now"
            for path, a, b in differences(before, experiment.to_dict())
        ]

    def write_config(self, experiment: Experiment) -> None:
        """Write config.yaml; another one that is there is kept under the next free number."""
        text = experiment.to_yaml()
        if self.config.is_file():
            before = self.config.read_text(encoding="utf-8")
            if before == text:
                return
            numbers = itertools.count(1)
            kept = (self.path / f"config.{number}.yaml" for number in numbers)
            replace_text(next(place for place in kept if not place.exists()), before)
        replace_text(self.config, text)

    def finish(self, task: Task, **result: Any) -> None:
        """Write the result into run.json."""
        facts = self.facts()
        facts["result"] = {
            "epoch": task.epoch,
            "attempted_steps": task.attempted_steps,
            "skipped_steps": task.skipped_steps,
            "state_hash": task.state_hash(),
            **result,
        }
        replace_text(self.path / FACTS, json.dumps(facts, indent=1) + "\n")

    def callbacks(self, experiment: Experiment, *, tensorboard: bool = False) -> list[Callback]:
        """What writes the run down: its configuration, and the loggers it does not name itself."""
        own = {call.type for call in experiment.callbacks}
        # Not before: a resume that is refused leaves the folder's configuration as it was.
        found: list[Callback] = [
            LambdaCallback(
                phase=Phase.RECORDS, on_train_begin=lambda logs: self.write_config(experiment)
            )
        ]
        if "csv_logger" not in own:
            found.append(CSVLogger())
        if "json_logger" not in own:
            found.append(JSONLogger())
        if tensorboard and "tensorboard" not in own:
            found.append(TensorBoard())
        return found


def facts_of(experiment: Experiment, task: Task, source: Path) -> dict[str, Any]:
    """What a run from a file has to note, and what predicting on files needs to know of its data.

    Args:
        experiment: What is run.
        task: Compiled.
        source: The file that the experiment was read from.
    """
    facts = {
        "commit": git_commit(source.resolve().parent),
        "config": str(source),
        "config_hash": experiment.hash(),
    }
    train = task.settings.train
    if train is None:
        return facts
    classes = None if train.classes is None else list(train.classes)
    return facts | {"classes": classes, "sample_shape": list(train.sample_spec().shape)}


def _is_run(place: Path) -> bool:
    """Whether a run has begun in a folder."""
    return (place / CONFIG).is_file() or (place / FACTS).is_file()


def _run_names(parent: Path, config_hash: str) -> list[str]:
    """Names of the run folders in a folder, in the order in which they began."""
    pattern = re.compile(f"{_STAMP}-{config_hash}")
    names = os.listdir(parent) if parent.is_dir() else []
    return sorted(name for name in names if pattern.fullmatch(name))


def slug(name: str) -> str:
    """A name as that of a folder."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.") or "run"
