"""Streams: slots, threads, Ctrl-C, forks and memory."""

import gc
import os
import pathlib
import resource
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
import torch

import renaissance as rn
from renaissance.datasets import Synthetic

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def pictures():
    return Synthetic(64, size=16, seed=1)


def loader_of(dataset, **settings):
    return rn.Loader(dataset, **({"batch_size": 8, "shuffle": True, "seed": 5} | settings))


def threads_of(pid="self"):
    """Workers of streams; torch's and Python's own threads come and go at their will."""
    names = [task / "comm" for task in pathlib.Path(f"/proc/{pid}/task").iterdir()]
    return sum(name.read_text() == "rn-worker\n" for name in names if name.exists())


def test_a_batch_stays_valid_until_the_second_next_call(pictures):
    loader = loader_of(pictures, workers=2, prefetch=2)
    expected = [batch.x.tobytes() for batch in loader.epoch(0)]
    with loader.stream() as stream:
        before = None
        for number, batch in enumerate(stream):
            time.sleep(0.005)  # the workers would have overwritten it by now
            if before is not None:
                assert before.x.numpy().tobytes() == expected[number - 1]
            before = batch


def test_held_batches_stay_until_released(pictures):
    loader = loader_of(pictures, workers=2, prefetch=3)
    expected = [batch.x.tobytes() for batch in loader.epoch(0)]
    with loader.stream() as stream:
        held = [stream.next() for _ in range(5)]
        time.sleep(0.02)
        assert [batch.x.numpy().tobytes() for batch in held] == expected[:5]
        with pytest.raises(RuntimeError, match="all 5 slots of the ring are held"):
            stream.next()
        stream.release(held[2])
        last = stream.next()
        assert last.x.numpy().tobytes() == expected[5]
        with pytest.raises(RuntimeError, match="is not held"):
            stream.release(held[2]) or stream.release(held[2])


def test_full_batches_have_one_shape_and_few_addresses(pictures):
    loader = loader_of(pictures, workers=2, batch_size=7)
    with loader.stream() as stream:
        seen = [(batch.x.shape, batch.x.data_ptr()) for batch in stream]
    assert {shape for shape, _ in seen[:-1]} == {(7, 3, 16, 16)} and seen[-1][0][0] == 1
    assert len({address for _, address in seen}) <= 4


def test_the_end_and_after(pictures):
    loader = loader_of(pictures, workers=1)
    stream = loader.stream(start_step=7)
    assert stream.next() is not None and stream.next() is None
    with pytest.raises(StopIteration):
        next(stream)
    stream.rewind(1)
    assert not stream.closed
    stream.close()
    stream.close()
    assert stream.closed
    with pytest.raises(RuntimeError, match="this stream is closed; open a new one"):
        stream.next()


def test_closing_in_the_middle_ends_all_threads(pictures):
    gc.collect()  # streams that other tests have forgotten
    before = threads_of()
    for _ in range(5):
        stream = loader_of(pictures, workers=7).stream()
        next(stream)
        assert threads_of() == before + 7
        stream.close()
        assert threads_of() == before


def test_a_forgotten_stream_ends_its_threads(pictures):
    gc.collect()
    before = threads_of()
    loader = loader_of(pictures, workers=3)
    stream = loader.stream(epoch=2)
    batch = next(stream)
    kept = batch.x.clone()
    assert threads_of() == before + 3
    del stream
    gc.collect()
    assert threads_of() == before
    assert torch.equal(batch.x, kept)  # its memory outlives the stream
    assert loader.state() == (2, 1)


def test_threads_that_cannot_be_started_are_an_error_and_leave_none_behind(pictures):
    gc.collect()
    loader, before = loader_of(pictures, workers=1000), threads_of()
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    limits = resource.getrlimit(resource.RLIMIT_AS)
    room = pages * os.sysconf("SC_PAGE_SIZE") + 500_000_000  # for some of the stacks, not for all
    resource.setrlimit(resource.RLIMIT_AS, (room, limits[1]))
    try:
        with pytest.raises(RuntimeError, match="of 1000 worker threads could be started"):
            loader.stream()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)
    assert threads_of() == before


def test_rewind_in_the_middle_drops_what_was_ordered(pictures):
    loader = loader_of(pictures, workers=2, prefetch=6)
    expected = {e: [b.x.tobytes() for b in loader.epoch(e)] for e in range(4)}
    with loader.stream() as stream:
        for number in range(40):
            stream.rewind(number % 4, number % 8)
            assert next(stream).x.numpy().tobytes() == expected[number % 4][number % 8]


def resident_bytes():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("one_stream", [True, False], ids=["one stream", "a stream an epoch"])
def test_memory_is_flat_over_fifty_epochs(one_stream):
    loader = loader_of(
        Synthetic(512, size=32), batch_size=64, workers=2, transforms=(rn.Pad(4), rn.RandomCrop(32))
    )

    def run(epochs):
        if one_stream:
            with loader.stream() as stream:
                for epoch in epochs:
                    assert sum(len(batch) for batch in stream.rewind(epoch)) == 512
        else:
            for epoch in epochs:
                assert sum(len(batch) for batch in loader.epoch(epoch)) == 512

    run(range(30))
    before = resident_bytes()
    run(range(30, 80))
    # 50 epochs hand out 314 MB. The margin is the allocator's: over 600 epochs it took 2.3 MB.
    assert resident_bytes() - before < 6_000_000


def test_a_slow_consumer_does_not_grow_memory(pictures):
    loader = loader_of(pictures, workers=2, batch_size=4)
    with loader.stream() as stream:
        for _ in stream:
            time.sleep(0.01)
            assert stream._ring.filling <= len(stream._ring)
        assert loader.stats()["block_seconds"] > 0.05  # the workers waited for slots instead


class Slow:
    """Reading the first sample is quick, as the loader looks at it; every other one takes 1 s."""

    num_classes = 2

    def __len__(self):
        return 8

    def read(self, index):
        time.sleep(0.0 if index == 0 else 1.0)
        return np.zeros((4, 4, 3), np.uint8), 0


def test_ctrl_c_stops_waiting_at_once():
    stream = rn.Loader(Slow(), batch_size=8, workers=2).stream()
    sent = []

    def interrupt():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(0.2, interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's job
    try:
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            next(stream)
        noticed = time.monotonic()
        timer.join()
    finally:
        signal.signal(signal.SIGINT, before)
        stream.close()
    assert noticed - sent[0] < 0.5  # 0.05 s by construction; the margin is a loaded machine's


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python 3.12 warns of threads and forks
@pytest.mark.parametrize("workers", [0, 2])
def test_after_a_fork_the_child_is_told_and_can_start_anew(pictures, workers):
    loader = loader_of(pictures, workers=workers)
    expected = [batch.x.tobytes() for batch in loader.epoch(0)]
    stream = loader.stream()
    next(stream)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            with pytest.raises(RuntimeError, match="after a fork open a new one"):
                list(stream)
            stream.close()
            code = 0 if [b.x.tobytes() for b in loader.epoch(0)] == expected else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    assert [batch.x.numpy().tobytes() for batch in stream] == expected[1:]


def test_kill_leaves_nothing_behind(tmp_path):
    script = """
import sys
import renaissance as rn
from renaissance.datasets import Synthetic
stream = rn.Loader(Synthetic(64, size=16), batch_size=8, workers=4).stream()
next(stream)
print("ready", flush=True)
sys.stdin.read()
"""
    before = set(os.listdir("/dev/shm"))
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stdout.readline() == "ready\n"
        assert threads_of(process.pid) == 4
        process.kill()
        process.wait(timeout=10)
    assert not pathlib.Path(f"/proc/{process.pid}").exists()
    assert set(os.listdir("/dev/shm")) <= before
    assert list(tmp_path.iterdir()) == []


def test_exit_with_an_open_stream_is_clean():
    script = """
import numpy as np
import renaissance as rn
class Own:
    def __len__(self): return 64
    def read(self, index): return np.zeros((4, 4, 3), np.uint8), 0
streams = [rn.Loader(Own(), batch_size=4, workers=3).stream(),
           rn.Loader.from_arrays(np.zeros((64, 2), np.float32), batch_size=4, workers=3).stream()]
for stream in streams:
    next(stream)
print("end")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, check=True
    )
    assert (done.stdout, done.stderr) == ("end\n", "")
