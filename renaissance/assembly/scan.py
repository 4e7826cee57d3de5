"""A look at the module before the first step: what is unused, random, or cannot be captured.

One forward and backward pass on a few real samples under a dispatch mode. Whatever reads a value on
the host, has a shape that depends on data, or draws from torch's own generators is found with the
path of the layer that did it.
"""

from __future__ import annotations

import dataclasses
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.weak import TensorWeakRef

from renaissance.memory.plan import MemoryPlan
from renaissance.nn.attention import keyed_attention

logger = logging.getLogger("renaissance")
T = TypeVar("T")

_HOST_READS = {"_local_scalar_dense", "item", "is_nonzero"}
_DATA_SHAPES = {"nonzero", "masked_select", "unique_consecutive", "_unique2", "unique_dim"}
# Where they are 0 or False nothing is drawn.
_SWITCHES = {"dropout", "dropout_p", "train", "training"}
_RANDOM_TAG = torch.Tag.nondeterministic_seeded


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing seen: `kind` is "host read", "data-dependent shape", "random operation" or, of the
    data, "several inputs"."""

    kind: str
    operation: str
    layer: str

    def __str__(self) -> str:
        return f"{self.kind} ({self.operation}) in {self.layer}"


class _Watch(TorchDispatchMode):
    def __init__(self, layer: Callable[[], str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._layer = layer
        self.findings: dict[Finding, None] = {}

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled under the watch; True would import the compiler, two seconds."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func.overloadpacket.__name__
        kind = None
        if name in _HOST_READS:
            kind = "host read"
        elif name in _DATA_SHAPES:
            kind = "data-dependent shape"
        elif func.namespace == "aten" and _draws(func, args, kwargs or {}):
            kind = "random operation"
        if kind is not None:
            self.findings[Finding(kind, name, self._layer())] = None
        return func(*args, **(kwargs or {}))


def _draws(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operation draws as it is called: attention or cuDNN's LSTM without dropout not."""
    if _RANDOM_TAG not in func.tags:
        return False
    for place, argument in enumerate(func._schema.arguments):
        if argument.name in _SWITCHES:
            given = kwargs.get(argument.name, argument.default_value)
            if not (args[place] if place < len(args) else given):
                return False
    return True


@contextmanager
def _paths(module: nn.Module) -> Iterator[list[str]]:
    """The path of the layer that is running, kept by hooks: the last entry of the list."""
    stack = ["the loss or the metrics"]
    handles = []
    for name, layer in module.named_modules():
        label = f"{name or 'the model'} ({type(layer).__name__})"

        def enter(_: nn.Module, __: Any, label: str = label) -> None:
            stack.append(label)

        def leave(_: nn.Module, __: Any, ___: Any) -> None:
            stack.pop()

        handles.append(layer.register_forward_pre_hook(enter))
        handles.append(layer.register_forward_hook(leave, always_call=True))
    try:
        yield stack
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _calls(module: nn.Module, kinds: tuple[type[nn.Module], ...]) -> Iterator[Counter[str]]:
    """How often each layer of these types is called."""
    calls: Counter[str] = Counter()
    handles = []
    for name, layer in module.named_modules():
        if isinstance(layer, kinds):

            def count(_: nn.Module, __: Any, name: str = name) -> None:
                calls[name] += 1

            handles.append(layer.register_forward_pre_hook(count))
    try:
        yield calls
    finally:
        for handle in handles:
            handle.remove()


@dataclasses.dataclass(frozen=True)
class Scan:
    """What one pass showed.

    Attributes:
        findings: What cannot be captured or would draw from torch's generators.
        unused: Parameters that got no gradient.
        output_shape: Shape of the output for the batch that was tried, None when not a tensor.
        repeated: Paths of layers of `keyed` that ran more than once.
        written: Parameters that the forward changes in place.
        strangers: Shapes of tensors that require gradients, outlive the pass, and are no parameters
            of the module.
        ending: The operation that gave the output, such as "Softmax"; empty when not a tensor.
    """

    findings: tuple[Finding, ...]
    unused: tuple[str, ...]
    output_shape: tuple[int, ...] | None
    repeated: tuple[str, ...] = ()
    written: tuple[str, ...] = ()
    strangers: tuple[tuple[int, ...], ...] = ()
    ending: str = ""

    @property
    def random(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.kind == "random operation")

    @property
    def drawn(self) -> str:
        """The random operations, a line each."""
        return "\n  ".join(map(str, self.random))

    @property
    def not_capturable(self) -> tuple[Finding, ...]:
        return tuple(f for f in self.findings if f.kind != "random operation")


def scan(
    module: nn.Module,
    run: Callable[[], tuple[Any, Tensor]],
    keyed: tuple[type[nn.Module], ...] = (),
) -> Scan:
    """Run one pass and look. `run` gives (output, loss sum); buffers are the caller's to restore.

    torch's generators are saved and restored: a look must not advance them. `keyed` are types of
    layers whose random numbers follow from their path, the same at every call.
    """
    parameters = {n: p for n, p in module.named_parameters() if p.requires_grad}
    before = _prints(module)
    devices = [p.device for p in parameters.values() if p.is_cuda][:1]
    with (
        torch.random.fork_rng(devices=devices),
        _paths(module) as stack,
        _calls(module, keyed) as calls,
    ):
        with _Watch(lambda: stack[-1]) as watch:
            output, loss = run()
        strangers = _strangers(loss, module)
        gradients: Sequence[Tensor | None] = [None] * len(parameters)
        if loss.requires_grad:
            gradients = torch.autograd.grad(loss, list(parameters.values()), allow_unused=True)
    unused = tuple(n for n, g in zip(parameters, gradients) if g is None)
    shape = tuple(output.shape) if isinstance(output, Tensor) else None
    ending = type(output.grad_fn).__name__ if isinstance(output, Tensor) else ""
    del output, loss
    lasting = [tensor for stranger in strangers if (tensor := stranger()) is not None]
    repeated = tuple(name for name, count in calls.items() if count > 1)
    written = tuple(n for n, found in _prints(module).items() if found != before.get(n))
    shapes = tuple(tuple(tensor.shape) for tensor in lasting)
    ending = ending.partition("Backward")[0]
    return Scan(tuple(watch.findings), unused, shape, repeated, written, shapes, ending)


def _prints(module: nn.Module) -> dict[str, tuple[int, int]]:
    """Version, and sum of the bits, of each parameter: a write through ``.data`` has no version.

    Parameters on the meta device have no bits.
    """
    words, found = {1: torch.uint8, 2: torch.int16}, {}
    for name, parameter in module.named_parameters():
        flat = parameter.detach().contiguous().reshape(-1)
        total = flat.view(words.get(flat.element_size(), torch.int32)).sum()
        found[name] = (parameter._version, 0 if total.is_meta else int(total))
    return found


_WAYS_OUT = (
    "use layers for it: compile puts keyed ones in the place of torch.nn.Dropout and Dropout1d to "
    "3d, MultiheadAttention, LSTM, GRU, RNN, and torchvision.ops.StochasticDepth; rn.nn.Noise is "
    "for torch.randn_like, rn.nn.Attention for scaled_dot_product_attention. Of a network that is "
    "not yours set the rate of attention's dropout to 0 (Hugging Face: attn_pdrop, "
    "attention_dropout or attention_probs_dropout_prob of its configuration); or leave the seed "
    "out to allow it"
)


class SeedError(RuntimeError):
    """What a seed cannot repeat; no error of torch's, which are plain RuntimeErrors."""


def check_random(found: Scan, *, seeded: bool) -> None:
    """RuntimeError when a seed was given and an operation draws from torch's generators."""
    if seeded and found.random:
        raise SeedError(
            "these operations draw from torch's own generators, which a seeded task neither reads "
            f"nor advances:\n  {found.drawn}\n{_WAYS_OUT}"
        )


def first_look(module: nn.Module, run: Callable[[], T]) -> T:
    """What `run` gives: a pass of a seeded task that no look was taken at when it was compiled.

    Raises:
        RuntimeError: It draws from torch's generators; these and buffers are as before.
    """
    buffers = {name: buffer.clone() for name, buffer in module.named_buffers()}
    devices = [p.device for p in module.parameters() if p.is_cuda][:1]
    with torch.random.fork_rng(devices=devices), _paths(module) as stack:
        with _Watch(lambda: stack[-1]) as watch:
            found = run()
    try:
        check_random(Scan(tuple(watch.findings), (), None), seeded=True)
    except SeedError:
        with torch.no_grad():
            for name, buffer in module.named_buffers():
                buffer.copy_(buffers[name])
        raise
    return found


def check_late_seed(found: Scan | None, module: nn.Module) -> None:
    """RuntimeError when a task compiled without a seed draws from torch's generators.

    Without data there was no look; attention that drops is then known by its layers.
    """
    drawn = "" if found is None else found.drawn
    if found is None:
        names = [n or "the model" for n, layer in module.named_modules() if keyed_attention(layer)]
        drawn = "\n  ".join(f"attention that drops, in {name}" for name in names)
    if drawn:
        raise SeedError(
            "the task was compiled without a seed and draws from torch's own generators, which a "
            f"seed does not reach:\n  {drawn}\n"
            "make the task with the seed: rn.Task(..., seed=...)"
        )


def check_reach(found: Scan | None, plan: MemoryPlan) -> None:
    """What updates do not reach: other tensors than parameters, said, and writes of the forward.

    Raises:
        RuntimeError: The forward changes the 16-bit copy of a float32 weight.
    """
    if found is None:
        return
    if found.strangers:
        logger.warning(
            "the loss depends on %d tensors that require gradients and are no parameters of the "
            "model, of the loss itself or of a plain list, say; they stay as they are: %s. Make "
            "them parameters of the model, or take requires_grad from them",
            len(found.strangers),
            ", ".join(map(str, found.strangers[:5])),
        )
    written = [name for name in found.written if plan.segment(name).working]
    if written:
        raise RuntimeError(
            f"{', '.join(written)}: changed in place by the forward, which in mixed precision has "
            "a 16-bit copy of it: the change would not reach the float32 weights; train in "
            "'32-true', or compute the changed weight without writing it"
        )


def _strangers(loss: Tensor, module: nn.Module) -> list[TensorWeakRef]:
    """The tensors that the loss's gradients end in, without the module's parameters.

    Weak, for those that the forward made (inputs of which it takes a gradient) end with its graph.
    """
    known = {id(parameter) for parameter in module.parameters()}
    waiting, seen = [loss.grad_fn], set()
    found: list[TensorWeakRef] = []
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            leaf = getattr(node, "variable", None)
            if leaf is not None and id(leaf) not in known:
                found.append(TensorWeakRef(leaf))
            waiting += [before for before, _ in node.next_functions]
    return found


def check_layers(module: nn.Module, smallest_batch: int | None) -> None:
    """ValueError for layers that cannot work in a static step."""
    for name, layer in module.named_modules():
        if isinstance(layer, (nn.Embedding, nn.EmbeddingBag)) and layer.sparse:
            raise ValueError(
                f"{name or 'the model'} ({type(layer).__name__}) has sparse=True, but gradients "
                "are kept dense, all in one region; say sparse=False"
            )
        if not isinstance(layer, nn.modules.batchnorm._BatchNorm):
            continue
        if layer.track_running_stats and layer.momentum is None:
            raise ValueError(
                f"{name or 'the model'} ({type(layer).__name__}) has momentum=None: a cumulative "
                "average depends on a host counter; give it a momentum, 0.1 say"
            )
        if smallest_batch == 1:
            raise ValueError(
                f"an epoch ends with a batch of one sample, and {name or 'the model'} "
                f"({type(layer).__name__}) cannot normalise over one; choose another batch_size "
                "or drop_last=True"
            )


def has_trained_statistics(module: nn.Module) -> bool:
    """Whether some batch-norm's running statistics are not a fresh constructor's."""
    for layer in module.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.track_running_stats:
            mean, var = layer.running_mean, layer.running_var
            if mean is not None and bool((mean != 0).any()):
                return True
            if var is not None and bool((var != 1).any()):
                return True
    return False
