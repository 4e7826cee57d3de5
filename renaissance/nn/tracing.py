"""A module's forward as a torch.fx graph, where a graph can stand for it; else a `Refusal`.

fx runs forward once on stand-ins for tensors and writes down what is called. What forward does
besides leaves no node: it switches gradients, counts its calls, throws dice, asks which mode a part
is in. A graph would then be another function, without a word. So everything that such code reads or
changes is looked at before and after, put back, and a forward that touches it is refused.
"""

from __future__ import annotations

import collections
import contextlib
import inspect
import operator
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx, nn

Parts = list[tuple[nn.Module, bool]]

_CONTAINERS = (dict, list, set, collections.deque)
_DEVICES = ("cpu", "cuda")


class Refusal(Exception):
    """Why no graph can stand for a forward."""


def has_hooks(layer: nn.Module) -> bool:
    """Whether somebody watches the layer, who would not be called."""
    backward = layer._backward_hooks or layer._backward_pre_hooks
    return bool(layer._forward_hooks or layer._forward_pre_hooks or backward)


def is_plain(layer: nn.Module) -> bool:
    """Whether it does what its type says: no hooks, and no methods put on it alone."""
    own = any(callable(getattr(type(layer), name, None)) for name in vars(layer))
    return not own and not has_hooks(layer)


def _in_place(operation: Any) -> Any:
    def record(self: fx.Proxy, other: Any) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", operation, (self, other), {})

    return record


class _StandIn(fx.Proxy):
    """Says that ``x += y`` was in place; fx would write down ``x + y``, which changes no x."""

    __iadd__ = _in_place(operator.iadd)
    __isub__ = _in_place(operator.isub)
    __imul__ = _in_place(operator.imul)
    __itruediv__ = _in_place(operator.itruediv)
    __ifloordiv__ = _in_place(operator.ifloordiv)
    __imod__ = _in_place(operator.imod)
    __ipow__ = _in_place(operator.ipow)
    __iand__ = _in_place(operator.iand)
    __ior__ = _in_place(operator.ior)
    __ixor__ = _in_place(operator.ixor)


class _Tracer(fx.Tracer):
    """Takes our own layers whole, as fx takes torch's, and refuses what leaves no node."""

    proxy_buffer_attributes = True  # else forward would change the buffers themselves

    def __init__(self) -> None:
        super().__init__()
        self._modes = _modes()

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        is_ours = type(m).__module__.startswith("renaissance.nn.")
        return is_ours or super().is_leaf_module(m, module_qualified_name)

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return _StandIn(node, self)

    def create_node(self, *args: Any, **kwargs: Any) -> fx.Node:
        if _modes() != self._modes:
            raise Refusal("forward switches gradients, checkpoints or autocast itself")
        return super().create_node(*args, **kwargs)


def trace(module: nn.Module, *, training: bool) -> tuple[fx.Graph, Parts]:
    """The graph of forward in training or evaluation, on an otherwise untouched module.

    Args:
        module: Its forward takes one input. Layers of torch and of our own are single nodes.
        training: The mode, which `Module.train` gives to all parts; as they were afterwards.

    Returns:
        The graph, and the parts whose own forward it holds, with the mode that it holds for.

    Raises:
        Refusal: No graph can stand for it, with the reason.
    """
    with _untouched(module), torch.set_grad_enabled(training):
        module.train(training)
        tracer = _Tracer()
        inner = [
            (name, part)
            for name, part in module.named_modules()
            if part is module or not tracer.is_leaf_module(part, name)
        ]
        _check(module, inner)
        parts = [(part, part.training) for _, part in inner]
        return _traced(tracer, module), parts


def _check(module: nn.Module, inner: list[tuple[str, nn.Module]]) -> None:
    for name, part in inner:
        if has_hooks(part):
            raise Refusal(f"{name or 'the model'} has hooks")
    if "forward" in vars(module):
        raise Refusal("the model's forward was replaced")
    kinds = [p.kind for p in inspect.signature(module.forward).parameters.values()]
    if kinds != [inspect.Parameter.POSITIONAL_OR_KEYWORD]:
        raise Refusal("forward takes more than one input")


def _traced(tracer: _Tracer, module: nn.Module) -> fx.Graph:
    try:
        return tracer.trace(module)
    except Refusal:
        raise
    except Exception as error:
        reason = str(error).strip().split("\n")[0]
        raise Refusal(
            f"torch.fx cannot follow forward ({type(error).__name__}: {reason:.120})"
        ) from error


def _modes() -> tuple[object, ...]:
    """What torch does with every operation beside it, as it is set now."""
    saved = torch._C._autograd._top_saved_tensors_default_hooks(True)
    autocast = tuple(torch.is_autocast_enabled(kind) for kind in _DEVICES)
    return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), saved is None, autocast


@contextlib.contextmanager
def _untouched(module: nn.Module) -> Iterator[None]:
    """Leaves module and generators of random numbers as they were.

    Raises:
        Refusal: What runs inside has changed them, the mode of the parts apart.
    """
    before, dice = _attributes(module), _dice()
    try:
        yield
    finally:
        kept, thrown = _put_back(before), _put_dice_back(dice)
    if kept:
        raise Refusal(f"forward keeps values in {', '.join(kept)}")
    if thrown:
        raise Refusal("forward draws random numbers on the host")


Attributes = dict[nn.Module, tuple[dict[str, Any], dict[str, Any]]]


def _attributes(module: nn.Module) -> Attributes:
    """Every part's attributes, and copies of those that hold others."""
    found = {}
    for part in module.modules():
        own = dict(vars(part))
        held = {name: v.copy() for name, v in own.items() if isinstance(v, _CONTAINERS)}
        found[part] = own, held
    return found


def _put_back(before: Attributes) -> list[str]:
    """Attributes as they were; names of those that were not."""
    kept = []
    for part, (own, held) in before.items():
        now = vars(part)
        changed = [n for n in {**own, **now} if n != "training" and not _is_same(n, own, now)]
        for name, content in held.items():
            if not _holds_same(own[name], content):
                changed.append(name)
                _fill(own[name], content)
        now.clear()
        now.update(own)
        kept += [f"{type(part).__name__}.{name}" for name in dict.fromkeys(changed)]
    return kept


def _is_same(name: str, before: dict[str, Any], now: dict[str, Any]) -> bool:
    return name in before and name in now and before[name] is now[name]


def _holds_same(one: Any, other: Any) -> bool:
    """Whether two containers hold the very same things; the order of a set says nothing."""
    ids = [
        [id(item) for item in ([*held, *held.values()] if isinstance(held, dict) else held)]
        for held in (one, other)
    ]
    return sorted(ids[0]) == sorted(ids[1]) if isinstance(one, set) else ids[0] == ids[1]


def _fill(container: Any, content: Any) -> None:
    container.clear()
    is_row = isinstance(container, (list, collections.deque))
    (container.extend if is_row else container.update)(content)


Dice = tuple[Tensor, Any, Any]


def _dice() -> Dice:
    """States of the generators that a forward may ask on the host."""
    return torch.get_rng_state(), random.getstate(), np.random.get_state()


def _put_dice_back(before: Dice) -> bool:
    """The generators as they were; whether they were not."""
    now = _dice()
    numbers = all(np.array_equal(a, b) for a, b in zip(before[2], now[2]))
    is_same = torch.equal(before[0], now[0]) and before[1] == now[1] and numbers
    if not is_same:
        torch.set_rng_state(before[0])
        random.setstate(before[1])
        np.random.set_state(before[2])
    return not is_same
