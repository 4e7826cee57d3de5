"""Sequential networks from one line of text (or a YAML list), with all shapes inferred.

    seq("conv 32 3, bn, relu, maxpool 2, 2 * (conv 64 3, bn, relu), mean, flatten, linear 10",
        input_shape=(1, 28, 28))

A layer is its name, its numbers in order, then ``name=value`` for the rest; ``n * ( ... )``
repeats. As a list, an item is such a text or a mapping: ``{type: conv, channels: 32, kernel: 3}``.

    conv CHANNELS KERNEL   stride=1 padding=KERNEL//2 groups=1 bias=auto
    linear FEATURES        bias=auto
    bn                     batch normalisation
    gn GROUPS, ln          group normalisation; layer normalisation of flat features
    maxpool SIZE           stride=SIZE padding=0        (avgpool the same)
    mean                   mean over height and width, 1x1 left
    flatten, dropout P, relu, gelu, silu, tanh, sigmoid, leaky_relu

``bias=auto``: no bias directly in front of ``bn``, where it would have no effect.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from renaissance.models.parts import (
    ACTIVATIONS,
    activation_layer,
    check_count,
    check_fraction,
    did_you_mean,
)
from renaissance.nn.pooling import GlobalMean

Shape = tuple[int, ...]
Built = tuple[nn.Module, Shape]


@dataclass(frozen=True)
class Layer:
    """One parsed layer: its kind, its options by name, and how it was written."""

    kind: str
    options: Mapping[str, Any]
    text: str
    feeds_batch_norm: bool = False  #: the next layer is ``bn``

    def bias(self) -> bool:
        given = self.options.get("bias", "auto")
        return not self.feeds_batch_norm if given == "auto" else bool(given)


@dataclass(frozen=True)
class Kind:
    """What a layer name takes (``numbers`` by position) and how it is built."""

    build: Callable[[Layer, Shape], Built]
    numbers: tuple[str, ...] = ()
    options: tuple[str, ...] = ()

    def names(self) -> list[str]:
        return [*self.numbers, *self.options]


class Blueprint(nn.Sequential):
    """The network of `seq`; its children are named by kind and count: conv1, bn1, relu1, ...

    Attributes:
        shapes: Output shape of every layer, without the batch axis, by child name.
    """

    def __init__(self, layers: Sequence[Layer], input_shape: Shape) -> None:
        super().__init__()
        self.shapes: dict[str, Shape] = {}
        counts: dict[str, int] = {}
        shape = input_shape
        for position, layer in enumerate(layers, start=1):
            try:
                module, shape = KINDS[layer.kind].build(layer, shape)
            except (ValueError, TypeError) as error:
                raise type(error)(
                    f"seq: layer {position} {layer.text!r}, whose input is {shape}: {error}"
                ) from None
            counts[layer.kind] = counts.get(layer.kind, 0) + 1
            name = f"{layer.kind}{counts[layer.kind]}"
            self.add_module(name, module)
            self.shapes[name] = shape


def seq(layers: str | Sequence[str | Mapping[str, Any]], input_shape: Sequence[int]) -> Blueprint:
    """A sequential network from a text or a list; the module's text has the grammar.

    Args:
        layers: ``"conv 64 3, bn, relu, ..."``, or a list of texts and mappings with ``type``.
        input_shape: Shape of one sample: (C, H, W) for pictures, (F,) for flat features.

    Shape: (N, *input_shape) -> (N, *shape of the last layer).

    Raises:
        ValueError, TypeError: naming the layer by position and text, for unknown names, missing
            or surplus numbers, and shapes that do not fit.
    """
    if isinstance(input_shape, (str, int)) or len(tuple(input_shape)) not in (1, 3):
        raise ValueError(
            f"seq: input_shape = {input_shape!r} is not allowed; it must be (C, H, W) for "
            "pictures or (F,) for flat features"
        )
    shape = tuple(check_count("seq", "a size in input_shape", size) for size in input_shape)
    parsed = parse(layers)
    if not parsed:
        raise ValueError('seq: no layers; write for example seq("flatten, linear 10", (1, 28, 28))')
    return Blueprint(parsed, shape)


def parse(layers: str | Sequence[str | Mapping[str, Any]]) -> list[Layer]:
    """The layers in order, repetitions written out."""
    items = expand(layers) if isinstance(layers, str) else []
    if not isinstance(layers, str):
        for item in layers:
            items += expand(item) if isinstance(item, str) else [item]
    found = [_layer(position, item) for position, item in enumerate(items, start=1)]
    followers = [*(layer.kind for layer in found[1:]), ""]
    return [
        Layer(layer.kind, layer.options, layer.text, follower == "bn")
        for layer, follower in zip(found, followers)
    ]


def expand(text: str) -> list[Any]:
    """Single layer texts, with every ``n * ( ... )`` written out; repetitions may be nested."""
    items: list[Any] = []
    for part in _split(text):
        repeated = re.fullmatch(r"(\d+)\s*\*\s*\((.*)\)", part, re.DOTALL)
        if repeated:
            items += int(repeated[1]) * expand(repeated[2])
        elif "(" in part or ")" in part or "*" in part:
            raise ValueError(
                f"seq: {part!r} is not a layer; a repetition is written 3 * (conv 64 3, relu)"
            )
        else:
            items.append(part)
    return items


def _split(text: str) -> list[str]:
    """The parts between the commas that stand outside of parentheses."""
    parts, depth, begin = [], 0, 0
    for place, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth < 0:
            break
        if sign == "," and depth == 0:
            parts.append(text[begin:place].strip())
            begin = place + 1
    if depth != 0:
        raise ValueError(f"seq: the parentheses of {text!r} do not match")
    parts.append(text[begin:].strip())
    if parts[-1] == "":
        parts.pop()  # a trailing comma, or no text at all
    for position, part in enumerate(parts, start=1):
        if part == "":
            raise ValueError(f"seq: there is nothing between two commas, at part {position}")
    return parts


def _layer(position: int, item: Any) -> Layer:
    """One item as a checked `Layer`; errors name its position."""
    where = f"seq: layer {position} {_text(item)!r}"
    if isinstance(item, str):
        kind, *words = item.split()
        given = _options_of_words(where, kind, words)
    elif isinstance(item, Mapping):
        given = dict(item)
        kind = str(given.pop("type", ""))
        _known_kind(where, kind)
    else:
        raise TypeError(
            f"{where}: {type(item).__name__} is not allowed; an item is a text such as "
            "'conv 64 3' or a mapping such as {'type': 'conv', 'channels': 64, 'kernel': 3}"
        )
    entry = KINDS[kind]
    for name in given:
        if name not in entry.names():
            hint = did_you_mean(str(name), entry.names())
            allowed = ", ".join(entry.names()) or "nothing"
            raise ValueError(f"{where}: {kind} has no option {name!r}{hint} Allowed: {allowed}")
    missing = [name for name in entry.numbers if name not in given]
    if missing:
        numbers = " ".join(name.upper() for name in entry.numbers)
        raise ValueError(f"{where}: {missing[0]} is missing; write '{kind} {numbers}'")
    return Layer(kind, given, _text(item))


def _text(item: Any) -> str:
    if isinstance(item, str):
        return " ".join(item.split())
    return str(dict(item)) if isinstance(item, Mapping) else str(item)


def _known_kind(where: str, kind: str) -> Kind:
    if kind not in KINDS:
        hint = did_you_mean(kind, KINDS)
        raise ValueError(f"{where}: unknown layer {kind!r}{hint} Allowed: {', '.join(KINDS)}")
    return KINDS[kind]


def _options_of_words(where: str, kind: str, words: Sequence[str]) -> dict[str, Any]:
    """``["64", "3", "stride=2"]`` as ``{"channels": 64, "kernel": 3, "stride": 2}``."""
    entry = _known_kind(where, kind)
    positional = [word for word in words if "=" not in word]
    if len(positional) > len(entry.numbers):
        takes = " ".join(name.upper() for name in entry.numbers) or "no number"
        raise ValueError(
            f"{where}: {kind} takes {takes}, received {' '.join(positional)}; "
            f"options are written name=value ({', '.join(entry.options) or 'it has none'})"
        )
    given = {name: _number(word) for name, word in zip(entry.numbers, positional)}
    for word in words:
        if "=" in word:
            name, _, text = word.partition("=")
            if name in given:
                raise ValueError(f"{where}: {name} is given twice")
            given[name] = _number(text)
    return given


def _number(text: str) -> Any:
    """The text as an int, a float or a switch; itself when it is none of these."""
    if text in ("true", "false"):
        return text == "true"
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def _count(layer: Layer, name: str, default: int | None = None, least: int = 1) -> int:
    given = layer.options.get(name, default)
    if isinstance(given, str):  # a word where a number belongs
        raise ValueError(f"{name} = {given!r} is not allowed; it must be a whole number")
    return check_count(layer.kind, name, given, least)


def _check_bias(layer: Layer) -> None:
    given = layer.options.get("bias", "auto")
    if not isinstance(given, bool) and given != "auto":
        raise ValueError(f"bias = {given!r} is not allowed; it must be true, false or auto")


def _picture(shape: Shape) -> tuple[int, int, int]:
    if len(shape) != 3:
        raise ValueError("it needs a picture (C, H, W); flat features cannot become one again")
    return shape[0], shape[1], shape[2]


def _flat(shape: Shape) -> int:
    if len(shape) != 1:
        raise ValueError("it needs flat features (F,); put 'flatten' or 'mean, flatten' before")
    return shape[0]


def _windows(size: int, window: int, stride: int, padding: int) -> int:
    """How many windows fit along an axis."""
    if size + 2 * padding < window:
        raise ValueError(
            f"a window of {window} does not fit into {size} with padding {padding}; "
            "use fewer poolings or strides before, or a larger picture"
        )
    return (size + 2 * padding - window) // stride + 1


def _conv(layer: Layer, shape: Shape) -> Built:
    channels, height, width = _picture(shape)
    out, kernel = _count(layer, "channels"), _count(layer, "kernel")
    stride, groups = _count(layer, "stride", 1), _count(layer, "groups", 1)
    padding = _count(layer, "padding", kernel // 2, least=0)
    _check_bias(layer)
    if channels % groups or out % groups:
        raise ValueError(f"groups = {groups} must divide {channels} (input) and {out} (output)")
    module = nn.Conv2d(
        channels, out, kernel, stride, padding=padding, groups=groups, bias=layer.bias()
    )
    sizes = (_windows(side, kernel, stride, padding) for side in (height, width))
    return module, (out, *sizes)


def _linear(layer: Layer, shape: Shape) -> Built:
    features, out = _flat(shape), _count(layer, "features")
    _check_bias(layer)
    return nn.Linear(features, out, bias=layer.bias()), (out,)


def _batch_norm(layer: Layer, shape: Shape) -> Built:
    norm = nn.BatchNorm2d if len(shape) == 3 else nn.BatchNorm1d
    return norm(shape[0]), shape


def _group_norm(layer: Layer, shape: Shape) -> Built:
    groups = _count(layer, "groups")
    if shape[0] % groups:
        raise ValueError(f"groups = {groups} must divide the {shape[0]} channels")
    return nn.GroupNorm(groups, shape[0]), shape


def _layer_norm(layer: Layer, shape: Shape) -> Built:
    return nn.LayerNorm(_flat(shape)), shape


def _pool(make: Callable[..., nn.Module]) -> Callable[[Layer, Shape], Built]:
    def build(layer: Layer, shape: Shape) -> Built:
        channels, height, width = _picture(shape)
        size = _count(layer, "size")
        stride, padding = _count(layer, "stride", size), _count(layer, "padding", 0, least=0)
        if padding > size // 2:
            raise ValueError(f"padding = {padding} must be at most half of the window {size}")
        sides = (_windows(side, size, stride, padding) for side in (height, width))
        return make(size, stride, padding), (channels, *sides)

    return build


def _mean(layer: Layer, shape: Shape) -> Built:
    return GlobalMean(), (_picture(shape)[0], 1, 1)


def _flatten(layer: Layer, shape: Shape) -> Built:
    count = 1
    for size in shape:
        count *= size
    return nn.Flatten(), (count,)


def _dropout(layer: Layer, shape: Shape) -> Built:
    return nn.Dropout(check_fraction("dropout", "p", layer.options["p"])), shape


def _activation(layer: Layer, shape: Shape) -> Built:
    return activation_layer("seq", layer.kind), shape


KINDS: dict[str, Kind] = {
    "conv": Kind(_conv, ("channels", "kernel"), ("stride", "padding", "groups", "bias")),
    "linear": Kind(_linear, ("features",), ("bias",)),
    "bn": Kind(_batch_norm),
    "gn": Kind(_group_norm, ("groups",)),
    "ln": Kind(_layer_norm),
    "maxpool": Kind(_pool(nn.MaxPool2d), ("size",), ("stride", "padding")),
    "avgpool": Kind(_pool(nn.AvgPool2d), ("size",), ("stride", "padding")),
    "mean": Kind(_mean),
    "flatten": Kind(_flatten),
    "dropout": Kind(_dropout, ("p",)),
    **{name: Kind(_activation) for name in ACTIVATIONS},
}
