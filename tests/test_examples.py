"""Every example is there as Python and as YAML, and both train to the same bits.

They are looked for beside the tests, in the source tree: examples are not installed.
"""

import gzip
import runpy
import struct
import sys
from pathlib import Path

import numpy as np
import pytest

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
