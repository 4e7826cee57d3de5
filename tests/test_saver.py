"""The saver: one write at a time, errors carried over, rotation, and death at any moment."""

import json
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import renaissance as rn
from renaissance.checkpoint import read_checkpoint, write_checkpoint, write_encoded
from renaissance.saver import (
    Saver,
    checkpoint_folders,
    newest_intact,
    open_checkpoint,
    read_pointer,
    step_name,
)
from renaissance.snapshot import HostCopy
from renaissance.tensorfile import CheckpointError

pytestmark = pytest.mark.timeout(60)


def files(step):
    return {"model": {"w": torch.full((4,), float(step))}}


def steps_in(root):
    return [int(path.name[-8:]) for path in checkpoint_folders(root)]


class TestWriting:
    def test_is_what_write_checkpoint_writes(self, tmp_path):
        with Saver(tmp_path / "run") as saver:
            place = saver.save(7, files(7), {"step": 7})
        other = write_checkpoint(tmp_path / "other" / "x", files(7), {"step": 7})
        assert place == tmp_path / "run" / "step-00000007"
        for path in other.iterdir():
            assert path.read_bytes() == (place / path.name).read_bytes()

    def test_training_goes_on_while_it_writes(self, tmp_path):
        ready = threading.Event()

        def wait_for_copy():
            assert ready.wait(30)
            return files(1)

        with Saver(tmp_path) as saver:
            saver.save(1, wait_for_copy, {})
            assert saver.is_writing and steps_in(tmp_path) == []
            ready.set()
            saver.wait()
            assert not saver.is_writing and steps_in(tmp_path) == [1]

    def test_writes_never_overlap(self, tmp_path):
        running, most = [], []

        def watch():
            running.append(1)
            most.append(len(running))
            threading.Event().wait(0.01)
            running.pop()
            return files(1)

        with Saver(tmp_path, keep=None) as saver:
            for step in range(5):
                saver.save(step, watch, {})
        assert most == [1] * 5 and steps_in(tmp_path) == [0, 1, 2, 3, 4]

    def test_a_save_may_wait_in_line(self, tmp_path):
        ready = threading.Event()
        with Saver(tmp_path, ahead=1) as saver:
            saver.save(1, lambda: ready.wait(30) and files(1), {})
            saver.make_room()
            saver.save(2, files(2), {})
            assert saver.is_writing and steps_in(tmp_path) == []
            waiting = threading.Thread(target=saver.make_room)
            waiting.start()
            waiting.join(0.05)
            assert waiting.is_alive()
            ready.set()
            waiting.join(30)
            assert not waiting.is_alive() and 1 in steps_in(tmp_path)
        assert steps_in(tmp_path) == [1, 2]

    def test_an_error_is_raised_by_the_first_call_that_can_know_it(self, tmp_path):
        def broken():
            raise CheckpointError("the copy broke off")

        with Saver(tmp_path, ahead=3) as saver:
            saver.save(1, broken, {})
            while saver.is_writing:
                threading.Event().wait(0.01)
            with pytest.raises(CheckpointError, match="broke off"):
                saver.save(2, files(2), {})
            saver.save(3, files(3), {})
        assert steps_in(tmp_path) == [3]

    def test_an_earlier_error_is_raised_when_the_own_write_has_ended(self, tmp_path):
        def broken():
            raise CheckpointError("the copy broke off")

        with Saver(tmp_path, ahead=1) as saver:
            ready = threading.Event()
            saver.save(1, lambda: ready.wait(30) and broken(), {})
            ready.set()
            with pytest.raises(CheckpointError, match="broke off"):
                saver.save(2, files(2), {}, wait=True)
            assert not saver.is_writing
        assert steps_in(tmp_path) in ([2], [])  # [] when the error was known before

    def test_the_state_is_taken_at_the_call(self, tmp_path):
        ready, state = threading.Event(), {"history": [1]}
        with Saver(tmp_path) as saver:
            saver.save(1, lambda: ready.wait(30) and files(1), state)
            state["history"].append(2)
            ready.set()
        assert newest_intact(tmp_path)[0].state == {"history": [1]}

    def test_wait_commits_before_returning(self, tmp_path):
        with Saver(tmp_path) as saver:
            assert read_checkpoint(saver.save(1, files(1), {}, wait=True)).state == {}

    @pytest.mark.parametrize("keep", [0, -1, True, 1.5, "3"])
    def test_keep_is_checked(self, tmp_path, keep):
        with pytest.raises(ValueError, match="keep = .* is not allowed; it takes 1 or more"):
            Saver(tmp_path, keep=keep)


def linear_task(place):
    """A compiled task of four steps, and its loader's data set."""
    x = np.random.default_rng(0).normal(size=(32, 4)).astype(np.float32)
    train = rn.Loader.from_arrays(x, np.arange(32) % 2, num_classes=2, batch_size=8)
    task = rn.Task(nn.Linear(4, 2), seed=1, run_dir=place)
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=0.1)).data(train)
    return task.compile(report="none"), train.dataset


def test_data_are_digested_before_the_first_step(tmp_path, monkeypatch):
    """Not in the first step that saves, which would wait for it."""
    task, data = linear_task(tmp_path)
    seen, identity = [], data.identity

    class Watch(rn.Callback):
        def on_train_batch_end(self, batch, logs):
            seen.append("step")

    monkeypatch.setattr(data, "identity", lambda: seen.append("digest") or identity())
    task.fit(max_steps=4, checkpoint=2, verbose=0, callbacks=[Watch()])
    assert seen == ["digest", *["step"] * 4]


def test_a_disk_that_is_slow_once_holds_nobody_up(tmp_path, monkeypatch):
    """The first write ends only after the second copy was taken; each has its own step's bits."""
    second, kept = threading.Event(), {}

    def slow(place, files, state):
        assert place.name != step_name(1) or second.wait(30)
        write_encoded(place, files, state)

    class Watch(rn.Callback):
        def on_train_batch_end(self, batch, logs):
            step = self.task.attempted_steps
            kept[step] = self.task.state_dict()["weight"].clone()
            if step == 3:
                second.set()

    monkeypatch.setattr("renaissance.saver.write_encoded", slow)
    task, _ = linear_task(tmp_path)
    task.fit(max_steps=4, checkpoint=1, keep=9, verbose=0, callbacks=[Watch()])
    for step in (1, 2, 3, 4):
        place = tmp_path / "checkpoints" / step_name(step)
        assert torch.equal(read_checkpoint(place).file("model").read_all()["weight"], kept[step])


def test_a_state_that_cannot_be_told_leaves_the_copies_in_their_order(tmp_path, monkeypatch):
    """Else the next save would write into a copy that is still being read."""
    second, kept, written = threading.Event(), {}, []

    def slow(place, files, state):
        assert second.wait(30)
        written.append(files["model"]["weight"].clone())
        write_encoded(place, files, state)

    class Watch(rn.Callback):
        def on_train_batch_end(self, batch, logs):
            kept[self.task.attempted_steps] = self.task.state_dict()["weight"].clone()

        def on_train_end(self, logs):
            saves = self.task.running_checkpoints
            with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="just now"):
                patch.setattr(saves._callbacks, "state_dict", self.refuse)
                saves.save()
            with torch.no_grad():
                self.task.model.weight.fill_(9)
            saves.save()
            second.set()

        def refuse(self):
            raise RuntimeError("not just now")

    monkeypatch.setattr("renaissance.saver.write_encoded", slow)
    task, _ = linear_task(tmp_path)
    task.fit(max_steps=1, checkpoint=1, keep=9, verbose=0, callbacks=[Watch()])
    assert torch.equal(written[0], kept[1])
    assert written[1].eq(9).all() and not kept[1].eq(9).any()


def test_a_save_of_ones_own_waits_for_those_of_fit(tmp_path, monkeypatch):
    """Both may mean the same folder."""
    busy = []

    class Watch(rn.Callback):
        def on_train_batch_end(self, batch, logs):
            task = self.task
            task.save(tmp_path / "checkpoints" / step_name(task.attempted_steps - 1))
            busy.append(task.running_checkpoints._saver.is_writing)

    def slow(place, files, state):
        threading.Event().wait(0.05)
        write_encoded(place, files, state)

    monkeypatch.setattr("renaissance.saver.write_encoded", slow)
    task, _ = linear_task(tmp_path)
    task.fit(max_steps=4, checkpoint=1, keep=9, verbose=0, callbacks=[Watch()])
    assert busy == [False] * 4 and task.running_checkpoints is None


def test_one_host_copy_serves_every_checkpoint(tmp_path):
    """Its memory stays, its content is that of the call, and strides and ties do not matter."""
    weight = torch.arange(24.0).reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last)
    files = {"model": {"a": weight, "tied": weight}, "optimizer": {"M/a": torch.zeros(3)}}
    memory = HostCopy(files)
    first = memory.take(files)()
    addresses = [t.data_ptr() for part in first.values() for t in part.values()]
    kept = {name: t.clone() for name, t in first["model"].items()}
    weight.mul_(2)
    assert all(torch.equal(first["model"][name], t) for name, t in kept.items())
    second = memory.take(files)()
    assert torch.equal(second["model"]["tied"], 2 * kept["a"])
    assert second["model"]["a"].is_contiguous()
    assert addresses == [t.data_ptr() for part in second.values() for t in part.values()]
    assert len(set(addresses)) == 3


class TestErrors:
    @pytest.mark.parametrize("call", ["save", "wait", "close"])
    def test_surface_at_the_next_call_once(self, tmp_path, call):
        saver = Saver(tmp_path)
        saver.save(1, files(1), {}, wait=True)
        saver.save(2, {"model": {"w": torch.zeros(1, dtype=torch.complex64)}}, {})
        with pytest.raises(TypeError, match="cannot be stored"):
            getattr(saver, call)(*((3, files(3), {}) if call == "save" else ()))
        if call != "close":
            saver.save(4, files(4), {})
        saver.close()
        assert steps_in(tmp_path) == ([1] if call == "close" else [1, 4])

    def test_a_full_disk_leaves_the_previous_one(self, tmp_path):
        """A real limit on the size of files, in a process of its own."""
        Saver(tmp_path).save(1, files(1), {}, wait=True)
        program = (
            "import sys, torch; from renaissance.saver import Saver\n"
            "saver = Saver(sys.argv[1])\n"
            "saver.save(2, {'model': {'w': torch.zeros(1 << 20)}}, {})\n"
            "try: saver.close()\n"
            "except RuntimeError as error: print(type(error).__name__, error)\n"
        )

        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            capture_output=True, text=True, check=True, preexec_fn=limit, cwd=tmp_path,
        )  # fmt: skip
        assert done.stdout.startswith(f"CheckpointError checkpoint {tmp_path / step_name(2)}: ")
        assert "could not be written" in done.stdout and "earlier ones are untouched" in done.stdout
        assert sorted(os.listdir(tmp_path)) == ["latest", step_name(1)]
        assert newest_intact(tmp_path)[0].path.name == step_name(1)


class TestRotation:
    def test_keeps_the_last_and_the_best(self, tmp_path):
        with Saver(tmp_path, keep=2) as saver:
            for step in range(1, 7):
                saver.save(step, files(step), {}, best=step == 2)
        assert steps_in(tmp_path) == [2, 5, 6]
        assert read_pointer(tmp_path / "latest").name == step_name(6)
        assert read_pointer(tmp_path / "best").name == step_name(2)
        assert sorted(os.listdir(tmp_path)) == ["best", "latest", *map(step_name, (2, 5, 6))]

    def test_a_new_best_frees_the_old_one(self, tmp_path):
        with Saver(tmp_path, keep=1) as saver:
            for step in range(1, 5):
                saver.save(step, files(step), {}, best=step in (1, 3))
        assert steps_in(tmp_path) == [3, 4]

    def test_an_earlier_one_becomes_best(self, tmp_path):
        with Saver(tmp_path, keep=2) as saver:
            saver.save(1, files(1), {})
            saver.save(2, files(2), {})
            saver.mark_best(1)
            saver.save(3, files(3), {})
            saver.save(4, files(4), {})
            with pytest.raises(CheckpointError, match="MANIFEST.json: is missing"):
                saver.mark_best(2)
        assert steps_in(tmp_path) == [1, 3, 4]

    def test_the_newer_branch_counts(self, tmp_path):
        """After a resume from step 2, checkpoints of the abandoned branch are the older ones."""
        with Saver(tmp_path, keep=2) as saver:
            for step in (2, 9, 3):
                saver.save(step, files(step), {})
            saver.wait()
            assert newest_intact(tmp_path)[0].path.name == step_name(3)
            saver.save(4, files(4), {})
        assert steps_in(tmp_path) == [3, 4]

    def test_damaged_and_foreign_folders_are_left_alone(self, tmp_path):
        (tmp_path / "step-00000001").mkdir()
        (tmp_path / "notes").mkdir()
        with Saver(tmp_path, keep=1) as saver:
            for step in (2, 3, 4):
                saver.save(step, files(step), {})
        assert sorted(os.listdir(tmp_path)) == ["latest", "notes", step_name(1), step_name(4)]

    def test_leftovers_of_dead_processes_go(self, tmp_path):
        child = subprocess.Popen([sys.executable, "-c", ""])
        child.wait()
        host = os.uname().nodename
        for name in (
            f".step-00000001.new-{host}-{child.pid}-0",
            f".latest.new-{host}-{os.getpid()}-0",
        ):
            (tmp_path / name).mkdir()
        (tmp_path / f".step-00000001.new-elsewhere-{child.pid}-0").mkdir()
        Saver(tmp_path)
        assert sorted(os.listdir(tmp_path)) == [
            f".latest.new-{host}-{os.getpid()}-0",
            f".step-00000001.new-elsewhere-{child.pid}-0",
        ]


class TestOpen:
    @pytest.fixture
    def run(self, tmp_path):
        with Saver(tmp_path / "run" / "checkpoints") as saver:
            saver.save(1, files(1), {}, best=True)
            saver.save(2, files(2), {})
        return tmp_path / "run"

    @pytest.mark.parametrize(
        ("path", "step"),
        [
            ("", 2),
            ("checkpoints", 2),
            ("checkpoints/latest", 2),
            ("checkpoints/best", 1),
            ("checkpoints/step-00000001", 1),
        ],
    )
    def test_every_way_to_name_one(self, run, path, step):
        found, rejected = open_checkpoint(run / path)
        assert found.path == run / "checkpoints" / step_name(step) and rejected == []

    def test_a_run_whose_newest_is_damaged(self, run):
        (run / "checkpoints" / step_name(2) / "state.json").write_text("{}")
        found, [(path, reason)] = open_checkpoint(run)
        assert found.path.name == step_name(1) and path.name == step_name(2)
        assert "state.json: has 2 bytes" in reason
        with pytest.raises(CheckpointError, match="state.json: has 2 bytes"):
            open_checkpoint(run / "checkpoints" / "latest")

    @pytest.mark.parametrize("text", ["", "../../x", "step-1", "/", "step-00000001/..", "\xff"])
    def test_pointers_name_neighbours_only(self, run, text):
        (run / "checkpoints" / "best").write_bytes(text.encode("latin-1"))
        with pytest.raises(CheckpointError, match="checkpoint pointer .*best: is no pointer"):
            open_checkpoint(run / "checkpoints" / "best")

    def test_nothing_there(self, tmp_path):
        with pytest.raises(CheckpointError, match="checkpoint .*none: there is no such folder"):
            open_checkpoint(tmp_path / "none")
        with pytest.raises(CheckpointError, match="MANIFEST.json: is missing"):
            open_checkpoint(tmp_path)


def die(*arguments):
    program = Path(__file__).with_name("saver_process.py")
    done = subprocess.run(
        [sys.executable, str(program), *map(str, arguments)],
        capture_output=True, text=True, timeout=50, cwd=arguments[1],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_killed_at_random_moments(tmp_path):
    results = die("kill", tmp_path, 60)
    assert len(results) == 60
    assert [r["complaint"] for r in results if r["complaint"]] == []
    assert any(r["half"] for r in results)  # some did die in the middle of a write
    assert results[-1]["committed"] > 0


def test_killed_before_every_operation(tmp_path):
    results = die("steps", tmp_path)
    assert [r["complaint"] for r in results if r["complaint"]] == []
    assert sum(r["survived"] for r in results) == 2 and len(results) > 40
