"""Shared by all tests: helpers beside this file can be imported by name."""

import pathlib
import sys

import pytest
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent))


@pytest.fixture
def one_thread():
    """torch on one thread: for networks so small that a second one only waits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
