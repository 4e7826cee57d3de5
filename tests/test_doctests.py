"""Examples in docstrings that stand by themselves are true."""

import doctest
import importlib

import pytest

#: Modules whose examples need nothing but the module; the number is how many lines they run.
MODULES = {
    "schedules.curves": 1,
    "ema": 1,
    "init": 2,
    "losses": 1,
    "optim": 2,
    "schedules.plateau": 2,
    "random": 2,
}


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    found = doctest.testmod(importlib.import_module(f"renaissance.{name}"))
    assert found.failed == 0 and found.attempted >= MODULES[name]
