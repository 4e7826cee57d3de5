"""The README's four commands, from training to predictions, run as printed."""

import os
import re
import shlex
import signal
from pathlib import Path

import pytest

import renaissance as rn
from renaissance.cli.main import main
from renaissance.config.kinds import REGISTRY
from renaissance.datasets import Digits

ROOT = Path(__file__).parent.parent
SHORT = "fit.epochs=2"
STOP_AT = 30  # steps, of which an epoch has 23


def commands():
    """The arguments of each command of the README's block that begins with `renaissance train`."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    [block] = re.findall(r"```\n(renaissance train .*?)```", text, re.DOTALL)
    lines = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert all(line[0] == "renaissance" for line in lines)
    return [line[1:] for line in lines]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with the examples in it, as the README's reader has one."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def ctrl_c():
    """A callback that presses Ctrl-C, as an override."""

    class PressCtrlC(rn.Callback):
        def on_train_batch_end(self, batch, logs):
            if self.task.attempted_steps == STOP_AT:
                os.kill(os.getpid(), signal.SIGINT)

    rn.register("callback", "press_ctrl_c", PressCtrlC)
    yield "callbacks=[press_ctrl_c]"
    del REGISTRY._factories["callback"]["press_ctrl_c"]


def state(out):
    return re.search(r"^state +([0-9a-f]{64})$", out, re.MULTILINE)[1]


def test_train_resume_evaluate_predict(here, ctrl_c, capsys, curves):
    def ran(arguments, *more, code=0):
        assert main([*arguments, *more]) == code
        return capsys.readouterr().out

    train, resume, evaluate, predict = commands()
    assert [c[0] for c in (train, resume, evaluate, predict)] == [
        "train", "train", "evaluate", "predict",
    ]  # fmt: skip
    unbroken = ran(train, SHORT, "--root", "unbroken")
    ran(train, SHORT, ctrl_c, code=130)
    resumed = ran(resume, SHORT, ctrl_c)
    assert state(resumed) == state(unbroken)
    [folder] = Path("runs/quickstart").iterdir()
    assert f"run       {folder}" in resumed and f"curves    {folder / 'curves.png'}" in resumed
    assert (folder / "curves.png").stat().st_size > 1000
    share = float(re.search(r"val_accuracy ([\d.]+)", resumed.split("\ndone ")[1])[1])
    accuracy = float(re.search(r"^accuracy +([\d.]+)$", ran(evaluate), re.MULTILINE)[1])
    assert accuracy == pytest.approx(share, abs=1e-4) and accuracy > 0.5
    rows = [line.split("\t") for line in ran(predict).splitlines()]
    truth = Digits("test").as_arrays()[1]
    assert [row[0] for row in rows] == [str(k) for k in range(len(truth))]
    right = sum(int(row[1]) == label for row, label in zip(rows, truth))
    assert right / len(truth) == pytest.approx(accuracy, abs=1e-6)
