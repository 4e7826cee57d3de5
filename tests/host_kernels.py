"""Runs the CUDA texts on the host, compiled by g++ over ``cuda_on_host.h``: logic without a GPU."""

import ctypes
import pathlib
import shutil
import subprocess

import numpy as np

from renaissance import kernels

COMPILER = shutil.which("g++")

_CALL = """
template <class... A, std::size_t... I>
void call_with(void (*f)(A...), int grid, int block, void** args, std::index_sequence<I...>) {
  run_grid(grid, block, [=] { f(*static_cast<A*>(args[I])...); });
}
template <class... A>
void call(void (*f)(A...), int grid, int block, void** args) {
  call_with(f, grid, block, args, std::index_sequence_for<A...>());
}
"""


class HostKernels:
    """One CUDA text as a shared library; `launch` stands in for ``kernels.launch``.

    Args:
        text: Name, such as "ranges.cu".
        folder: For the generated text and the library.
    """

    def __init__(self, text, folder):
        names = [name for name, home in kernels.homes().items() if home == text]
        entries = [
            f'extern "C" void run_{n}(int g, int b, void** a) {{ call({n}, g, b, a); }}'
            for n in names
        ]
        path = folder / "kernels.cpp"
        source = kernels.sources()[text]
        path.write_text("\n".join(['#include "cuda_on_host.h"', source, _CALL, *entries]))
        library = folder / "kernels.so"
        here = pathlib.Path(__file__).parent
        flags = ["-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", "-shared", "-pthread"]
        subprocess.run([COMPILER, *flags, f"-I{here}", str(path), "-o", str(library)], check=True)
        self._library = ctypes.CDLL(str(library))
        self.launched = []

    def launch(self, name, grid, block, *arguments):
        if grid <= 0:
            return
        self.launched.append(name)
        held = [ctypes.c_uint64(a) if isinstance(a, int) else np.asarray(a) for a in arguments]
        places = (ctypes.c_void_p * len(held))(
            *(h.ctypes.data if isinstance(h, np.ndarray) else ctypes.addressof(h) for h in held)
        )
        getattr(self._library, f"run_{name}")(grid, block, places)
