"""Attention with keyed dropout, forward and backward, against torch's and against a copy's time.

    python benchmarks/bench_attention.py           # about 50 s
    python benchmarks/bench_attention.py --sweep   # other tiles, about two minutes

bfloat16, queries, keys and values as views of one projection, dropout 0.1, replayed from graphs and
alternating. Ours never holds the weights, draws what a CPU draws, and is deterministic; torch's
fused attention draws from its own generator; "in full" is what ours does where no kernel fits.
Without dropout torch's is faster, and slower once it is told to be deterministic.
"""

import argparse
import itertools

import torch
import torch.nn.functional as F
from side_by_side import alternate, device_seconds, summary, table, write

from renaissance import _native
from renaissance.nn import draws, fused_attention
from renaissance.nn.ahead import compiled_ahead
from renaissance.nn.attention import weights_of

#: (samples, heads, length, features, causal)
SHAPES = [
    (64, 8, 256, 64, True),
    (16, 8, 1024, 64, True),
    (4, 16, 4096, 64, True),
    (16, 8, 1024, 64, False),
    (16, 8, 1024, 128, True),
]
P = 0.1
IN_ORDER = "torch, no dropout, deterministic"
#: Kernel -> the run that has it.
KERNELS = {"FORWARD": "forward", "OF_KEYS": "with backward", "OF_QUERIES": "with backward"}


def inputs(samples, heads, length, width):
    packed = torch.randn(samples, length, 3, heads, width, device="cuda", dtype=torch.bfloat16)
    return [part.transpose(1, 2).requires_grad_() for part in packed.unbind(2)]


def forwards(scalars, is_causal):
    """Name -> attention of (q, k, v)."""

    def in_full(q, k, v):
        ahead = torch.ones(q.shape[2], k.shape[2], device="cuda", dtype=torch.bool).triu(1)
        bias = torch.zeros_like(ahead, dtype=q.dtype).masked_fill(ahead, -torch.inf)
        weights = weights_of(q, k, bias if is_causal else None)
        return draws.dropout(weights, scalars, 1, P) @ v

    return {
        "ours": lambda q, k, v: fused_attention.attention(
            q, k, v, None, scalars=scalars, layer=1, p=P, is_causal=is_causal
        ),
        "ours, in full": in_full,
        "ours, no dropout": lambda q, k, v: fused_attention.attention(
            q, k, v, None, scalars=None, layer=1, p=0.0, is_causal=is_causal
        ),
        "torch": lambda *qkv: F.scaled_dot_product_attention(
            *qkv, dropout_p=P, is_causal=is_causal
        ),
        "torch, no dropout": lambda *qkv: F.scaled_dot_product_attention(*qkv, is_causal=is_causal),
        IN_ORDER: lambda *qkv: F.scaled_dot_product_attention(*qkv, is_causal=is_causal),
    }


def captured(run, is_in_order=False):
    torch.use_deterministic_algorithms(is_in_order)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        run()
    torch.use_deterministic_algorithms(False)
    return graph.replay


def runs_of(shape, chosen=None):
    """Name of a subject and what it does -> a replay; of the `chosen` subjects, or of all."""
    *sizes, is_causal = shape
    scalars = torch.zeros(_native.SCALARS_BYTES, dtype=torch.uint8, device="cuda")
    parts = inputs(*sizes)
    g = torch.randn_like(parts[0])
    found = {}
    for name, forward in forwards(scalars, is_causal).items():
        is_large = name == "ours, in full" and sizes[2] > 2048
        if is_large or (chosen is not None and name not in chosen):
            continue

        def both(forward=forward):
            torch.autograd.grad(forward(*parts), parts, g)

        def alone(forward=forward):
            with torch.no_grad():
                forward(*parts)

        found[f"{name} | forward"], found[f"{name} | with backward"] = (
            captured(alone, name == IN_ORDER),
            captured(both, name == IN_ORDER),
        )
    return found


def measure(shape, rounds):
    runs = runs_of(shape)
    samples = alternate(runs, lambda run: device_seconds(run, 10), rounds)
    medians = {name: summary(found)["median"] for name, found in samples.items()}
    names = list(dict.fromkeys(name.partition(" | ")[0] for name in medians))
    rows = []
    for name in names:
        forward, both = medians[f"{name} | forward"], medians[f"{name} | with backward"]
        base = medians["ours | with backward"]
        rows.append(
            {"shape": "x".join(map(str, shape[:4])) + (" causal" if shape[4] else ""),
             "subject": name, "forward us": forward * 1e6, "with backward us": both * 1e6,
             "times ours": both / base}
        )  # fmt: skip
    return rows


def tiles_of(kernel):
    """Every choice of tiles for a kernel, put in its place one after the other."""
    usual = getattr(fused_attention, kernel)
    for sizes in itertools.product((64, 128), (32, 64, 128), (4, 8), (2, 3)):
        tiles = fused_attention.Tiles(*sizes)
        setattr(fused_attention, kernel, (tiles, tiles))
        yield tiles
    setattr(fused_attention, kernel, usual)


def sweep(shape):
    """Microseconds of each kernel's tiles, the others as they are."""
    parts, rows = inputs(*shape[:4]), []
    scalars = torch.zeros(_native.SCALARS_BYTES, dtype=torch.uint8, device="cuda")
    forward = forwards(scalars, shape[4])["ours"]
    with compiled_ahead():
        for kernel in KERNELS:
            for _ in tiles_of(kernel):
                torch.autograd.grad(forward(*parts).sum(), parts)
    for kernel, what in KERNELS.items():
        for tiles in tiles_of(kernel):
            try:
                run = runs_of(shape, ["ours"])[f"ours | {what}"]
                rows.append({"kernel": kernel, "us": device_seconds(run, 20) * 1e6} | vars(tiles))
            except Exception as error:  # noqa: BLE001 - tiles that do not fit are left out
                print(f"{kernel} {tiles}: {str(error)[:100]}")
    table(sorted(rows, key=lambda row: (row["kernel"], row["us"])))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sweep", action="store_true", help="time other tiles instead")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    if options.sweep:
        for shape in (SHAPES[1], SHAPES[4]):
            print(shape)
            sweep(shape)
        return
    rows = [row for shape in SHAPES for row in measure(shape, options.rounds)]
    table(rows)
    write("attention", rows)


if __name__ == "__main__":
    main()
