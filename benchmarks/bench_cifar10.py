"""CIFAR-10: accuracy and wall clock of `Task.fit` beside plain PyTorch, same recipe.

    python benchmarks/bench_cifar10.py --data FOLDER            # about 300 s on an H200, 16 cores
    python benchmarks/bench_cifar10.py --data FOLDER --recipe fast        # about 150 s there
    python benchmarks/bench_cifar10.py --data FOLDER --model small --epochs 1 --limit 2000 \
        --peer-workers 1                                        # on a CPU: does it work

FOLDER holds train/CLASS and test/CLASS. The recipes are those of examples/resnet_cifar10.py and
fast_cifar10.py: SGD with Nesterov's momentum, l2 5e-4 on weights alone, label smoothing, warm-up,
crop, flip, cutout, batch 512, bfloat16. The peer is cifar10_peer.py.

Accuracy: mean and deviation over seeds of the last epoch; target: at most 0.3 points below. So that
several seeds of the peer are affordable, these runs take their batches from the same augmentation
done for whole batches on the GPU (`--peer-data gpu`), all seeds at once: they are not timed.

Wall clock, alone on the machine. Of "resnet18" seconds of an epoch from its beginning to the end of
its validation, the first of each run left out. The peer trains on the files with torchvision's
ImageFolder and v2 transforms in 16 workers, eager and with torch.compile: targets 3 and 1.3 times
ours. A row of its own gives it pictures that were decoded once, for a few epochs. "whole" is what
the shell sees of a training, imports, reading, compiling and decoding included: of the example and
of the peer. Of "fast" seconds of a whole training with one test at its end, after compile; the
peer's data are on the GPU too. Ours keeps the data on the GPU.
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
from renaissance.models import resnet9, resnet18

OURS = "renaissance, Task.fit"
EAGER, COMPILED = "PyTorch eager, v2 in workers", "PyTorch torch.compile, v2 in workers"
DECODED = "PyTorch eager, v2 in workers, decoded once"
ON_GPU = "PyTorch eager, augmentation on the GPU"
EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
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
                rn.RandomCrop(32, padding=4, padding_mode=recipe_of(options).borders),
                rn.RandomHorizontalFlip(), normalize, rn.Cutout(8),
            ],
        }  # fmt: skip
    else:
        settings = {"batch_size": cifar10_peer.TEST_BATCH, "transforms": [normalize]}
    if options.limit is None:
        return rn.Loader(data, **settings)
    every = -(-len(data) // options.limit)
    x, y = data.as_arrays()
    return rn.Loader.from_arrays(x[::every], y[::every], num_classes=10, **settings)


def recipe_of(options):
    return cifar10_peer.RECIPES[options.recipe]


def network(options):
    """Ours, of the recipe's layers; for a trial the peer's small one."""
    if options.model == "small":
        return cifar10_peer.small()
    return resnet9(10) if options.recipe == "fast" else resnet18(num_classes=10, stem="cifar")


def compiled_task(options):
    """Ours, and how it runs."""
    recipe = recipe_of(options)
    precision = "bf16-mixed" if torch.cuda.is_available() else "32-true"
    task = rn.Task(network(options), name="cifar10", seed=1, precision=precision)
    task.loss(rn.CrossEntropyLoss(label_smoothing=recipe.smoothing))
    task.optimizer(rn.SGD(momentum=0.9).nesterov().l2(5e-4))
    falling = rn.CosineAnnealingLR(base_lr=recipe.rate)
    if recipe.is_linear:
        falling = rn.PolynomialLR(base_lr=recipe.rate, power=1)
    task.scheduler(falling.warmup(recipe.warm_up, unit="epoch"))
    if recipe.average:
        task.ema(recipe.average, warmup=True)
    task.data(loader(options, "train"), loader(options, "test"))
    return task.compile(report="none", fuse=options.fuse)


def train_ours(task, options):
    """(accuracy of the last epoch by seed, seconds).

    Seconds are of all epochs but first ones, or, for the fast recipe, of each whole training.
    """
    accuracies, seconds = [], []
    is_fast = options.recipe == "fast"
    for seed in range(1, options.seeds + 1):
        task.reset(seed)
        watch, start = Stopwatch(), time.perf_counter()
        history = task.fit(
            epochs=options.epochs, verbose=0, callbacks=[watch], checkpoint=None,
            validation_freq=options.epochs if is_fast else 1,
        )  # fmt: skip
        whole = time.perf_counter() - start
        accuracies.append(history.history["val_accuracy"][-1])
        seconds += [whole] if is_fast else watch.seconds[1:] or watch.seconds
    return accuracies, seconds


def peer(options, **more):
    """A process of cifar10_peer.py."""
    arguments = {
        "data": options.data, "recipe": options.recipe, "model": options.model,
        "epochs": options.epochs, "limit": options.limit, **more,
    }  # fmt: skip
    command = [sys.executable, str(pathlib.Path(cifar10_peer.__file__))]
    for name, given in arguments.items():
        if given is not None:
            values = given if isinstance(given, list) else [given]
            command += [f"--{name.replace('_', '-')}", *map(str, values)]
    return started(command)


def started(command):
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def output(process, seconds):
    """What a process printed; "" with a line that says why, when it failed."""
    try:
        told, said = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        print(f"{process.args[1]} is left out: it took more than {seconds} s")
        return ""
    if process.returncode:
        reason = (said.strip().splitlines() or ["no message"])[-1]
        print(f"{process.args[1]} is left out: {reason}")
        return ""
    return told


def answer(process, seconds):
    """The runs that a peer tells of; [] when it failed."""
    told = output(process, seconds)
    return json.loads(told.splitlines()[-1]) if told else []


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


def time_rows(found, wholes, what):
    """Seconds of `what`, and times ours; then of all that the shell waits for."""
    base = summary(found[OURS])["median"]
    rows = []
    for name, samples in found.items():
        s, target = summary(samples), TIMES.get(name)
        times = s["median"] / base
        verdict = "" if target is None else f">= {target}: "
        verdict += "" if target is None else ("met" if times >= target else "missed")
        row = {
            "subject": name, f"s a {what}": s["median"], "low": s["low"], "high": s["high"],
            "n": s["n"], "times ours": times, "target": verdict,
            "s whole": wholes.get(name, ""), "whole, times ours": "",
        }  # fmt: skip
        if name in wholes and OURS in wholes:
            row["whole, times ours"] = wholes[name] / wholes[OURS]
        rows.append(row)
    return rows


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", required=True, help="folder with train/CLASS and test/CLASS")
    parser.add_argument("--recipe", choices=cifar10_peer.RECIPES, default="resnet18")
    parser.add_argument("--model", choices=["small"], help="in a trial")
    parser.add_argument("--epochs", type=int, help="by default the recipe's")
    parser.add_argument("--seeds", type=int, default=5, help="of ours")
    parser.add_argument("--peer-seeds", type=int, default=5, help="0 leaves these runs out")
    parser.add_argument(
        "--peer-epochs-timed", type=int, default=3,
        help="with pictures decoded once; 0 leaves all timed runs of the peer out",
    )  # fmt: skip
    parser.add_argument("--peer-workers", type=int, default=16)
    parser.add_argument("--fuse", choices=["auto", "off"], default="auto")
    parser.add_argument("--limit", type=int, help="pictures of a split, for a trial")
    options = parser.parse_args()
    options.epochs = options.epochs or recipe_of(options).epochs
    return options


def peer_accuracies(options):
    """Of the last epoch, by seed; a process each, all at once."""
    seeds = range(1, options.peer_seeds + 1)
    more = {"peer_data": "gpu", "tests": "last"}
    running = [peer(options, seeds=[seed], **more) for seed in seeds]
    try:
        return [run["accuracies"][-1] for process in running for run in answer(process, 300)]
    finally:
        for process in running:
            if process.poll() is None:
                process.kill()


def peer_seconds(options):
    """Name -> seconds, of an epoch or, for the fast recipe, of a training; seconds of the whole."""
    if options.recipe == "fast":
        runs = answer(peer(options, peer_data="gpu", tests="last"), 120)
        yield ON_GPU, [sum(run["seconds"]) for run in runs], None
        return
    few = 1 + options.peer_epochs_timed
    for name, more in (
        (EAGER, {}), (COMPILED, {"modes": ["compile"]}),
        (DECODED, {"peer_data": "memory", "until": few, "epochs": max(options.epochs, few)}),
    ):  # fmt: skip
        start = time.perf_counter()
        runs = answer(peer(options, workers=options.peer_workers, **more), 200)
        whole = None if "until" in more else time.perf_counter() - start
        seconds = runs[0]["seconds"] if runs else []
        yield name, seconds[1:] or seconds, whole


def whole_example(options):
    """Seconds of the recipe's example, from the shell; nothing when it failed."""
    command = [
        sys.executable, str(EXAMPLES / "resnet_cifar10.py"), "--data", options.data,
        "--epochs", str(options.epochs), "--precision", "bf16-mixed",
    ]  # fmt: skip
    start = time.perf_counter()
    told = output(started(command), 200)
    return {OURS: time.perf_counter() - start} if told else {}


def main():
    options = arguments()
    last = peer_accuracies(options)
    start = time.perf_counter()
    task = compiled_task(options)
    print(f"{task.executor.describe()}, compiled in {time.perf_counter() - start:.0f} s")
    start = time.perf_counter()
    accuracies, seconds = train_ours(task, options)
    print(f"{options.seeds} seeds of ours in {time.perf_counter() - start:.0f} s")
    task.close()
    results = {"accuracy": accuracy_rows(accuracies, last), "accuracies": [accuracies, last]}
    found, wholes = {OURS: seconds}, {}
    if options.recipe == "resnet18" and options.limit is None:
        wholes = whole_example(options)
    keep(options, found, wholes, results)
    if options.peer_epochs_timed:
        for name, samples, whole in peer_seconds(options):
            if samples:
                found[name] = samples
                wholes |= {} if whole is None else {name: whole}
                keep(options, found, wholes, results)
    table(results["accuracy"])
    table(time_rows(found, wholes, what_of(options)))


def what_of(options):
    return "training" if options.recipe == "fast" else "epoch"


def keep(options, found, wholes, results):
    """Write what there is so far; trials on a CPU are not kept."""
    if torch.cuda.is_available():
        recipe = {"recipe": options.recipe, "epochs": options.epochs, "batch": cifar10_peer.BATCH}
        name = "cifar10_fast" if options.recipe == "fast" else "cifar10"
        write(name, time_rows(found, wholes, what_of(options)), **recipe, **results)


if __name__ == "__main__":
    main()
