"""Who trains in a folder is alone there: locks between tasks, processes and forked children."""

import errno
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from small import compiled, loader

import renaissance as rn
from renaissance.fit import rundir


def made(folder):
    return compiled(train=loader(16), run_dir=folder)


HOLD = """
import sys, time
from pathlib import Path
from types import SimpleNamespace
from renaissance.fit import rundir
with rundir.alone(SimpleNamespace(run_dir=Path(sys.argv[1]))):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.mark.timeout(60)
def test_two_tasks_of_a_process_do_not_train_in_one_folder(tmp_path):
    class FitsAnother(rn.Callback):
        def on_epoch_end(self, epoch, logs):
            with pytest.raises(RuntimeError, match="another task of this process trains in"):
                made(tmp_path).fit(epochs=1, verbose=0)
            assert (tmp_path / ".lock").exists()

    made(tmp_path).fit(epochs=2, verbose=0, callbacks=[FitsAnother()])
    assert not (tmp_path / ".lock").exists()
    made(tmp_path).fit(epochs=1, verbose=0)


@pytest.mark.timeout(60)
def test_two_processes_do_not_train_in_one_folder(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        task = made(tmp_path)
        before = task.state_hash()
        with pytest.raises(RuntimeError, match=rf"another process \({other.pid} on .*\) trains in"):
            task.fit(epochs=1, verbose=0)
        assert task.state_hash() == before and [p.name for p in tmp_path.iterdir()] == [".lock"]
        other.kill()
    task.fit(epochs=1, verbose=0)  # what a killed process leaves holds nobody up
    assert task.epoch == 1 and not (tmp_path / ".lock").exists()


TRY = """
import sys
from pathlib import Path
from types import SimpleNamespace
from renaissance.fit import rundir
with rundir.alone(SimpleNamespace(run_dir=Path(sys.argv[1]))):
    print("taken")
"""


@pytest.mark.timeout(60)
def test_a_copy_of_the_run_folder_does_not_give_the_lock_back(tmp_path):
    run, copied = tmp_path / "run", tmp_path / "copied"

    class Copies(rn.Callback):
        def on_epoch_end(self, epoch, logs):
            shutil.copytree(run, copied)
            command = [sys.executable, "-c", TRY, str(run)]
            self.found = subprocess.run(command, capture_output=True, text=True, timeout=50)

    made(run).fit(epochs=1, verbose=0, callbacks=[copies := Copies()])
    assert rf"({os.getpid()} on " in copies.found.stderr and "taken" not in copies.found.stdout
    assert not (run / ".lock").exists()
    made(copied).fit(epochs=2, verbose=0, resume="auto", horizon="keep")  # its lock is nobody's


@pytest.mark.timeout(60)
def test_where_files_have_no_such_locks_the_process_has_one(tmp_path, monkeypatch):
    def refuse(handle, operation):
        raise OSError(errno.ENOLCK, "no locks of this kind")

    monkeypatch.setattr(fcntl, "flock", refuse)
    other = TRY.replace("with ", "rundir.fcntl.flock = rundir.fcntl.lockf\nwith ")
    with rundir.alone(SimpleNamespace(run_dir=tmp_path)):
        command = [sys.executable, "-c", other, str(tmp_path)]
        found = subprocess.run(command, capture_output=True, text=True, timeout=50)
    assert rf"({os.getpid()} on " in found.stderr and "taken" not in found.stdout


@pytest.mark.timeout(60)
@pytest.mark.parametrize("locks", [True, False])
def test_of_threads_that_begin_at_once_one_trains(tmp_path, monkeypatch, locks):
    """Where files have no locks too."""

    def refuse(handle, operation):
        raise OSError(errno.EOPNOTSUPP, "no locks")

    if not locks:
        monkeypatch.setattr(fcntl, "flock", refuse)
        monkeypatch.setattr(fcntl, "lockf", refuse)
    ready, done = threading.Barrier(8), threading.Barrier(8)
    inside, refused = [], []

    def train():
        ready.wait()
        try:
            with rundir.alone(SimpleNamespace(run_dir=tmp_path)):
                inside.append(1)
                done.wait()
        except RuntimeError as error:
            refused.append(str(error))
            done.wait()

    monkeypatch.setattr(os, "open", slow := Slow(os.open))
    threads = [threading.Thread(target=train, daemon=True) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(inside) == 1 and slow.calls == 1 and len(refused) == 7
    assert all("another task of this process trains in" in text for text in refused)
    assert rundir._ours == {} and list(tmp_path.iterdir()) == []


class Slow:
    """A function that others run into while it has begun."""

    def __init__(self, function):
        self.function, self.calls = function, 0

    def __call__(self, *arguments):
        self.calls += 1
        time.sleep(0.1)
        return self.function(*arguments)


@pytest.mark.timeout(60)
def test_the_lock_of_a_folder_in_the_place_of_one_that_was_moved_stays(tmp_path):
    run, moved = tmp_path / "run", tmp_path / "moved"
    with rundir.alone(SimpleNamespace(run_dir=run)):
        run.rename(moved)
        run.mkdir()
        other = os.open(run / ".lock", os.O_RDWR | os.O_CREAT)
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert (run / ".lock").exists()
    with pytest.raises(RuntimeError, match="another process"):
        made(run).fit(epochs=1, verbose=0)
    os.close(other)
    made(run).fit(epochs=1, verbose=0)
    made(moved).fit(epochs=1, verbose=0)  # the file that is left there is nobody's
    assert not (moved / ".lock").exists()


FORK = """
import os, sys, time
from pathlib import Path
from types import SimpleNamespace
from renaissance.fit import rundir
with rundir.alone(SimpleNamespace(run_dir=Path(sys.argv[1]))):
    child = os.fork()
    if child:
        print(child, flush=True)
        time.sleep(60)
time.sleep(60)
"""


@pytest.mark.timeout(60)
def test_a_forked_child_neither_holds_the_lock_nor_gives_it_back(tmp_path):
    command = [sys.executable, "-c", FORK, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        try:
            time.sleep(0.2)  # the child leaves the block
            assert (tmp_path / ".lock").exists()
            with pytest.raises(RuntimeError, match=rf"another process \({parent.pid} on"):
                made(tmp_path).fit(epochs=1, verbose=0)
            parent.kill()
            parent.wait()
            os.kill(child, 0)  # it lives on
            made(tmp_path).fit(epochs=1, verbose=0)
        finally:
            os.kill(child, signal.SIGKILL)
