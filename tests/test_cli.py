"""The command line: what each command does, its exit code, and its run folders."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import TINY, ok, only_run
from commands import here as here
from commands import killer as killer
from commands import run as run
from PIL import Image

from renaissance.cli.planning import LiveBytes, Outlook
from renaissance.cli.runfolder import RunFolder, slug
from renaissance.config.experiment import load_experiment
from renaissance.tensorfile import CheckpointError


class TestExitCodes:
    @pytest.mark.parametrize(
        ("arguments", "code", "what"),
        [
            (("train", "nowhere.yaml"), 2, "nowhere.yaml:1:1: cannot be read"),
            (("train", "tiny.yaml", "sed=1"), 2, "command line:1:5: sed: is no setting; did you"),
            (("train", "tiny.yaml", "--resum", "auto"), 2, "Did you mean '--resume'?"),
            (("train", "tiny.yaml", "fit.epochs=null"), 2, "tiny.yaml:1:1: fit.epochs: is missing"),
            (("train", "tiny.yaml", "data=null"), 2, "tiny.yaml:1:1: data: is missing"),
            (("train", "tiny.yaml", "--resume", "nowhere"), 2, "there is nothing at 'nowhere'"),
            (("train", "tiny.yaml", "--import", "no.py"), 2, "there is no file 'no.py'"),
            (("train",), 2, "Missing argument"),
            (("trian", "tiny.yaml"), 2, "No such command"),
            (("evaluate", "nowhere"), 1, "nowhere is no run folder and lies in none"),
            (("train", "tiny.yaml", "device=cuda:99"), 1, "device"),
            (("train", "tiny.yaml", "optimizer={type: sgd, lr: 1e38}", "scheduler=null"), 3,
             "stopped: 50 updates in a row"),
        ],
    )  # fmt: skip
    def test_of_what_goes_wrong(self, run, arguments, code, what):
        more = ("fit.epochs=40",) if code == 3 else ()
        found, _, err = run(*arguments, *more)
        assert found == code and what in err and "Traceback" not in err

    def test_several_problems_are_several_lines(self, run):
        code, out, err = run("config", "check", "tiny.yaml", "sed=1", "fit.epochs=x")
        assert code == 2 and len(err.splitlines()) == 2 and out == ""

    def test_a_traceback_on_demand(self, run):
        code, _, err = run("--traceback", "evaluate", "nowhere")
        assert code == 1 and "Traceback" in err


class TestLooking:
    def test_new_is_a_right_experiment(self, run):
        ok(run("new", "mine"))
        assert load_experiment("mine.yaml").name == "mine"
        assert run("new", "mine")[0] == 2
        ok(run("new", "mine", "--force"))

    def test_check_and_show(self, run):
        assert "tiny.yaml: ok" in ok(run("config", "check", "tiny.yaml"))
        Path("shown.yaml").write_text(ok(run("config", "show", "tiny.yaml", "fit.epochs=9")))
        assert load_experiment("shown.yaml") == load_experiment("tiny.yaml", ["fit.epochs=9"])

    def test_diff(self, run):
        out = ok(run("config", "diff", "tiny.yaml", "fit.epochs=9", "ema=0.9"))
        assert "fit.epochs: 2 -> 9\n" in out and "ema.decay: null -> 0.9\n" in out
        assert ok(run("config", "diff", "tiny.yaml")) == ""
        ok(run("train", "tiny.yaml", "fit.epochs=1"))
        assert (
            ok(run("config", "diff", "tiny.yaml", "--with", only_run())) == "fit.epochs: 1 -> 2\n"
        )

    def test_none_of_them_opens_data(self, run):
        nowhere = "data.train={type: mnist, root: nowhere, batch_size: 8}"
        for command in (("config", "check"), ("config", "show"), ("plan",), ("summary",)):
            ok(run(*command, "tiny.yaml", nowhere))

    def test_plan_is_the_tasks_plan(self, run):
        for more in ([], ["ema=0.9", "precision=bf16-mixed"], ["optimizer={type: lars}"]):
            out = ok(run("plan", "tiny.yaml", *more))
            experiment = load_experiment("tiny.yaml", more)
            task = experiment.task().compile(report="none")
            assert task.plan.to_text() in out
            assert Outlook.of(experiment).plan.hash() == task.plan.hash()
            assert "capture: on CUDA the whole step is one graph" in out
            task.close()

    def test_the_largest_batch_is_the_largest(self, run):
        outlook = Outlook.of(load_experiment("tiny.yaml"))
        reserve = 1 << 30
        memory = reserve + outlook.plan.total_bytes + outlook.peak_bytes(1000)
        assert outlook.largest_batch(memory) >= 1000
        largest = outlook.largest_batch(memory)
        assert outlook.peak_bytes(largest) <= outlook.peak_bytes(1000)
        assert outlook.peak_bytes(largest + 1) > outlook.peak_bytes(1000)
        assert outlook.largest_batch(reserve) == 0
        out = ok(run("plan", "tiny.yaml", "--max-batch", "--memory", "1.001GiB"))
        assert re.match(r"largest batch in 1.0 GiB: \d+ samples", out)
        assert run("plan", "tiny.yaml", "--max-batch", "--memory", "lots")[0] == 1

    def test_the_peak_counts_what_is_alive_at_once(self):
        """Four kilobytes at most, though six are made in all."""
        with LiveBytes() as live:
            a = torch.empty(512, device="meta")  # 2 KiB
            b = a + 1
            del b
            c = a * 2
            view = c[:10]
            assert live.now == 4096
            del a, c, view
        assert live.peak == 4096 and live.now == 0

    def test_schema_and_summary(self, run):
        assert json.loads(ok(run("schema")))["properties"]["seed"]
        assert f"{64 * 8 + 8 + 8 * 3 + 3:,} parameters" in ok(run("summary", "tiny.yaml"))

    def test_compare(self, run):
        ok(run("train", "tiny.yaml"))
        ok(run("train", "tiny.yaml", "seed=4"))
        folders = sorted(Path("runs/tiny").iterdir())
        out = ok(run("compare", *folders))
        assert all(folder.name in out for folder in folders)
        assert Path("compare.png").stat().st_size > 1000
        assert run("compare", "nowhere")[0] == 1
        assert ok(run("compare", "runs/tiny")) == out  # all that are in it
        code, _, err = run("compare", "runs")
        assert code == 1 and err.endswith("There are runs in runs/tiny\n")

    def test_runs_of_several_names_are_told_apart(self, run):
        for name in ("tiny", "other"):
            ok(run("train", "tiny.yaml", "fit.epochs=1", f"name={name}"))
        lines = ok(run("compare", "runs/tiny", "runs/other", "--no-picture")).splitlines()
        assert [line.partition("/")[0] for line in lines[2:]] == ["tiny", "other"]

    def test_data_verify(self, run, here):
        for name in ("a", "b"):
            (here / "pictures" / name).mkdir(parents=True)
            Image.fromarray(np.zeros((4, 4), np.uint8)).save(here / "pictures" / name / "x.png")
        assert "0 damaged" in ok(run("data", "verify", "pictures"))
        (here / "pictures" / "b" / "y.png").write_bytes(b"\x89PNG\r\n\x1a\nbroken")
        code, out, _ = run("data", "verify", "pictures")
        assert code == 1 and "y.png" in out

    def test_every_command_has_help_with_an_example(self, run):
        out = ok(run("--help"))
        names = re.findall(r"^  ([a-z-]+)  ", out.partition("Commands:")[2], re.MULTILINE)
        assert set(names) == {
            "compare", "config", "data", "evaluate", "lr-find", "new", "plan", "predict", "schema",
            "summary", "train", "verify-resume",
        }  # fmt: skip
        lists = [out, ok(run("config", "--help")), ok(run("data", "--help"))]
        assert not any("..." in text.partition("Commands:")[2] for text in lists), "cut short"
        for name in names:
            assert "Usage: renaissance" in ok(run(name, "--help"))

    def test_a_traceback_is_given_wherever_it_is_asked_for(self, run):
        for arguments in (("--traceback", "evaluate", "no"), ("evaluate", "no", "--traceback")):
            code, _, err = run(*arguments)
            assert code == 1 and "Traceback" in err and "no is no run folder" in err
        assert "Traceback" not in run("evaluate", "no")[2]


class TestRunFolder:
    @pytest.mark.parametrize(
        ("name", "folder"),
        [
            ("mlp-mnist", "mlp-mnist"),
            ("a b/c", "a-b-c"),
            ("../..", "run"),
            ("", "run"),
            ("é", "run"),
        ],
    )
    def test_names_become_folders(self, name, folder):
        assert slug(name) == folder

    def test_two_runs_in_one_second_have_two_folders(self, here):
        experiment = load_experiment("tiny.yaml")
        a, b = (RunFolder.fresh(here / "runs", experiment).path for _ in range(2))
        assert a != b and RunFolder.newest(here / "runs", experiment).path == max(a, b)

    def test_any_path_inside_names_the_run(self, here):
        (here / "r" / "checkpoints" / "step-00000001").mkdir(parents=True)
        (here / "r" / "config.yaml").write_text(TINY)
        for path in ("r", "r/checkpoints", "r/checkpoints/step-00000001", "r/config.yaml"):
            assert RunFolder.of(path).path.resolve() == here / "r"
        with pytest.raises(CheckpointError, match="is no run folder and lies in none"):
            RunFolder.of(here)
