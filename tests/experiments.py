"""A small experiment as a file, for tests that lay more upon it."""

from pathlib import Path

import pytest

from renaissance.config.experiment import load_experiment

BASE = (Path(__file__).parent / "gallery" / "_base.yaml").read_text()


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Load the base with text appended, from a file called x.yaml."""
    monkeypatch.chdir(tmp_path)

    def load(more="", *overrides, registry=None):
        Path("base.yaml").write_text(BASE)
        Path("x.yaml").write_text(f"extends: base.yaml\n{more}")
        chosen = {} if registry is None else {"registry": registry}
        return load_experiment("x.yaml", overrides, **chosen)

    return load
