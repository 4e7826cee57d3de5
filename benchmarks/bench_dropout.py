"""Dropout and noise that are keyed, against the bytes they move and against torch's.

    python benchmarks/bench_dropout.py            # 15 s on a GPU
    python benchmarks/bench_dropout.py --device cpu

Activations of a transformer, (batch 64, 256 places, features), and a picture's, channels-last.
Microseconds of one pass, on a GPU replayed from a graph, alternating; the share is that of a device
copy of the same bytes (dropout reads and writes, noise writes). Backward is the same pass again.
torch's layer also writes a mask of a byte an element, which its backward reads.
"""

import argparse
import time

import torch
from side_by_side import alternate, device_seconds, summary, table, write

from renaissance import _native
from renaissance.nn import draws

SHAPES = {
    "features 512": (64, 256, 512),
    "features 2048": (64, 256, 2048),
    "features 250": (64, 256, 250),
    "picture 56x56x64": (64, 64, 56, 56),
}
RATE = 0.1


def subjects_of(x):
    """Name -> a run."""
    scalars = torch.zeros(_native.SCALARS_BYTES, dtype=torch.uint8, device=x.device)
    other = torch.empty_like(x)
    return {
        "copy": lambda: other.copy_(x),
        "dropout, ours": lambda: draws.dropout(x, scalars, 1, RATE),
        "dropout, torch": lambda: torch.nn.functional.dropout(x, RATE),
        "noise, ours": lambda: draws.noise(x, scalars, 1),
        "noise, torch": lambda: torch.randn_like(x),
    }


def captured(run):
    """The replay of ten runs."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(10):
            run()
    return graph.replay


def seconds(run, device):
    if device == "cuda":
        return device_seconds(run, 3) / 10
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--rounds", type=int, default=6)
    options = parser.parse_args()
    rows = []
    for name, shape in SHAPES.items():
        for dtype in (torch.bfloat16, torch.float32):
            x = torch.randn(shape, device=options.device).to(dtype)
            if x.dim() == 4:
                x = x.to(memory_format=torch.channels_last)
            runs = subjects_of(x)
            if options.device == "cuda":
                runs = {subject: captured(run) for subject, run in runs.items()}
            found = alternate(runs, lambda run: seconds(run, options.device), options.rounds)
            medians = {subject: summary(samples)["median"] for subject, samples in found.items()}
            for subject, median in medians.items():
                moved = 0.5 if subject.startswith("noise") else 1.0
                rows.append(
                    {"work": name, "type": str(dtype).removeprefix("torch."), "subject": subject,
                     "us": median * 1e6, "of copy": moved * medians["copy"] / median}
                )  # fmt: skip
    table(rows)
    write("dropout" if options.device == "cuda" else "dropout_cpu", rows)


if __name__ == "__main__":
    main()
