"""Transformers, bfloat16, AdamW: a captured step of ours against compile in a graph by hand.

    python benchmarks/bench_transformer.py                  # about 250 s
    python benchmarks/bench_transformer.py writer --profile

By hand: torch.compile of the module, the whole step (forward, backward, fused optimizer) captured
into one CUDA graph, dropout from torch's generator. Ours: the same module handed to a Task, without
a seed, and with one, so with deterministic kernels and with masks that a CPU would draw as well.
Same card, same process, alternating. Everything is compiled first in processes side by side.
"""

import argparse
import concurrent.futures
import gc
import subprocess
import sys
import time

import numpy as np
import torch
import torchvision
from profiles import profile_of, totals
from side_by_side import alternate, device_seconds, summary, table, write
from torch import nn

import renaissance as rn
from renaissance.step.inputs import SLOTS

GIB = 2**30
CHARACTERS, RATE = 256, 1e-4


class Writer(nn.Module):
    """Six layers of 512 features and 8 heads, torch's own, over characters; dropout 0.1."""

    def __init__(self, length, dropout=0.1):
        super().__init__()
        self.words = nn.Embedding(CHARACTERS, 512)
        self.places = nn.Parameter(torch.zeros(length, 512))
        layer = nn.TransformerEncoderLayer(
            512, 8, 2048, dropout, "gelu", batch_first=True, norm_first=True
        )
        self.body = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
        self.head = nn.Linear(512, CHARACTERS)
        ahead = torch.ones(length, length, dtype=torch.bool).triu(1)
        self.register_buffer("ahead", ahead, persistent=False)

    def forward(self, x):
        hidden = self.body(self.words(x) + self.places, mask=self.ahead, is_causal=True)
        return self.head(hidden).transpose(1, 2)


def text(batch, length, padding=0.0):
    """Characters, behind which a part of each text is 0."""
    x = np.random.default_rng(0).integers(0, CHARACTERS, (batch, length))
    x[:, round(length * (1 - padding)) :] = 0
    return x, np.roll(x, -1, 1)


def pictures(batch):
    x = np.random.default_rng(0).integers(0, 256, (batch, 224, 224, 3), np.uint8)
    return x, np.arange(batch) % 1000


#: Name -> (makes the network, makes its data, batch).
WORK = {
    "writer": (lambda: Writer(256), lambda: text(64, 256), 64),
    "writer, 1024 places": (lambda: Writer(1024), lambda: text(16, 1024), 16),
    "writer, half padding": (lambda: Writer(256), lambda: text(64, 256, 0.5), 64),
    "writer, no dropout": (lambda: Writer(256, 0.0), lambda: text(64, 256), 64),
    "vit_b_16": (torchvision.models.vit_b_16, lambda: pictures(128), 128),
}
SUBJECTS = ("renaissance, with a seed", "renaissance, no seed", "by hand: compiled, in a graph")


class ByHand:
    """A loop as one writes it; `run` is one step."""

    def __init__(self, make, data, batch):
        torch.manual_seed(0)
        model = make().cuda().train()
        optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, fused=True, capturable=True)
        x, y = (torch.from_numpy(part).cuda() for part in data())
        if x.dtype == torch.uint8:
            x = (x.permute(0, 3, 1, 2) / 255).to(torch.bfloat16)
        forward = torch.compile(model, dynamic=False)

        def step():
            with torch.autocast("cuda", torch.bfloat16, cache_enabled=False):
                loss = nn.functional.cross_entropy(forward(x).float(), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            return loss.detach()

        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            self.loss = step()
        self.run = self.graph.replay


class Ours:
    """A task; `run` is one step on a full batch."""

    def __init__(self, make, data, batch, seed):
        x, y = data()
        is_picture = x.dtype == np.uint8
        options = {}
        if is_picture:
            options = {"num_classes": 1000, "transforms": [rn.Normalize("imagenet")]}
        train = rn.Loader.from_arrays(x, y, batch_size=batch, **options)
        task = rn.Task(make(), seed=seed, precision="bf16-mixed")
        task.loss(rn.CrossEntropyLoss()).optimizer(rn.AdamW(lr=RATE)).data(train)
        if not is_picture:
            task.init(rn.Initializer().parameter("places", "keep"))
        task.compile(report="none").fit(epochs=SLOTS, verbose=0)  # a batch of data in every one
        self.task, self.run = task, next(iter(task.executor._graphs.values())).replay


def build(work, subject):
    """(what has a `run`, facts about it)."""
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before, start = torch.cuda.memory_allocated(), time.perf_counter()
    if subject == SUBJECTS[2]:
        made = ByHand(*WORK[work])
    else:
        made = Ours(*WORK[work], 1 if subject == SUBJECTS[0] else None)
    torch.cuda.synchronize()
    peak = (torch.cuda.max_memory_allocated() - before) / GIB
    return made, {"peak GiB": peak, "built in s": time.perf_counter() - start}


def prepare(names):
    """Compile in processes side by side; later builds find the caches."""

    def one(job):
        command = [sys.executable, __file__, job[0], "--only-build", job[1]]
        return subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)

    jobs = [(name, subject) for name in names for subject in SUBJECTS]
    with concurrent.futures.ThreadPoolExecutor(5) as pool:
        for job, ended in zip(jobs, pool.map(one, jobs)):
            if ended.returncode:
                print(f"preparing {job} failed: {ended.stderr.strip().splitlines()[-1]}")


def measure(name, rounds, has_profile):
    """(rows, profiles by subject) of one network."""
    built = {subject: build(name, subject) for subject in SUBJECTS}
    runs = {subject: made.run for subject, (made, _) in built.items()}
    found = alternate(runs, lambda run: device_seconds(run, 10), rounds)
    hand = summary(found[SUBJECTS[2]])["median"]
    rows = []
    for subject, samples in found.items():
        s = summary(samples)
        rows.append(
            {"network": name, "subject": subject, "ms": s["median"] * 1e3, "low": s["low"] * 1e3,
             "high": s["high"] * 1e3, "by hand over it": hand / s["median"], **built[subject][1]}
        )  # fmt: skip
    profiles = {subject: profile_of(run) for subject, run in runs.items()} if has_profile else {}
    return rows, profiles


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("networks", nargs="*", metavar="network", help=", ".join(WORK))
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--profile", action="store_true", help="kernel time by class")
    parser.add_argument("--only-build", choices=SUBJECTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = options.networks or list(WORK)
    if unknown := set(names) - set(WORK):
        parser.error(f"{sorted(unknown)} are not known; there are {', '.join(WORK)}")
    if options.only_build:
        build(names[0], options.only_build)
        return
    prepare(names)
    rows, profiles = [], {}
    for name in names:
        more, kernels = measure(name, options.rounds, options.profile)
        rows += more
        if kernels:
            profiles[name] = kernels
        torch._dynamo.reset()
    table(rows)
    if profiles:
        table(totals(profiles))
    write("transformer", rows, **({"kernels": profiles} if profiles else {}))


if __name__ == "__main__":
    main()
