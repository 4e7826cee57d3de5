"""run.json: what is in it, that it is JSON, and that a resumed run adds and removes nothing."""

import importlib.metadata
import json
import shutil
import subprocess
import sys

import pytest
import torch

from renaissance.facts import git_commit, run_facts, write_facts


def test_facts_of_a_run():
    facts = json.loads(json.dumps(run_facts(seed=2**64 - 1, name="mlp", plan="ab12")))
    assert facts["seed"] == "18446744073709551615" and facts["device"] == "cpu"
    assert facts["command"] == sys.argv
    assert facts["versions"]["torch"] == importlib.metadata.version("torch")
    assert "renaissance" in facts["versions"]
    assert facts["hardware"]["cores"] >= 1 and facts["hardware"]["memory_bytes"] > 1 << 28
    assert (facts["name"], facts["plan"]) == ("mlp", "ab12")
    assert facts["started"].endswith("+00:00")


def test_a_cpu_task_does_not_wake_the_gpu():
    before = torch.cuda.is_initialized()
    assert "gpu" not in run_facts(seed=1)["hardware"]
    assert torch.cuda.is_initialized() == before


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git on this machine")
def test_the_commit_of_a_folder(tmp_path):
    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run(["git", "-C", tmp_path, *identity, *arguments], check=True)

    assert git_commit(tmp_path) is None and git_commit(tmp_path / "nowhere") is None
    git("init", "-q")
    (tmp_path / "code.py").write_text("x = 1\n")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    assert git_commit(tmp_path) == {"hash": git_commit(tmp_path)["hash"], "changed": False}
    assert len(git_commit(tmp_path)["hash"]) == 40
    (tmp_path / "code.py").write_text("x = 2\n")
    assert git_commit(tmp_path)["changed"] is True


def test_a_resumed_run_adds_what_differs(tmp_path):
    path = tmp_path / "run" / "run.json"
    write_facts(path, {"seed": "1", "started": "a", "versions": {"torch": "1"}})
    write_facts(path, {"seed": "1", "started": "b", "versions": {"torch": "1"}})
    write_facts(path, {"seed": "1", "started": "c", "versions": {"torch": "2"}})
    assert json.loads(path.read_text()) == {
        "seed": "1",
        "started": "a",
        "versions": {"torch": "1"},
        "resumed": [{"started": "b"}, {"started": "c", "versions": {"torch": "2"}}],
    }
    assert [p.name for p in path.parent.iterdir()] == ["run.json"]


@pytest.mark.parametrize("text", ["", "[]", '{"seed": ', "\0\0"])
def test_damaged_facts_are_said_and_written_anew(tmp_path, caplog, text):
    path = tmp_path / "run.json"
    path.write_text(text)
    write_facts(path, {"seed": "1"})
    assert json.loads(path.read_text()) == {"seed": "1"}
    assert "run.json is damaged" in caplog.text and "written anew" in caplog.text
