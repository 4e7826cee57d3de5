"""ModelCheckpoint: the best are kept, named, and spared by the rotation."""

import math

import pytest
from faketask import FakeTask, kept, losses

from renaissance.callbacks import EarlyStopping, LambdaCallback, ModelCheckpoint, Phase
from renaissance.saver import Saver, read_pointer


def test_the_best_is_kept_and_named(tmp_path):
    task = FakeTask(tmp_path)
    task.fit(losses(3.0, 1.0, 2.0, math.nan), [ModelCheckpoint("val_loss")])
    root = tmp_path / "checkpoints"
    assert kept(root) == ["best", "step-00000008"]
    assert read_pointer(root / "best").name == "step-00000008"


def test_the_best_three_are_kept_in_order(tmp_path):
    task = FakeTask()
    checkpoint = ModelCheckpoint("val_accuracy", keep=3, folder=tmp_path)
    task.fit(losses(0.1, 0.5, 0.3, 0.5, 0.2, name="val_accuracy"), [checkpoint])
    assert kept(tmp_path) == ["best", "best-2", "best-3"] + [
        f"step-000000{n}" for n in ("08", 12, 16)
    ]
    named = [read_pointer(tmp_path / name).name[-2:] for name in ("best", "best-2", "best-3")]
    assert named == ["08", "16", "12"], "of equal ones the earlier is the better"


def test_what_fell_out_is_left_to_the_tasks_own_rotation(tmp_path):
    (tmp_path / "latest").write_text("step-00000001\n")
    FakeTask().fit(losses(3.0, 2.0), [ModelCheckpoint(folder=tmp_path)])
    assert kept(tmp_path) == ["best", "latest", "step-00000004", "step-00000008"]


@pytest.mark.timeout(60)
def test_the_tasks_rotation_spares_the_best_ones(tmp_path):
    task = FakeTask(tmp_path)
    with Saver(tmp_path / "checkpoints", keep=1) as saver:

        def save(epoch, logs):
            saver.save(task.attempted_steps, {}, {})
            saver.wait()

        periodic = LambdaCallback(phase=Phase.CHECKPOINTS, on_epoch_end=save)
        values = losses(3.0, 1.0, 2.0, 4.0, 5.0)
        task.fit(values, [ModelCheckpoint(keep=2), periodic])
    steps = [name for name in kept(tmp_path / "checkpoints") if name.startswith("step")]
    assert steps == ["step-00000008", "step-00000012", "step-00000020"]


def test_a_checkpoint_contains_the_decisions_and_the_record_of_its_epoch(tmp_path):
    order = [ModelCheckpoint(), EarlyStopping(patience=5)]
    for callbacks in (order, order[::-1]):
        task = FakeTask(tmp_path)
        task.fit(losses(1.0), callbacks)
        resumed = FakeTask(tmp_path)
        stop, checkpoint = EarlyStopping(patience=5), ModelCheckpoint()
        resumed.fit(losses(1.0), [stop, checkpoint], resume=tmp_path / "checkpoints/step-00000004")
        assert stop.best == 1.0 and checkpoint.saved == [(1.0, "step-00000004")]
        assert len(resumed.history) == 1


def test_a_resumed_checkpoint_knows_the_best(tmp_path):
    task = FakeTask(tmp_path)
    task.fit(losses(1.0), [ModelCheckpoint()])
    task.save(tmp_path / "state")
    resumed = FakeTask(tmp_path)
    resumed.fit(losses(1.0, 2.0), [ModelCheckpoint()], resume=tmp_path / "state")
    assert kept(tmp_path / "checkpoints") == ["best", "step-00000004"]


def test_a_checkpoint_needs_a_place():
    with pytest.raises(RuntimeError, match=r"give Task\(run_dir=...\) or ModelCheckpoint\(folder"):
        FakeTask().fit(losses(1.0), [ModelCheckpoint()])
    with pytest.raises(ValueError, match="keep = 0 is not allowed"):
        ModelCheckpoint(keep=0)
