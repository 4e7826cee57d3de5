"""Configurations of any text: an experiment, or lines that name a place."""

import re
from pathlib import Path

import pytest
import yaml
from experiments import BASE
from experiments import load as load
from hypothesis import given, settings
from hypothesis import strategies as st

from renaissance.config.experiment import experiment_of, flatten, load_tree
from renaissance.config.yamltree import ConfigError, Source, apply_override, parse_text


def read_or_refuse(text):
    """Any text is an experiment or well-formed lines."""
    try:
        tree = parse_text(text, Source("x.yaml", Path.cwd()))
        if getattr(tree, "entries", None):
            experiment_of(tree)
    except ConfigError as error:
        for line in str(error).splitlines():
            assert re.match(r"x\.yaml:\d+:\d+: \S", line), line


@pytest.mark.parametrize("key", ["\r", "a\nb", "\u2028"])
def test_a_key_with_a_line_break_is_refused_on_one_line(key):
    text = yaml.safe_dump(yaml.safe_load(BASE) | {"data": {key: None}})
    with pytest.raises(ConfigError) as found:
        experiment_of(parse_text(text, Source("x.yaml", Path.cwd())))
    lines = str(found.value).splitlines()
    assert len(lines) == 2 and all(line.startswith("x.yaml:") for line in lines)


WORDS = """010|1e-3|yes|null|[]|{}|[1, 2]|{type: sgd}|-1|1.5|'x'|x|{a: b}|!!x y|*a|{type: [1]}|
1e999|[[[[1]]]]|18446744073709551616"""
WORDS = [word.strip() for word in WORDS.split("|")]


@pytest.mark.timeout(120)
class TestFuzz:
    @settings(max_examples=100, deadline=None)
    @given(st.data())
    def test_cut_and_spliced(self, data):
        begin = data.draw(st.integers(0, len(BASE)))
        end = data.draw(st.integers(begin, min(len(BASE), begin + 30)))
        middle = data.draw(st.sampled_from(WORDS) | st.text(max_size=6))
        read_or_refuse(BASE[:begin] + middle + BASE[end:])

    @settings(max_examples=100, deadline=None)
    @given(st.data())
    def test_any_setting_of_any_form(self, data):
        values = yaml.safe_load(BASE)
        place = values
        while True:
            keys = list(place) if isinstance(place, dict) else list(range(len(place)))
            key = data.draw(st.sampled_from(keys))
            inner = place[key]
            if not (isinstance(inner, (dict, list)) and inner and data.draw(st.booleans())):
                break
            place = inner
        place[key] = data.draw(
            st.recursive(
                st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
                lambda x: (
                    st.lists(x, max_size=3) | st.dictionaries(st.text(max_size=4), x, max_size=3)
                ),
                max_leaves=6,
            )
        )
        read_or_refuse(yaml.safe_dump(values, allow_unicode=True))

    @settings(max_examples=100, deadline=None)
    @given(st.sampled_from(sorted(flatten(yaml.safe_load(BASE)))), st.sampled_from(WORDS))
    def test_any_override(self, path, word):
        tree = load_tree(Path(__file__).parent / "gallery" / "_base.yaml")
        try:
            experiment_of(apply_override(tree, f"{path}={word}", 1))
        except ConfigError as error:
            assert all(re.match(r"\S.*:\d+:\d+: \S", line) for line in str(error).splitlines())


@pytest.mark.parametrize("setting", ["clip", "ema"])
def test_a_number_beyond_all_numbers_is_refused_in_its_place(load, setting):
    with pytest.raises(ConfigError, match=rf"x\.yaml:2:\d+: {setting}: 9+ is not allowed"):
        load(f"{setting}: {'9' * 400}\n")
