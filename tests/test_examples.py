"""Every example is there as Python and as YAML, and both train to the same bits.

They are looked for beside the tests, in the source tree: examples are not installed.
"""

import gzip
import runpy
import struct
import sys
import tarfile
from pathlib import Path

import numpy as np
import odd_pictures as odd
import pytest
from real_data import real_data

import renaissance as rn
from renaissance.config import load_experiment

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def mnist(tmp_path):
    """A small data set in MNIST's files: 400 and 100 pictures of noise."""
    rng = np.random.default_rng(0)
    for prefix, count in (("train", 400), ("t10k", 100)):
        pictures = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
        labels = rng.integers(0, 10, count, dtype=np.uint8)
        for kind, magic, array in (
            ("images-idx3", 0x803, pictures),
            ("labels-idx1", 0x801, labels),
        ):
            header = struct.pack(f">I{array.ndim}I", magic, *array.shape)
            with gzip.open(tmp_path / f"{prefix}-{kind}-ubyte.gz", "wb") as file:
                file.write(header + array.tobytes())
    return tmp_path


@pytest.fixture
def cifar(tmp_path):
    """60 pictures of noise for training and 20 for testing in CIFAR-10's binary files."""
    rng = np.random.default_rng(0)
    for name in [*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]:
        records = rng.integers(0, 256, (20 if name[0] == "t" else 12, 3073), dtype=np.uint8)
        records[:, 0] %= 10
        (tmp_path / name).write_bytes(records.tobytes())
    return tmp_path


@pytest.fixture(scope="module")
def cifar_pictures(tmp_path_factory):
    """2,000 training and 500 test pictures of CIFAR-10 in folders."""
    if not hasattr(tarfile, "data_filter"):
        pytest.skip("this Python cannot extract archives safely")
    archive, folder = real_data("cifar10-jpeg.tar.xz"), tmp_path_factory.mktemp("cifar10")
    most = {"train": "0200.jpg", "test": "0050.jpg"}
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isfile() and member.name[-8:] < most[member.name.split("/")[0]]:
                tar.extract(member, folder, filter="data")
    return folder


def run_script(monkeypatch, name, *arguments):
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))["task"]


def run_file(name, *overrides):
    experiment = load_experiment(EXAMPLES / f"{name}.yaml", overrides)
    task = experiment.task().compile(report="none")
    task.fit(**experiment.fit.model_dump())
    return task


def test_every_example_has_both_forms():
    stems = {kind: {p.stem for p in EXAMPLES.glob(f"*.{kind}")} for kind in ("py", "yaml")}
    assert stems["py"] == stems["yaml"]


def test_quickstart(monkeypatch, tmp_path):
    picture = tmp_path / "curve.png"
    script = run_script(monkeypatch, "quickstart", "--epochs", 3, "--picture", picture)
    file = run_file("quickstart", "fit.epochs=3")
    assert script.state_hash() == file.state_hash()
    assert script.history.history == file.history.history


def test_the_demo_learns():
    assert run_file("quickstart", "fit.verbose=0").history.history["val_accuracy"][-1] >= 0.97


def test_mlp_mnist(monkeypatch, mnist):
    script = run_script(monkeypatch, "mlp_mnist", "--data", mnist, "--epochs", 1)
    roots = [f"data.{part}.root={mnist}" for part in ("train", "valid")]
    file = run_file("mlp_mnist", "fit.epochs=1", *roots)
    assert script.state_hash() == file.state_hash()


def test_resnet_cifar10(monkeypatch, cifar, one_thread):
    small = ["--model", "small", "--batch-size", 20, "--epochs", 2]
    script = run_script(monkeypatch, "resnet_cifar10", "--data", cifar, *small)
    roots = [f"data.{part}.root={cifar}" for part in ("train", "valid")]
    model = "model={type: wide_resnet, depth: 10, widen: 1}"
    file = run_file("resnet_cifar10", model, "data.train.batch_size=20", "fit.epochs=2", *roots)
    assert script.attempted_steps == 6
    assert script.state_hash() == file.state_hash()


def test_fast_cifar10(monkeypatch, cifar, one_thread):
    small = ["--width", 4, "--batch-size", 20, "--epochs", 4]
    script = run_script(monkeypatch, "fast_cifar10", "--data", cifar, *small)
    changes = [f"data.{part}.root={cifar}" for part in ("train", "valid")]
    changes += ["model.width=4", "data.train.batch_size=20", "scheduler.warmup=1"]
    file = run_file("fast_cifar10", "fit.epochs=4", "fit.validation_freq=4", *changes)
    assert script.attempted_steps == 12 and script.history.history == file.history.history
    assert script.state_hash() == file.state_hash()


def test_imagenet(monkeypatch, tmp_path, one_thread):
    for split, count in (("train", 5), ("val", 2)):
        for name in ("cat", "dog", "eel", "fox", "gnu", "hen"):
            (tmp_path / split / name).mkdir(parents=True)
            for k in range(count):
                jpeg = odd.jpeg(odd.scene(40 + k, 50, seed=k))
                (tmp_path / split / name / f"{k}.jpg").write_bytes(jpeg)
    small = ["--model", "resnet18", "--size", 32, "--batch-size", 8, "--epochs", 1]
    script = run_script(monkeypatch, "imagenet", "--data", tmp_path, *small)
    changes = [f"data.{part}.{key}" for part in ("train", "valid") for key in (
        f"root={tmp_path}", "batch_size=8")]  # fmt: skip
    changes += [
        "model={type: resnet18, num_classes: 6}",
        "data.train.transforms.0.size=32",
        "data.valid.transforms.0.size=36",
        "data.valid.transforms.1.size=32",
        "scheduler.base_lr=0.003125",
        "fit.epochs=1",
    ]
    file = run_file("imagenet", *changes)
    assert script.attempted_steps == 3
    assert script.state_hash() == file.state_hash()


class Losses(rn.Callback):
    """The loss of every step."""

    def __init__(self):
        self.seen = []

    def on_train_batch_end(self, batch, logs):
        self.seen.append(logs["loss"])


@pytest.mark.timeout(240)
def test_a_small_resnet_learns_from_2000_pictures(cifar_pictures):
    folders = [
        f"data.{part}.{key}={value}"
        for part in ("train", "valid")
        for key, value in (("type", "image_folder"), ("root", cifar_pictures))
    ]
    model = "model={type: wide_resnet, depth: 10, widen: 1}"
    changes = [model, "data.train.batch_size=50", "fit.epochs=1", *folders]
    experiment = load_experiment(EXAMPLES / "resnet_cifar10.yaml", changes)
    losses = Losses()
    task = experiment.task().compile(report="none")
    task.fit(epochs=1, verbose=0, callbacks=[losses])
    assert len(losses.seen) == 40 and np.mean(losses.seen[-10:]) < np.mean(losses.seen[:10])
    assert task.history.history["val_accuracy"][-1] > 0.15
