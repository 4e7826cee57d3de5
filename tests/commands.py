"""The command line in this process, in a folder with a small experiment."""

import os
import re
from pathlib import Path

import pytest

import renaissance as rn
from renaissance.cli.main import main
from renaissance.config.kinds import REGISTRY

TINY = """\
name: tiny
seed: 3
device: cpu
threads: 1
model: {type: mlp, hidden: [8], num_classes: 3, in_features: 64}
data:
  train: &data
    {type: synthetic, num_samples: 60, size: 8, channels: 1, num_classes: 3, noise: 8, workers: 0,
     batch_size: 16, shuffle: true, transforms: [{type: normalize, mean: 0.5, std: 0.3}]}
  valid: {<<: *data, num_samples: 30, split: test, batch_size: 30, shuffle: false}
loss: {type: cross_entropy}
optimizer: {type: adamw}
scheduler: {type: cosine, base_lr: 3e-2}
fit: {epochs: 2, verbose: 0, log_every: 1}
compile: {report: none}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(TINY)
    return tmp_path


@pytest.fixture
def run(here, capsys):
    """Run a command line; gives (exit code, standard output, standard error)."""

    def run(*arguments):
        code = main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def ok(answer):
    code, out, err = answer
    assert code == 0, err
    return out


def only_run():
    [folder] = Path("runs/tiny").iterdir()
    return folder


def hash_in(out):
    return re.search(r"^state +([0-9a-f]{64})$", out, re.MULTILINE)[1]


@pytest.fixture
def killer():
    """A callback that sends this process a signal at a step, named in configurations."""

    class SendSignal(rn.Callback):
        def __init__(self, step: int, number: int):
            self.step, self.number = step, number

        def on_train_batch_end(self, batch, logs):
            if self.task.attempted_steps == self.step:
                os.kill(os.getpid(), self.number)

    REGISTRY._factories["callback"].pop("send_signal", None)
    rn.register("callback", "send_signal", SendSignal)
    yield
    del REGISTRY._factories["callback"]["send_signal"]
