"""Batch-norm with ReLU, addition and max-pool in fused passes, against the bytes that they move.

    python benchmarks/bench_norm.py [--sweep]

For the shapes of ResNet-50 at batch 256 in bfloat16: microseconds of each pass and the share of a
device copy's bandwidth that its bytes reach, beside torch's own layers, eager and compiled. All are
replayed from graphs, as in a captured step: how fast the host launches does not count. `--sweep`
times other tiles instead (about a minute).
"""

import argparse
import itertools

import torch
import torch.nn.functional as F
from side_by_side import device_seconds, table, write
from torch import nn

from renaissance.nn import fused_norm as fused

SHAPES = [(56, 64), (56, 256), (28, 512), (14, 1024), (7, 2048)]
BATCH, REPEATS = 256, 5
POOL = fused.Window(3, 2, 1)


def tensors(side, channels):
    """Input, addend and gradient, channels-last."""
    shape = (BATCH, channels, side, side)
    like = {"device": "cuda", "dtype": torch.bfloat16}
    made = [torch.randn(shape, **like).to(memory_format=torch.channels_last) for _ in range(4)]
    layer = nn.BatchNorm2d(channels).cuda()
    return made, layer


def copy_bandwidth():
    """Bytes a second of a large device copy, read and written."""
    a = torch.randint(0, 255, (1 << 31,), dtype=torch.uint8, device="cuda")
    b = torch.empty_like(a)
    return 2 * a.numel() / device_seconds(lambda: b.copy_(a), 10)


def passes(side, channels, window):
    """Name -> (a run, passes over the tensor): what forward and backward are made of."""
    (x, other, g, g2), layer = tensors(side, channels)
    x.requires_grad_()
    other.requires_grad_()
    norm = fused.Norm.of(layer)
    found = {}
    relu = fused.fused_norm(x, norm, relu=True)[0]
    added = fused.fused_norm(x, norm, other, relu=True)
    found["bn+relu forward"] = (lambda: fused.fused_norm(x, norm, relu=True), 3)
    found["bn+relu backward"] = (
        lambda: torch.autograd.grad(relu, [x], g, retain_graph=True), 5,
    )  # fmt: skip
    found["bn+add+relu forward"] = (lambda: fused.fused_norm(x, norm, other, relu=True), 4)
    found["bn+add+relu backward, two users"] = (
        lambda: torch.autograd.grad(added, [x, other], [g, g2], retain_graph=True), 7,
    )  # fmt: skip
    if window is not None:
        pooled = fused.fused_norm(x, norm, relu=True, window=window)
        gp = torch.randn_like(pooled[0])
        share = pooled[0].numel() / x.numel()
        found["bn+relu+pool forward"] = (
            lambda: fused.fused_norm(x, norm, relu=True, window=window), 2 + 1.5 * share,
        )  # fmt: skip
        found["bn+relu+pool backward, two users"] = (
            lambda: torch.autograd.grad(pooled, [x], [gp, gp], retain_graph=True), 3 + 5 * share,
        )  # fmt: skip
    return found, x.numel() * x.element_size()


def peers(side, channels):
    """Forward and backward of bn + add + relu through torch's layers, eager and compiled."""
    (x, other, g, _), layer = tensors(side, channels)
    x.requires_grad_()
    other.requires_grad_()

    def block(x, other):
        with torch.autocast("cuda", torch.bfloat16):
            return F.relu(layer(x) + other)

    compiled = torch.compile(block, dynamic=False)
    norm = fused.Norm.of(layer)

    def ours(x, other):
        return fused.fused_norm(x, norm, other, relu=True)[0]

    def both(function):
        return lambda: torch.autograd.grad(function(x, other), [x, other], g)

    return {"ours": both(ours), "torch eager": both(block), "torch.compile": both(compiled)}


def measure(run):
    """Seconds of one run in a graph of several."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=torch.cuda.current_stream()):
        for _ in range(REPEATS):
            run()
    graph.replay()
    return min(device_seconds(graph.replay, 3) for _ in range(3)) / REPEATS


def sweep(bandwidth):
    """Other tiles: share of the copy's bandwidth by pass, all shapes together."""
    rows = []
    for which in ("SUMS", "WHOLE"):
        sizes = [(32, 64, 4), (64, 64, 4), (128, 64, 8), (64, 64, 8), (32, 128, 4), (16, 64, 2)]
        counts = (528, 1056, 2112) if which == "SUMS" else (0,)
        kept = getattr(fused, which)
        for (high, wide, warps), programs in itertools.product(sizes, counts):
            setattr(fused, which, fused.Tiles(high, wide, warps, programs or kept.programs))
            row = {which: f"{high}x{wide}, {warps} warps, {programs} programs"}
            for side, channels in ((56, 64), (56, 256), (14, 1024)):
                found, nbytes = passes(side, channels, None)
                for name, (run, count) in found.items():
                    share = count * nbytes / measure(run) / bandwidth
                    row[f"{name[:16]} {channels}"] = round(share, 2)
            rows.append(row)
        setattr(fused, which, kept)
        table(rows)
        rows = []


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sweep", action="store_true", help="time other tiles")
    options = parser.parse_args()
    # Backward runs on the stream of forward, and a capture cannot be on the default one.
    torch.cuda.set_stream(torch.cuda.Stream())
    bandwidth = copy_bandwidth()
    print(f"a device copy moves {bandwidth / 1e12:.2f} TB/s")
    if options.sweep:
        sweep(bandwidth)
        return
    rows, sides = [], []
    for side, channels in [*SHAPES, (112, 64)]:
        found, nbytes = passes(side, channels, POOL if side == 112 else None)
        for name, (run, count) in found.items():
            seconds = measure(run)
            rows.append(
                {"pass": name, "side": side, "channels": channels, "us": seconds * 1e6,
                 "passes": count, "of copy": count * nbytes / seconds / bandwidth}
            )  # fmt: skip
    for side, channels in ((56, 256), (14, 1024)):
        for name, run in peers(side, channels).items():
            sides.append(
                {"bn + add + relu, both ways": name, "side": side, "us": measure(run) * 1e6}
            )
    table(rows)
    table(sides)
    write("norm", rows, copy_bytes_a_second=bandwidth, peers=sides)


if __name__ == "__main__":
    main()
