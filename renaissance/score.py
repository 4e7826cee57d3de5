"""Values of a whole data set, such as F1 or AUC, which are no means over its batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import tree_map_only

from renaissance.data.foreign import as_loader
from renaissance.data.loader import Loader
from renaissance.data.rows import targets_of
from renaissance.hooks import Callback
from renaissance.logs import Logs
from renaissance.metrics import check_name, is_stateful


class Score(Callback):
    """A value of the whole validation data after each epoch: F1, AUC, R2, a rank correlation ...

    What is in ``task.metrics`` is a mean over samples, taken batch by batch within the step. A
    score is a function of all outputs and all targets; for it the data is predicted once more, with
    the weights that validation uses. The history has it under ``val_<name>``.

    Args:
        function: ``(outputs, targets) -> number``, of tensors in host memory: outputs as
            `Task.predict` gives them, targets as the loader does. Or an object of torchmetrics.
        data: A loader or DataLoader, in index order; None is the validation data of ``task.data``.
        name: A word; by default the name of the function or of the object's class.

    Raises:
        TypeError, ValueError: The function, its name or the data are not allowed.

    Example:
        >>> def f1(outputs, targets):
        ...     return sklearn.metrics.f1_score(targets, outputs.argmax(1), average="macro")
        >>> task.fit(epochs=10, callbacks=[Score(f1), EarlyStopping("val_f1", patience=3)])
    """

    def __init__(
        self, function: Callable[[Any, Any], Any], data: Any = None, *, name: str | None = None
    ) -> None:
        if isinstance(function, type) or not callable(function):
            raise TypeError(
                f"Score: function = {function!r:.60} is not allowed; it takes a function (outputs, "
                "targets) -> number, or an object of torchmetrics"
            )
        self.function = function
        self.data = None if data is None else as_loader(data)
        self.name = check_name(name or getattr(function, "__name__", type(function).__name__))
        self.provides = (f"val_{self.name}",)
        self._known: tuple[Loader, torch.Tensor] | None = None

    def __repr__(self) -> str:
        return f"Score({self.name!r})"

    def on_train_begin(self, logs: Logs) -> None:
        self._data()

    def on_epoch_end(self, epoch: int, logs: Logs) -> None:
        if self.data is not None or any(name.startswith("val_") for name in logs):
            logs[self.provides[0]] = self.measure()

    def measure(self, data: Any = None, *, task: Any = None, weights: str | None = None) -> float:
        """The value over a data set, now.

        Args:
            data: A loader or DataLoader; None is what it watches.
            task: Whose predictions; None is the task that it was given to.
            weights: As in `Task.predict`.
        """
        task = self.task if task is None else task
        loader = self._data() if data is None else as_loader(data)
        outputs = task.predict(loader, weights=weights, verbose=0)
        return self._value(
            tree_map_only(np.ndarray, torch.from_numpy, outputs), self._targets(loader, task.seed)
        )

    def _data(self) -> Loader:
        found: Loader | None = self.task.settings.valid if self.data is None else self.data
        if found is None:
            raise ValueError(
                f"{self!r} has no data to look at; give task.data(train, valid), or "
                "Score(function, loader)"
            )
        return found

    def _targets(self, loader: Loader, seed: int) -> torch.Tensor:
        """Targets in index order; kept, for they are the same after every epoch."""
        if self._known is not None and self._known[0] is loader:
            return self._known[1]
        try:
            found = targets_of(loader, seed)
        except ValueError as error:
            raise ValueError(f"{self!r}: {error}") from None
        self._known = loader, torch.from_numpy(found)
        return self._known[1]

    def _value(self, outputs: Any, targets: torch.Tensor) -> float:
        function: Any = self.function
        if is_stateful(function):
            function.reset()
            function.update(outputs, targets)
            given = function.compute()
            function.reset()
        else:
            given = function(outputs, targets)
        if isinstance(given, torch.Tensor) and given.numel() == 1:
            given = given.item()
        if not isinstance(given, (int, float, np.number)):
            came = tuple(given.shape) if hasattr(given, "shape") else type(given).__name__
            raise TypeError(f"{self!r} gave {came}; it takes one number")
        return float(given)
