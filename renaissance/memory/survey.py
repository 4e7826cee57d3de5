"""What a module holds, tensor by tensor: kind, group and layout of every parameter and buffer.

`survey` looks at a module once and gives one `Segment` per distinct tensor, in the order in which
the memory plan places them. A kind is derived from the owning module, a group from the kind: norm
scale and shift and biases are **bias-like** (no weight decay, no trust ratio), everything else of
two and more dimensions is **weights**.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from renaissance.memory.segments import (
    BIAS_LIKE,
    BUFFERS,
    KINDS,
    WEIGHTS,
    Segment,
    contiguous_strides,
)

#: The buffer of a batch-norm that leaves the module.
COUNTER = "num_batches_tracked"

GroupRule = Callable[[str, nn.Parameter, nn.Module], Literal["weights", "bias-like"] | None]
WorkingRule = Callable[[str, nn.Parameter, nn.Module], bool | None]

_NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
_NORM_LEAVES = {
    **dict.fromkeys(("weight", "scale", "gamma"), "norm_scale"),
    **dict.fromkeys(("bias", "shift", "beta"), "norm_shift"),
}
_PROJECTIONS = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")


class Place(NamedTuple):
    """Where a module holds a tensor: ``getattr(owner, leaf)``, under this full name."""

    name: str
    owner: nn.Module
    leaf: str


@dataclass(frozen=True, kw_only=True)
class Rules:
    """What the recipe says about single tensors; see `MemoryPlan.build` for the meaning."""

    working_dtype: torch.dtype | None = None
    group: GroupRule | None = None
    working: WorkingRule | None = None
    lr_scales: Sequence[tuple[str, float]] = ()
    unused: Collection[str] = ()
    constants: Collection[str] = ()


def parameters_of(module: nn.Module) -> list[tuple[nn.Parameter, list[Place]]]:
    """Every distinct parameter with all its places, in the module's order."""
    found: dict[int, tuple[nn.Parameter, list[Place]]] = {}
    for prefix, owner in _owners(module):
        for leaf, parameter in owner._parameters.items():
            if parameter is not None:
                places = found.setdefault(id(parameter), (parameter, []))[1]
                places.append(Place(prefix + leaf, owner, leaf))
    return list(found.values())


def buffers_of(module: nn.Module) -> list[tuple[torch.Tensor, list[Place]]]:
    """Every distinct buffer with all its places, without the counters of `counters_of`."""
    found: dict[int, tuple[torch.Tensor, list[Place]]] = {}
    for prefix, owner in _owners(module):
        for leaf, buffer in owner._buffers.items():
            if buffer is not None and not (leaf == COUNTER and is_counted(owner)):
                places = found.setdefault(id(buffer), (buffer, []))[1]
                places.append(Place(prefix + leaf, owner, leaf))
    return list(found.values())


def counters_of(module: nn.Module) -> list[Place]:
    """The ``num_batches_tracked`` that leave the module when it is bound, each owner once."""
    first: dict[int, Place] = {}
    for prefix, owner in _owners(module):
        if is_counted(owner) and owner._buffers.get(COUNTER) is not None:
            first.setdefault(id(owner), Place(prefix + COUNTER, owner, COUNTER))
    return list(first.values())


def is_counted(owner: nn.Module) -> bool:
    """Whether torch's batch-norm runs without ``num_batches_tracked``.

    It does when the momentum is given and forward is the plain one; SyncBatchNorm and subclasses
    with a forward of their own insist on the tensor, which then lives in B like any buffer.
    """
    plain = type(owner).forward is nn.modules.batchnorm._BatchNorm.forward
    return plain and getattr(owner, "momentum", None) is not None


def survey(module: nn.Module, rules: Rules) -> list[Segment]:
    """The segments of a module without offsets, parameters first, both in memory order.

    Raises:
        ValueError: No parameters; a parameter that is lazy, not float32 or shares memory with
            another one; a rule that names nothing or answers something else.
    """
    parameters = parameters_of(module)
    if not parameters:
        raise ValueError(
            f"{type(module).__name__} has no parameters, so there is nothing to plan or train; "
            "pass a module with at least one nn.Parameter"
        )
    _check_storage(parameters, buffers_of(module))
    _check_names(parameters, buffers_of(module), rules)
    found = [_parameter_segment(parameter, places, rules) for parameter, places in parameters]
    first = next((i for i, segment in enumerate(found) if segment.kind == "conv"), None)
    if first is not None:
        found[first] = replace(found[first], kind="first_conv")
    buffers = [_buffer_segment(buffer, places, rules) for buffer, places in buffers_of(module)]
    factors = [1.0, *(float(factor) for _, factor in rules.lr_scales)]

    def order(segment: Segment) -> tuple[bool, bool, int, int]:
        factor = factors.index(segment.lr_factor) if segment.trainable else 0
        return (
            segment.group == WEIGHTS,
            not segment.trainable,
            factor,
            KINDS.index(segment.kind),
        )

    def buffer_order(segment: Segment) -> tuple[bool, bool]:
        return segment.kind == "constant", segment.dtype != torch.float32

    return sorted(found, key=order) + sorted(buffers, key=buffer_order)


def _owners(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    for path, owner in module.named_modules(remove_duplicate=False):
        yield (f"{path}." if path else ""), owner


def _parameter_segment(parameter: nn.Parameter, places: list[Place], rules: Rules) -> Segment:
    name, owner, leaf = places[0]
    kind = _kind(owner, leaf, parameter)
    names = tuple(dict.fromkeys(place.name for place in places))
    unused = parameter.requires_grad and any(n in rules.unused for n in names)
    working = rules.working_dtype is not None and _is_working(parameter, places, rules)
    channels_last = parameter.ndim == 4 and isinstance(owner, _ConvNd)
    return Segment(
        name=name,
        region="W",
        group=_group(name, parameter, owner, kind, rules.group),
        kind=kind,
        shape=tuple(parameter.shape),
        strides=contiguous_strides(tuple(parameter.shape), channels_last),
        dtype=torch.float32,
        trainable=parameter.requires_grad and not unused,
        unused=unused,
        working=working,
        lr_factor=_lr_factor(names, rules.lr_scales),
        tied=names[1:],
    )


def _buffer_segment(buffer: torch.Tensor, places: list[Place], rules: Rules) -> Segment:
    names = tuple(dict.fromkeys(place.name for place in places))
    kind = "buffer"
    if any(name in rules.constants for name in names):
        kind = "constant"
    elif isinstance(places[0].owner, _NormBase) and places[0].leaf in KINDS:
        kind = places[0].leaf
    return Segment(
        name=names[0],
        region="B",
        group=BUFFERS,
        kind=kind,
        shape=tuple(buffer.shape),
        strides=contiguous_strides(tuple(buffer.shape)),
        dtype=buffer.dtype,
        tied=names[1:],
    )


def _kind(owner: nn.Module, leaf: str, parameter: nn.Parameter) -> str:
    is_norm = isinstance(owner, _NORMS)
    if is_norm or ("Norm" in type(owner).__name__ and parameter.ndim < 2):
        if leaf in _NORM_LEAVES:
            return _NORM_LEAVES[leaf]
    is_attention = isinstance(owner, nn.MultiheadAttention)
    if parameter.ndim < 2 and (leaf.startswith("bias") or leaf.endswith("bias")):
        return "bias"
    if is_attention and leaf in ("bias_k", "bias_v"):  # (1, 1, E)
        return "bias"
    if isinstance(owner, (nn.Embedding, nn.EmbeddingBag)):
        return "embedding"
    if leaf == "weight" and isinstance(owner, _ConvNd):
        return "conv"
    if (leaf == "weight" and isinstance(owner, nn.Linear)) or (
        is_attention and leaf in _PROJECTIONS
    ):
        return "linear"
    return "other"


def _group(
    name: str, parameter: nn.Parameter, owner: nn.Module, kind: str, rule: GroupRule | None
) -> str:
    chosen = rule(name, parameter, owner) if rule is not None else None
    if chosen is None:
        is_bias_like = kind in ("norm_scale", "norm_shift", "bias") or parameter.ndim < 2
        return BIAS_LIKE if is_bias_like else WEIGHTS
    if chosen not in (BIAS_LIKE, WEIGHTS):
        raise ValueError(
            f"the group rule answered {chosen!r} for {name!r}; "
            f"it takes {WEIGHTS!r}, {BIAS_LIKE!r} or None for the default"
        )
    return chosen


def _is_working(parameter: nn.Parameter, places: list[Place], rules: Rules) -> bool:
    chosen = (
        rules.working(places[0].name, parameter, places[0].owner)
        if rules.working is not None
        else None
    )
    # A tensor tied to an embedding stays float32: autocast casts it in one place only.
    return all(_casts(p.owner, p.leaf) for p in places) if chosen is None else bool(chosen)


def _casts(owner: nn.Module, leaf: str) -> bool:
    """Whether autocast would cast this parameter whole and use nothing else of it."""
    if isinstance(owner, (nn.Linear, _ConvNd)):
        known = leaf in ("weight", "bias")
    elif isinstance(owner, nn.MultiheadAttention):
        known = leaf in (*_PROJECTIONS, "in_proj_bias")
    else:
        return False
    base = next(c for c in type(owner).__mro__ if c.__module__.startswith("torch.nn.modules."))
    plain = all(
        getattr(type(owner), method, None) is getattr(base, method, None)
        and method not in vars(owner)
        for method in ("forward", "_conv_forward")
    )
    return known and plain


def _lr_factor(names: tuple[str, ...], lr_scales: Sequence[tuple[str, float]]) -> float:
    """The factor of the last pattern that matches one of the names."""
    factor = 1.0
    for pattern, value in lr_scales:
        if any(fnmatch.fnmatchcase(name, pattern) for name in names):
            factor = float(value)
    return factor


def _check_storage(
    parameters: list[tuple[nn.Parameter, list[Place]]],
    buffers: list[tuple[torch.Tensor, list[Place]]],
) -> None:
    for tensor, places in [*parameters, *buffers]:
        if nn.parameter.is_lazy(tensor):
            raise ValueError(
                f"{places[0].name!r} is lazy and has no shape yet; run the module on one sample"
            )
    for parameter, places in parameters:
        name = places[0].name
        if parameter.dtype != torch.float32 or parameter.layout != torch.strided:
            raise ValueError(
                f"parameter {name!r} is {parameter.dtype}, {parameter.layout}; the plan holds "
                "dense float32 masters (precision='bf16-mixed' makes 16-bit copies itself): "
                "call module.float() first"
            )
    seen: dict[tuple[torch.device, int], str] = {}
    for tensor, places in [*parameters, *buffers]:
        name = places[0].name
        if tensor.layout != torch.strided or tensor.is_meta:
            raise ValueError(
                f"{name!r} is {tensor.layout} on {tensor.device}; the plan takes dense tensors "
                "that hold values (module.to_empty(device=...) and an initialisation)"
            )
        place = (tensor.device, tensor.data_ptr())
        if place in seen and tensor.numel() and isinstance(tensor, nn.Parameter):
            raise ValueError(
                f"{name!r} and {seen[place]!r} share memory but are two tensors; tie them by "
                "assigning the same nn.Parameter to both, or clone one"
            )
        if tensor.numel():
            seen.setdefault(place, name)


def _check_names(
    parameters: list[tuple[nn.Parameter, list[Place]]],
    buffers: list[tuple[torch.Tensor, list[Place]]],
    rules: Rules,
) -> None:
    names = [place.name for _, places in parameters for place in places]
    buffer_names = [place.name for _, places in buffers for place in places]
    for pattern, factor in rules.lr_scales:
        if not (math.isfinite(factor) and factor >= 0):
            raise ValueError(
                f"lr_scale({pattern!r}, {factor}) is not allowed; a factor is finite and at least 0"
            )
        if not fnmatch.filter(names, pattern):
            raise ValueError(
                f"lr_scale({pattern!r}, {factor}) matches none of the {len(names)} parameters; "
                f"their names are such as {', '.join(map(repr, names[:3]))}"
            )
    for what, given, known in (
        ("unused", rules.unused, names),
        ("constants", rules.constants, buffer_names),
    ):
        missing = sorted(set(given) - set(known))
        if missing:
            raise ValueError(f"{what} names {missing[0]!r}, which the module does not have")
