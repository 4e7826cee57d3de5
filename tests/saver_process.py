"""Run as a program: processes that save checkpoints and die doing it; prints what was left.

One interpreter imports everything once and forks the victims, so that a hundred deaths take
seconds; it must not start threads itself (``OMP_NUM_THREADS=1``, and no `Saver` outside victims).
Arguments: a folder, and how many are killed with SIGKILL at random moments; others are ended before
the first, second, third ... operation on the file system, until a victim survives.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import torch

from renaissance.checkpoint import write_checkpoint
from renaissance.saver import Saver, newest_intact, step_name


def files(step):
    return {
        "model": {f"w{k}": torch.full((20_000,), float(step)) for k in range(4)},
        "optimizer": {"w.m": torch.full((80_000,), float(-step))},
    }


def save_on(root, reports):
    """Save step after step until killed; odd victims replace one folder, even ones rotate."""
    saver = Saver(root, keep=2)
    first = newest_intact(root)[0]
    for step in range(first.state["step"] + 1 if first else 1, 1 << 30):
        saver.save(step, files(step), {"step": step})
        saver.wait()
        os.write(reports, f"{step}\n".encode())


def replace_on(root, reports):
    place = root / step_name(0)
    first = newest_intact(root)[0]
    for step in range(first.state["step"] + 1 if first else 1, 1 << 30):
        write_checkpoint(place, files(step), {"step": step})
        os.write(reports, f"{step}\n".encode())


def look(root, committed):
    """What a newcomer finds; an empty complaint is a pass."""
    found, rejected = newest_intact(root)
    step = found.state["step"] if found else 0
    complaint = ""
    if rejected:
        complaint = f"rejected: {rejected}"
    elif step < committed:
        complaint = f"step {committed} was committed, {step} was found"
    elif found:
        tensors = {name: file.read_all() for name, file in found.files.items()}
        if not all(
            torch.equal(tensors[name][key], tensor)
            for name, wanted in files(step).items()
            for key, tensor in wanted.items()
        ):
            complaint = f"step {step} holds other values"
    return {"committed": committed, "found": step, "complaint": complaint}


def kill(root, count):
    chance = random.Random(1)
    duration = time_of_a_save(root / "first")
    for trial in range(count):
        run, place = (save_on, root / "rotated") if trial % 2 else (replace_on, root / "replaced")
        place.mkdir(exist_ok=True)
        before = look(place, 0)["found"]
        reading, writing = os.pipe()
        victim = os.fork()
        if victim == 0:
            run(place, writing)
        os.close(writing)
        time.sleep(chance.uniform(0, 3 * duration))
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        with os.fdopen(reading) as lines:
            committed = max([before, *map(int, lines.read().split())])
        left = sorted(p.name for p in place.iterdir())
        yield look(place, committed) | {"half": any(".new-" in name for name in left)}


def time_of_a_save(place):
    """Seconds from the fork to the commit, so that the deaths fall within."""
    begin = time.perf_counter()
    victim = os.fork()
    if victim == 0:
        write_checkpoint(place, files(1), {"step": 1})
        os._exit(0)
    os.waitpid(victim, 0)
    return time.perf_counter() - begin


def steps(root):
    for step in (1, 2):
        write_checkpoint(root / "before" / step_name(step), files(step), {"step": step})
    for step in (2, 3):  # replace a checkpoint; write a new one and remove two
        for last in range(1, 1 << 30):
            place = root / f"died-{step}-{last}"
            shutil.copytree(root / "before", place)
            victim = os.fork()
            if victim == 0:
                die_before(last)
                saver = Saver(place, keep=1)
                saver.save(step, files(step), {"step": step})
                saver.close()
                os._exit(0)
            survived = os.waitstatus_to_exitcode(os.waitpid(victim, 0)[1]) == 0
            yield look(place, step if survived else 2) | {"survived": survived}
            shutil.rmtree(place)
            if survived:
                break


def die_before(last):
    """End this process, as if killed, before its `last`-th operation on the file system."""
    seen = 0

    def count(event, _):
        nonlocal seen
        seen += event == "open" or event.startswith("os.")
        if seen >= last:
            os._exit(9)

    sys.addaudithook(count)


if __name__ == "__main__":
    root = Path(sys.argv[1])
    results = {"kill": list(kill(root, int(sys.argv[2]))), "steps": list(steps(root))}
    json.dump(results, sys.stdout)
