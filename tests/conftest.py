"""Shared by all tests: helpers beside this file can be imported by name."""

import gc
import pathlib
import sys

import pytest
import torch

from renaissance.config.kinds import REGISTRY
from renaissance.fit import rundir

sys.path.insert(0, str(pathlib.Path(__file__).parent))


@pytest.fixture(autouse=True)
def registry_as_it_was():
    """What a test, or a guide's code, registers is gone after it."""
    before = {kind: dict(made) for kind, made in REGISTRY._factories.items()}
    yield
    for kind, made in before.items():
        REGISTRY._factories[kind].clear()
        REGISTRY._factories[kind].update(made)


@pytest.fixture
def curves():
    """Fits of this test draw curves.png."""


@pytest.fixture(autouse=True)
def curves_where_asked(request, monkeypatch):
    """Fits draw no picture in tests that do not ask for `curves`: it takes longer than they do."""
    if "curves" not in request.fixturenames:
        monkeypatch.setattr(rundir, "end", lambda task: None)


@pytest.fixture
def one_thread():
    """torch on one thread: for networks so small that a second one only waits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def pytest_collection_finish():
    """What has been imported lives on: the garbage collector need not walk through it each time."""
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items):
    """What needs a GPU is skipped, aloud, where there is none."""
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device; run by hand on one: pytest -m gpu gpu")
    for item in items:
        if item.get_closest_marker("gpu") is not None:
            item.add_marker(skip)
