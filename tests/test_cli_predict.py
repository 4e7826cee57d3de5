"""The evaluate and predict commands on a run that was trained."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import here as here
from commands import killer as killer
from commands import ok, only_run
from commands import run as run
from PIL import Image

import renaissance as rn
from renaissance.cli.predict import evaluation_data
from renaissance.cli.predict import trained as trained_task
from renaissance.cli.runfolder import RunFolder
from renaissance.config.experiment import load_experiment
from renaissance.report import read_metrics
from renaissance.saver import checkpoint_folders, write_pointer


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

    def test_a_task_that_only_looks_says_the_same(self, run, trained):
        experiment = load_experiment(trained / "config.yaml")
        valid = experiment.data.valid.build()
        task = rn.Task(experiment.model.build(), seed=9, device="cpu", threads=1).ema(0.1)
        task.loss(rn.CrossEntropyLoss()).compile(report="none").load(trained)
        for weights in ("raw", "ema"):
            found = json.loads(ok(run("evaluate", trained, "--json", "--weights", weights)))
            assert task.evaluate(valid, weights) == found
        ok(run("predict", trained, "--data", "valid", "--output", "scores.npy"))
        assert np.array_equal(np.load("scores.npy"), task.predict(valid))
        of_command = trained_task(experiment, trained, valid)
        assert not any(of_command.plan.has(region) for region in "GMV")

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
