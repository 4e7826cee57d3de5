"""The train command: its run folder, and how it goes on after a break."""

import json
import re
import shutil
import signal
from pathlib import Path

from commands import hash_in, ok, only_run
from commands import here as here
from commands import killer as killer
from commands import run as run

import renaissance as rn
from renaissance.config.experiment import load_experiment
from renaissance.config.kinds import REGISTRY
from renaissance.report import read_metrics
from renaissance.saver import newest_intact


class TestTrain:
    def test_fills_the_run_folder(self, run, curves):
        out = ok(run("train", "tiny.yaml"))
        folder = only_run()
        assert re.fullmatch(rf"\d{{8}}-\d{{6}}-{load_experiment('tiny.yaml').hash()}", folder.name)
        assert f"run       {Path('runs/tiny') / folder.name}" in out
        names = {p.name for p in folder.iterdir()}
        assert names >= {"config.yaml", "run.json", "plan.txt", "metrics.csv", "steps.jsonl"}
        assert load_experiment(folder / "config.yaml") == load_experiment("tiny.yaml")
        rows = read_metrics(folder / "metrics.csv")
        assert [row["epoch"] for row in rows] == [0, 1] and "val_accuracy" in rows[0]
        facts = json.loads((folder / "run.json").read_text())
        assert facts["seed"] == "3" and facts["result"]["state_hash"] == hash_in(out)
        assert facts["result"]["last"]["val_loss"] == rows[-1]["val_loss"]
        assert len((folder / "steps.jsonl").read_text().splitlines()) == 8

    def test_a_start_that_fails_leaves_no_folder(self, run):
        ok(run("train", "tiny.yaml"))
        folder = only_run()
        assert run("train", "tiny.yaml", "model.in_features=63")[0] != 0
        assert only_run() == folder  # what shells expand runs/tiny/* to
        assert run("train", "tiny.yaml", "model.in_features=63", "name=other")[0] != 0
        assert [p.name for p in Path("runs").iterdir()] == ["tiny"]

    def test_is_what_python_gives(self, run):
        out = ok(run("train", "tiny.yaml"))
        task = load_experiment("tiny.yaml").task()
        task.compile(report="none").fit(epochs=2, verbose=0)
        assert task.state_hash() == hash_in(out)

    def test_overrides_in_both_spellings(self, run):
        ok(run("train", "tiny.yaml", "fit.epochs=1", "--optimizer.eps=1e-7", "--root", "elsewhere"))
        [folder] = Path("elsewhere/tiny").iterdir()
        found = load_experiment(folder / "config.yaml")
        assert found.fit.epochs == 1 and found.optimizer == rn.AdamW(eps=1e-7)

    def test_a_drawn_seed_is_written_down(self, run):
        ok(run("train", "tiny.yaml", "seed=null", "fit.epochs=1"))
        assert load_experiment(only_run() / "config.yaml").seed is not None

    def test_own_things_through_import(self, run):
        Path("my.py").write_text(
            "import renaissance as rn\nfrom renaissance.models import mlp\n"
            "def net(width: int): return mlp([width], num_classes=3, in_features=64)\n"
            "rn.register('model', 'my_cli_net', net)\n"
        )
        arguments = ("train", "tiny.yaml", "model={type: my_cli_net, width: 4}", "fit.epochs=1")
        assert run(*arguments)[0] == 2
        ok(run(*arguments, "--import", "my.py"))
        del REGISTRY._factories["model"]["my_cli_net"]  # as in a process of its own
        ok(run("evaluate", only_run(), "--import", "my.py"))
        del REGISTRY._factories["model"]["my_cli_net"]
        code, _, err = run("evaluate", only_run())
        assert (
            code == 2
            and "'my_cli_net' is no model" in err
            and err.endswith("; a file of yours adds its own with --import my.py\n")
        )


class TestResume:
    def test_interrupted_and_resumed_is_unbroken(self, run, killer):
        whole = hash_in(ok(run("train", "tiny.yaml", "--root", "whole")))
        arguments = ("train", "tiny.yaml", "--run-dir", "broken")
        signal_at_5 = "callbacks=[{type: send_signal, step: 5, number: %d}]"
        code, _, err = run(*arguments, signal_at_5 % signal.SIGINT)
        assert code == 130 and "stopped after step 5" in err
        assert newest_intact("broken/checkpoints")[0].path.name == "step-00000005"
        out = ok(run(*arguments, "--resume", "auto"))
        assert hash_in(out) == whole
        assert "changed   callbacks" in out and Path("broken/config.1.yaml").exists()
        [whole_folder] = Path("whole/tiny").iterdir()
        metrics = Path("broken", "metrics.csv").read_bytes()
        assert metrics == (whole_folder / "metrics.csv").read_bytes()

    def test_sigterm_has_its_code(self, run, killer):
        stop = f"callbacks=[{{type: send_signal, step: 2, number: {int(signal.SIGTERM)}}}]"
        code, _, err = run("train", "tiny.yaml", stop)
        assert code == 143 and "stopped after step 2" in err
        assert newest_intact(only_run() / "checkpoints")[0] is not None

    def test_auto_takes_the_newest_of_name_and_configuration(self, run):
        out = ok(run("train", "tiny.yaml", "--resume", "auto"))
        assert "a fresh start" in out
        first = only_run()
        ok(run("train", "tiny.yaml", "--resume", "auto"))
        assert only_run() == first  # nothing was left to do, in the same folder
        shutil.rmtree(first / "checkpoints")  # as if killed before the first
        out = ok(run("train", "tiny.yaml", "--resume", "auto"))
        assert f"no checkpoint in {first} yet; a fresh start" in out and only_run() == first
        ok(run("train", "tiny.yaml", "--resume", "auto", "seed=4"))
        assert len(list(Path("runs/tiny").iterdir())) == 2

    def test_a_path_to_a_run_a_checkpoint_or_a_pointer(self, run):
        ok(run("train", "tiny.yaml"))
        folder = only_run()
        longer = ("fit.epochs=3", "fit.horizon=stretch")
        first = hash_in(
            ok(run("train", "tiny.yaml", *longer, "--resume", folder, "--run-dir", "a"))
        )
        latest = folder / "checkpoints" / "latest"
        second = ok(run("train", "tiny.yaml", *longer, "--resume", latest, "--run-dir", "b"))
        assert hash_in(second) == first
        of_the_name = ok(
            run("train", "tiny.yaml", *longer, "--resume", "runs/tiny", "--run-dir", "c")
        )
        assert hash_in(of_the_name) == first
        third = ok(run("train", "tiny.yaml", *longer, "--resume", folder))
        assert hash_in(third) == first and f"run       {folder}" in third

    def test_a_longer_run_must_say_what_the_schedule_does(self, run):
        ok(run("train", "tiny.yaml"))
        code, _, err = run("train", "tiny.yaml", "fit.epochs=3", "--resume", only_run())
        assert code == 1 and "horizon='keep'" in err

    def test_another_recipe_must_be_allowed(self, run):
        ok(run("train", "tiny.yaml"))
        arguments = ("train", "tiny.yaml", "optimizer.eps=1e-7", "--resume", only_run())
        before = {path.name: path.read_bytes() for path in only_run().glob("*.*")}
        code, _, err = run(*arguments)
        assert code == 1 and "another recipe" in err and "(--allow recipe on the comm" in err
        after = {path.name: path.read_bytes() for path in only_run().glob("*.*")}
        assert after == before  # refused, it has described the run as another one
        assert "resumed" not in json.loads(before["run.json"])
        ok(run(*arguments, "--allow", "recipe"))
        assert (only_run() / "config.1.yaml").read_bytes() == before["config.yaml"]
        code, _, _ = run(*arguments, "optimizer.eps=1e-6", "--run-dir", "other")
        assert code == 1 and not Path("other").exists()

    def test_a_folder_with_checkpoints_is_not_overwritten(self, run):
        ok(run("train", "tiny.yaml", "--run-dir", "a"))
        code, _, err = run("train", "tiny.yaml", "--run-dir", "a")
        assert code == 2 and "holds checkpoints of an earlier run" in err

    def test_several_processes_need_one_folder(self, run, monkeypatch):
        monkeypatch.setenv("WORLD_SIZE", "2")
        code, _, err = run("train", "tiny.yaml")
        assert code == 2 and "--run-dir" in err
