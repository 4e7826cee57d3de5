"""One training step of a multi-layer perceptron, 784-1024-512-256-10, batch 200, AdamW, bfloat16.

    python benchmarks/bench_mlp.py --data FOLDER_OF_MNIST [--without keras]   # about 120 s

The claim is the wall time of a step of `Task.fit` on MNIST, data on the GPU, over epochs without
validation. Peers on the same card: torch eager, torch.compile, and the best that a user writes by
hand, the whole compiled step captured into one CUDA graph (all three on one batch that is there
already, which is in their favour), alternating with ours in this process; then `fit` of Keras on
JAX and of Lightning, each in a process of its own right after (mlp_peers.py). Targets: 60 us, and
2 times by hand, 18 times Keras, 60 times Lightning. Last, epochs a second with validation.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

import torch
from side_by_side import alternate, device_seconds, summary, table, write
from torch import nn

import renaissance as rn
from renaissance.datasets import MNIST
from renaissance.models import mlp

ROUNDS, REPEATS, EPOCHS = 12, 100, 10
FIT, GRAPH = "renaissance, task.fit, data on the GPU", "renaissance, its graph"
BY_HAND = "by hand: compiled, whole step in a graph"
#: How many times ours a peer's step is to take, by the beginning of its name.
TARGETS = {BY_HAND: 2.0, "Keras": 18.0, "Lightning": 60.0}
PEERS = ("keras", "lightning")
PATIENCE = 100  # seconds for one of them


def peer():
    """The network, its optimizer, and one batch."""
    torch.manual_seed(0)
    model = mlp([1024, 512, 256], num_classes=10, in_features=784).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True, capturable=True)
    x = torch.randn(200, 784, device="cuda")
    y = torch.randint(0, 10, (200,), device="cuda")
    return model, optimizer, x, y


def by_hand(compile_mode, *, graph=False):
    """A hand-written step; (run, what must stay alive)."""
    model, optimizer, x, y = peer()
    forward = torch.compile(model, mode=compile_mode) if compile_mode else model

    def step():
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=not graph):
            loss = nn.functional.cross_entropy(forward(x).float(), y, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=not graph)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(5):
            step()
    torch.cuda.synchronize()
    if not graph:
        return step
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured, stream=stream):
        step()

    def replay(owner=step):
        captured.replay()

    return replay


def task(data, transforms, seed=1):
    """Ours, compiled on the real data."""
    train = rn.Loader(
        MNIST(data, split="train"), batch_size=200, shuffle=True, transforms=transforms
    )
    valid = rn.Loader(
        MNIST(data, split="test"), batch_size=1000, transforms=[rn.Normalize("mnist")]
    )
    made = rn.Task(
        mlp([1024, 512, 256], num_classes=10, in_features=784), seed=seed, precision="bf16-mixed"
    )
    made.loss(rn.CrossEntropyLoss(label_smoothing=0.1))
    made.optimizer(rn.AdamW(weight_decay=1e-4))
    made.scheduler(rn.CosineAnnealingLR(base_lr=1e-3).warmup(5, unit="epoch"))
    return made.data(train, valid).compile(report="none")


def seconds_of_fit(made, epochs=EPOCHS):
    """Seconds a step of one call of fit over whole epochs, none of them validated."""
    steps = made.attempted_steps
    torch.cuda.synchronize()
    start = time.perf_counter()
    made.fit(
        epochs=made.epoch + epochs, verbose=0, horizon="stretch", validation_freq=10**9,
        checkpoint=None,
    )  # fmt: skip
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / (made.attempted_steps - steps)


def epochs_per_second(made, first, last):
    """Wall time of epochs with validation, the first ones thrown away."""
    made.fit(epochs=made.epoch + first, verbose=0, horizon="stretch")
    torch.cuda.synchronize()
    start = time.perf_counter()
    made.fit(epochs=made.epoch + last - first, verbose=0, horizon="stretch")
    torch.cuda.synchronize()
    return (last - first) / (time.perf_counter() - start)


def elsewhere(name, data):
    """A peer of mlp_peers.py: (subject -> seconds a step, versions).

    What it has not got done is left out, with a line that says why.
    """
    script = pathlib.Path(__file__).with_name("mlp_peers.py")
    running = subprocess.Popen(
        [sys.executable, str(script), name, "--data", data],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    why = None
    try:
        told, said = running.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        running.kill()
        told, said = running.communicate()
        why = f"more than {PATIENCE} s"
    if running.returncode:
        print(f"{name} did not end: {why or (said.strip().splitlines() or ['no message'])[-1]}")
    lines = [line for line in told.splitlines() if line.startswith("{")]
    if not lines:
        return {}, None
    found = json.loads(lines[-1])
    if found["device"] == "cpu":
        print(f"{name} is left out: it finds no GPU ({found['versions']})")
        return {}, None
    seconds = {subject: [us / 1e6 for us in each] for subject, each in found["us"].items()}
    return seconds, found["versions"]


def rows_of(found):
    """A row a subject, with the ratio to a step of fit."""
    base = summary(found[FIT])["median"]
    rows = []
    for name, samples in found.items():
        s = summary(samples)
        times = s["median"] / base
        target = next((t for begin, t in TARGETS.items() if name.startswith(begin)), None)
        rows.append(
            {"subject": name, "us": s["median"] * 1e6, "low": s["low"] * 1e6,
             "high": s["high"] * 1e6, "n": s["n"], "times fit": times,
             "target": "" if target is None else f">= {target:g}: "
             + ("met" if times >= target else "missed")}
        )  # fmt: skip
    rows[0]["target"] = "<= 60 us: " + ("met" if base <= 60e-6 else "missed")
    return rows


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="folder of MNIST's IDX files")
    parser.add_argument(
        "--without", nargs="*", choices=PEERS, default=[], help="peers to leave out"
    )
    options = parser.parse_args()
    data, versions, fits = options.data, {}, {}
    plain = task(data, [rn.Normalize("mnist")])
    print(plain.executor.describe())
    graph = next(iter(plain.executor._graphs.values()))
    seconds_of_fit(plain)
    subjects = {
        FIT: lambda: seconds_of_fit(plain),
        GRAPH: lambda: device_seconds(graph.replay, REPEATS),
    }
    for name, mode, is_graph in (
        ("by hand: eager", None, False),
        ("by hand: torch.compile", "default", False),
        (BY_HAND, "default", True),
    ):
        step = by_hand(mode, graph=is_graph)
        subjects[name] = lambda step=step: device_seconds(step, REPEATS)
    found = alternate(subjects, lambda run: run(), ROUNDS)
    write("mlp", rows_of(found))
    for name in PEERS:
        if name not in options.without:
            more, versions[name] = elsewhere(name, data)
            found |= more
    rows = rows_of(found)
    write("mlp", rows, peers=versions)
    fits["epochs a second, normalised"] = epochs_per_second(plain, 5, 25)
    plain.close()
    augmented = task(
        data,
        [rn.Pad(2), rn.RandomCrop(28), rn.RandomRotation(20), rn.RandomScale(0.8, 1.2),
         rn.Normalize("mnist"), rn.RandomErasing(0.5)],
    )  # fmt: skip
    fits["epochs a second, augmented"] = epochs_per_second(augmented, 5, 25)
    write("mlp", rows, peers=versions, **fits)
    table(rows)
    for name, rate in fits.items():
        print(f"{name}, with validation each epoch: {rate:.1f} ({1e6 / rate / 300:.0f} us a step)")


if __name__ == "__main__":
    main()
