"""verify-resume: real processes, a real kill, and a failure that it does find."""

import re
import subprocess
import sys
import time
from pathlib import Path

import fresh
import pytest
import small

from renaissance.checkpoint import write_encoded
from renaissance.cli.main import main
from renaissance.cli.proof import KillAt, Proof, verify_resume
from renaissance.saver import newest_intact

TINY = """\
seed: 3
device: cpu
threads: 1
model: {type: mlp, hidden: [8], num_classes: 3, in_features: 64, dropout: 0.1}
data:
  train: {type: synthetic, num_samples: 60, size: 8, channels: 1, num_classes: 3, batch_size: 16,
          shuffle: true, workers: 0, transforms: [{type: normalize, mean: 0.5, std: 0.3}]}
loss: {type: cross_entropy}
optimizer: {type: adamw, lr: 1e-2}
fit: {epochs: 9}
"""

FORGETFUL = """\
import renaissance as rn

class Forgetful(rn.Callback):
    '''Changes the weights by a count that it does not save.'''

    count = 0

    def on_train_batch_end(self, batch, logs):
        self.count += 1
        self.task.model[1].bias.data.add_(self.count * 1e-3)

rn.register("callback", "forgetful", Forgetful)
"""


def forked(command, **_):
    """In place of `subprocess.run`: a process forked from one that has imported renaissance."""
    assert command[:3] == [sys.executable, "-m", "renaissance"]
    code = fresh.command(command[3:], Path.cwd())
    return subprocess.CompletedProcess(command, code, "", "")


@pytest.mark.timeout(180)
@pytest.mark.parametrize("forgetful", [False, True])
def test_tells_an_exact_resume_from_another(tmp_path, monkeypatch, capsys, forgetful):
    monkeypatch.chdir(tmp_path)
    Path("tiny.yaml").write_text(TINY)
    Path("forgetful.py").write_text(FORGETFUL)
    arguments = ["tiny.yaml", "--steps", "11", "--kill-at", "7"]
    if not forgetful:
        code = main(["verify-resume", *arguments])
    else:  # their start has been seen above
        monkeypatch.setattr("renaissance.cli.proof.subprocess.run", forked)
        proof = verify_resume(
            "tiny.yaml", ["callbacks=[forgetful]"], tmp_path, steps=11, kill_at=7,
            imports=["forgetful.py"],
        )  # fmt: skip
        assert proof.unbroken["state_hash"] != proof.resumed["state_hash"]
        assert "DIFFERENT: state_hash" in proof.to_text() and not proof.holds
        return
    out, err = capsys.readouterr()
    assert code == 0, err
    assert re.search("killed after step 7, resumed from step [36]", out)
    assert "equal: weights" in out


@pytest.mark.parametrize("step", [1, 3])
def test_there_is_a_checkpoint_when_the_process_dies(tmp_path, monkeypatch, step):
    """Also where the first one is still waiting to be written."""
    found = []

    def die(process, what):
        found.append(newest_intact(tmp_path / "checkpoints")[0].state["position"]["attempted"])
        raise KeyboardInterrupt

    def slow(*arguments):
        time.sleep(0.2)
        return write_encoded(*arguments)

    monkeypatch.setattr("renaissance.saver.write_encoded", slow)
    monkeypatch.setattr("renaissance.cli.proof.os.kill", die)
    task = small.make(run_dir=tmp_path)
    task.compile(report="none")
    with pytest.raises(KeyboardInterrupt):
        task.fit(max_steps=6, checkpoint=1, verbose=0, callbacks=[KillAt(step)])
    assert found and 1 <= found[0] <= step


@pytest.mark.parametrize("kill_at", [0, 5, 9])
def test_the_kill_comes_before_the_end(tmp_path, kill_at):
    with pytest.raises(ValueError, match=f"kill-at = {kill_at} is not allowed; it takes 1 to 4"):
        verify_resume("x.yaml", [], tmp_path, steps=5, kill_at=kill_at)


def test_a_difference_in_the_history_is_one():
    a = {"state_hash": "x", "attempted_steps": 3, "history": [{"loss": 1.0}]}
    assert Proof(a, dict(a), 1, 2).holds
    other = a | {"history": [{"loss": 2.0}]}
    assert (
        not Proof(a, other, 1, 2).holds and "DIFFERENT: history" in Proof(a, other, 1, 2).to_text()
    )
