"""The stall of a checkpoint: how much longer the step takes in which one is saved.

    python benchmarks/bench_checkpoint.py [--model resnet50] [--device auto] [--saves 20]
    python benchmarks/bench_checkpoint.py --model mlp --device cpu --every 10

One task trains all the time, and at every `--every`-th step somebody saves its weights and moments:
`task.fit` itself in the background, `task.save`, `torch.save`, or torch.distributed.checkpoint's
`async_save`. All save the same bytes from the same tensors in the same process, in turns. A step is
measured by a host clock once the device is idle; the stall is the time of the step after which a
save was started, up to the end of the next one, minus the median step. "rest" is what the other
steps until the next save lost to the writing in the background. Ours also digests every byte and
forces it to the disk before a checkpoint counts; torch.save and async_save do neither.
"""

import argparse
import contextlib
import io
import os
import pathlib
import shutil
import statistics
import tempfile
import time
import warnings

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
import torchvision
from side_by_side import table, write

import renaissance as rn
from renaissance.models import mlp

#: Name -> (makes the model, side of the pictures, classes, batch size on a GPU, on a CPU).
MODELS = {
    "resnet50": (torchvision.models.resnet50, 224, 1000, 256, 4),
    "resnet18": (torchvision.models.resnet18, 64, 1000, 512, 8),
    "mlp": (lambda: mlp([1024, 1024], num_classes=10, in_features=3072), 32, 10, 512, 64),
}


class Clock(rn.Callback):
    """Seconds of every step, and a save by somebody else at every `every`-th.

    Args:
        every: Steps between saves.
        save: What saves, called with a new path; None leaves it to fit.
        root: Where the paths lie.
    """

    def __init__(self, every, save, root):
        self.every, self.save, self.root = every, save, root
        self.ends, self.saved = [], []

    def on_train_batch_end(self, batch, logs):
        if self.task.device.type == "cuda":
            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())
        if self.task.attempted_steps % self.every == 0:
            self.saved.append(len(self.ends) - 1)
            if self.save is not None:
                self.save(self.task, self.root / f"save-{self.task.attempted_steps}")

    def windows(self):
        """(seconds of the step that a save delayed, those of the others up to the next save)."""
        steps = np.diff(self.ends)
        for first in self.saved:
            window = steps[first : first + self.every]
            if len(window) == self.every:
                yield window[0], window[1:].tolist()


def state_of(task):
    """Weights and moments by name, as a loop by hand would hold them."""
    memory, names = task.require().memory, [s.name for s in task.plan.parameters]
    moments = {f"M/{name}": memory.view("M", name) for name in names}
    return {"model": dict(task.model.state_dict()), "optimizer": moments}


def nobody(task, place):
    """What the noise is."""


def torch_save(task, place):
    torch.save(state_of(task), place)


class AsyncSave:
    """torch.distributed.checkpoint.async_save; a save waits for the one before, as ours does."""

    def __init__(self):
        self._future = None

    def __call__(self, task, place):
        self.wait()
        self._future = dcp.async_save(state_of(task), checkpoint_id=place)

    def wait(self):
        if self._future is not None:
            self._future.result()
            self._future = None


def make_task(name, device, batch, steps):
    """A task over random pictures whose epoch has so many steps."""
    make, side, classes, *_ = MODELS[name]
    x = np.random.default_rng(0).integers(0, 256, (batch * steps, side, side, 3), np.uint8)
    train = rn.Loader.from_arrays(
        x, np.arange(len(x)) % classes, num_classes=classes, batch_size=batch,
        transforms=[rn.Normalize("imagenet")],
    )  # fmt: skip
    precision = "bf16-mixed" if device == "cuda" else "32-true"
    task = rn.Task(make(), name=name, seed=1, device=device, precision=precision)
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=1e-3, momentum=0.9)).data(train)
    return task.compile(report="none")


def one_turn(task, every, saves, who, root):
    """Train while `who` saves `saves` times; the windows after each."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir()
    os.sync()  # what another subject has left unwritten must not wait for this one's fsync
    is_ours = who is None
    task.run_dir = root if is_ours else None
    clock = Clock(every, who, root)
    start = task.attempted_steps
    first = (start // every + 1) * every
    task.fit(
        max_steps=first + saves * every + 1, callbacks=[clock], verbose=0, log_every=10**9,
        checkpoint=every if is_ours else None, keep=2,
    )  # fmt: skip
    if isinstance(who, AsyncSave):
        who.wait()
    return list(clock.windows())


def row(subject, windows, median):
    """A subject's line: seconds to milliseconds, and stalls in steps."""
    stalls = [delayed - median for delayed, _ in windows]
    rest = [sum(others) - median * len(others) for _, others in windows]
    return {
        "subject": subject,
        "step ms": median * 1e3,
        "worst stall ms": max(stalls) * 1e3,
        "median stall ms": statistics.median(stalls) * 1e3,
        "worst stall, steps": max(stalls) / median,
        "rest ms": statistics.median(rest) * 1e3,
        "saves": len(windows),
        "three worst ms": " ".join(f"{1e3 * one:.0f}" for one in sorted(stalls)[-3:]),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="resnet50")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--saves", type=int, default=20, help="by task.fit")
    parser.add_argument("--others", type=int, default=20, help="saves of each other subject")
    parser.add_argument("--every", type=int, default=40, help="steps between saves")
    parser.add_argument("--batch", type=int, help="pictures of a step")
    parser.add_argument("--turns", type=int, default=4, help="turns over which saves are spread")
    parser.add_argument("--folder", help="where to save; by default the temporary folder")
    options = parser.parse_args()
    has_cuda = torch.cuda.is_available()
    device = options.device if options.device != "auto" else ("cuda" if has_cuda else "cpu")
    batch = options.batch or MODELS[options.model][3 if device == "cuda" else 4]

    warnings.filterwarnings("ignore", "torch.distributed is disabled")  # there is one process
    task = make_task(options.model, device, batch, steps=options.every)
    nbytes = sum(
        t.numel() * t.element_size() for part in state_of(task).values() for t in part.values()
    )
    subjects = {
        "renaissance, task.fit in the background": None,
        "renaissance, task.save": lambda task, place: task.save(place),
        "torch.save": torch_save,
        "torch.distributed.checkpoint.async_save": AsyncSave(),
        "nobody": nobody,
    }
    found = {name: [] for name in subjects}
    saves = {name: options.others if who else options.saves for name, who in subjects.items()}
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        root = pathlib.Path(folder) / "run"
        # Half an epoch first: from then on epochs end in the middle between two saves.
        task.fit(epochs=1, steps_per_epoch=options.every // 2, verbose=0)
        for _ in range(options.turns):
            for name, who in subjects.items():
                with contextlib.redirect_stdout(io.StringIO()):
                    count = -(-saves[name] // options.turns)
                    windows = one_turn(task, options.every, count, who, root)
                found[name] += windows[: saves[name] - len(found[name])]
    steps = [seconds for windows in found.values() for _, others in windows for seconds in others]
    median = statistics.median(steps)
    rows = [row(name, windows, median) for name, windows in found.items()]
    table(rows)
    print(
        f"{options.model}, batch {batch}, {nbytes / 1e6:.1f} MB a save, every {options.every} steps"
    )
    write("checkpoint", rows, model=options.model, batch=batch, bytes=nbytes, every=options.every)


if __name__ == "__main__":
    main()
