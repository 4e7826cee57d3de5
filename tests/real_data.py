"""Real data sets: in $RENAISSANCE_TEST_DATA, or in ``shared/data`` beside a parent folder."""

import os
import pathlib

import pytest


def real_data(name: str) -> pathlib.Path:
    """The file or folder of this name; the test is skipped, aloud, where it is absent."""
    given = os.environ.get("RENAISSANCE_TEST_DATA")
    roots = [pathlib.Path(given)] if given else []
    roots += [parent / "shared" / "data" for parent in pathlib.Path(__file__).resolve().parents]
    found = next((root / name for root in roots if (root / name).exists()), None)
    if found is None:
        pytest.skip(f"real data {name!r} not found; set RENAISSANCE_TEST_DATA to its folder")
    return found
