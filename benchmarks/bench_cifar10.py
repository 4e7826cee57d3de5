"""ResNet-18 on CIFAR-10: accuracy and wall clock of `Task.fit` beside plain PyTorch, same recipe.

    python benchmarks/bench_cifar10.py --data FOLDER            # about 220 s on an H200, 16 cores
    python benchmarks/bench_cifar10.py --data FOLDER --model small --epochs 1 --limit 2000 \
        --peer-workers 1                                        # on a CPU: does it work

FOLDER holds train/CLASS and test/CLASS. The recipe is that of examples/resnet_cifar10.py: SGD with
Nesterov's momentum, l2 5e-4 on weights alone, label smoothing, cosine after two epochs of warm-up,
crop, flip, cutout, batch 512, bfloat16, a validation each epoch. The peer is cifar10_peer.py.

Accuracy: mean and deviation over seeds of the last epoch; target: at most 0.3 points below. So that
several seeds of the peer are affordable, these runs take their batches from the same augmentation
done for whole batches on the GPU (`--peer-data gpu`), beside the compilation of ours: they are not
timed. Wall clock: seconds of an epoch from its beginning to the end of its validation, the first
of each run left out; of the peer a few epochs with torchvision's v2 transforms in 16 workers
(`--peer-data workers`), eager and with torch.compile, alone on the machine, after ours. Targets: 3
times ours eager, 1.3 times compiled. Ours keeps the data on the GPU.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

import cifar10_peer
import torch
from side_by_side import summary, table, write

import renaissance as rn
from renaissance.datasets import ImageFolder
from renaissance.models import resnet18

OURS = "renaissance, Task.fit"
EAGER, COMPILED = "PyTorch eager, v2 in workers", "PyTorch torch.compile, v2 in workers"
ON_GPU = "PyTorch, augmentation on the GPU"
POINTS, TIMES = 0.3, {EAGER: 3.0, COMPILED: 1.3}


class Stopwatch(rn.Callback):
    """Seconds of each epoch with its validation."""

    def __init__(self):
        self.seconds = []

    def on_epoch_begin(self, epoch, logs):
        self._start = time.perf_counter()

    def on_epoch_end(self, epoch, logs):
        if self.task.device.type == "cuda":
            torch.cuda.synchronize()
        self.seconds.append(time.perf_counter() - self._start)


def loader(options, split):
    """A split as the recipe wants it; thinned for a trial."""
    data, normalize = ImageFolder(options.data, split), rn.Normalize("cifar10")
    if split == "train":
        settings = {
            "batch_size": cifar10_peer.BATCH, "shuffle": True, "drop_last": True,
            "transforms": [
                rn.RandomCrop(32, padding=4), rn.RandomHorizontalFlip(), normalize, rn.Cutout(8)
            ],
        }  # fmt: skip
    else:
        settings = {"batch_size": cifar10_peer.TEST_BATCH, "transforms": [normalize]}
    if options.limit is None:
        return rn.Loader(data, **settings)
    every = -(-len(data) // options.limit)
    x, y = data.as_arrays()
    return rn.Loader.from_arrays(x[::every], y[::every], num_classes=10, **settings)


def compiled_task(options):
    """Ours, and how it runs."""
    is_small = options.model == "small"
    model = cifar10_peer.small() if is_small else resnet18(num_classes=10, stem="cifar")
    precision = "bf16-mixed" if torch.cuda.is_available() else "32-true"
    task = rn.Task(model, name="resnet-cifar10", seed=1, precision=precision)
    task.loss(rn.CrossEntropyLoss(label_smoothing=0.1))
    task.optimizer(rn.SGD(momentum=0.9).nesterov().l2(5e-4))
    task.scheduler(rn.CosineAnnealingLR(base_lr=0.2).warmup(2, unit="epoch"))
    task.data(loader(options, "train"), loader(options, "test"))
    return task.compile(report="none", fuse=options.fuse)


def train_ours(task, epochs, seeds):
    """(accuracy of the last epoch by seed, seconds of all epochs but first ones)."""
    accuracies, seconds = [], []
    for seed in range(1, seeds + 1):
        task.reset(seed)
        watch = Stopwatch()
        history = task.fit(epochs=epochs, verbose=0, callbacks=[watch], checkpoint=None)
        accuracies.append(history.history["val_accuracy"][-1])
        seconds += watch.seconds[1:] or watch.seconds
    return accuracies, seconds


def peer(options, **more):
    """A process of cifar10_peer.py."""
    arguments = {"data": options.data, "model": options.model, "epochs": options.epochs, **more}
    command = [sys.executable, str(pathlib.Path(cifar10_peer.__file__))]
    for name, given in arguments.items():
        if given is not None:
            values = given if isinstance(given, list) else [given]
            command += [f"--{name.replace('_', '-')}", *map(str, values)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def answer(process, seconds):
    """The runs that a peer tells of; [] with a line that says why."""
    try:
        told, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        print(f"a peer is left out: it took more than {seconds} s")
        return []
    if process.returncode:
        print(f"a peer is left out: {(said.strip().splitlines() or ['no message'])[-1]}")
        return []
    return json.loads(told.splitlines()[-1])


def accuracy_rows(ours, theirs):
    """Mean and deviation of each, and the difference in points."""
    rows = []
    for name, found in ((OURS, ours), (ON_GPU, theirs)):
        if found:
            deviation = statistics.stdev(found) if len(found) > 1 else float("nan")
            rows.append(
                {"subject": name, "test accuracy, %": f"{100 * statistics.mean(found):.2f}",
                 "deviation": f"{100 * deviation:.2f}", "seeds": len(found),
                 "points above the peer": "", "target": ""}
            )  # fmt: skip
    if len(rows) == 2:
        points = 100 * (statistics.mean(ours) - statistics.mean(theirs))
        verdict = "met" if points >= -POINTS else "missed"
        rows[0] |= {"points above the peer": f"{points:+.2f}", "target": f">= -{POINTS}: {verdict}"}
    return rows


def time_rows(found):
    """Seconds an epoch end to end, and times ours."""
    base = summary(found[OURS])["median"]
    rows = []
    for name, samples in found.items():
        s, target = summary(samples), TIMES.get(name)
        times = s["median"] / base
        verdict = "" if target is None else f">= {target}: "
        verdict += "" if target is None else ("met" if times >= target else "missed")
        rows.append(
            {"subject": name, "s an epoch": s["median"], "low": s["low"], "high": s["high"],
             "epochs": s["n"], "times ours": times, "target": verdict}
        )  # fmt: skip
    return rows


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="folder with train/CLASS and test/CLASS")
    parser.add_argument("--model", choices=cifar10_peer.MODELS, default="resnet18")
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=3, help="of ours")
    parser.add_argument("--peer-seeds", type=int, default=3, help="0 leaves these runs out")
    parser.add_argument("--peer-epochs-timed", type=int, default=3, help="0 leaves these runs out")
    parser.add_argument("--peer-workers", type=int, default=16)
    parser.add_argument("--fuse", choices=["auto", "off"], default="auto")
    parser.add_argument("--limit", type=int, help="pictures of a split, for a trial")
    return parser.parse_args()


def main():
    options = arguments()
    beside = None
    if options.peer_seeds:
        more = {"seeds": options.peer_seeds, "peer_data": "gpu", "limit": options.limit}
        beside = peer(options, **more)
    start = time.perf_counter()
    try:
        task = compiled_task(options)
        print(f"{task.executor.describe()}, compiled in {time.perf_counter() - start:.0f} s")
        theirs = [] if beside is None else answer(beside, 200)
    finally:
        if beside is not None and beside.poll() is None:
            beside.kill()
    last = [run["accuracies"][-1] for run in theirs]

    start = time.perf_counter()
    accuracies, seconds = train_ours(task, options.epochs, options.seeds)
    print(f"{options.seeds} seeds of ours in {time.perf_counter() - start:.0f} s")
    task.close()
    results = {"accuracy": accuracy_rows(accuracies, last), "accuracies": [accuracies, last]}
    found = {OURS: seconds}
    keep(options, found, results)
    for name, mode in ((EAGER, "eager"), (COMPILED, "compile")):
        if options.peer_epochs_timed:
            until = 1 + options.peer_epochs_timed
            more = {"epochs": max(options.epochs, until), "until": until, "limit": options.limit}
            timed = answer(peer(options, modes=[mode], workers=options.peer_workers, **more), 120)
            if timed:
                found[name] = timed[0]["seconds"][1:]
                keep(options, found, results)
    table(results["accuracy"])
    table(time_rows(found))


def keep(options, found, results):
    """Write what there is so far; trials on a CPU are not kept."""
    if torch.cuda.is_available():
        recipe = {"model": options.model, "epochs": options.epochs, "batch": cifar10_peer.BATCH}
        write("cifar10", time_rows(found), **recipe, **results)


if __name__ == "__main__":
    main()
