"""A gallery of wrong configurations: each gives exactly the lines that stand in ``expected.txt``.

After a wanted change: ``python tests/test_gallery.py > tests/gallery/expected.txt``, and read the
difference.
"""

import os
import pathlib
import re
import sys

import pytest

from renaissance.config.experiment import load_experiment
from renaissance.config.yamltree import ConfigError

GALLERY = pathlib.Path(__file__).parent / "gallery"
NAMES = sorted(path.name for path in GALLERY.glob("*.yaml") if path.name != "_base.yaml")


def complaint(name):
    """What reading the file says, from its own folder so that it is named as typed."""
    before = os.getcwd()
    os.chdir(GALLERY)
    try:
        load_experiment(name)
    except ConfigError as error:
        return str(error)
    finally:
        os.chdir(before)
    return "no complaint"


def expected():
    """The lines of each file, from ``name.yaml`` alone on a line, then its complaint indented."""
    blocks = re.split(r"\n(?! )", (GALLERY / "expected.txt").read_text().strip())
    return {
        head: rest.replace("\n  ", "\n") for head, _, rest in (b.partition("\n  ") for b in blocks)
    }


def test_the_base_is_right():
    assert complaint("_base.yaml") == "no complaint"


@pytest.mark.parametrize("name", NAMES)
def test_says_what_is_wrong(name):
    assert complaint(name) == expected()[name]


def test_there_are_many_and_each_line_has_a_place():
    lines = [line for text in expected().values() for line in text.splitlines()]
    assert sorted(expected()) == NAMES and len(NAMES) >= 30
    assert all(re.match(r"[\w./]+\.yaml:\d+:\d+: ", line) for line in lines)


if __name__ == "__main__":
    for name in NAMES:
        sys.stdout.write("\n  ".join([name, *complaint(name).splitlines()]) + "\n")
