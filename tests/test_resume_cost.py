"""Resuming costs the same wherever it is: reads, ids and bytes are counted, never seconds."""

import threading
import tracemalloc

import numpy as np
import pytest
from torch import nn

import renaissance as rn
from renaissance.checkpoint import read_checkpoint

SAMPLES, BATCH, STEPS = 10**7, 32, 4
EPOCH = SAMPLES // BATCH  # steps
TABLE_BYTES = SAMPLES * 8  # what a list of all ids would take


class Endless:
    """Ten million samples that are made when asked for; counts who is asked for."""

    num_classes = 3

    def __init__(self):
        self.asked = []
        self._lock = threading.Lock()

    def __len__(self):
        return SAMPLES

    def read(self, index):
        with self._lock:
            self.asked.append(index)
        return np.full((4, 4, 1), index % 251, np.uint8), index % 3


def make(dataset, run_dir=None, workers=0):
    transforms = [rn.RandomHorizontalFlip(), rn.Normalize(mean=[0.5], std=[0.5])]
    train = rn.Loader(
        dataset, batch_size=BATCH, shuffle=True, workers=workers, transforms=transforms
    )
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    task = rn.Task(model, name="t", seed=5, device="cpu", run_dir=run_dir, threads=1)
    task.loss(rn.CrossEntropyLoss()).optimizer(rn.SGD(lr=1e-3)).data(train)
    return task.compile(report="none")


def checkpoint_at(step, folder):
    """A checkpoint of a task that has come so far, without the way there."""
    task = make(Endless())
    task.position.step = task.position.attempted = step
    task.executor.updater.scalars.write(attempted=step)
    return task.save(folder)


class Counted:
    """What resuming and `STEPS` steps from there ask for, and the most memory they take."""

    def __init__(self, checkpoint, workers=0):
        dataset = Endless()
        task = make(dataset, workers=workers)
        dataset.asked.clear()
        tracemalloc.start()
        end = read_checkpoint(checkpoint).state["position"]["attempted"] + STEPS
        task.fit(epochs=1, max_steps=end, resume=checkpoint, verbose=0)
        self.peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        self.asked, self.task = dataset.asked, task


@pytest.mark.parametrize("workers", [0, 2])
def test_the_end_of_ten_million_samples_costs_what_their_start_costs(tmp_path, workers):
    order = rn.Permutation(SAMPLES, 5, 0)
    Counted(checkpoint_at(0, tmp_path / "first"))  # what is imported at a first run counts nowhere
    found = {}
    for step in (0, EPOCH // 2, EPOCH - STEPS):
        run = Counted(checkpoint_at(step, tmp_path / str(step)), workers)
        assert run.task.attempted_steps == step + STEPS
        wanted = order[step * BATCH : (step + STEPS) * BATCH].tolist()
        if workers == 0:
            assert run.asked == wanted
        else:  # they run ahead by the ring's slots, and no further
            assert set(wanted) <= set(run.asked) and len(run.asked) <= (STEPS + 5) * BATCH
        found[step] = run.peak_bytes
    assert max(found.values()) < TABLE_BYTES / 8, found  # most of it to read the checkpoint
    assert max(found.values()) < min(found.values()) + 2**16, found


def test_the_last_steps_close_the_epoch(tmp_path):
    run = Counted(checkpoint_at(EPOCH - STEPS, tmp_path / "c"))
    assert (run.task.epoch, run.task.position.step) == (1, 0)
    assert run.task.history.epoch == [0]


def test_a_table_of_ids_would_be_counted():
    tracemalloc.start()
    table = rn.Permutation(SAMPLES, 5, 0)[: 2**20]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak >= table.nbytes == TABLE_BYTES * 2**20 // SAMPLES
