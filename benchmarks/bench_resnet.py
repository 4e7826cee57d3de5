"""Residual networks, bfloat16, SGD with momentum: a captured step of ours against the best by hand.

    python benchmarks/bench_resnet.py [resnet18] [resnet50]

By hand: torch.compile of torchvision's module, channels-last, the whole step (forward, backward,
fused optimizer) captured into one CUDA graph. Ours: the same module handed to a Task. Same card,
same process, alternating.
"""

import sys

import numpy as np
import torch
import torchvision
from side_by_side import alternate, device_seconds, summary, table, write
from torch import nn

import renaissance as rn

ROUNDS = 8


def resnet18():
    """For 32x32 pictures: a 3x3 stem and no pooling."""
    model = torchvision.models.resnet18(num_classes=10)
    model.conv1 = nn.Conv2d(3, 64, 3, 1, 1, bias=False)
    model.maxpool = nn.Identity()
    return model


WORK = {
    "resnet18": (resnet18, 32, 10, 512, 30),
    "resnet50": (torchvision.models.resnet50, 224, 1000, 256, 8),
}


def by_hand(make, side, classes, batch):
    """The whole compiled step in one graph."""
    torch.manual_seed(0)
    model = make().cuda().to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, fused=True)
    x = torch.randn(batch, 3, side, side, device="cuda", dtype=torch.bfloat16)
    x = x.to(memory_format=torch.channels_last)
    y = torch.randint(0, classes, (batch,), device="cuda")
    compiled = torch.compile(model, dynamic=False)

    def step():
        with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
            loss = nn.functional.cross_entropy(compiled(x).float(), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()

    def replay(owner=step):
        graph.replay()

    return replay


def ours(make, side, classes, batch, *, seed):
    """A task; its first graph is the step of a full batch."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (batch, side, side, 3), np.uint8)
    train = rn.Loader.from_arrays(
        x, np.arange(batch) % classes, num_classes=classes, batch_size=batch,
        transforms=[rn.Normalize("imagenet")],
    )  # fmt: skip
    task = rn.Task(make(), seed=seed, precision="bf16-mixed")
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.1, momentum=0.9)).data(train)
    return task.compile(report="none")


def main():
    torch.backends.cudnn.benchmark = True
    rows = []
    for name in sys.argv[1:] or list(WORK):
        make, side, classes, batch, repeats = WORK[name]
        task = ours(make, side, classes, batch, seed=1)
        task.fit(epochs=2, verbose=0)
        graph = next(iter(task.executor._graphs.values()))
        subjects = {
            "renaissance (seeded, deterministic)": graph.replay,
            "by hand: compiled, whole step in a graph": by_hand(make, side, classes, batch),
        }
        found = alternate(subjects, lambda run, n=repeats: device_seconds(run, n), ROUNDS)
        base = summary(found["renaissance (seeded, deterministic)"])["median"]
        for subject, samples in found.items():
            s = summary(samples)
            rows.append(
                {"network": name, "subject": subject, "ms": s["median"] * 1e3,
                 "low": s["low"] * 1e3, "high": s["high"] * 1e3,
                 "images/s": batch / s["median"], "times ours": s["median"] / base}
            )  # fmt: skip
        task.close()
        table(rows)
    write("resnet", rows)


if __name__ == "__main__":
    main()
