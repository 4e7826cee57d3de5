"""Every example is there as Python and as YAML, and both train to the same bits.

They are looked for beside the tests, in the source tree: examples are not installed.
"""

import gzip
import lzma
import re
import runpy
import shutil
import struct
import sys
from pathlib import Path

import numpy as np
import odd_pictures as odd
import pytest
import safetensors.torch
import torch
from real_data import real_data
from torch import nn

import renaissance as rn
from renaissance.config.experiment import load_experiment

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


def files_in(tar):
    """(name, content) of each file of an archive of short names.

    For sixty thousand files the standard library's reader takes longer than the training.
    """
    at = 0
    while tar[at]:  # zeros follow the last one
        name, kind = tar[at : at + 100].rstrip(b"\0").decode(), tar[at + 156]
        size = int(tar[at + 124 : at + 135], 8)
        if kind == ord("0"):
            yield name, tar[at + 512 : at + 512 + size]
        at += 512 + (size + 511) // 512 * 512


@pytest.fixture(scope="module")
def cifar_pictures(tmp_path_factory):
    """2,000 training and 500 test pictures of CIFAR-10 in folders."""
    archive, folder = real_data("cifar10-jpeg.tar.xz"), tmp_path_factory.mktemp("cifar10")
    most = {"train": "0200.jpg", "test": "0050.jpg"}
    for name, picture in files_in(lzma.decompress(archive.read_bytes())):
        assert re.fullmatch(r"(train|test)/\w+/\d{4}\.jpg", name), name
        if name[-8:] < most[name.split("/")[0]]:
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(picture)
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


@pytest.fixture
def photos(tmp_path):
    """30 pictures for training and 12 for validation, of six classes, in folders."""
    for split, count in (("train", 5), ("val", 2)):
        for name in ("cat", "dog", "eel", "fox", "gnu", "hen"):
            (tmp_path / split / name).mkdir(parents=True)
            for k in range(count):
                jpeg = odd.jpeg(odd.scene(40 + k, 50, seed=k))
                (tmp_path / split / name / f"{k}.jpg").write_bytes(jpeg)
    return tmp_path


def small_pictures(folder, batch_size):
    """Overrides of a file for the `photos` at 32 x 32."""
    changes = [f"data.{part}.{key}" for part in ("train", "valid") for key in (
        f"root={folder}", f"batch_size={batch_size}")]  # fmt: skip
    return [
        *changes,
        "data.train.transforms.0.size=32",
        "data.valid.transforms.0.size=36",
        "data.valid.transforms.1.size=32",
        "fit.epochs=1",
    ]


SMALL = ["--model", "resnet18", "--size", 32, "--batch-size", 8, "--epochs", 1]


class Tiny(nn.Module):
    """A few of the layers of a ResNet under their names."""

    def __init__(self, num_classes: int):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, 2, bias=False), nn.BatchNorm2d(8)
        self.layer1 = nn.Sequential(nn.Conv2d(8, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.layer2 = nn.Sequential(nn.Conv2d(8, 16, 3, 2, bias=False), nn.BatchNorm2d(16))
        self.fc = nn.Linear(16, num_classes)

    def forward(self, x):
        x = self.layer2(self.layer1(self.bn1(self.conv1(x)).relu()))
        return self.fc(x.relu().mean((2, 3)))


@pytest.fixture
def tiny(monkeypatch):
    """The scripts' ResNet-18 is `Tiny`, which files call tiny: checkpoints of it take no time."""
    monkeypatch.setattr(rn.models, "resnet18", Tiny)
    rn.register("model", "tiny", Tiny)
    return "model={type: tiny, num_classes: 6}"


def test_imagenet(monkeypatch, photos, one_thread):
    script = run_script(monkeypatch, "imagenet", "--data", photos, *SMALL)
    changes = ["model={type: resnet18, num_classes: 6}", "scheduler.base_lr=0.003125"]
    file = run_file("imagenet", *small_pictures(photos, 8), *changes)
    assert script.attempted_steps == 3
    assert script.state_hash() == file.state_hash()


def test_imagenet_with_large_batches(monkeypatch, photos, tiny, one_thread):
    large = ["--optimizer", "lars", "--batch-size", 16, "--accumulate", 2]
    script = run_script(monkeypatch, "imagenet", "--data", photos, *SMALL, *large)
    file = run_file(
        "imagenet",
        *small_pictures(photos, 8),
        tiny,
        "accumulate=2",
        "optimizer={type: lars, momentum: 0.9, weight_decay: 5e-5}",
        "scheduler={type: polynomial, base_lr: 0.75, power: 2, warmup: 5, warmup_unit: epoch}",
    )
    assert script.attempted_steps == 2 and script.rates.schedule == file.rates.schedule
    assert script.state_hash() == file.state_hash()


def test_imagenet_with_small_pictures_first(monkeypatch, photos, tiny, one_thread):
    arguments = ["--data", photos, *SMALL, "--size", 16, 32, "--epochs", 2]
    whole = run_script(monkeypatch, "imagenet", *arguments)
    assert whole.epoch == 2 and whole.horizon == rn.Horizon(6, 3)
    runs = [*arguments, "--run-dir", photos / "run"]
    assert run_script(monkeypatch, "imagenet", *runs).state_hash() == whole.state_hash()
    shutil.rmtree(photos / "run" / "2-of-32")  # as if it had stopped between the sizes
    again = run_script(monkeypatch, "imagenet", *runs, "--resume")
    assert again.state_hash() == whole.state_hash() and again.history.epoch == [0, 1]


def test_finetune(monkeypatch, photos, tiny, one_thread):
    weights = photos / "tiny.safetensors"
    state = Tiny(1000).state_dict()
    safetensors.torch.save_file(state, weights)
    arguments = ["--data", photos, *SMALL, "--weights", weights]
    script = run_script(monkeypatch, "finetune", *arguments)
    file = run_file("finetune", *small_pictures(photos, 8), tiny, f"pretrained.weights={weights}")
    found = script.state_dict()
    stays = {name for name in state if name.startswith(("conv1.w", "bn1.running", "layer1.0.w"))}
    assert len(stays) == 4 and all(torch.equal(found[name], state[name]) for name in stays)
    assert script.attempted_steps == 3 and found["fc.weight"].shape == (6, 16)
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
