"""Benchmarks are run by hand, on machines that have what they measure: here, that they load."""

import pathlib
import re

import fresh
import pytest

BENCHMARKS = pathlib.Path(__file__).parents[1] / "benchmarks"
NAMES = sorted(path.stem for path in BENCHMARKS.glob("*.py"))


@pytest.mark.timeout(100)
def test_every_script_finds_what_it_imports():
    """In one process, away from this one's settings: names of the library that moved are missed."""
    lines = [
        "import importlib, sys",
        f"sys.path.insert(0, {str(BENCHMARKS)!r})",
        f"for name in {NAMES!r}: importlib.import_module(name)",
    ]
    fresh.run("\n".join(lines), timeout=90)


def test_the_readme_names_every_script_and_result():
    text = (BENCHMARKS / "README.md").read_text()
    for name in NAMES:
        assert f"{name}.py" in text, name
    for path in BENCHMARKS.glob("results/*.json"):
        assert re.search(rf"\b{path.stem}\.json", text), path.name
