"""The silent error of a loss or a metric of one's own: outputs (N, 1) less targets (N,) are (N, N).

What a function does with its shapes only the function shows, so its first call is watched.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from itertools import combinations
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

logger = logging.getLogger("renaissance")

Shape = tuple[int, ...]

#: More tensors than these are put together by an operation, not broadcast against each other.
MOST_OPERANDS = 8

#: Torch's losses that compare element by element, and broadcast where shapes differ.
ELEMENTWISE: tuple[Callable[..., Any], ...] = (
    *(F.l1_loss, F.mse_loss, F.smooth_l1_loss, F.huber_loss, F.poisson_nll_loss, F.kl_div),
    *(F.hinge_embedding_loss, F.multilabel_soft_margin_loss),
)


def watched(function: Callable[[Any, Any], Any], what: str) -> Callable[[Any, Any], Any]:
    """The function of (output, target), whose first call warns where all outputs meet all targets.

    A call that torch.compile traces is not watched; whoever compiles has called it before.

    Args:
        function: A loss or a metric.
        what: What the warning calls it.
    """
    is_first = True

    def call(output: Any, target: Any) -> Any:
        nonlocal is_first
        if torch.compiler.is_compiling() or not is_first:
            return function(output, target)
        is_first = False
        with _Watch(output, target) as watch:
            result = function(output, target)
        if watch.met is not None:
            ours, theirs, both = watch.met
            logger.warning(
                "%s compares every output with every target: where outputs %s meet targets %s, "
                "torch broadcasts them to %s. Give both one shape, as in "
                "output.reshape(target.shape); where all pairs are meant, write target[None]",
                *(what, ours, theirs, both),
            )
        return result

    return call


class _Watch(TorchFunctionMode):
    """Notes the first operation that expands outputs and targets against each other.

    Attributes:
        met: Shapes of what comes from the outputs alone, of what comes from the targets alone, and
            of the result; None when there was no such operation.
    """

    def __init__(self, output: Any, target: Any) -> None:
        super().__init__()
        self.met: tuple[Shape, Shape, Shape] | None = None
        self._seen: list[Tensor] = []  # alive, so that nothing else gets their ids
        self._sides: dict[int, set[str]] = {}
        self._note(tree_leaves(output), {"output"})
        self._note(tree_leaves(target), {"target"})

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        given = [x for x in tree_leaves((args, kwargs or {})) if isinstance(x, Tensor)]
        if isinstance(result, Tensor) and self.met is None and len(given) <= MOST_OPERANDS:
            self._look(given, None if function in ELEMENTWISE else tuple(result.shape))
        self._note(tree_leaves(result), set().union(*(self._side(x) for x in given)))
        return result

    def _note(self, found: Iterable[Any], sides: set[str]) -> None:
        for tensor in found:
            if isinstance(tensor, Tensor) and sides:
                self._seen.append(tensor)
                self._sides[id(tensor)] = self._side(tensor) | sides

    def _side(self, tensor: Tensor) -> set[str]:
        return self._sides.get(id(tensor), set())

    def _look(self, given: list[Tensor], result: Shape | None) -> None:
        for pair in combinations(given, 2):
            by_side = {side: t for t in pair for side in self._side(t) if len(self._side(t)) == 1}
            if by_side.keys() == {"output", "target"}:
                ours, theirs = tuple(by_side["output"].shape), tuple(by_side["target"].shape)
                both = _expanded(ours, theirs)
                if both is not None and result in (both, None):
                    self.met = ours, theirs, both


def _expanded(a: Shape, b: Shape) -> Shape | None:
    """What two shapes that are one but for axes of length 1 become together, if that is more.

    None also where both have as many axes: then somebody has put them there.
    """
    if len(a) == len(b) or [n for n in a if n != 1] != [n for n in b if n != 1]:
        return None
    ndim = max(len(a), len(b))
    pairs = list(zip((1,) * (ndim - len(a)) + a, (1,) * (ndim - len(b)) + b))
    both = tuple(max(pair) for pair in pairs)
    is_possible = all(n == m or 1 in (n, m) for n, m in pairs)
    return both if is_possible and both not in (a, b) else None
