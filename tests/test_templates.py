"""What ``renaissance new`` writes is right, whatever the name."""

import pytest

from renaissance.cli.main import main
from renaissance.cli.templates import digits
from renaissance.config.experiment import load_experiment

NAMES = [
    "digits",
    "a-1.b",
    "é日本",
    "a: b",
    "null",
    "True",
    "123",
    "1e3",
    "#x",
    "it's",
    "x]y",
    "{a",
]
NAMES += ["*a", "&b", "%x", "@x", "`x", '"q', "a\\b", "- a", " a ", "a #b", "no", "~", "!x", "a\tb"]


@pytest.mark.parametrize("name", NAMES)
def test_every_name_comes_back(tmp_path, name):
    place = tmp_path / "e.yaml"
    place.write_text(digits(name), encoding="utf-8")
    assert load_experiment(place).name == name


def test_plain_names_stay_plain():
    assert "\nname: digits\n" in digits("digits") and '\nname: "1e3"\n' in digits("1e3")


def test_a_file_of_a_difficult_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["new", "sub/a: {b} #c"]) == 0
    assert main(["config", "check", "sub/a: {b} #c.yaml"]) == 0
