"""torch's global switches, set for one task and only while it works.

Determinism, TF32 and the number of threads are global in torch; a task has its own. `Switches` is a
context manager around every trace, warm-up, capture and eager step: it saves, sets and restores
(also on error), so that two tasks in one process, and the user's own code between, do not meet.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from types import TracebackType
from typing import Any

import torch

#: torch gives the flag through a module-level property that type checkers do not see.
_deterministic: Any = torch.utils.deterministic

#: Read by cuBLAS and MKL at their first use, so set at import when the user has not.
ENVIRONMENT = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "MKL_CBWR": "AVX2,STRICT"}


#: Devices whose autocast the user may have switched on around a call.
AUTOCAST = ("cpu", "cuda")


def set_environment() -> None:
    """Set what must stand before the first matrix product; the user's own values win."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


class Switches:
    """The switches of one task.

    Args:
        deterministic: Deterministic kernels only; an operation without one is an error.
        tf32: Whether float32 matrix products and convolutions on CUDA may use TF32.
        threads: Intra-op threads of torch; None keeps what is set. torch's CPU kernels give other
            bits for other counts, which is why a task pins and records it.
    """

    def __init__(self, *, deterministic: bool, tf32: bool, threads: int | None) -> None:
        self.deterministic, self.tf32, self.threads = deterministic, tf32, threads
        self._saved: list[dict[str, Any]] = []

    def wanted(self) -> dict[str, Any]:
        """The switches by name, as they are set inside the context (JSON)."""
        return {
            "deterministic_algorithms": (self.deterministic, False),
            "fill_uninitialized_memory": False,
            "cudnn.deterministic": self.deterministic,
            "cudnn.benchmark": not self.deterministic,
            "cudnn.allow_tf32": self.tf32,
            "matmul.allow_tf32": self.tf32,
            "threads": self.threads or torch.get_num_threads(),
        }

    def record(self) -> dict[str, Any]:
        """What a run writes down: switches, environment and versions that decide the bits."""
        return self.wanted() | {
            "environment": {name: os.environ.get(name) for name in ENVIRONMENT},
            "torch": torch.__version__,
            "cuda": torch.version.cuda,
            "cudnn": torch.backends.cudnn.version() if torch.cuda.is_available() else None,
        }

    def __enter__(self) -> Switches:
        self._saved.append(_read())
        wanted = self.wanted()
        wanted["autocast"] = dict.fromkeys(AUTOCAST, False)
        wanted["float32"] = _Float32.read().allowing(self.tf32)
        _write(wanted)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _write(self._saved.pop())


#: Where torch keeps the precision of float32 products by name; type checkers do not see them all.
_backends: Any = torch.backends
_NAMED = (
    _backends.cuda.matmul,
    _backends.mkldnn.matmul,
    _backends.cudnn.conv,
    _backends.cudnn.rnn,
)


@dataclasses.dataclass(frozen=True)
class _Float32:
    """How exact float32 products are: torch has two ways to say it, which must not be mixed.

    Attributes:
        matmul, cudnn: "highest", "high" or "medium", and cuDNN's flag: the older way, which the
            compiler reads. None where the user has spoken in the newer one; torch then refuses to
            tell them.
        named: The newer way, a precision for each of `_NAMED`; None leaves it to the older one.
    """

    matmul: str | None
    cudnn: bool | None
    named: tuple[str, ...] | None

    @classmethod
    def read(cls) -> _Float32:
        named = tuple(place.fp32_precision for place in _NAMED)
        try:
            older = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        except RuntimeError:
            return cls(None, None, named)
        return cls(*older, named)

    def allowing(self, tf32: bool) -> _Float32:
        """A task's wish, in the way that the user speaks."""
        if self.matmul is None:
            return _Float32(None, None, ("tf32" if tf32 else "ieee",) * len(_NAMED))
        return _Float32("high" if tf32 else "highest", tf32, None)

    def write(self) -> None:
        if self.matmul is not None and self.cudnn is not None:
            torch.set_float32_matmul_precision(self.matmul)
            torch.backends.cudnn.allow_tf32 = self.cudnn
        for place, precision in zip(_NAMED, self.named or ()):
            if place.fp32_precision != precision:
                place.fp32_precision = precision


def _read() -> dict[str, Any]:
    return {
        "deterministic_algorithms": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        "fill_uninitialized_memory": _deterministic.fill_uninitialized_memory,
        "cudnn.deterministic": torch.backends.cudnn.deterministic,
        "cudnn.benchmark": torch.backends.cudnn.benchmark,
        "float32": _Float32.read(),
        "threads": torch.get_num_threads(),
        "autocast": {kind: torch.is_autocast_enabled(kind) for kind in AUTOCAST},
    }


def _write(state: dict[str, Any]) -> None:
    _be_deterministic(*state["deterministic_algorithms"])
    _deterministic.fill_uninitialized_memory = state["fill_uninitialized_memory"]
    torch.backends.cudnn.deterministic = state["cudnn.deterministic"]
    torch.backends.cudnn.benchmark = state["cudnn.benchmark"]
    state["float32"].write()
    for kind, is_on in state["autocast"].items():  # a task's precision says where it is on
        torch.set_autocast_enabled(kind, is_on)
    if state["threads"] != torch.get_num_threads():
        torch.set_num_threads(state["threads"])


def _be_deterministic(enabled: bool, warn_only: bool) -> None:
    """torch's flag, and the inductor's where a compiler is loaded.

    torch.use_deterministic_algorithms sets both and imports the compiler for it: two seconds at the
    start of a run that compiles nothing.
    """
    if "torch._dynamo" in sys.modules or "torch._inductor" in sys.modules:
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
    else:
        torch._C._set_deterministic_algorithms(enabled, warn_only=warn_only)


def check_gradients(call: str) -> None:
    """RuntimeError where the caller has switched off the gradients that training needs.

    Args:
        call: Who needs them, "task.fit".
    """
    if torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
        return
    is_inference = torch.is_inference_mode_enabled()
    mode = "torch.inference_mode()" if is_inference else "torch.no_grad()"
    raise RuntimeError(
        f"{call} inside {mode}: torch makes no gradients there, which training needs; call it "
        "outside. task.evaluate and task.predict make none in any case"
    )


def tell_compiler() -> None:
    """Give a compiler that was loaded inside `Switches` what torch itself was told before."""
    torch.use_deterministic_algorithms(
        torch.are_deterministic_algorithms_enabled(),
        warn_only=torch.is_deterministic_algorithms_warn_only_enabled(),
    )
