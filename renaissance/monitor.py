"""A watched value of the logs: its name, its direction, the best so far."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from typing import Any

from renaissance.direction import direction
from renaissance.jsontext import number, optional, whole
from renaissance.settings import nearest

logger = logging.getLogger("renaissance")


class Monitor:
    """One watched value of the epoch's logs: its name, its direction, the best so far.

    Args:
        owner: The callback's class, for errors.
        name: A name in the epoch's logs: "val_loss", "accuracy" ...
        mode: "min", "max", or "auto" by the name.
        min_delta: By how much a value must beat the best, at least 0.
    """

    def __init__(self, owner: str, name: str, mode: str, min_delta: float = 0.0) -> None:
        if not isinstance(name, str):
            raise TypeError(f"{owner}: monitor = {name!r} is not allowed; it must be a text")
        if isinstance(min_delta, bool) or not isinstance(min_delta, (int, float)):
            raise TypeError(f"{owner}: min_delta = {min_delta!r} is not allowed; it is a number")
        if not 0 <= min_delta < math.inf:
            raise ValueError(
                f"{owner}: min_delta = {min_delta!r} is not allowed; it must be at least 0 "
                "(the direction is mode's business)"
            )
        self.owner, self.name, self.min_delta = owner, name, float(min_delta)
        self.mode = direction(owner, name, mode)
        self.reset()

    def reset(self) -> None:
        """Forget what was seen."""
        self.best: float | None = None
        self.best_epoch: int | None = None

    def improves(self, value: float) -> bool:
        """Whether the value beats the best by more than min_delta; NaN never does."""
        if math.isnan(value):
            return False
        if self.best is None:
            return True
        gain = self.best - value if self.mode == "min" else value - self.best
        return gain > self.min_delta

    def observe(self, value: float, epoch: int) -> bool:
        """Whether the value is the new best, which it then becomes."""
        if not self.improves(value):
            return False
        self.best, self.best_epoch = float(value), epoch
        return True

    def read(self, logs: Mapping[str, float]) -> float | None:
        """The value in the logs; None in an epoch without validation.

        Raises:
            ValueError: The name is not there and none of an epoch without validation.
        """
        if self.name in logs:
            return float(logs[self.name])
        validated = any(name.startswith("val_") for name in logs)
        if self.name.startswith("val_") and not validated:
            return None
        raise self._unknown(logs)

    def check(self, params: Mapping[str, Any]) -> None:
        """ValueError when the names of the epoch's logs are known and this is none of them."""
        if "metrics" in params and self.name not in params["metrics"]:
            raise self._unknown(params["metrics"])

    def _unknown(self, names: Any) -> ValueError:
        guess = nearest(self.name, names)
        hint = f"; did you mean {guess!r}?" if guess else "."
        if self.name.startswith("val_") and not any(n.startswith("val_") for n in names):
            hint = "; there is no validation data: task.data(train, valid)."
        return ValueError(
            f"{self.owner}: monitor = {self.name!r} is not in the logs{hint} "
            f"Allowed: {', '.join(names)}"
        )

    def state_dict(self) -> dict[str, Any]:
        return {"monitor": self.name, "best": self.best, "best_epoch": self.best_epoch}

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Take the state back; False, and nothing taken, when it was another monitor's."""
        if state["monitor"] != self.name:
            logger.warning(
                "%s: the checkpoint watched %s, this one %s: it starts afresh",
                *(self.owner, state["monitor"], self.name),
            )
            return False
        best, epoch = optional(number, state["best"]), optional(whole, state["best_epoch"])
        if (best is None) != (epoch is None):
            raise ValueError(f"a best value of {best} in epoch {epoch}")
        self.best, self.best_epoch = best, epoch
        return True
