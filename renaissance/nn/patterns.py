"""Batch-norms and what follows them, found in a network's graph and fused on CUDA.

`fuse` traces a module with torch.fx and puts `FusedNorm` in the place of batch-norm + ReLU,
batch-norm + addition + ReLU, two batch-norms that are added, and batch-norm + ReLU + max-pool. The
user's module is not touched: parameters, buffers and state-dict keys stay, only the forward that a
task runs is another. A network with parts that are not known to run well without torch.compile is
left to it, whole; so is one that no graph can stand for (`tracing`).
"""

from __future__ import annotations

import collections
import dataclasses
import operator

import torch
import torch.nn.functional as F
from torch import Tensor, fx, nn
from torch.fx.node import Node

from renaissance.nn.beside import Beside
from renaissance.nn.dropout import Dropout
from renaissance.nn.fused_layers import FusedConvolution, FusedMean, FusedNorm, FusedPool
from renaissance.nn.fusion import Fusion
from renaissance.nn.pooling import GlobalMax, GlobalMean, GridMean
from renaissance.nn.tracing import Parts, Refusal, is_plain, trace

#: What may stand beside fused layers: nothing that passes over large activations once more, but for
#: an addition that no batch-norm takes along.
_MODULES = (nn.Linear, nn.Identity, nn.Flatten, Dropout, FusedMean, FusedPool, GlobalMax, GridMean)
_FUNCTIONS = (torch.flatten, torch.mean, operator.getitem, getattr)
_METHODS = ("flatten", "mean", "view", "reshape", "size", "squeeze")
_RELUS = (F.relu, torch.relu, torch.relu_)
_ADDS = (operator.add, operator.iadd, torch.add)
_PRODUCTS = (operator.mul, torch.mul)
_LARGEST_POOL = 3  # every input of a window is read by its threads


def fuse(module: nn.Module) -> Fusion | str:
    """The fused forward of a module with channels-last convolutions, or why there is none.

    The reason is empty where there is no batch-norm to fuse. Where the graphs do not hold, the
    forward is the module's own: with gradients in evaluation, or without in training, and where a
    part is in another mode than `Module.train` gives it.
    """
    graphs: dict[bool, tuple[fx.GraphModule, Parts]] = {}
    beside = Beside()
    try:
        for training in (False, True):
            graph, parts = trace(module, training=training)
            rewriting = _Rewriting(module, graph, beside, training=training)
            rewriting.run()
            if not rewriting.fused:
                return ""
            graphs[training] = rewriting.result(), parts
    except Refusal as error:
        return f"not fused: {error}"

    def forward(x: Tensor) -> Tensor:
        graph, parts = graphs[module.training]
        holds = torch.is_grad_enabled() is module.training
        holds = holds and all(part.training is training for part, training in parts)
        if not holds:
            plain: Tensor = module(x)
            return plain
        if module.training and beside.is_on:
            beside.join()  # a backward that broke off has left something
            for convolution in convolutions:
                convolution.begin()
        result: Tensor = graph(x)
        return result

    layers = graphs[True][0].modules()
    convolutions = [layer for layer in layers if isinstance(layer, FusedConvolution)]
    text = f"{len(rewriting.fused)} batch-norms run together with what follows them"
    return Fusion(forward, rewriting.last(), text, beside)


@dataclasses.dataclass
class _Match:
    """What one fused layer takes over.

    Attributes:
        norm: The batch-norm.
        behind: The nodes behind it, in order; the last one's value is the fused layer's.
        other: What is added, or the input of the second batch-norm.
        second: The second batch-norm.
    """

    norm: Node
    behind: tuple[Node, ...] = ()
    other: Node | None = None
    second: Node | None = None
    relu: bool = False
    pool: nn.MaxPool2d | None = None

    @property
    def last(self) -> Node:
        return (self.norm, *self.behind)[-1]


class _Rewriting:
    """Puts fused layers into a traced graph.

    Args:
        module: The root.
        graph: Its graph, which is changed.
        beside: Where gradients of weights are made.
        training: The mode that it was traced in.
    """

    def __init__(
        self, module: nn.Module, graph: fx.Graph, beside: Beside, *, training: bool
    ) -> None:
        self._graph, self._beside, self._training = graph, beside, training
        self._layers: dict[str, nn.Module] = dict(module.named_modules(remove_duplicate=False))
        called = [self._layer(node) for node in graph.nodes]
        self._calls = collections.Counter(id(layer) for layer in called if layer is not None)
        self.fused: list[str] = []

    def run(self) -> None:
        """Rewrite; a `Refusal` if something is left that is better compiled."""
        self._name_no_arguments()
        for node in list(self._graph.nodes):
            layer = self._layer(node)
            if type(layer) is nn.Identity and is_plain(layer):
                node.replace_all_uses_with(node.all_input_nodes[0])
                self._graph.erase_node(node)
        for node in list(self._graph.nodes):
            if self._is_norm(node) and node.users:
                self._put(self._match(node))
        for node in list(self._graph.nodes):
            self._replace(node)
        if not self.fused:
            return
        stranger = next((n for n in self._graph.nodes if not self._is_known(n)), None)
        if stranger is not None:
            if stranger.op == "get_attr":
                raise Refusal(f"forward reads {stranger.target} itself")
            layer = self._layer(stranger)
            target = getattr(stranger.target, "__name__", stranger.target)
            what = target if layer is None else type(layer).__name__
            raise Refusal(f"{what} ({stranger.name}) is better compiled")
        self._graph.lint()

    def _name_no_arguments(self) -> None:
        """``layer(input=x)`` becomes ``layer(x)``."""
        for node in self._graph.nodes:
            if node.op == "call_module" and not node.args and len(node.kwargs) == 1:
                node.args, node.kwargs = tuple(node.kwargs.values()), {}

    def result(self) -> fx.GraphModule:
        """The rewritten graph over the module's own layers and the fused ones."""
        used = [str(node.target) for node in self._graph.nodes if node.op == "call_module"]
        return fx.GraphModule({name: self._layers[name] for name in used}, self._graph)

    def last(self) -> nn.Linear | None:
        """The linear layer that gives the network's output, if one does."""
        output = next(node for node in self._graph.nodes if node.op == "output")
        given = output.args[0]
        layer = self._layer(given) if isinstance(given, Node) else None
        return layer if isinstance(layer, nn.Linear) else None

    # -- what a node is ------------------------------------------------------------------------

    def _layer(self, node: Node) -> nn.Module | None:
        return self._layers[str(node.target)] if node.op == "call_module" else None

    def _is_norm(self, node: Node) -> bool:
        norm = self._layer(node)
        return (
            type(norm) is nn.BatchNorm2d
            and norm.affine
            and norm.track_running_stats
            and norm.momentum is not None
            and norm.num_features % 8 == 0
            and self._calls[id(norm)] == 1  # the order of two calls' statistics would be ours
            and is_plain(norm)
        )

    def _is_relu(self, node: Node) -> bool:
        layer = self._layer(node)
        if layer is not None:
            return type(layer) is nn.ReLU and is_plain(layer)
        if node.op == "call_method":
            return node.target in ("relu", "relu_")
        return node.op == "call_function" and node.target in _RELUS

    def _pool(self, node: Node) -> nn.MaxPool2d | None:
        layer = self._layer(node)
        if type(layer) is not nn.MaxPool2d or not is_plain(layer):
            return None
        sizes = layer.kernel_size, layer.stride, layer.padding
        is_square = all(isinstance(size, int) for size in sizes)
        is_simple = layer.dilation == 1 and not layer.ceil_mode and not layer.return_indices
        is_small = layer.kernel_size in range(1, _LARGEST_POOL + 1)
        pool: nn.MaxPool2d | None = layer if is_square and is_simple and is_small else None
        return pool

    def _is_known(self, node: Node) -> bool:
        layer = self._layer(node) if node.op == "call_module" else None
        if layer is not None and (len(node.args) != 1 or node.kwargs):
            return isinstance(layer, FusedNorm)
        if isinstance(layer, nn.Conv2d):
            return True
        if self._is_relu(node):
            return isinstance(self._layer(node.all_input_nodes[0]), nn.Linear)
        if layer is not None:
            return isinstance(layer, (*_MODULES, FusedNorm, FusedConvolution))
        if node.target is operator.getitem and node.all_input_nodes[0].op == "placeholder":
            return False  # no tensor: forward may ask what it is, and fx's answer differs
        if self._is_sum(node) or self._is_scaled(node):
            return True
        if node.op == "call_function":
            return node.target in _FUNCTIONS
        return node.op in ("placeholder", "output") or (
            node.op == "call_method" and node.target in _METHODS
        )

    def _is_sum(self, node: Node) -> bool:
        """Whether it adds two values into a third."""
        is_method = node.op == "call_method" and node.target == "add"
        is_function = node.op == "call_function" and node.target in (operator.add, torch.add)
        has_two = len(node.args) == len(node.all_input_nodes) == 2 and not node.kwargs
        return (is_method or is_function) and has_two

    def _is_scaled(self, node: Node) -> bool:
        """Whether it is a linear layer's output times a number."""
        sources, is_number = node.all_input_nodes, False
        if node.op == "call_function" and node.target in _PRODUCTS and not node.kwargs:
            is_number = any(isinstance(one, (int, float)) for one in node.args)
        return is_number and len(sources) == 1 and isinstance(self._layer(sources[0]), nn.Linear)

    # -- patterns ------------------------------------------------------------------------------

    def _match(self, norm: Node) -> _Match:
        """The longest pattern that begins with this batch-norm."""
        user = _only_user(norm)
        if user is None:
            return _Match(norm)
        after = _only_user(user)
        if self._is_relu(user):
            pool = None if after is None else self._pool(after)
            if after is not None and pool is not None:
                return _Match(norm, (user, after), relu=True, pool=pool)
            return _Match(norm, (user,), relu=True)
        other = self._addend(user, norm)
        if other is None:
            return _Match(norm)
        relu = after is not None and self._is_relu(after)
        behind = (user, after) if after is not None and relu else (user,)
        if self._is_norm(other) and _only_user(other) is user:
            return _Match(norm, behind, other.all_input_nodes[0], other, relu=relu)
        return _Match(norm, behind, other, relu=relu)

    def _addend(self, node: Node, norm: Node) -> Node | None:
        """The other operand of an addition that changes no value which somebody else reads."""
        is_method = node.op == "call_method" and node.target in ("add", "add_")
        is_function = node.op == "call_function" and node.target in _ADDS
        if not (is_method or is_function) or len(node.args) != 2 or node.kwargs:
            return None
        left, right = node.args
        if not isinstance(left, Node) or not isinstance(right, Node) or left is right:
            return None
        # In place it changes its left operand, and all that shares its memory: views, for one.
        if node.target in ("add_", operator.iadd) and not self._is_own(left, node):
            return None
        return right if left is norm else left

    def _is_own(self, value: Node, user: Node) -> bool:
        """Whether a value has memory of its own, which nobody else reads."""
        makes = isinstance(self._layer(value), (nn.BatchNorm2d, nn.Conv2d))
        return makes and _only_user(value) is user

    # -- rewriting -----------------------------------------------------------------------------

    def _put(self, match: _Match) -> None:
        """The fused layer in the place of a match; its two outputs go to different users."""
        norm = self._layer(match.norm)
        second = None if match.second is None else self._layer(match.second)
        assert isinstance(norm, nn.BatchNorm2d)
        assert second is None or isinstance(second, nn.BatchNorm2d)
        source = match.norm.all_input_nodes[0]
        before = self._biased(source)
        layer = FusedNorm(norm, second, relu=match.relu, pool=match.pool, before=before)
        name = self._add(f"fused_{len(self.fused)}", layer)
        with self._graph.inserting_before(match.last):
            if before is not None:
                source = self._convolution(source, before, is_biased=False)
            inputs = (source,) if match.other is None else (source, match.other)
            pair = self._graph.call_module(name, inputs)
            outputs = [self._graph.call_function(operator.getitem, (pair, i)) for i in (0, 1)]
        for place, user in enumerate(list(match.last.users)):
            user.replace_input_with(match.last, outputs[min(place, 1)])
        self.fused += [str(n.target) for n in (match.norm, match.second) if n is not None]
        biased = None if before is None else match.norm.all_input_nodes[0]
        for node in (*reversed(match.behind), match.norm, match.second, biased):
            if node is not None:
                self._graph.erase_node(node)

    def _biased(self, source: Node) -> nn.Conv2d | None:
        """The convolution before a batch-norm whose bias the batch's mean takes away again."""
        layer = self._layer(source)
        if type(layer) is not nn.Conv2d or layer.bias is None or not is_plain(layer):
            return None
        return layer if self._training and len(source.users) == 1 else None

    def _convolution(self, node: Node, layer: nn.Conv2d, *, is_biased: bool) -> Node:
        """A convolution of our own before a node."""
        is_first = isinstance(node.args[0], Node) and node.args[0].op == "placeholder"
        own = FusedConvolution(layer, is_biased=is_biased, is_first=is_first, beside=self._beside)
        return self._graph.call_module(self._add(f"own_{node.name}", own), node.args)

    def _add(self, name: str, layer: nn.Module) -> str:
        """Keep a layer of our own under a name that the network has not got."""
        while name in self._layers:
            name += "_"
        self._layers[name] = layer
        return name

    def _replace(self, node: Node) -> None:
        """Convolutions and adaptive pooling by layers of our own."""
        layer = self._layer(node)
        side = None if layer is None or not is_plain(layer) else _grid(layer)
        if side is not None:
            own = FusedMean() if side == 1 else GridMean(side)
            node.target = self._add(f"own_{node.name}", own)
        pool = self._pool(node)
        if pool is not None:
            node.target = self._add(f"own_{node.name}", FusedPool(pool))
        if type(layer) is nn.Conv2d and is_plain(layer):
            with self._graph.inserting_before(node):
                node.replace_all_uses_with(self._convolution(node, layer, is_biased=True))
            self._graph.erase_node(node)


def _grid(layer: nn.Module) -> int | None:
    """Side of the output of an average pooling over parts of the picture, if it is one."""
    if isinstance(layer, GlobalMean):
        return 1
    size = getattr(layer, "output_size", None) if type(layer) is nn.AdaptiveAvgPool2d else None
    side = size[0] if isinstance(size, tuple) and len({*size}) == 1 else size
    return side if isinstance(side, int) else None


def _only_user(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None
