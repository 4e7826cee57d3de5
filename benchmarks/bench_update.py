"""Optimizer step on the CPU: ours over flat regions against torch.optim, ResNet-50's parameters.

All contestants run in one process, in turn, on memory that has been touched; each round times every
one once, in an order that rotates. The ceiling is a triad over the same streams (as many arrays
read and written, next to no arithmetic), compiled by g++ with OpenMP.

    python benchmarks/bench_update.py [--rounds 30] [--threads 2] [--out results/x.json]
"""

import argparse
import ctypes
import json
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import torch
import torchvision

import renaissance
from renaissance.memory.plan import MemoryPlan
from renaissance.optim import SGD, AdamW
from renaissance.update.updater import Updater

TRIAD = r"""
extern "C" void triad(float* w, const float* g, float* m, float* v, long n) {
#pragma omp parallel for simd schedule(static)
  for (long i = 0; i < n; ++i) {
    w[i] = w[i] + 1e-9f * g[i];
    m[i] = m[i] * 0.999f;
    if (STREAMS > 2) v[i] = v[i] * 0.999f;
  }
}
"""
LR = 1e-4


def parameters(seed=0):
    """ResNet-50's 161 tensors with random values and gradients, in the module's order."""
    torch.manual_seed(seed)
    module = torchvision.models.resnet50()
    grads = [torch.randn_like(p) * 1e-2 for p in module.parameters()]
    return module, grads


def ours(kind, threads):
    """One step of our optimizer phase without buffers: decision of the window and two updates."""
    module, grads = parameters()
    by_name = dict(zip((name for name, _ in module.named_parameters()), grads))
    optimizer = AdamW(weight_decay=0.01) if kind == "adamw" else SGD(momentum=0.9, l2=1e-4)
    plan = MemoryPlan.build(module, moments=optimizer.moments)
    memory = plan.allocate("cpu")
    memory.bind(module)
    updater = Updater(memory, optimizer, threads=threads)
    updater.scalars.write(lr=LR)
    updater.gather([by_name[segment.name] for segment in plan.parameters])
    return updater.finish, lambda: [p.detach() for p in module.parameters()], memory


def peer(kind, threads, flat, **options):
    """One step of torch.optim on the real tensors, or on one flat tensor of as many elements."""
    module, grads = parameters()
    held = list(module.parameters())
    if flat:
        held = [torch.nn.Parameter(torch.cat([p.detach().flatten() for p in held]))]
        grads = [torch.cat([g.flatten() for g in grads])]
    for parameter, grad in zip(held, grads):
        parameter.grad = grad
    if kind == "adamw":
        optimizer = torch.optim.AdamW(held, lr=LR, weight_decay=0.01, **options)
    else:
        optimizer = torch.optim.SGD(held, lr=LR, momentum=0.9, weight_decay=1e-4, **options)
    return optimizer.step, lambda: [p.detach() for p in held], module


def triad(kind, num, folder):
    """A pass over the same number of arrays: (w, g, m, v) with v for AdamW only."""
    compiler = shutil.which("g++")
    if compiler is None:
        return None
    source, library = pathlib.Path(folder) / f"{kind}.cpp", pathlib.Path(folder) / f"{kind}.so"
    source.write_text(TRIAD)
    flags = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC"]
    streams = f"-DSTREAMS={3 if kind == 'adamw' else 2}"
    subprocess.run([compiler, *flags, streams, str(source), "-o", str(library)], check=True)
    call = ctypes.CDLL(str(library)).triad
    arrays = [torch.ones(num) for _ in range(4 if kind == "adamw" else 3)]
    addresses = [ctypes.c_void_p(a.data_ptr()) for a in arrays]
    addresses += [ctypes.c_void_p(0)] * (4 - len(addresses))
    return lambda: call(*addresses, ctypes.c_long(num)), arrays


def quartiles(values):
    low, middle, high = np.percentile(values, [25, 50, 75])
    return {"median": float(middle), "q1": float(low), "q3": float(high)}


def processor():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def check(contestants):
    """Ours equals torch's after one step, where both decay: tensors of two and more dimensions."""
    pairs = zip(contestants["ours"][1](), contestants["torch fused"][1]())
    worst = max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs if b.dim() > 1)
    assert worst < 1e-6, worst
    return worst


def run(kind, rounds, threads, folder):
    torch.set_num_threads(threads)
    contestants = {
        "ours": ours(kind, threads),
        "torch fused": peer(kind, threads, False, fused=True),
        "torch foreach": peer(kind, threads, False, foreach=True),
        "torch fused flat": peer(kind, threads, True, fused=True),
        "torch foreach flat": peer(kind, threads, True, foreach=True),
    }
    num = sum(t.numel() for t in contestants["torch fused"][1]())
    ceiling = triad(kind, num, folder)
    steps = {name: made[0] for name, made in contestants.items()}
    if ceiling is not None:
        steps["triad"] = ceiling[0]
    for step in steps.values():
        step()  # allocates torch's moments and touches every page
    error = check(contestants)
    for step in steps.values():
        step()
    names, times = list(steps), {name: [] for name in steps}
    for round_ in range(rounds):
        for k in range(len(names)):
            name = names[(k + round_) % len(names)]
            begin = time.perf_counter()
            steps[name]()
            times[name].append(time.perf_counter() - begin)
    mine = np.array(times["ours"])
    bytes_moved = num * (28 if kind == "adamw" else 20)
    return {
        "optimizer": kind,
        "parameters": num,
        "rounds": rounds,
        "largest relative difference to torch fused": error,
        "milliseconds": {n: quartiles(np.array(t) * 1e3) for n, t in times.items()},
        "ratio to ours": {n: quartiles(np.array(t) / mine) for n, t in times.items()},
        "ours, GB/s": bytes_moved / float(np.median(mine)) / 1e9,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    load_before = os.getloadavg()
    with tempfile.TemporaryDirectory() as folder:
        results = [run(kind, options.rounds, options.threads, folder) for kind in KINDS]
    record = {
        "command": "python " + " ".join(["benchmarks/bench_update.py", *sys.argv[1:]]),
        "hardware": f"{processor()}, {os.cpu_count()} processors",
        "load average before and after": [load_before[0], os.getloadavg()[0]],
        "versions": {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
            "renaissance": getattr(renaissance, "__version__", "0.1.0"),
        },
        "threads": options.threads,
        "results": results,
    }
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(record, indent=1) + "\n")
    for result in results:
        print(
            f"{result['optimizer']}: {result['parameters']:,} parameters, n={result['rounds']}, "
            f"{options.threads} threads, {result['ours, GB/s']:.1f} GB/s"
        )
        for name, times in result["milliseconds"].items():
            ratio = result["ratio to ours"][name]
            print(
                f"  {name:<20} {times['median']:8.2f} ms   x{ratio['median']:.2f} of ours "
                f"[{ratio['q1']:.2f}, {ratio['q3']:.2f}]"
            )


KINDS = ("adamw", "momentum")

if __name__ == "__main__":
    main()
