"""The saver: one write at a time, errors carried over, rotation, and death at any moment."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import fresh
import pytest
import torch

from renaissance.checkpoint import read_checkpoint, write_checkpoint
from renaissance.saver import (
    Saver,
    checkpoint_folders,
    newest_intact,
    open_checkpoint,
    read_pointer,
    step_name,
)
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
                saver.save(2, files(2), {})
                saver.wait()
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
            place = saver.save(1, files(1), {})
            saver.wait()
            assert read_checkpoint(place).state == {}

    @pytest.mark.parametrize("keep", [0, -1, True, 1.5, "3"])
    def test_keep_is_checked(self, tmp_path, keep):
        with pytest.raises(ValueError, match="keep = .* is not allowed; it takes 1 or more"):
            Saver(tmp_path, keep=keep)


class TestErrors:
    @pytest.mark.parametrize("call", ["save", "wait", "close"])
    def test_surface_at_the_next_call_once(self, tmp_path, call):
        saver = Saver(tmp_path)
        saver.save(1, files(1), {})
        saver.wait()
        saver.save(2, {"model": {"w": torch.zeros(1, dtype=torch.complex64)}}, {})
        with pytest.raises(TypeError, match="cannot be stored"):
            getattr(saver, call)(*((3, files(3), {}) if call == "save" else ()))
        if call != "close":
            saver.save(4, files(4), {})
        saver.close()
        assert steps_in(tmp_path) == ([1] if call == "close" else [1, 4])

    def test_a_full_disk_leaves_the_previous_one(self, tmp_path):
        """A real limit on the size of files, in a process of its own."""
        with Saver(tmp_path) as saver:
            saver.save(1, files(1), {})
        said, _ = fresh.run(
            "import resource, signal, torch; from renaissance.saver import Saver\n"
            "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))\n"
            f"saver = Saver({str(tmp_path)!r})\n"
            "saver.save(2, {'model': {'w': torch.zeros(1 << 20)}}, {})\n"
            "try: saver.close()\n"
            "except RuntimeError as error: print(type(error).__name__, error)\n"
        )
        assert said.startswith(f"CheckpointError checkpoint {tmp_path / step_name(2)}: ")
        assert "could not be written" in said and "earlier ones are untouched" in said
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


@pytest.fixture(scope="module")
def deaths(tmp_path_factory):
    """What a program of many deaths has found, which imports torch once for them all."""
    program, folder = (
        Path(__file__).with_name("saver_process.py"),
        tmp_path_factory.mktemp("deaths"),
    )
    done = subprocess.run(
        [sys.executable, str(program), str(folder), "60"],
        capture_output=True, text=True, timeout=100, cwd=folder,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.timeout(110)
def test_killed_at_random_moments(deaths):
    results = deaths["kill"]
    assert len(results) == 60
    assert [r["complaint"] for r in results if r["complaint"]] == []
    assert any(r["half"] for r in results)  # some did die in the middle of a write
    assert results[-1]["committed"] > 0


@pytest.mark.timeout(110)
def test_killed_before_every_operation(deaths):
    results = deaths["steps"]
    assert [r["complaint"] for r in results if r["complaint"]] == []
    assert sum(r["survived"] for r in results) == 2 and len(results) > 40


def test_a_manifest_that_cannot_be_read_is_passed_over(tmp_path, monkeypatch):
    """A bad disk, a file of somebody else, one that another process has just removed."""
    with Saver(tmp_path, keep=None) as saver:
        for step in (1, 2):
            saver.save(step, files(step), {"step": step})

    def read_bytes(path, original=Path.read_bytes):
        if path.parent.name == step_name(2):
            raise PermissionError(13, "Permission denied")
        return original(path)

    monkeypatch.setattr(Path, "read_bytes", read_bytes)
    found, rejected = newest_intact(tmp_path)
    assert found.state["step"] == 1
    assert [(p.name, "MANIFEST.json: cannot be read (Perm" in why) for p, why in rejected] == [
        (step_name(2), True)
    ]
    write_checkpoint(
        tmp_path / step_name(3), files(3), {"step": 3}
    )  # its neighbour is no hindrance
