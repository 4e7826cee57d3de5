"""Weights that others have trained: read by name, checked whole, laid over initial values."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from torch import Tensor, nn

from renaissance.memory.survey import COUNTER
from renaissance.settings import nearest
from renaissance.tensorfile import TensorFile, listing

SUFFIX = ".safetensors"


class Pretrained:
    """Where a network's weights and buffers come from, but for those that are skipped.

    Args:
        weights: A safetensors file, or a state dict.
        skip: Patterns, as in a shell, of names that are not taken: those of a new head.

    Raises:
        TypeError, ValueError: Something else, or a file of another format.
    """

    def __init__(
        self, weights: str | os.PathLike[str] | Mapping[str, Tensor], skip: Sequence[str] = ()
    ) -> None:
        if isinstance(weights, Mapping):
            self._weights: Path | dict[str, Tensor] = _checked(weights)
        elif isinstance(weights, (str, os.PathLike)):
            self._weights = _safe(Path(weights))
        else:
            raise TypeError(
                f"pretrained: {type(weights).__name__} is not allowed; it takes the path of a "
                f"{SUFFIX} file, or a state dict"
            )
        if isinstance(skip, str):
            raise TypeError(f"pretrained: skip = {skip!r} is not allowed; write skip=[{skip!r}]")
        self.skip = tuple(skip)

    @property
    def source(self) -> str:
        """The file's name, or "a state dict"."""
        return self._weights.name if isinstance(self._weights, Path) else "a state dict"

    def tensors(self) -> dict[str, Tensor]:
        """Everything there is, on the host, by name.

        Raises:
            FileNotFoundError, CheckpointError: There is no such file, or it is damaged.
        """
        if not isinstance(self._weights, Path):
            return dict(self._weights)
        if not self._weights.is_file():
            raise FileNotFoundError(f"pretrained: there is no file {self._weights}")
        return TensorFile(self._weights).read_all()

    def load_into(self, module: nn.Module) -> int:
        """Write into parameters and buffers, all or nothing; returns how many tensors.

        ``num_batches_tracked`` may be missing, as old files have none.

        Raises:
            ValueError: Tensors are missing, too many or of another shape, and not skipped; or a
                pattern matches nothing.
        """
        given, own = self.tensors(), module.state_dict()
        self._check_patterns({**given, **own})
        wanted = {name: tensor for name, tensor in own.items() if not self._skips(name)}
        found = {name: tensor for name, tensor in given.items() if not self._skips(name)}
        problems = {
            name: "is missing in the file"
            for name in wanted
            if name not in found and name.rpartition(".")[2] != COUNTER
        }
        problems |= {name: "is not in the model" for name in found if name not in wanted}
        problems |= {
            name: f"is {list(found[name].shape)}, the model's {list(tensor.shape)}"
            for name, tensor in wanted.items()
            if name in found and found[name].shape != tensor.shape
        }
        if problems:
            raise ValueError(
                f"pretrained: {self.source} does not fit {type(module).__name__}: "
                f"{listing(f'{name!r} {what}' for name, what in problems.items())}. What shall "
                f"start anew is skipped: skip={_patterns(problems)}"
            )
        module.load_state_dict(found, strict=False)
        return len(found)

    def _skips(self, name: str) -> bool:
        return any(fnmatch.fnmatchcase(name, pattern) for pattern in self.skip)

    def _check_patterns(self, names: Iterable[str]) -> None:
        known = list(names)
        for pattern in self.skip:
            if not fnmatch.filter(known, pattern):
                guess = nearest(pattern, known)
                raise ValueError(
                    f"pretrained: skip = {pattern!r} matches no tensor of {self.source} or of the "
                    "model" + (f"; did you mean {guess!r}?" if guess else "")
                )

    def __repr__(self) -> str:
        return f"Pretrained({self.source!r}, skip={list(self.skip)!r})"


def _safe(path: Path) -> Path:
    if path.suffix != SUFFIX:
        raise ValueError(
            f"pretrained: {str(path)!r} is not allowed; it takes a {SUFFIX} file, which can be "
            "wrong but runs nothing. From one of torch's: safetensors.torch.save_file("
            f"torch.load({str(path)!r}, weights_only=True), {path.stem + SUFFIX!r})"
        )
    return path


def _checked(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    for name, tensor in state.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(
                f"pretrained: {name!r} is of type {type(tensor).__name__}; it takes a state dict, "
                "a mapping of names to tensors"
            )
    return {name: tensor.detach() for name, tensor in state.items()}


def _patterns(names: Iterable[str]) -> list[str]:
    """Patterns for the layers of these tensors, the first few."""
    layers = dict.fromkeys(name.rpartition(".")[0] for name in names)
    return [f"{layer}.*" if layer else "*" for layer in layers][:4]
