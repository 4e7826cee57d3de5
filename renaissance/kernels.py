"""CUDA kernels: the texts inside the native module, compiled by NVRTC at first use.

The very headers that the host compiler saw go to NVRTC through cuda-core, with contraction off, and
give the same bits. Compiled modules are kept on disk by (text, architecture, NVRTC version,
options), so that a second process finds them. No CUDA toolkit is needed; compiling needs no GPU
either, so that tests compile every kernel anywhere.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
import re
import tempfile
from collections.abc import Mapping
from typing import Any

import torch

from renaissance import _native

BLOCK = 256
_KERNEL = re.compile(r'extern "C" __global__ void (\w+)\(')
_MACRO = re.compile(r"^RN_UPDATE(?:_TRUSTED)?\((\w+),", re.MULTILINE)
_INCLUDE = re.compile(r'^#include "(?:renaissance/)?(\w+\.h)"$', re.MULTILINE)


def blocks(threads: int, block: int = BLOCK) -> int:
    """Blocks that give at least this many threads, at least one."""
    return max(1, -(-threads // block))


@functools.cache
def sources() -> Mapping[str, str]:
    """CUDA text by file name, headers put in where they are first included."""
    texts = _native.texts()
    return {name: _flatten(name, texts, set()) for name in texts if name.endswith(".cu")}


def _flatten(name: str, texts: Mapping[str, str], seen: set[str]) -> str:
    def put_in(match: re.Match[str]) -> str:
        if match[1] in seen:
            return ""
        seen.add(match[1])
        return _flatten(match[1], texts, seen)

    return _INCLUDE.sub(put_in, texts[name].replace("#pragma once\n", ""))


@functools.cache
def homes() -> Mapping[str, str]:
    """Kernel name -> the CUDA text it stands in."""
    texts = _native.texts()
    found = {}
    for name, text in texts.items():
        if name.endswith(".cu"):
            found.update({k: name for k in _KERNEL.findall(text) if "##" not in k})
            found.update({f"update_{k}": name for k in _MACRO.findall(text)})
    found.pop("update_", None)
    return found


def cache_folder() -> pathlib.Path:
    """Where compiled kernels are kept: $RENAISSANCE_CACHE, or the user's cache folder."""
    given = os.environ.get("RENAISSANCE_CACHE")
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(given) if given else pathlib.Path(base) / "renaissance"


def _core() -> Any:
    try:
        import cuda.core as core
    except ImportError as error:
        raise RuntimeError(
            "CUDA kernels need cuda-core, which is not installed: pip install cuda-core "
            "(device='cpu' works without)"
        ) from error
    return core


def _options(arch: str) -> Any:
    return _core().ProgramOptions(std="c++17", arch=arch, fma=False)


@functools.cache
def nvrtc_version() -> str:
    """Version of the NVRTC that compiles."""
    from cuda.bindings import nvrtc

    error, major, minor = nvrtc.nvrtcVersion()
    if int(error) != 0:
        raise RuntimeError(f"NVRTC does not answer (error {int(error)}); is it installed?")
    return f"{major}.{minor}"


def compile_text(name: str, arch: str) -> bytes:
    """Machine code of one CUDA text for an architecture such as "sm_90"; from disk when known."""
    text = sources()[name]
    facts = "\n".join((text, arch, nvrtc_version(), "c++17 fma=False"))
    place = cache_folder() / f"{name}-{arch}-{hashlib.sha256(facts.encode()).hexdigest()[:24]}.bin"
    try:
        return place.read_bytes()
    except OSError:
        pass
    code = bytes(_core().Program(text, "c++", _options(arch)).compile("cubin").code)
    _keep(place, code)
    return code


def _keep(place: pathlib.Path, code: bytes) -> None:
    """Write the cache file whole or not at all; a folder that cannot be written is no error."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place.parent, delete=False) as file:
            file.write(code)
        os.replace(file.name, place)
    except OSError:
        return


def compile_all(arch: str = "sm_90") -> dict[str, bytes]:
    """Machine code of every CUDA text; needs no GPU."""
    return {name: compile_text(name, arch) for name in sources()}


@functools.cache
def _kernel(name: str, device: int) -> Any:
    """A kernel loaded on a device."""
    if name not in homes():
        raise ValueError(f"there is no kernel {name!r}; these are: {', '.join(sorted(homes()))}")
    core = _core()
    major, minor = torch.cuda.get_device_capability(device)
    code = compile_text(homes()[name], f"sm_{major}{minor}")
    return core.ObjectCode.from_cubin(code).get_kernel(name)


class _TorchStream:
    """torch's stream, as cuda-core takes streams of others."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


@functools.lru_cache(maxsize=64)
def _stream(device: int, handle: int) -> Any:
    chosen = _core().Device(device)
    chosen.set_current()
    return chosen.create_stream(_TorchStream(handle))


def launch(name: str, grid: int, block: int, *arguments: Any) -> None:
    """Launch a kernel on torch's current stream and device (so that graph capture records it).

    Args:
        name: Of the kernel.
        grid: Blocks.
        block: Threads of a block.
        *arguments: Addresses as Python integers, scalars as NumPy scalars of the exact type.
    """
    if grid <= 0:
        return
    device = torch.cuda.current_device()
    stream = _stream(device, torch.cuda.current_stream(device).cuda_stream)
    core = _core()
    config = core.LaunchConfig(grid=grid, block=block)
    core.launch(stream, config, _kernel(name, device), *arguments)
