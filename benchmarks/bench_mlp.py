"""One training step of a multi-layer perceptron, 784-1024-512-256-10, batch 200, AdamW, bfloat16.

    python benchmarks/bench_mlp.py --data FOLDER_OF_MNIST

The peers run on the same card in the same process: torch eager, torch.compile, and the best that a
user writes by hand, the whole compiled step captured into one CUDA graph. `fit` is the wall time of
an epoch of `Task.fit` over its steps, batches fed by the workers.
"""

import argparse
import time

import torch
from side_by_side import alternate, device_seconds, summary, table, write
from torch import nn

import renaissance as rn
from renaissance.datasets import MNIST
from renaissance.models import mlp

ROUNDS, REPEATS = 20, 100


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


def epochs_per_second(made, first, last):
    """Wall time of epochs with validation, the first ones thrown away."""
    made.fit(epochs=first, verbose=0, horizon="stretch")
    torch.cuda.synchronize()
    start = time.perf_counter()
    made.fit(epochs=last, verbose=0, horizon="stretch")
    torch.cuda.synchronize()
    return (last - first) / (time.perf_counter() - start)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", required=True)
    data = parser.parse_args().data
    plain = task(data, [rn.Normalize("mnist")])
    graph = next(iter(plain.executor._graphs.values()))
    subjects = {
        "renaissance, its graph": graph.replay,
        "by hand: eager": by_hand(None),
        "by hand: torch.compile": by_hand("default"),
        "by hand: compiled, whole step in a graph": by_hand("default", graph=True),
    }
    found = alternate(subjects, lambda run: device_seconds(run, REPEATS), ROUNDS)
    base = summary(found["renaissance, its graph"])["median"]
    rows = [
        {"subject": name, "us": (s := summary(samples))["median"] * 1e6, "low": s["low"] * 1e6,
         "high": s["high"] * 1e6, "times ours": s["median"] / base}
        for name, samples in found.items()
    ]  # fmt: skip
    plain.reset()
    augmented = task(
        data,
        [rn.Pad(2), rn.RandomCrop(28), rn.RandomRotation(20), rn.RandomScale(0.8, 1.2),
         rn.Normalize("mnist"), rn.RandomErasing(0.5)],
    )  # fmt: skip
    fits = {
        "epochs a second, normalised": epochs_per_second(plain, 5, 25),
        "epochs a second, augmented": epochs_per_second(augmented, 5, 25),
    }
    write("mlp", rows, **fits)
    table(rows)
    for name, rate in fits.items():
        print(f"{name}, with validation each epoch: {rate:.1f} ({1e6 / rate / 300:.0f} us a step)")


if __name__ == "__main__":
    main()
