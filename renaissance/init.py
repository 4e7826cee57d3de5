"""Initial values: which rule meets which parameter. `renaissance.fills` draws them.

A rule is chosen by the kind of layer that a parameter belongs to, or by its name; from its shape it
is made a concrete `Fill`.
"""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import pydantic
from torch import Tensor, nn
from typing_extensions import Self

from renaissance.fills import Fill as Fill
from renaissance.fills import fill as fill
from renaissance.settings import Setting, Value, nearest, pairs, setting, value

Fan = Literal["fan_in", "fan_out", "fan_avg"]

#: Kinds whose spread follows from the shape: (distribution, gain, takes the mean of both fans).
_SCALED = {
    "kaiming_normal": ("normal", math.sqrt(2.0)),
    "kaiming_uniform": ("uniform", math.sqrt(2.0)),
    "xavier_normal": ("normal", 1.0),
    "xavier_uniform": ("uniform", 1.0),
}
Kind = Literal[
    "keep",
    "zeros",
    "ones",
    "constant",
    "normal",
    "uniform",
    "trunc_normal",
    "kaiming_normal",
    "kaiming_uniform",
    "xavier_normal",
    "xavier_uniform",
]


@value
class InitRule(Value):
    """How one parameter is filled. A rule may be written as its kind alone: ``"xavier_uniform"``.

    * ``keep``: left as the module made it; ``zeros``, ``ones``, ``constant``: `constant`.
    * ``normal``: mean 0, deviation `std`; ``trunc_normal``: the same cut at two deviations (its own
      deviation is then 0.8796 std); ``uniform``: from -`bound` to `bound`.
    * ``kaiming_*`` (He et al. 2015, arXiv:1502.01852): deviation ``gain/sqrt(fan)``, gain sqrt(2);
      ``xavier_*`` (Glorot and Bengio 2010): the same with gain 1 and the mean of both fans. Uniform
      ones have the bound ``sqrt(3)`` deviations.

    Example:
        >>> InitRule("normal", std=0.01)
        InitRule('normal', std=0.01)
    """

    kind: Setting[Kind] = setting(kw_only=False, doc="What the values are; see the class.")
    constant: Setting[float] = setting(default=0.0, doc="The value of 'constant', any number.")
    std: Setting[float] = setting(
        default=0.02, gt=0, doc="Deviation of 'normal' and 'trunc_normal', above 0."
    )
    bound: Setting[float] = setting(
        default=0.05, gt=0, doc="'uniform' draws from -bound to bound, above 0."
    )
    fan: Setting[Fan | None] = setting(
        default=None,
        doc="What kaiming divides by: 'fan_in', 'fan_out', 'fan_avg'; None: the initializer's.",
    )
    gain: Setting[float | None] = setting(
        default=None,
        gt=0,
        doc="Factor of kaiming and xavier, above 0; None: the initializer's.",
    )

    _USES: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "constant": ("constant",),
        "normal": ("std",),
        "trunc_normal": ("std",),
        "uniform": ("bound",),
        "kaiming_normal": ("fan", "gain"),
        "kaiming_uniform": ("fan", "gain"),
        "xavier_normal": ("gain",),
        "xavier_uniform": ("gain",),
    }

    def check(self) -> None:
        kind = self.settings.kind
        used = ("kind", *self._USES.get(kind, ()))
        for name, given in self.changed().items():
            if name not in used:
                raise ValueError(
                    f"InitRule: {name} = {given!r} has no effect on {kind!r}, which takes "
                    f"{', '.join(used[1:]) or 'no number'}"
                )


def as_rule(given: Any) -> Any:
    """A rule from its kind, a number, or a mapping as YAML has it; anything else as it is."""
    if isinstance(given, str):
        kinds = Kind.__args__  # type: ignore[attr-defined]
        if given not in kinds:
            guess = nearest(given, kinds)
            hint = f"did you mean {guess!r}? " if guess else ""
            raise ValueError(f"a rule; {hint}Its kinds are {', '.join(kinds)}")
        return InitRule(kind=given)  # type: ignore[arg-type]  # checked above
    if isinstance(given, (int, float)) and not isinstance(given, bool):
        return InitRule("constant", constant=given)
    if isinstance(given, Mapping):
        if given.get("type", InitRule.type_name) != InitRule.type_name:
            raise ValueError(f"a rule, not a {given['type']!r}")
        return InitRule(**{name: item for name, item in given.items() if name != "type"})
    return given


AnyRule = InitRule | str | float | Mapping[str, Any]
Rule = Annotated[AnyRule, pydantic.BeforeValidator(as_rule)]
Rules = Annotated[
    tuple[tuple[str, Rule], ...] | Mapping[str, Rule], pydantic.BeforeValidator(pairs)
]


@value
class Initializer(Value):
    """Rules by kind of layer; the last pattern of `parameter` that matches a name goes first.

    Example:
        >>> Initializer().fan("fan_in").parameter("head.weight", "zeros")
        Initializer(fan='fan_in', parameters=(('head.weight', InitRule('zeros')),))
    """

    conv: Setting[Rule] = setting(
        factory=lambda: InitRule("kaiming_normal"),
        doc="Weights of convolutions, transposed ones too; kaiming divides by fan_out.",
    )
    linear: Setting[Rule] = setting(
        factory=lambda: InitRule("kaiming_uniform"),
        doc="Weights of linear and recurrent layers and all other parameters of two and more "
        "dimensions; kaiming divides by fan_in.",
    )
    attention: Setting[Rule] = setting(
        factory=lambda: InitRule("xavier_uniform"),
        doc="Projections of torch.nn.MultiheadAttention; kaiming divides by fan_in.",
    )
    embedding: Setting[Rule] = setting(
        factory=lambda: InitRule("normal"),
        doc="Embedding tables; a padding row stays 0.",
    )
    norm: Setting[Rule] = setting(
        factory=lambda: InitRule("ones"), doc="Scales of normalisation layers; shifts are 0."
    )
    bias: Setting[Rule] = setting(
        factory=lambda: InitRule("zeros"), doc="Biases of all layers but normalisation."
    )
    fan: Setting[Fan | None] = setting(
        default=None,
        doc="Fan of every kaiming rule that has none of its own: 'fan_in', 'fan_out', 'fan_avg'.",
    )
    gain: Setting[float | None] = setting(
        default=None,
        gt=0,
        doc="Gain of every kaiming and xavier rule that has none of its own, above 0.",
    )
    zero_last_scale: Setting[bool] = setting(
        default=False,
        doc="Start every residual block as the identity: the scale of its last normalisation is 0 "
        "(Goyal et al. 2017, arXiv:1706.02677).",
    )
    parameters: Setting[Rules] = setting(
        default=(),
        doc="Pairs (parameter name pattern as in a shell, rule) before all other rules.",
    )

    def parameter(self, pattern: str, rule: AnyRule) -> Self:
        """A new value with a rule for the parameters whose name matches a shell-like pattern."""
        return self.replace(parameters=(*self.settings.parameters, (pattern, rule)))

    def resolve(self, module: nn.Module) -> list[tuple[str, Fill]]:
        """(name, fill) of every parameter, tied ones once, in the module's order.

        Args:
            module: Materialised; the current values are read only to keep constant vectors.

        Raises:
            ValueError: A parameter has no rule, a pattern matches nothing, or a rule does not fit.
        """
        # A network may ask for it itself: resnet18(zero_init_last=True).
        asked = getattr(module, "zero_init_last", False) is True
        roles = dict(_roles(module, self.settings.zero_last_scale or asked))
        parameters = dict(module.named_parameters())
        for pattern, _ in self.settings.parameters:
            if not fnmatch.filter(parameters, pattern):
                guess = nearest(pattern, parameters)
                hint = f"; did you mean {guess!r}?" if guess else ""
                raise ValueError(
                    f"Initializer: parameter({pattern!r}, ...) matches no parameter of "
                    f"{type(module).__name__}{hint}"
                )
        return [(name, self._fill(name, tensor, roles)) for name, tensor in parameters.items()]

    def _fill(self, name: str, tensor: Tensor, roles: Mapping[int, _Role]) -> Fill:
        if isinstance(tensor, nn.UninitializedParameter):
            raise ValueError(f"parameter {name!r} has no shape yet; run the module once first")
        role = roles.get(id(tensor)) or _Role("linear" if tensor.ndim >= 2 else "vector")
        for pattern, rule in reversed(self.settings.parameters):
            if fnmatch.fnmatchcase(name, pattern):
                return self._concrete(name, tensor, rule, role)
        if role.kind == "zero":
            return Fill("constant", 0.0, role.why)
        if role.kind == "vector":
            return _kept_constant(name, tensor)
        return self._concrete(name, tensor, getattr(self.settings, role.kind), role)

    def _concrete(self, name: str, tensor: Tensor, rule: InitRule, role: _Role) -> Fill:
        given, kind = rule.settings, rule.settings.kind
        if kind == "keep":
            return Fill("keep", 0.0, "keep")
        if kind in ("zeros", "ones", "constant"):
            number = {"zeros": 0.0, "ones": 1.0}.get(kind, given.constant)
            return Fill("constant", number, kind, role.zero_row)
        if kind not in _SCALED:
            scale = given.bound if kind == "uniform" else given.std
            return Fill(kind, scale, f"{kind} {scale:g}", role.zero_row)
        if tensor.ndim < 2:
            raise ValueError(
                f"Initializer: {kind!r} cannot fill {name!r} of shape {tuple(tensor.shape)}: a fan "
                "needs two dimensions; give it 'zeros', 'ones', a number, or 'normal'"
            )
        distribution, gain = _SCALED[kind]
        fan_name = "fan_avg"
        if kind.startswith("kaiming"):
            default = "fan_out" if role.kind == "conv" else "fan_in"
            fan_name = given.fan or self.settings.fan or default
        fan = fans(tensor.shape)[fan_name]
        gain = given.gain or self.settings.gain or gain
        std = gain / math.sqrt(fan) if fan else 0.0
        scale = math.sqrt(3.0) * std if distribution == "uniform" else std
        return Fill(distribution, scale, f"{kind} {fan_name} {fan:g}", role.zero_row)


def _kept_constant(name: str, tensor: Tensor) -> Fill:
    values = tensor.detach().flatten()
    if not values.numel() or bool((values == values[0]).all()):
        constant = float(values[0]) if values.numel() else 0.0
        return Fill("constant", constant, "the module's constant")
    raise ValueError(
        f"no rule to initialise {name!r} of shape {tuple(tensor.shape)}: it is neither a bias nor "
        "part of a known layer, and not constant. Give it a rule, "
        f"init(rn.Initializer().parameter({name!r}, 'zeros')), keep it alone with "
        f".parameter({name!r}, 'keep'), or keep all of the module's own values with init('keep')"
    )


def fans(shape: Sequence[int]) -> dict[str, float]:
    """fan_in, fan_out and their mean, of the stored shape as torch counts them.

    ``fan_in = shape[1] * receptive field``, ``fan_out = shape[0] * receptive field``; for grouped
    and transposed convolutions too, whose stored shapes are (out, in/groups, ...) and
    (in, out/groups, ...).
    """
    field = math.prod(shape[2:])
    fan_in, fan_out = float(shape[1] * field), float(shape[0] * field)
    return {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2.0}


@dataclass(frozen=True)
class _Role:
    kind: str  # "conv", "linear", "attention", "embedding", "norm", "bias", "zero" or "vector"
    zero_row: int | None = None
    why: str = ""


_NORMS = (
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
)
_LINEARS = (nn.Linear, nn.Bilinear, nn.RNNBase, nn.RNNCellBase)


def _roles(module: nn.Module, zero_last_scale: bool) -> Iterator[tuple[int, _Role]]:
    """(identity of the parameter, its role); later ones override earlier ones."""
    last = _last_scales(module) if zero_last_scale else []
    for part in module.modules():
        for name, tensor in part.named_parameters(recurse=False):
            role = _role(part, name, tensor)
            if role is not None:
                yield id(tensor), role
    for part in module.modules():
        if isinstance(part, nn.MultiheadAttention):
            for name, tensor in part.named_parameters():
                is_bias = name in ("in_proj_bias", "out_proj.bias")
                yield id(tensor), _Role("bias" if is_bias else "attention")
    for scale in last:
        yield id(scale), _Role("zero", why="zero_last_scale")


def _role(part: nn.Module, name: str, tensor: Tensor) -> _Role | None:
    if isinstance(part, _NORMS):
        return _Role("norm") if name == "weight" else _Role("zero", why="shift of a norm")
    if isinstance(part, (nn.Embedding, nn.EmbeddingBag)):
        return _Role("embedding", part.padding_idx)
    is_conv = isinstance(part, nn.modules.conv._ConvNd)
    if not is_conv and not isinstance(part, _LINEARS):
        return None
    if name.startswith("bias"):
        return _Role("bias")
    if tensor.ndim < 2:
        return None
    return _Role("conv" if is_conv else "linear")


#: Where blocks of torchvision end; any other block says so in an attribute `last_norm` (a name).
_LAST_NORMS = {"BasicBlock": "bn2", "Bottleneck": "bn3"}


def _last_scales(module: nn.Module) -> list[Tensor]:
    found: list[Tensor] = []
    for part in module.modules():
        name = getattr(part, "last_norm", None)
        if not isinstance(name, str):
            name = _LAST_NORMS.get(type(part).__name__)
        norm = getattr(part, name, None) if name else None
        if isinstance(norm, _NORMS) and isinstance(norm.weight, Tensor):
            found.append(norm.weight)
    if not found:
        raise ValueError(
            f"Initializer: zero_last_scale finds no residual block in {type(module).__name__}; a "
            "block names its last normalisation in an attribute: last_norm = 'bn2'"
        )
    return found
