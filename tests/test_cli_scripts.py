"""Runs of scripts, which have no configuration, on the command line."""

import json
import re
import sys
from pathlib import Path

import pytest
from commands import here as here
from commands import ok, only_run
from commands import run as run
from small import compiled, loader

import renaissance as rn
from renaissance.cli.runfolder import RunFolder
from renaissance.report import read_metrics
from renaissance.tensorfile import CheckpointError

pytestmark = pytest.mark.timeout(60)


def valid():
    return loader(32, shuffle=False)


@pytest.fixture
def scripted(here, monkeypatch):
    """Two runs of a script."""
    monkeypatch.setattr(sys, "argv", ["work/try.py", "--lr", "1"])
    tasks = {}
    for name, lr in (("a", 1e-2), ("b", 1e-1)):
        task = compiled(valid=valid(), run_dir=f"runs/mine/{name}", optimizer=rn.AdamW(lr=lr))
        task.fit(epochs=2, verbose=0)
        tasks[name] = task
    return tasks


@pytest.mark.parametrize(
    "arguments",
    [
        ("evaluate", "runs/mine/a"),
        ("evaluate", "runs/mine/a/checkpoints/best"),
        ("predict", "runs/mine/a", "--data", "valid"),
        ("plan", "runs/mine/a"),
        ("train", "runs/mine/a"),
        ("config", "show", "runs/mine/a"),
        ("config", "diff", "tiny.yaml", "--with", "runs/mine/a"),
    ],
)
def test_what_needs_a_configuration_says_what_to_write(run, scripted, arguments):
    code, out, err = run(*arguments)
    assert (code, out) == (1 if arguments[0] in ("evaluate", "predict") else code, "") and code
    path = next(text for text in arguments if text.startswith("runs/"))
    assert f"{path} is of a script's run (try.py), which has no config.yaml" in err.replace(
        ":1:1:", ""
    )
    assert len(err.splitlines()) == 1 and "Traceback" not in err

    (lines,) = re.findall(r"built as there: (.*); task\.predict\(x\)", err)
    task = compiled(valid=valid(), optimizer=rn.AdamW(lr=1e-2))
    compile_, load, evaluate = lines.split("; ")
    assert compile_ == "task.compile()" and load == f"task.load({path!r})"
    before = task.state_hash()
    names = {"task": task, "valid": valid()}
    exec(f"{load}\nfound = {evaluate}", names)
    found = names["found"]
    history = scripted["a"].history.history
    assert task.state_hash() != before
    assert min(history["val_loss"]) <= found["loss"] <= max(history["val_loss"])


def test_a_folder_of_them_names_them(run, scripted):
    code, _, err = run("evaluate", "runs/mine")
    assert code == 1 and "runs/mine is no run folder" in err
    assert "There are runs of scripts in runs/mine/a, runs/mine/b" in err


def test_of_a_notebook_or_a_broken_record_no_script_is_named(run, scripted):
    place = Path("runs/mine/a/run.json")
    facts = json.loads(place.read_text())
    for command in (["/lib/ipykernel_launcher.py"], ["-c"], [], None, {"name": "a.py"}, "a.py"):
        place.write_text(json.dumps(facts | {"command": command}))
        assert "is of a script's run, which has no config.yaml" in run("evaluate", place.parent)[2]


class TestCompare:
    def test_takes_them_alone_and_by_the_folder(self, run, scripted):
        table = ok(run("compare", "runs/mine", "--picture", "curves.png"))
        assert Path("curves.png").stat().st_size > 1000
        assert "picture  curves.png" in table
        names = [line.split()[0] for line in table.splitlines()[2:4]]
        assert names == ["a", "b"]
        for name, task in scripted.items():
            (row,) = (line for line in table.splitlines() if line.split()[0] == name)
            assert f"{max(task.history.history['val_accuracy']):.4f}" in row
        both = ok(run("compare", "runs/mine/b", "runs/mine/a", "--no-picture"))
        assert [line.split()[0] for line in both.splitlines()[2:4]] == ["b", "a"]

    def test_beside_runs_of_files(self, run, scripted):
        ok(run("train", "tiny.yaml"))
        of_file = only_run()
        table = ok(run("compare", of_file, "runs/mine/a", "--no-picture"))
        assert of_file.name in table and "mine/a" in table
        assert len(RunFolder.logged(of_file.parent)) == 1
        loss = read_metrics(of_file / "metrics.csv")[-1]["val_loss"]
        assert f"{loss:.4g}" in table

    def test_runs_of_one_name_each_have_a_line(self, run, scripted):
        Path("first/mine").mkdir(parents=True)
        Path("runs/mine/a").rename("first/mine/a")
        Path("runs/mine/b").rename("runs/mine/a")
        Path("runs/mine/other").mkdir()
        Path("runs/mine/other/config.yaml").touch()
        table = ok(run("compare", "first/mine/a", "runs/mine", "first/mine/a", "--no-picture"))
        names = [line.split()[0] for line in table.splitlines()[2:]]
        assert names == ["first/mine/a", "runs/mine/a", "runs/mine/other"]
        rows = table.splitlines()[2:4]
        for row, task in zip(rows, scripted.values()):
            assert f"{max(task.history.history['val_accuracy']):.4f}" in row
        once = ok(run("compare", "runs/mine/a", "runs/mine/../mine/a", "--no-picture"))
        assert [line.split()[0] for line in once.splitlines()[2:]] == ["a"]

    def test_of_nothing_is_an_error(self, run, here):
        Path("empty").mkdir()
        code, _, err = run("compare", "empty")
        assert code == 1 and "empty is no run folder" in err

    def test_the_nearest_run_counts(self, run, scripted):
        """A project may have a config.yaml of its own above its runs."""
        Path("config.yaml").write_text("a: 1\n")
        assert "is of a script's run (try.py)" in run("evaluate", "runs/mine/a")[2]
        assert len(ok(run("compare", "runs/mine", "--no-picture")).splitlines()) == 4
        with pytest.raises(CheckpointError, match="of a script's run"):
            RunFolder.of("runs/mine/b/checkpoints/latest")


def test_folders_and_scripts_are_no_files_of_settings(run, here):
    ok(run("train", "tiny.yaml"))
    place = only_run()
    cases = {
        str(place): f"is the folder of a run; its file is {place}/config.yaml",
        "runs": "is a folder; it takes a YAML file, such as `renaissance new NAME` writes",
        "try.py": "is a Python script; run it: python try.py",
    }
    for file, text in cases.items():
        for command in (("train", file), ("plan", file), ("config", "check", file)):
            code, _, err = run(*command)
            assert code == 2 and err.strip() == f"{file}:1:1: {text}"
    ok(run("config", "check", f"{place}/config.yaml"))
    assert ok(run("config", "diff", "tiny.yaml", "--with", place)) == ""
    assert ok(run("config", "diff", "tiny.yaml", "--with", place.parent)) == ""  # the newest there


def test_resume_takes_the_checkpoint_of_a_script_as_before(run, here):
    compiled(run_dir="runs/mine/a").fit(epochs=1, verbose=0)
    code, _, err = run("train", "tiny.yaml", "--resume", "runs/mine/a")
    assert code == 1 and "checkpoint" in err and "script" not in err  # it is of another network
