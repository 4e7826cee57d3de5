"""What hooks are given: names and numbers, read from the device when they are touched."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping

Logs = MutableMapping[str, float]


class LazyLogs(MutableMapping[str, float]):
    """Logs whose values are read from the device at the first touch, all of them at once.

    They belong to one step. What has been read stays; reading for the first time after the step
    is over is an error, since the device holds another step's values by then.

    Args:
        read: Gives the values; called at most once.
    """

    def __init__(self, read: Callable[[], Mapping[str, float]]) -> None:
        self._read: Callable[[], Mapping[str, float]] | None = read
        self._values: dict[str, float] = {}
        self._expired = False

    def _all(self) -> dict[str, float]:
        if self._read is not None:
            if self._expired:
                raise RuntimeError(
                    "these logs belong to a step that is over, and were not read during it; read "
                    "them inside the hook (float(logs['loss'])) and keep the number"
                )
            read, self._read = self._read, None
            self._values = dict(read()) | self._values
        return self._values

    def expire(self) -> None:
        """The step is over: what has not been read cannot be read any more."""
        self._expired = True

    def __getitem__(self, name: str) -> float:
        return self._all()[name]

    def __setitem__(self, name: str, value: float) -> None:
        self._values[name] = value

    def __delitem__(self, name: str) -> None:
        del self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def __repr__(self) -> str:
        if self._read is None:
            return repr(self._values)
        return "LazyLogs(over, never read)" if self._expired else "LazyLogs(not read yet)"
