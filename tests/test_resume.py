"""Exact resume: interrupted and resumed equals uninterrupted, bit for bit, wherever it stops."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
import torch
from torch import nn

import renaissance as rn
from renaissance.checkpoint import read_checkpoint, write_checkpoint

rng = np.random.default_rng(0)
X = rng.integers(0, 256, size=(46, 6, 6, 1), dtype=np.uint8)
Y = rng.integers(0, 3, size=46)
EPOCHS, STEPS = 3, 3  # 46 samples in batches of 8 are 6, two of which make a step


class Net(nn.Module):
    """What has state or randomness of its own: batch-norm, dropout, convolutions."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)
        self.drop, self.last = nn.Dropout(0.3), nn.Linear(64, 3)

    def forward(self, x):
        x = torch.relu(self.norm(self.conv(x)))
        return self.last(self.drop(x.flatten(1)))


def make(run_dir=None, *, seed=7, precision="32-true", batch_size=8, scheduler=None, **options):
    transforms = [
        rn.Pad(1),
        rn.RandomCrop(6),
        rn.RandomRotation(20),
        rn.Normalize(mean=[0.5], std=[0.5]),
    ]
    train = rn.Loader.from_arrays(
        X, Y, batch_size=batch_size, shuffle=True, transforms=transforms, workers=1
    )
    valid = rn.Loader.from_arrays(
        X[:20], Y[:20], batch_size=8, transforms=[rn.Normalize(mean=[0.5], std=[0.5])], workers=0
    )
    task = rn.Task(
        Net(), name="t", seed=seed, device="cpu", precision=precision, run_dir=run_dir, threads=1
    )
    task.loss(rn.CrossEntropyLoss(label_smoothing=0.1)).optimizer(rn.AdamW())
    task.scheduler(scheduler or rn.CosineAnnealingLR(base_lr=0.01).warmup(2, unit="step"))
    task.ema(0.9, warmup=True).clip(1.0).accumulate(2).data(train, valid)
    task.callbacks(rn.EarlyStopping(patience=50))
    return task.compile(report="none", **options)


def facts(task):
    return task.state_hash(), task.history.history, task.history.steps, task.generator.get_state()


class Stop(rn.Callback):
    """Stops after a step, and keeps rate, loss and accuracy of every step."""

    def __init__(self, step):
        self.step, self.trace = step, []

    def on_train_batch_end(self, batch, logs):
        self.trace.append((self.task.attempted_steps, batch, dict(logs)))
        if self.task.attempted_steps == self.step:
            self.task.stop_training = True


@pytest.mark.timeout(240)
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_stopped_and_resumed_equals_unbroken(precision, tmp_path):
    unbroken, whole = make(precision=precision), Stop(99)
    unbroken.fit(epochs=EPOCHS, verbose=0, callbacks=[whole])
    for stop in range(1, EPOCHS * STEPS + 1):
        run = tmp_path / str(stop)
        first = make(run, precision=precision)
        before, after = Stop(stop), Stop(99)
        first.fit(epochs=EPOCHS, verbose=0, checkpoint=1, callbacks=[before])
        assert first.attempted_steps == stop
        second = make(run, precision=precision)
        second.fit(epochs=EPOCHS, verbose=0, resume="auto", callbacks=[after])
        assert facts(second) == facts(unbroken), f"stopped after step {stop}"
        assert before.trace + after.trace == whole.trace, f"stopped after step {stop}"


def test_a_checkpoint_before_the_first_step_is_one_too(tmp_path):
    place, unbroken = make().save(tmp_path / "c"), make()
    unbroken.fit(epochs=1, verbose=0)
    resumed = make()
    resumed.fit(epochs=1, verbose=0, resume=place)
    assert facts(resumed) == facts(unbroken)


def test_best_names_the_lowest_validation_loss(tmp_path):
    from renaissance.saver import read_pointer

    def run(folder, epochs, **more):
        task = make(folder, scheduler=rn.ConstantLR(base_lr=0.1))
        task.fit(epochs=epochs, verbose=0, keep=1, horizon="keep", **more)
        return task

    def best(folder):
        return read_pointer(folder / "checkpoints" / "best").name

    whole = run(tmp_path / "whole", 6)
    losses = whole.history.history["val_loss"]
    epoch = int(np.argmin(losses))
    assert whole.best == {"val_loss": min(losses), "epoch": epoch} and epoch < 5
    assert best(tmp_path / "whole") == f"step-{STEPS * (epoch + 1):08d}"
    run(tmp_path / "broken", epoch + 1)
    assert run(tmp_path / "broken", 6, resume="auto").best == whole.best
    assert best(tmp_path / "broken") == best(tmp_path / "whole")


def test_the_end_of_a_fit_is_kept_wherever_it_is(tmp_path):
    unbroken = make()
    unbroken.fit(epochs=3, verbose=0)
    run = tmp_path / "run"
    first = make(run)
    first.fit(epochs=3, max_steps=STEPS + 1, verbose=0)
    assert (run / "checkpoints" / f"step-{STEPS + 1:08}").is_dir()
    second = make(run)
    second.fit(epochs=3, verbose=0, resume="auto", horizon="keep")
    assert second.attempted_steps == unbroken.attempted_steps
    count = len(list((run / "checkpoints").glob("step-*")))
    again = make(run)
    again.fit(
        epochs=3, verbose=0, resume="auto", horizon="keep"
    )  # nothing is left, and nothing written
    assert len(list((run / "checkpoints").glob("step-*"))) == count


def test_a_fit_without_checkpoints_keeps_no_end_either(tmp_path):
    make(tmp_path).fit(epochs=2, max_steps=2, verbose=0, checkpoint=None)
    assert not list(tmp_path.rglob("step-*"))


def test_the_weights_that_early_stopping_puts_back_are_what_one_finds(tmp_path, capsys):
    stopping = rn.EarlyStopping("val_loss", patience=1, min_delta=10.0, restore_best=True)
    first = make(tmp_path)
    first.fit(epochs=9, verbose=2, callbacks=[stopping])
    assert first.epoch == 2
    said = "stopped after epoch 2; val_loss has not improved for 1 epochs; the best was"
    assert said in capsys.readouterr().out
    found = make(tmp_path / "other").load(tmp_path)
    assert found.state_hash() == first.state_hash()


def test_plateau_resumes(tmp_path):
    plateau = rn.ReduceLROnPlateau(base_lr=0.05, patience=1, factor=0.5, threshold=0.5)
    unbroken = make(scheduler=plateau)
    unbroken.fit(epochs=6, verbose=0)
    assert len(set(unbroken.history.history["learning_rate"])) > 2
    for stop in (STEPS * 2, STEPS * 4 + 1):
        run = tmp_path / str(stop)
        make(run, scheduler=plateau).fit(epochs=6, verbose=0, checkpoint=1, callbacks=[Stop(stop)])
        second = make(run, scheduler=plateau)
        second.fit(epochs=6, verbose=0, resume="auto", callbacks=[Stop(99)])
        assert facts(second) == facts(unbroken)


SCRIPT = """
    import sys
    sys.path.insert(0, {tests!r})
    import test_resume
    task = test_resume.make({run!r})
    slowly = test_resume.rn.LambdaCallback(
        on_train_batch_end=lambda batch, logs: test_resume.time.sleep(0.2)
    )
    task.fit(epochs=10, verbose=0, checkpoint=1, resume="auto", callbacks=[slowly])
    print(task.state_hash())
"""


@pytest.fixture(scope="module")
def ten_epochs():
    """The hash of an unbroken run."""
    unbroken = make()
    unbroken.fit(epochs=10, verbose=0)
    return unbroken.state_hash()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("number, code", [(signal.SIGTERM, 1), (signal.SIGINT, -2)])
def test_a_signal_leaves_a_checkpoint_that_continues(number, code, tmp_path, ten_epochs):
    run = str(tmp_path / "run")
    script = textwrap.dedent(SCRIPT.format(tests=os.path.dirname(__file__), run=run))
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.PIPE) as process:
        latest = tmp_path / "run" / "checkpoints" / "latest"
        while not latest.exists():
            assert process.poll() is None, process.stderr.read().decode()
            time.sleep(0.05)
        process.send_signal(number)
        error = process.communicate(timeout=100)[1].decode()
    assert process.returncode in (code, 130), error
    assert ("Interrupted" if number == signal.SIGTERM else "KeyboardInterrupt") in error
    stopped = make(run)
    stopped.load(run)
    assert 0 < stopped.attempted_steps < 10 * STEPS
    stopped.fit(epochs=10, verbose=0)
    assert stopped.state_hash() == ten_epochs


@pytest.fixture(scope="module")
def four_steps(tmp_path_factory):
    """The folder of a run that stopped after step 4."""
    run = tmp_path_factory.mktemp("four_steps") / "run"
    make(run).fit(epochs=EPOCHS, verbose=0, checkpoint=1, callbacks=[Stop(4)])
    return run


@pytest.fixture
def saved(four_steps, tmp_path):
    """A checkpoint in a copy of that folder."""
    shutil.copytree(four_steps, tmp_path / "run")
    return tmp_path / "run" / "checkpoints" / "step-00000004"


def rewritten(folder, change):
    """The same checkpoint with a valid manifest but something taken out of it."""
    checkpoint = read_checkpoint(folder)
    files = {name: file.read_all() for name, file in checkpoint.files.items()}
    state = json.loads((folder / "state.json").read_text())
    change(files, state)
    state.pop("format_version", None)
    return write_checkpoint(folder.parent / "step-00000005", files, state)


@pytest.mark.parametrize(
    "change, named",
    [
        (lambda f, s: s.pop("generator"), "generator"),
        (lambda f, s: s["generator"].pop("offset"), "generator.offset"),
        (lambda f, s: s["counters"].pop("applied"), "counters.applied"),
        (lambda f, s: s["counters"].pop("loss_scale"), "counters.loss_scale"),
        (lambda f, s: s["sums"].pop("epoch"), "sums.epoch"),
        (lambda f, s: s["position"].pop("step"), "position.step"),
        (lambda f, s: s.pop("schedule"), "schedule"),
        (lambda f, s: s.pop("history"), "history"),
        (lambda f, s: f.pop("ema"), "ema.safetensors"),
        (lambda f, s: f.pop("optimizer"), "optimizer.safetensors"),
        (lambda f, s: f["optimizer"].pop("M/last.weight"), "M/last.weight"),
        (lambda f, s: f["model"].pop("norm.running_mean"), "norm.running_mean"),
    ],
)
def test_an_incomplete_checkpoint_is_refused_by_name(saved, change, named):
    place = rewritten(saved, change)
    task = make()
    before = task.state_hash()
    with pytest.raises(rn.CheckpointError, match=named.replace(".", r"\.")):
        task.load(place)
    assert task.state_hash() == before


@pytest.mark.parametrize(
    "other, named",
    [
        ({"seed": 8}, "seed"),
        ({"batch_size": 4}, "data.*batch_size"),
        ({"precision": "bf16-mixed"}, "plan|environment"),
        ({"scheduler": rn.ConstantLR(base_lr=1.0)}, "recipe.*scheduler"),
    ],
)
def test_another_run_is_refused_with_what_differs(saved, other, named):
    task = make(**other)
    with pytest.raises(ValueError, match=named):
        task.load(saved)


@pytest.mark.parametrize(
    "change, named",
    [
        (lambda net: setattr(net.drop, "p", 0.9), r"model.drop: 'Dropout.p=0.3.' then, .*p=0.9"),
        (
            lambda net: setattr(net.norm, "momentum", 0.5),
            "model.norm: .*momentum=0.1.*momentum=0.5",
        ),
    ],
)
def test_a_layer_with_other_settings_is_another_run(saved, change, named):
    task = make()
    change(task.model)
    with pytest.raises(ValueError, match=named):
        task.load(saved)


def test_a_difference_allowed_by_name_is_said(saved, caplog):
    task = make(scheduler=rn.ConstantLR(base_lr=1.0))
    task.load(saved, allow=["recipe"])
    assert task.attempted_steps == 4 and "recipe" in caplog.text
    with pytest.raises(ValueError, match="allow"):
        task.load(saved, allow=["everything"])


def test_weights_load_into_a_plain_module(saved):
    from safetensors.torch import load_file

    module = Net()
    module.load_state_dict(load_file(saved / "model.safetensors"), strict=True)
    task = make().load(saved, weights_only=True)
    assert task.attempted_steps == 0
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, task.state_dict()[name]), name


def test_auto_without_a_checkpoint_is_a_fresh_start_and_said(tmp_path, caplog):
    make(tmp_path / "new").fit(epochs=1, verbose=0, resume="auto")
    assert "fresh start" in caplog.text


def test_where_a_run_ends_and_goes_on_is_said(tmp_path, capsys):
    first = make(tmp_path)
    first.fit(max_steps=2, verbose=2)
    [ended] = capsys.readouterr().out.splitlines()
    assert re.fullmatch(
        r"ended at step 2, in the middle of epoch 1: loss \d\.\d{4}  .*lr \S+", ended
    )
    again = make(tmp_path)
    again.fit(epochs=1, verbose=2, resume="auto", horizon="keep")
    resumed, epoch = capsys.readouterr().out.splitlines()
    assert resumed == "resumed at step 2, in the middle of epoch 1"
    assert epoch.startswith("epoch 1/1  ")
    make(tmp_path).fit(epochs=1, verbose=2, resume="auto", horizon="keep")
    [resumed] = capsys.readouterr().out.splitlines()
    assert resumed == f"resumed at step {again.attempted_steps}, after epoch 1"


def test_a_fresh_start_among_an_earlier_runs_checkpoints_is_said(tmp_path, caplog):
    make(tmp_path / "run").fit(epochs=1, verbose=0)
    task = make(tmp_path / "run", seed=8)
    assert "earlier run" not in caplog.text
    task.fit(epochs=1, verbose=0)
    assert "has checkpoints of an earlier run; this one starts afresh" in caplog.text
    caplog.clear()
    task.fit(epochs=2, verbose=0, horizon="keep")  # goes on: its own
    assert "earlier run" not in caplog.text


def test_auto_with_only_damaged_checkpoints_is_an_error(saved):
    for path in saved.parent.glob("step-*"):
        (path / "state.json").write_text("{}")
    with pytest.raises(rn.CheckpointError, match=r"state\.json"):
        make(saved.parent.parent).fit(epochs=1, verbose=0, resume="auto")


def test_nothing_is_written_without_a_run_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make().fit(epochs=1, verbose=0)
    assert list(tmp_path.iterdir()) == []


def test_dry_run_leaves_no_trace():
    task = make()
    before = facts(task)
    assert task.dry_run(2)["loss"] > 0
    assert facts(task) == before


def test_an_early_stopped_run_stays_stopped_when_resumed(tmp_path):
    stop = {"patience": 1, "min_delta": 10.0}

    def run(**more):
        task = make(tmp_path / "run")
        task.callbacks(rn.EarlyStopping(**stop))
        task.fit(epochs=9, verbose=0, checkpoint=1, **more)
        return task

    first = run()
    assert 0 < first.epoch < 9
    assert facts(run(resume="auto")) == facts(first)


def test_a_run_folder_tells_the_whole_story(tmp_path, curves):
    run = tmp_path / "run"
    make(run).fit(epochs=1, verbose=0)
    make(run).fit(epochs=2, verbose=0, resume="auto", horizon="keep")
    assert len((run / "metrics.csv").read_text().splitlines()) == 3
    assert json.loads((run / "run.json").read_text())["seed"] == "7"
    assert "W" in (run / "plan.txt").read_text() and (run / "curves.png").stat().st_size > 1000
