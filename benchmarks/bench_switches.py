"""What three comforts of `Task.fit` cost in time: a seed, logging every step, a schedule.

    python benchmarks/bench_switches.py                              # about 200 s: ResNet-50
    python benchmarks/bench_switches.py --model resnet18             # about 100 s
    python benchmarks/bench_switches.py --device cpu --model small   # seconds: does it work

Two tasks of the same network train in turns, one with a seed (deterministic kernels only) and one
without. The one with the seed takes further turns in which it logs every step into a run's folder
(`log_every=1`, steps.jsonl), or follows a cosine instead of a constant rate. Targets, as times the
same without: a seed 1.02, logging 1.01, a schedule 1.005.

A turn is one call of fit over whole epochs of a few batches that live on the device, so no loader
is in the way. Its first epoch is not counted; the clock runs from the beginning of the second to
the end of the last, the device idle at both. What fit does once a run (run.json, curves.png) is
outside. A ratio is taken within each round, between neighbours in time.
"""

import argparse
import pathlib
import statistics
import tempfile
import time

import numpy as np
import torch
from side_by_side import alternate, summary, table, write

import renaissance as rn
from renaissance.models import resnet18, resnet50, wide_resnet

#: Name -> (makes the network, side of the pictures, classes, batch).
MODELS = {
    "resnet50": (lambda: resnet50(num_classes=1000), 224, 1000, 256),
    "resnet18": (lambda: resnet18(num_classes=10, stem="cifar"), 32, 10, 512),
    "small": (lambda: wide_resnet(depth=10, widen=1), 32, 10, 32),
}
PLAIN, UNSEEDED = "seed, constant rate, no log", "no seed, constant rate, no log"
LOGGED, COSINE = "seed, constant rate, every step logged", "seed, cosine, no log"
#: (what, with it, without it, how many times as long it may take).
CLAIMS = (
    ("a seed", PLAIN, UNSEEDED, 1.02),
    ("logging every step", LOGGED, PLAIN, 1.01),
    ("a schedule", COSINE, PLAIN, 1.005),
)
RATE = 1e-3


class Stopwatch(rn.Callback):
    """Seconds a step from the second epoch of a fit to its end."""

    def on_train_begin(self, logs):
        self.epochs, self.seconds = 0, 0.0

    def on_epoch_begin(self, epoch, logs):
        if self.epochs == 1:
            synchronise(self.task.device)
            self._steps, self._start = self.task.attempted_steps, time.perf_counter()

    def on_epoch_end(self, epoch, logs):
        self.epochs += 1
        if self.epochs > 1:
            synchronise(self.task.device)
            steps = self.task.attempted_steps - self._steps
            self.seconds = (time.perf_counter() - self._start) / steps


def synchronise(device):
    if device.type == "cuda":
        torch.cuda.synchronize()


def network(name):
    """torchvision's ResNet-50 where torchvision is; the same network of ours elsewhere."""
    if name == "resnet50":
        try:
            import torchvision

            return torchvision.models.resnet50()
        except ImportError:
            print("torchvision is not here; the same network of ours is in its place")
    return MODELS[name][0]()


def make_task(name, device, batches, seed):
    """A compiled task over random pictures; constant rate."""
    _, side, classes, batch = MODELS[name]
    count = batch * batches
    x = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), np.uint8)
    train = rn.Loader.from_arrays(
        x, np.arange(count) % classes, num_classes=classes, batch_size=batch, shuffle=True,
        transforms=[rn.Normalize("imagenet")],
    )  # fmt: skip
    precision = "bf16-mixed" if device == "cuda" else "32-true"
    start = time.perf_counter()
    task = rn.Task(network(name), name=name, seed=seed, device=device, precision=precision)
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=RATE, momentum=0.9)).data(train)
    task.compile(report="none")
    task.fit(epochs=1, verbose=0)
    print(f"seed={seed}: {task.executor.describe()}, ready in {time.perf_counter() - start:.0f} s")
    return task


def turn(task, epochs, *, schedule=None, run_dir=None):
    """A subject: calls fit for some epochs, gives seconds a step.

    Args:
        schedule: In place of the constant rate; as if compiled with it, for it is no part of what
            compile makes.
        run_dir: Where every step is logged; None logs nothing.
    """
    schedule = schedule or rn.ConstantLR(base_lr=RATE)

    def run():
        task._rates, task.run_dir, watch = schedule.start(), run_dir, Stopwatch()
        task.fit(
            epochs=task.epoch + epochs + 1, horizon="stretch", verbose=0, callbacks=[watch],
            checkpoint=None, log_every=1 if run_dir else 10**9,
        )  # fmt: skip
        return watch.seconds

    return run


def claim(what, found, taken, without, limit):
    """A row: the ratio of each round, its median and quartiles."""
    ratio = summary([a / b for a, b in zip(found[taken], found[without])])
    return {
        "what": what, "ms without": statistics.median(found[without]) * 1e3,
        "ms with": statistics.median(found[taken]) * 1e3, "times": ratio["median"],
        "low": ratio["low"], "high": ratio["high"], "target": limit,
        "met": "yes" if ratio["median"] <= limit else "no",
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=MODELS, default="resnet50")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--batches", type=int, default=8, help="batches of an epoch")
    parser.add_argument("--epochs", type=int, default=2, help="epochs of a turn that count")
    parser.add_argument("--rounds", type=int, default=12)
    options = parser.parse_args()
    has_cuda = torch.cuda.is_available()
    device = options.device if options.device != "auto" else ("cuda" if has_cuda else "cpu")

    seeded, unseeded = (
        make_task(options.model, device, options.batches, seed) for seed in (1, None)
    )
    with tempfile.TemporaryDirectory() as folder:
        run_dir = pathlib.Path(folder) / "run"
        subjects = {
            UNSEEDED: turn(unseeded, options.epochs),
            PLAIN: turn(seeded, options.epochs),
            LOGGED: turn(seeded, options.epochs, run_dir=run_dir),
            COSINE: turn(
                seeded, options.epochs, schedule=rn.CosineAnnealingLR(base_lr=RATE, eta_min=1e-5)
            ),
        }
        found = alternate(subjects, lambda run: run(), options.rounds)
        lines = len((run_dir / "steps.jsonl").read_text().splitlines())
    rows = [claim(what, found, *rest) for what, *rest in CLAIMS]
    times = {name: summary(samples) for name, samples in found.items()}
    if device == "cuda":  # on a CPU one only sees whether it works
        facts = {"model": options.model, "batch": MODELS[options.model][3]}
        write("switches", rows, **facts, seconds_a_step=times)
    table(rows)
    steps = options.batches * (options.epochs + 1) * (options.rounds + 1)
    if lines != steps:
        raise RuntimeError(f"{lines} steps were logged of {steps}")
    for task in (seeded, unseeded):
        task.close()


if __name__ == "__main__":
    main()
