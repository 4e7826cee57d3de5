"""The command line: what each command does, its exit code, and its run folders."""

import json
import os
import re
import signal
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import renaissance as rn
from renaissance.cli.main import main
from renaissance.cli.planning import LiveBytes, Outlook
from renaissance.cli.predict import evaluation_data
from renaissance.cli.runfolder import RunFolder, slug
from renaissance.config.experiment import load_experiment
from renaissance.config.kinds import REGISTRY
from renaissance.report import read_metrics
from renaissance.saver import checkpoint_folders, newest_intact, write_pointer
from renaissance.tensorfile import CheckpointError

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


class TestTrain:
    def test_fills_the_run_folder(self, run):
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


def test_training_data_is_evaluated_unmixed(here):
    experiment = load_experiment("tiny.yaml", ["data.train.mix=[mixup]"])
    mixed = experiment.data.train.build()
    loader = evaluation_data(RunFolder(here), experiment, "train", None)
    assert mixed.mix == (rn.Mixup(),) and loader.mix == ()
    assert loader.identity() == {k: v for k, v in mixed.identity().items() if k != "mix"}


class TestEvaluateAndPredict:
    @pytest.fixture
    def trained(self, run):
        ok(run("train", "tiny.yaml", "ema=0.5"))
        return only_run()

    def test_evaluate_is_the_last_validation(self, run, trained):
        rows = read_metrics(trained / "metrics.csv")
        found = json.loads(ok(run("evaluate", trained, "--json")))
        assert found == {k: rows[-1][f"val_{k}"] for k in ("loss", "accuracy")}
        text = ok(run("evaluate", trained))
        assert re.fullmatch(r"loss +[\d.]+\naccuracy +[\d.]+\n", text)

    def test_raw_and_averaged_weights_differ(self, run, trained):
        averaged = ok(run("evaluate", trained, "--json"))
        assert averaged == ok(run("evaluate", trained, "--json", "--weights", "ema"))
        assert averaged != ok(run("evaluate", trained, "--json", "--weights", "raw"))

    def test_which_checkpoint(self, run, trained):
        steps = [p.name for p in checkpoint_folders(trained / "checkpoints")]
        assert steps == ["step-00000004", "step-00000008"]
        rows = read_metrics(trained / "metrics.csv")
        early = json.loads(ok(run("evaluate", trained, "--checkpoint", "4", "--json")))
        assert early["loss"] == rows[0]["val_loss"]
        place = trained / "checkpoints" / "step-00000004"
        assert json.loads(ok(run("evaluate", place, "--json"))) == early
        write_pointer(trained / "checkpoints" / "best", place)
        assert json.loads(ok(run("evaluate", trained, "--checkpoint", "best", "--json"))) == early
        code, _, err = run("evaluate", trained, "--checkpoint", "5")
        assert code == 2 and "keeps no checkpoint '5'; there are latest, best, 4, 8" in err

    def test_other_data(self, run, trained):
        train = json.loads(ok(run("evaluate", trained, "--data", "train", "--json")))
        assert train != json.loads(ok(run("evaluate", trained, "--json")))

    def test_a_damaged_checkpoint_is_passed_over(self, run, trained):
        (trained / "checkpoints" / "step-00000008" / "state.json").unlink()
        code, _, err = run("evaluate", trained)
        assert code == 0 and "passed over" in err and "state.json" in err

    @pytest.fixture
    def pictures(self, here):
        """The validation data as picture files in class folders."""
        dataset = load_experiment("tiny.yaml").data.valid.build().dataset
        for index in range(len(dataset)):
            picture, label = dataset.read(index)
            folder = here / "pictures" / f"pattern {label}"
            folder.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture[:, :, 0]).save(folder / f"{index:03}.png")
        return here / "pictures"

    def test_a_folder_of_pictures(self, run, trained, pictures):
        found = json.loads(ok(run("evaluate", trained, "--folder", pictures, "--json")))
        assert found["accuracy"] == json.loads(ok(run("evaluate", trained, "--json")))["accuracy"]

    def test_pictures_of_another_size(self, run, trained):
        Image.fromarray(np.zeros((12, 10), np.uint8)).save("wide.png")
        code, _, err = run("predict", trained, "wide.png")
        assert code == 1 and "Traceback" not in err
        assert "of shape (1, 12, 10) come out of the run's transforms, it was trained on (1," in err
        for label in range(3):
            Path(f"wide/pattern {label}").mkdir(parents=True)
            Image.open("wide.png").save(f"wide/pattern {label}/0.png")
        code, _, err = run("evaluate", trained, "--folder", "wide")
        assert code == 1 and "it was trained on (1, 8, 8); pictures of other sizes need a re" in err

    def test_a_report(self, run, trained):
        assert "pattern 0" in ok(run("evaluate", trained, "--report", "report"))
        assert {p.name for p in Path("report").iterdir()} == {
            "classes.txt",
            "confusion.png",
            "classes.png",
        }

    def test_predict_files_and_folders(self, run, trained, pictures):
        files = sorted(pictures.rglob("*.png"))
        out = ok(run("predict", trained, pictures, "--output", "new/scores.npy"))
        rows = [line.split("\t") for line in out.splitlines()]
        assert [row[0] for row in rows] == [str(f) for f in files]
        scores = np.load("new/scores.npy")
        assert scores.shape == (30, 3) and scores.dtype == np.float32
        assert [row[1] for row in rows] == [f"pattern {k}" for k in scores.argmax(1)]
        share = torch.softmax(torch.from_numpy(scores).double(), 1).max(1).values
        assert [float(row[2]) for row in rows] == pytest.approx(share.tolist(), abs=6e-5)
        top = ok(run("predict", trained, files[0], "--top", "2")).splitlines()
        assert len(top) == 2 and top[0] == out.splitlines()[0]

    def test_predict_the_runs_own_data(self, run, trained):
        dataset = load_experiment("tiny.yaml").data.valid.build().dataset
        rows = [
            row.split("\t") for row in ok(run("predict", trained, "--data", "valid")).split("\n")
        ]
        right = [row[1] == f"pattern {dataset.read(int(row[0]))[1]}" for row in rows[:-1]]
        accuracy = json.loads(ok(run("evaluate", trained, "--json")))["accuracy"]
        assert len(right) == 30 and sum(right) / 30 == pytest.approx(accuracy)
        train = ok(run("predict", trained, "--data", "train"))
        assert len(train.splitlines()) == 60 and train.splitlines()[59].startswith("59\t")
        for arguments in ((), ("--data", "valid", "a.png")):
            code, _, err = run("predict", trained, *arguments)
            assert code == 2 and "--data valid" in err

    def test_the_folder_of_a_name_means_its_newest_run(self, run, trained):
        older = trained.rename(trained.with_name("20260101-000000-12345678"))
        ok(run("train", "tiny.yaml", "seed=4"))
        newest = max(Path("runs/tiny").iterdir())
        code, out, err = run("evaluate", "runs/tiny")
        assert code == 0 and err.startswith(f"run       {newest}\n")
        assert out == ok(run("evaluate", newest)) != ok(run("evaluate", older))
        assert run("evaluate", "runs")[0] == 1

    def test_predict_needs_pictures(self, run, trained, here):
        assert run("predict", trained, "nothing.png")[0] == 2
        (here / "empty").mkdir()
        assert run("predict", trained, "empty")[0] == 2
        (here / "bad.png").write_bytes(b"no picture")
        code, _, err = run("predict", trained, "bad.png")
        assert code == 1 and "bad.png" in err


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
