"""Triton kernels compiled side by side before a step first needs them.

Triton compiles a kernel at its first launch, one after the other: a residual network has 30, half a
second each. Inside of `compiled_ahead` the launches of this thread are not made; what they would
need is compiled by many threads instead, which leave Python's lock for most of it. Outputs are then
any numbers, so a pass through a network in there is for nothing but to hear of its kernels.
"""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

MOST_THREADS = 16
_here = threading.local()  # its `gang`: who compiles what this thread would launch


class Kernel:
    """A Triton function that is launched: ``kernel[grid](*arguments, **constants)``.

    Args:
        function: What ``triton.jit`` gave.
        unspecialized: Names of sizes whose values do not lead to kernels of their own.
    """

    def __init__(self, function: Any, unspecialized: Collection[str] = ()) -> None:
        self.function = function
        self._constants = getattr(
            function, "constexprs", ()
        )  # places of them, in any case by value
        self._unspecialized = [
            place for place, name in enumerate(function.arg_names) if name in unspecialized
        ]

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., Any]:
        gang: _Gang | None = getattr(_here, "gang", None)
        if gang is None:
            return self.function[grid]  # type: ignore[no-any-return]
        return functools.partial(gang.compile, self, grid)

    def key(self, arguments: tuple[Any, ...], constants: dict[str, Any]) -> tuple[Any, ...]:
        """Equal for launches that one compiled kernel serves."""
        kinds: list[Any] = [_kind(argument) for argument in arguments]
        for place in self._constants:
            if place < len(kinds):
                kinds[place] = arguments[place]
        for place in self._unspecialized:
            kinds[place] = _width(arguments[place])
        return (self, *kinds, *sorted(constants.items()))


def _kind(argument: Any) -> Any:
    """What of an argument Triton compiles for: see "specialization" in its documentation."""
    if isinstance(argument, Tensor):
        return argument.dtype, argument.data_ptr() % 16 == 0
    if isinstance(argument, int):
        return argument == 1, argument % 16 == 0, _width(argument)
    return type(argument)


def _width(argument: int) -> int:
    """Bits of the type that Triton gives a whole number, its value aside."""
    return 64 if argument.bit_length() > 31 else 32


class _Gang:
    """Threads that compile, each kernel once."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="rn-compile")
        self._found: dict[tuple[Any, ...], Future[None]] = {}

    def compile(
        self, kernel: Kernel, grid: tuple[int, ...], *arguments: Any, **constants: Any
    ) -> None:
        """In the place of a launch."""
        key = kernel.key(arguments, constants)
        if key in self._found:
            return
        device = next((a.device for a in arguments if isinstance(a, Tensor) and a.is_cuda), None)

        def work() -> None:
            with contextlib.nullcontext() if device is None else torch.cuda.device(device):
                compiled = kernel.function.warmup(*arguments, grid=grid, **constants)
                compiled.run  # noqa: B018 - loads it, and compiles the C code that launches it

        self._found[key] = self._pool.submit(work)

    def finish(self) -> int:
        """Wait; the number of kernels. The first error is raised when all are done."""
        self._pool.shutdown()
        for future in self._found.values():
            future.result()
        return len(self._found)


@contextlib.contextmanager
def compiled_ahead(threads: int | None = None) -> Iterator[None]:
    """Compile what this thread would launch, backward included; the end waits for all of it.

    Args:
        threads: How many; by default one a processor, at most 16.
    """
    gang = _Gang(threads or min(MOST_THREADS, os.cpu_count() or 1))
    before, _here.gang = getattr(_here, "gang", None), gang
    try:
        with torch.autograd.set_multithreading_enabled(False):  # backward in this thread
            yield
    finally:
        _here.gang = before
        gang.finish()
