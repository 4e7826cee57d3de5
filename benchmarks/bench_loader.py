"""Pictures a second from data set to batch, side by side with the loaders people use.

    python benchmarks/bench_loader.py [--only mnist|cifar|jpeg] [--rounds 7] [--seconds 0.5]
    python benchmarks/bench_loader.py --threads --rounds 9 --seconds 1

"us" is CPU time of the whole process for one picture on one thread, order, queue and batch
included; other processes of the machine disturb it less than they do the wall clock. All make
float32 batches ready for a model, unless the name says otherwise. "two threads" is our wall clock
with one worker against two, and wants a machine that is at rest and long measurements; `--threads`
does this alone. Peers that are not installed are said and left out. JPEG files are 500 x 375 (one
in five upright), quality 88 to 96, 4:2:0, with grain, composed from pictures of ``--tiles FOLDER``
(JPEG files) or from noise.
"""

import argparse
import io
import os
import pathlib
import tempfile
import time
import unittest.mock

os.environ.setdefault("OMP_NUM_THREADS", "1")

import loader_peers
import numpy as np
import torch
from PIL import Image
from side_by_side import alternate, summary, table, write

import renaissance as rn
from renaissance import _native
from renaissance.data.dataset import ArrayDataset
from renaissance.datasets import ImageFolder, Synthetic

MNIST_CHAIN = (
    rn.Pad(2), rn.RandomCrop(28), rn.RandomRotation(20), rn.RandomScale(0.8, 1.2),
    rn.Normalize(mean=loader_peers.MNIST_MEAN, std=loader_peers.MNIST_STD), rn.RandomErasing(0.5),
)  # fmt: skip
NORMALIZE = rn.Normalize(mean=loader_peers.MEAN, std=loader_peers.STD)
CIFAR_CHAIN = (
    rn.Pad(4), rn.RandomCrop(32), rn.RandomHorizontalFlip(), NORMALIZE, rn.RandomErasing(0.5),
)  # fmt: skip
JPEG_CHAIN = (rn.RandomResizedCrop(224), rn.RandomHorizontalFlip(), NORMALIZE)
JITTER_CHAIN = (
    rn.RandomResizedCrop(224), rn.RandomHorizontalFlip(), rn.ColorJitter(*loader_peers.JITTER),
    NORMALIZE,
)  # fmt: skip


class Ours:
    """Epochs of a loader that is open already."""

    def __init__(self, dataset, batch_size, transforms, *, workers=1, dtype=torch.float32):
        loader = rn.Loader(
            dataset, batch_size=batch_size, shuffle=True, drop_last=True, seed=1,
            transforms=transforms, workers=workers,
        )  # fmt: skip
        self.stream, self.epoch, self.workers = loader.stream(dtype=dtype), 0, workers

    def __call__(self, seconds):
        made, start = 0, time.perf_counter()
        while time.perf_counter() - start < seconds:
            self.epoch += 1
            for batch in self.stream.rewind(self.epoch):
                made += len(batch)
        return made


class Files:
    """Encoded files in a folder, as a data set for C++ workers or for Python threads."""

    def __init__(self, folder, files):
        self.paths = [str(pathlib.Path(folder) / f"{k:05}.jpg") for k in range(len(files))]
        for path, data in zip(self.paths, files, strict=True):
            pathlib.Path(path).write_bytes(data)

    def __len__(self):
        return len(self.paths)

    def read(self, index):
        return pathlib.Path(self.paths[index]).read_bytes(), 0

    def files(self):
        return self.paths, np.zeros(len(self.paths), np.int64)


def jpeg_files(count, tiles):
    rng = np.random.default_rng(0)
    sources = sorted(pathlib.Path(tiles).rglob("*.jpg"))[:5000] if tiles else []
    files = []
    for k in range(count):
        size = (375, 500) if k % 5 == 4 else (500, 375)
        if sources:
            tile = Image.open(sources[int(rng.integers(len(sources)))]).convert("RGB")
        else:
            tile = Image.fromarray(rng.integers(0, 256, (24, 32, 3)).astype(np.uint8))
        picture = np.asarray(tile.resize(size, Image.Resampling.BICUBIC)).astype(float)
        picture += rng.normal(0, 14, (*picture.shape[:2], 1)) + rng.normal(0, 4, picture.shape)
        out = io.BytesIO()
        quality = int(rng.integers(88, 97))
        Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8)).save(
            out, "JPEG", quality=quality
        )
        files.append(out.getvalue())
    return files


def compare(what, subjects, given):
    """One row for each subject: CPU microseconds a picture, and how many times ours is faster."""

    def cpu_seconds(run):
        start = time.process_time()
        made = run(given.seconds)
        return (time.process_time() - start) / made

    found = alternate(subjects, cpu_seconds, given.rounds)
    ours = found["ours"]
    rows = []
    for name, samples in found.items():
        each, ratio = summary(samples), summary([s / o for s, o in zip(samples, ours, strict=True)])
        rows.append({
            "chain": what, "subject": name, "us": each["median"] * 1e6,
            "us low": each["low"] * 1e6, "us high": each["high"] * 1e6,
            "images/s/core": 1 / each["median"], "ours is x": ratio["median"],
            "x low": ratio["low"], "x high": ratio["high"], "n": each["n"],
        })  # fmt: skip
    return rows


def scaling(what, dataset, batch_size, transforms, given):
    """Wall clock of one worker over that of two, and what two take more in CPU time.

    "x" is the median of the rounds' ratios, "fastest x" the ratio of the fastest rounds: what is
    left when other programs, or other guests of the host, disturb neither.
    """
    cpu = {1: [], 2: []}

    def wall_seconds(run):
        start, used = time.perf_counter(), time.process_time()
        made = run(given.seconds)
        cpu[run.workers].append((time.process_time() - used) / made)
        return (time.perf_counter() - start) / made

    subjects = {w: Ours(dataset, batch_size, transforms, workers=w) for w in (1, 2)}
    found = alternate(subjects, wall_seconds, given.rounds)
    ratio = summary([one / two for one, two in zip(found[1], found[2], strict=True)])
    return {
        "chain": what, "images/s, two threads": 1 / summary(found[2])["median"],
        "two threads x": ratio["median"], "x low": ratio["low"], "x high": ratio["high"],
        "fastest x": min(found[1]) / min(found[2]),
        "CPU time, two over one": summary(cpu[2])["median"] / summary(cpu[1])["median"],
        "n": ratio["n"],
    }  # fmt: skip


def run_threads(given, folder):
    files = Files(folder, jpeg_files(256, given.tiles))
    return [
        scaling("mnist", Synthetic(20000, size=28, channels=1), 200, MNIST_CHAIN, given),
        scaling("cifar", Synthetic(20000, size=32), 512, CIFAR_CHAIN, given),
        scaling("jpeg", files, 32, JPEG_CHAIN, given),
    ]


def run_mnist(given, folder):
    data = Synthetic(20000, size=28, channels=1)
    subjects = {"ours": Ours(data, 200, MNIST_CHAIN), **loader_peers.mnist(data.as_arrays()[0])}
    return compare("mnist", subjects, given), scaling("mnist", data, 200, MNIST_CHAIN, given)


def run_cifar(given, folder):
    x, y = Synthetic(20000, size=32).as_arrays()
    planes = np.ascontiguousarray(x.transpose(0, 3, 1, 2))  # as the files of CIFAR are
    data = ArrayDataset(planes.transpose(0, 2, 3, 1), y)
    subjects = {
        "ours": Ours(data, 512, CIFAR_CHAIN),
        "ours, float16": Ours(data, 512, CIFAR_CHAIN, dtype=torch.float16),
        **loader_peers.cifar(x, folder),
    }
    return compare("cifar", subjects, given), scaling("cifar", data, 512, CIFAR_CHAIN, given)


def run_jpeg(given, folder):
    encoded = jpeg_files(256, given.tiles)
    data = Files(folder, encoded)
    mean = sum(map(len, encoded)) / len(encoded) / 1024
    print(f"JPEG files: mean {mean:.0f} KiB; native decoder: {_native.has_jpeg()}")
    rows = []
    for what, chain, jitter in (("jpeg", JPEG_CHAIN, False), ("jpeg+jitter", JITTER_CHAIN, True)):
        subjects = {"ours": Ours(data, 32, chain)}
        if not jitter:
            subjects["ours, float16"] = Ours(data, 32, chain, dtype=torch.float16)
            with unittest.mock.patch.object(_native, "has_jpeg", lambda: False):
                subjects["ours, build without libjpeg"] = Ours(data, 32, chain)
        rows += compare(what, subjects | loader_peers.jpeg(encoded, folder, jitter=jitter), given)
    return rows, scaling("jpeg", data, 32, JPEG_CHAIN, given)


def run_folder(folder):
    """Seconds to list a folder of small pictures, to decode it into memory, and of an epoch."""
    marks = [time.perf_counter()]

    def lap():
        marks.append(time.perf_counter())
        return marks[-1] - marks[-2]

    data = ImageFolder(folder, "train", index_cache="off")
    row = {"folder": pathlib.Path(folder).name, "pictures": len(data), "index s": lap()}
    data.as_arrays()
    row["decode s"] = lap()
    loader = rn.Loader(data, batch_size=512, shuffle=True, seed=1, transforms=CIFAR_CHAIN)
    with loader.stream() as stream:
        for epoch in range(3):
            lap()
            assert sum(len(batch) for batch in stream.rewind(epoch)) == len(data)
            row[f"epoch {epoch} s"] = lap()
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=["mnist", "cifar", "jpeg"])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of one measurement")
    parser.add_argument("--tiles", help="folder of JPEG files to compose pictures from")
    parser.add_argument("--folder", help="train/CLASS/... of small pictures: seconds of an epoch")
    parser.add_argument("--threads", action="store_true", help="only how far two threads scale")
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"machine load before: {os.getloadavg()[0]:.2f}")
    rows, scales, load = [], [], os.getloadavg()[0]
    if given.threads:
        with tempfile.TemporaryDirectory() as folder:
            scales = run_threads(given, folder)
        table(scales)
        write("loader_threads", scales, load_before=load)
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, run in (("mnist", run_mnist), ("cifar", run_cifar), ("jpeg", run_jpeg)):
            if given.only in (None, name):
                found, scale = run(given, folder)
                table(found)
                rows += found
                scales.append(scale)
    table(scales)
    folders = [run_folder(given.folder)] if given.folder else []
    if folders:
        table(folders)
    write(
        "loader",
        rows,
        two_threads=scales,
        folders=folders,
        load_before=load,
        native_jpeg=_native.has_jpeg(),
    )


if __name__ == "__main__":
    main()
