"""The part of a task's state that the host holds: position, counters, history, schedule, callbacks.

A checkpoint's is read and checked whole before anything of the task is changed, so that a state
file that is valid JSON but no run's is refused with what is wrong, and leaves the task as it was.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from renaissance.checkpoint import STATE, Checkpoint
from renaissance.fit.identity import IDENTITY, UNKNOWN, identity_of
from renaissance.fit.options import Horizon, Position
from renaissance.history import History
from renaissance.jsontext import number, whole
from renaissance.random import Generator
from renaissance.schedules.schedule import Schedule
from renaissance.update.scalars import STATE as COUNTERS

if TYPE_CHECKING:
    from renaissance.task import Task

logger = logging.getLogger("renaissance")

FIELDS: Mapping[str, Any] = {
    "name": str,
    "position": {"epoch": int, "step": int, "attempted": int},
    "counters": {name: float if name == "loss_scale" else int for name in COUNTERS},
    "sums": {"names": list, "epoch": list},
    "open_epoch": dict,
    "generator": {"seed": str, "offset": str},
    "horizon": (dict, type(None)),
    "schedule": dict,
    "history": dict,
    "callbacks": list,
    "best": dict,
    "identity": dict.fromkeys(IDENTITY, object),
}


def complete(state: dict[str, Any]) -> None:
    """Add to a checkpoint's state what was not counted when it was written.

    The average's warm-up went by the applied updates before they were counted for it; what the
    validation data were is not known.
    """
    counters = state.get("counters")
    if isinstance(counters, dict) and "applied" in counters:
        counters.setdefault("averaged", counters["applied"])
    if isinstance(identity := state.get("identity"), dict):
        identity.setdefault("validation", UNKNOWN)


def state_of(task: Task, callbacks: list[dict[str, Any]]) -> dict[str, Any]:
    """Everything but tensors, as JSON."""
    built = task.require()
    awaited = {} if task.awaited is None else task.awaited.identity
    seed, offset = task.generator.get_state()
    return {
        "name": task.name,
        "position": dataclasses.asdict(task.position),
        "counters": built.updater.scalars.state(),
        "sums": {
            "names": list(built.executor.tally.names),
            "epoch": built.executor.tally.values("epoch"),
        },
        "open_epoch": dict(task.open_epoch),
        "generator": {"seed": str(seed), "offset": str(offset)},
        "horizon": None if task.horizon is None else dataclasses.asdict(task.horizon),
        "schedule": task.rates.state_dict(),
        "history": task.history.state_dict(),
        "callbacks": callbacks,
        "best": dict(task.best),
        "identity": identity_of(task) | awaited,
    }


@dataclass(frozen=True)
class HostState:
    """What a checkpoint says of the host's part, checked.

    Attributes:
        accumulate: Loader batches of a step, in which `position` counts.
        counters: Of region S.
        callbacks: Class name, index and state of each callback that has one.
    """

    position: Position
    accumulate: int
    counters: dict[str, int | float]
    open_epoch: dict[str, float]
    generator: tuple[int, int]
    horizon: Horizon | None
    schedule: dict[str, Any]
    history: dict[str, Any]
    best: dict[str, float]
    callbacks: list[dict[str, Any]]

    @classmethod
    def of(cls, checkpoint: Checkpoint, schedule: Schedule, *, may_differ: bool) -> HostState:
        """Read it.

        Args:
            checkpoint: Its fields have been checked to be there (`FIELDS`).
            schedule: The task's, whose state must fit.
            may_differ: Let a state of another schedule start afresh, which is said.

        Raises:
            CheckpointError: Something is not what a run writes.
        """
        state = checkpoint.state
        with _part_of(checkpoint, "position"):
            position = Position(**{name: whole(n) for name, n in state["position"].items()})
            if position.step > position.attempted:
                raise ValueError(f"{position.step} steps of an epoch, {position.attempted} in all")
        with _part_of(checkpoint, "identity"):
            accumulate = whole(state["identity"]["recipe"]["accumulate"])
        with _part_of(checkpoint, "counters"):
            counters = {
                name: number(value) if name == "loss_scale" else whole(value)
                for name, value in state["counters"].items()
            }
            if not 0 < counters["loss_scale"] < math.inf:
                raise ValueError(f"a loss scale of {counters['loss_scale']}")
        with _part_of(checkpoint, "generator"):
            generator = Generator(0)
            generator.set_state(int(state["generator"]["seed"]), int(state["generator"]["offset"]))
        with _part_of(checkpoint, "horizon"):
            given = state["horizon"]
            known = {} if given is None else {name: whole(n) for name, n in given.items()}
            horizon = None if given is None else Horizon(**known)
        with _part_of(checkpoint, "history"):
            history = History()
            history.load_state_dict(state["history"])
            if len(history) != position.epoch or history.epoch != list(range(len(history))):
                raise ValueError(
                    f"it has epochs {str(history.epoch):.60}, and {position.epoch} of them are "
                    "closed"
                )
        with _part_of(checkpoint, "open_epoch"):
            open_epoch = numbers(state["open_epoch"])
        with _part_of(checkpoint, "best"):
            best = numbers(state["best"])
        with _part_of(checkpoint, "callbacks"):
            callbacks = [_callback(**entry) for entry in state["callbacks"]]
        return cls(
            position,
            accumulate,
            counters,
            open_epoch,
            generator.get_state(),
            horizon,
            _schedule(checkpoint, schedule, may_differ),
            state["history"],
            best,
            callbacks,
        )

    def put(self, task: Task) -> None:
        """Make it the task's; the counters are for region S."""
        for name, value in dataclasses.asdict(self.position).items():
            setattr(task.position, name, value)
        task.position.regroup(self.accumulate, task.settings)
        task.open_epoch, task.best = dict(self.open_epoch), dict(self.best)
        task.generator.set_state(*self.generator)
        task.horizon = self.horizon
        task.rates.load_state_dict(self.schedule)
        task.history.load_state_dict(self.history)


def _schedule(checkpoint: Checkpoint, schedule: Schedule, may_differ: bool) -> dict[str, Any]:
    """The schedule's state, tried on a run of it that is thrown away."""
    try:
        with _part_of(checkpoint, "schedule"):
            trial = schedule.start()
            trial.load_state_dict(checkpoint.state["schedule"])
            return trial.state_dict()
    except RuntimeError as error:
        if not may_differ:
            raise
        logger.warning("resume: the schedule starts afresh (%s)", error)
        return schedule.start().state_dict()


@contextlib.contextmanager
def _part_of(checkpoint: Checkpoint, name: str) -> Iterator[None]:
    """Turns what goes wrong with an entry into the refusal that names it."""
    try:
        yield
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        checkpoint.refuse(f"{STATE}: {name!r} is not what a run writes: {reason}")


def numbers(values: Mapping[str, object]) -> dict[str, Any]:
    """Numbers by name; whole ones stay whole."""
    return {n: v if isinstance(v, int) and number(v) == v else number(v) for n, v in values.items()}


def _callback(**entry: Any) -> dict[str, Any]:
    """An entry of ``callbacks`` with its three parts, checked."""
    name, index, state = entry.pop("class"), entry.pop("index"), entry.pop("state")
    if entry or not isinstance(name, str) or not isinstance(state, dict):
        raise ValueError("an entry is the class, the index and the state of a callback")
    return {"class": name, "index": whole(index), "state": state}
