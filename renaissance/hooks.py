"""What a callback is: hooks by Keras' names, fixed phases, and logs that are read when touched.

Order cannot be wrong. Whatever the order in which callbacks are given, each hook runs them by
`Phase`: what adds to the logs, then what decides, then what records, then what saves. So a
checkpoint always contains the decision and the row of its epoch.
"""

from __future__ import annotations

import contextlib
import difflib
import enum
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar

from renaissance.logs import LazyLogs, Logs

logger = logging.getLogger("renaissance")

HOOKS = (
    "on_train_begin",
    "on_train_end",
    "on_epoch_begin",
    "on_epoch_end",
    "on_train_batch_begin",
    "on_train_batch_end",
    "on_log",
    "on_test_begin",
    "on_test_end",
    "on_test_batch_begin",
    "on_test_batch_end",
    "on_predict_begin",
    "on_predict_end",
    "on_predict_batch_begin",
    "on_predict_batch_end",
)


class Phase(enum.IntEnum):
    """When a callback runs within a hook; callbacks of one phase run in the order given."""

    METRICS = 10  #: may add values to the logs; a user's own callbacks, unless they say otherwise
    DECISIONS = 20  #: reads the logs and may stop training
    RECORDS = 30  #: writes the logs somewhere
    CHECKPOINTS = 40  #: saves the state, which now includes all of the above


class Callback:
    """Something that is told what happens in training; override the hooks of interest.

    An ordinary object that may keep what it likes. ``epoch`` and ``batch`` count from 0. ``logs``
    maps names to numbers: in ``on_train_batch_end`` and ``on_log`` those of the step, read from
    the device when touched; in ``on_epoch_end`` means over the samples of the epoch, ``val_*``
    and ``learning_rate``.

    Attributes:
        task: The `Task`: ``task.model``, ``task.epoch``, ``task.stop_training = True`` ...
        params: ``epochs``, ``steps`` (of an epoch), ``metrics`` (names in the epoch's logs).
        is_main: Whether this process is the one that writes (rank 0).
        phase: See `Phase`; a class attribute.
        main_only: True leaves the callback out on every process but rank 0.
        provides: Names that the callback adds to the epoch's logs, so that others may watch them.
    """

    phase: ClassVar[Phase] = Phase.METRICS
    main_only: ClassVar[bool] = False
    provides: tuple[str, ...] = ()
    params: Mapping[str, Any] = MappingProxyType({})
    is_main: bool = True
    _task: Any = None

    @property
    def task(self) -> Any:
        """The task that trains."""
        if self._task is None:
            raise RuntimeError(
                f"{type(self).__name__} belongs to no task yet; it has one inside its hooks, once "
                "it was given to task.callbacks(...) or task.fit(callbacks=[...])"
            )
        return self._task

    @task.setter
    def task(self, task: Any) -> None:
        self._task = task

    @property
    def model(self) -> Any:
        raise AttributeError(
            "a callback reaches the module as self.task.model; to stop training it sets "
            "self.task.stop_training = True"
        )

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs, as JSON; empty is not stored."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take back what `state_dict` gave."""

    def reason(self) -> str:
        """Why it ended the last fit, in a few words for people; empty when it did not."""
        return ""

    def reset(self) -> None:
        """Forget the previous run: called when training starts at step 0 without a checkpoint."""

    def close(self) -> None:
        """Release files and the like: called once when fit ends, after an error too."""

    def on_train_begin(self, logs: Logs) -> None:
        """Before the first step of a fit."""

    def on_train_end(self, logs: Logs) -> None:
        """After the last step of a fit."""

    def on_epoch_begin(self, epoch: int, logs: Logs) -> None:
        """Before the first step of an epoch; not when an epoch is continued in its middle."""

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        """After an epoch and its validation."""

    def on_train_batch_begin(self, batch: int, logs: Logs) -> None:
        """Before a step (one update), by its index in the epoch."""

    def on_train_batch_end(self, batch: int, logs: Logs) -> None:
        """After a step. Touching ``logs`` waits for the device."""

    def on_log(self, step: int, logs: Logs) -> None:
        """After every ``log_every``-th step, by the number of steps attempted so far."""

    def on_test_begin(self, logs: Logs) -> None:
        """Before an evaluation, the validation of an epoch too."""

    def on_test_end(self, logs: Logs) -> None:
        """After an evaluation, with its means."""

    def on_test_batch_begin(self, batch: int, logs: Logs) -> None:
        """Before a batch of an evaluation."""

    def on_test_batch_end(self, batch: int, logs: Logs) -> None:
        """After a batch of an evaluation."""

    def on_predict_begin(self, logs: Logs) -> None:
        """Before a prediction."""

    def on_predict_end(self, logs: Logs) -> None:
        """After a prediction."""

    def on_predict_batch_begin(self, batch: int, logs: Logs) -> None:
        """Before a batch of a prediction."""

    def on_predict_batch_end(self, batch: int, logs: Logs) -> None:
        """After a batch of a prediction."""


def check_hook_names(names: Iterable[str], owner: str) -> None:
    """ValueError for a name that no hook has, with the nearest one."""
    for name in names:
        if name not in HOOKS:
            legacy = name.replace("on_batch_", "on_train_batch_")
            near = [legacy] if legacy in HOOKS else difflib.get_close_matches(name, HOOKS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise ValueError(f"{owner}: there is no hook {name!r}{hint} Hooks: {', '.join(HOOKS)}")


def check_callback(callback: object) -> Callback:
    """The callback as it is; TypeError for anything else, ValueError for a misspelt hook."""
    if isinstance(callback, type) and issubclass(callback, Callback):
        raise TypeError(
            f"callbacks: received the class {callback.__name__}; write {callback.__name__}(...)"
        )
    if not isinstance(callback, Callback):
        raise TypeError(
            f"callbacks: received {callback!r:.60} ({type(callback).__name__}); it takes objects "
            "of rn.Callback or its subclasses; rn.LambdaCallback(on_epoch_end=f) takes a function"
        )
    kind = type(callback)
    own = {name for base in kind.__mro__ if base not in Callback.__mro__ for name in vars(base)}
    check_hook_names(
        sorted(n for n in own if n.startswith("on_") and callable(getattr(kind, n))), kind.__name__
    )
    return callback


class CallbackList:
    """The callbacks of one fit, called in phases.

    Args:
        callbacks: Callbacks in any order, or a single one.
        task: Reached by each as ``callback.task``.
        params: See `Callback`.
        is_main: Whether this process is rank 0; others leave out callbacks with ``main_only``.

    Raises:
        TypeError, ValueError: something that is no callback, one given twice, a misspelt hook.
    """

    def __init__(
        self,
        callbacks: Callback | Iterable[Callback],
        task: Any,
        *,
        params: Mapping[str, Any] | None = None,
        is_main: bool = True,
    ) -> None:
        given = [callbacks] if isinstance(callbacks, Callback) else list(callbacks)
        for place, callback in enumerate(given):
            check_callback(callback)
            if any(callback is other for other in given[:place]):
                raise ValueError(f"callbacks: the same {type(callback).__name__} is given twice")
        self.task = task
        self._names = _names(given)
        self._restored: set[int] = set()  # ids of callbacks that a checkpoint gave a state
        kept = [c for c in given if is_main or not c.main_only]
        self.callbacks: Sequence[Callback] = sorted(kept, key=lambda callback: callback.phase)
        provided = [name for callback in given for name in callback.provides]
        known = dict(params or {})
        if "metrics" in known:
            known["metrics"] = [*known["metrics"], *provided]
        for callback in self.callbacks:
            callback.task, callback.is_main = task, is_main
            callback.params = MappingProxyType(known)
        self._listeners = {hook: self._listening(hook) for hook in HOOKS}
        self._logs: Logs | None = None

    def _listening(self, hook: str) -> list[Callable[..., None]]:
        """The bound hooks that do something: those that differ from `Callback`'s."""
        found = []
        for callback in self.callbacks:
            method = getattr(callback, hook)
            if getattr(method, "__func__", method) is not getattr(Callback, hook):
                found.append(method)
        return found

    def __len__(self) -> int:
        return len(self.callbacks)

    def __iter__(self) -> Iterator[Callback]:
        return iter(self.callbacks)

    def listens(self, hook: str) -> bool:
        """Whether any callback has this hook; calling it otherwise does nothing."""
        return bool(self._listeners[hook])

    def listens_outside(self, *hooks: str) -> bool:
        """Whether a callback that is not the package's own has one of these hooks."""
        listeners = [method for hook in hooks for method in self._listeners[hook]]
        return any(not f"{method.__module__}.".startswith("renaissance.") for method in listeners)

    def reasons(self) -> list[str]:
        """Why callbacks ended the fit."""
        return [text for text in (callback.reason() for callback in self.callbacks) if text]

    def state_dict(self) -> list[dict[str, Any]]:
        """``[{"class": ..., "index": ..., "state": {...}}]`` for every state that is not empty."""
        found = []
        for callback in self.callbacks:
            state = callback.state_dict()
            if not isinstance(state, dict):
                raise TypeError(
                    f"{type(callback).__name__}.state_dict() gave {state!r:.60} "
                    f"({type(state).__name__}); it must give a dict that JSON can hold"
                )
            if state:
                name, index = self._names[id(callback)]
                found.append({"class": name, "index": index, "state": state})
        return found

    def load_state_dict(self, states: Iterable[Mapping[str, Any]]) -> None:
        """Give each callback the state stored under its class name and index.

        States without a callback and, in the middle of a run, callbacks without a state are no
        error: one line says so.
        """
        stored = {(s["class"], s["index"]): s["state"] for s in states}
        missing = []
        for callback in self.callbacks:
            name = self._names[id(callback)]
            if name in stored:
                _load(callback, name, stored.pop(name))
                self._restored.add(id(callback))
            elif self.task.attempted_steps and callback.state_dict():
                missing.append(f"{name[0]} {name[1]} starts afresh, it has no state so far")
        lost = [f"the state of {name} {index} has no callback here" for name, index in stored]
        if missing or lost:
            logger.warning("callbacks: %s", "; ".join([*missing, *lost]))

    def close(self) -> None:
        """Release what the callbacks hold: all of them, also when one raises."""
        with contextlib.ExitStack() as stack:
            for callback in reversed(self.callbacks):
                stack.callback(callback.close)

    def on_train_begin(self, logs: Logs) -> None:
        if self.task.attempted_steps == 0:
            for callback in self.callbacks:
                if id(callback) not in self._restored:
                    callback.reset()
        self._call("on_train_begin", logs)

    def on_train_end(self, logs: Logs) -> None:
        self._call("on_train_end", logs)
        self._expire(None)

    def on_epoch_begin(self, epoch: int, logs: Logs) -> None:
        self._call("on_epoch_begin", epoch, logs)

    def on_epoch_end(
        self, epoch: int, logs: Logs, record: Callable[[Logs], None] | None = None
    ) -> None:
        """All of the hook; ``record`` is called once the logs are complete, before any decision."""
        self._expire(None)
        for callback in self.callbacks:
            if record is not None and callback.phase > Phase.METRICS:
                record(logs)
                record = None
            callback.on_epoch_end(epoch, logs)
        if record is not None:
            record(logs)

    def on_train_batch_begin(self, batch: int, logs: Logs) -> None:
        self._expire(None)
        self._call("on_train_batch_begin", batch, logs)

    def on_train_batch_end(self, batch: int, logs: Logs) -> None:
        self._expire(logs)
        self._call("on_train_batch_end", batch, logs)

    def on_log(self, step: int, logs: Logs) -> None:
        self._expire(logs)
        self._call("on_log", step, logs)

    def on_test_begin(self, logs: Logs) -> None:
        self._call("on_test_begin", logs)

    def on_test_end(self, logs: Logs) -> None:
        self._call("on_test_end", logs)

    def on_test_batch_begin(self, batch: int, logs: Logs) -> None:
        self._call("on_test_batch_begin", batch, logs)

    def on_test_batch_end(self, batch: int, logs: Logs) -> None:
        self._call("on_test_batch_end", batch, logs)

    def on_predict_begin(self, logs: Logs) -> None:
        self._call("on_predict_begin", logs)

    def on_predict_end(self, logs: Logs) -> None:
        self._call("on_predict_end", logs)

    def on_predict_batch_begin(self, batch: int, logs: Logs) -> None:
        self._call("on_predict_batch_begin", batch, logs)

    def on_predict_batch_end(self, batch: int, logs: Logs) -> None:
        self._call("on_predict_batch_end", batch, logs)

    def _call(self, hook: str, *arguments: Any) -> None:
        for method in self._listeners[hook]:
            method(*arguments)

    def _expire(self, logs: Logs | None) -> None:
        """``logs`` are the current ones now; the previous ones are over."""
        if self._logs is not logs and isinstance(self._logs, LazyLogs):
            self._logs.expire()
        self._logs = logs


def _load(callback: Callback, name: tuple[str, int], state: Mapping[str, Any]) -> None:
    """Give a callback its stored state; what it cannot take is a ValueError that names it."""
    try:
        callback.load_state_dict(state)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"callbacks: the stored state of {name[0]} {name[1]} does not fit it "
            f"({type(error).__name__}: {error}); resume without this callback, or start afresh"
        ) from error


def _names(callbacks: Sequence[Callback]) -> dict[int, tuple[str, int]]:
    """id of each callback -> (class name, its number among the callbacks of that name)."""
    counts: dict[str, int] = {}
    names = {}
    for callback in callbacks:
        kind = type(callback).__name__
        names[id(callback)] = (kind, counts.get(kind, 0))
        counts[kind] = counts.get(kind, 0) + 1
    return names
