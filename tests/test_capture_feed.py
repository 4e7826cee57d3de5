"""What a captured executor reads, on the CPU: the order of batches and errors, and what it says.

Graphs themselves need CUDA: tests/gpu.
"""

import contextlib
import logging
import types

import numpy as np
import pytest
import torch

import renaissance as rn
from renaissance.data.given import as_looked_at
from renaissance.step import capture
from renaissance.step.inputs import InputSlots

X, Y = torch.arange(12.0).reshape(6, 2), torch.arange(6) % 2


def batch_of(x=X, y=Y):
    return rn.Batch(x, y, np.arange(len(y)))


class Stream:
    """Batches, and at the end what it raises, if anything."""

    def __init__(self, count, error=None):
        self._left, self._error = list(range(count)), error

    def next(self):
        if self._left:
            return self._left.pop(0)
        if self._error is not None:
            raise self._error
        return None


def staged(stream):
    """What reaches a step, and the error behind it."""
    executor, train = object.__new__(capture.CapturedExecutor), object()
    executor._train = train
    executor._inputs = types.SimpleNamespace(stage=lambda stream, batch, slot: (batch, slot))
    executor.updater = types.SimpleNamespace(scalars={"micro": 7})
    found = []
    try:
        for one in executor._staged(train, stream):
            found.append(one)
    except OSError as error:
        return found, error
    return found, None


@pytest.mark.parametrize("count", [0, 1, 2, 5])
def test_an_error_of_the_data_waits_for_the_batches_before_it(count):
    error, slots = OSError("no such file"), [(k, (7 + k) % 3) for k in range(count)]
    assert staged(Stream(count)) == (slots, None)
    assert staged(Stream(count, error)) == (slots, error)


def test_an_interrupt_waits_for_nothing():
    with pytest.raises(KeyboardInterrupt):
        staged(Stream(1, KeyboardInterrupt()))


@pytest.fixture
def executor(monkeypatch):
    """One that has no validation data, and whose streams are nothing."""
    nothing = types.SimpleNamespace(wait_stream=lambda other: None)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: nothing)
    monkeypatch.setattr(torch.cuda, "stream", contextlib.nullcontext)
    made = object.__new__(capture.CapturedExecutor)
    made.stream, made._train, made._valid = nothing, None, None
    monkeypatch.setattr(made, "fed_batches", lambda loader, seed: iter([seed]), raising=False)
    return made


def test_a_batch_by_hand_has_no_graphs_and_no_remark(executor, caplog):
    loaders = [as_looked_at((X, Y), "evaluate"), rn.Loader.from_arrays(X.numpy(), batch_size=2)]
    said = []
    for loader in loaders:
        caplog.clear()
        with (
            caplog.at_level(logging.WARNING, "renaissance"),
            executor.test_batches(loader, seed=3) as batches,
        ):
            assert list(batches) == [3]
        said.append(caplog.messages)
    assert said == [[], [capture.OTHER_DATA]]


def test_a_graph_reads_tensors_of_its_shapes_and_types_alone():
    inputs = object.__new__(InputSlots)
    inputs.x, inputs.y = torch.zeros(8, 2), torch.zeros(8, dtype=torch.int64)
    assert inputs.fits(batch_of()) and inputs.fits(batch_of(X[:1], Y[:1]))
    assert not inputs.fits(batch_of(X[:, :1])) and not inputs.fits(batch_of(X.long()))
    assert not inputs.fits(batch_of(X, Y.float())) and not inputs.fits(batch_of(X, Y[:, None]))
    assert not inputs.fits(batch_of({"x": X}))
