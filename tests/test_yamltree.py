"""Located trees: positions, meaning of words, merging, overrides; and no input that hangs."""

import math
import os
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from renaissance.config.yamltree import (
    MAX_BYTES,
    ConfigError,
    Entries,
    Mark,
    Source,
    apply_override,
    as_bool,
    as_float,
    as_int,
    hint_for,
    merge,
    parse_text,
    plain_value,
    plain_word,
    read_tree,
)

SOURCE = Source("x.yaml", Path("/folder"))


def tree(text):
    return parse_text(text, SOURCE)


def value(text):
    return plain_value(tree(text))


class TestMeaning:
    @pytest.mark.parametrize(
        ("text", "number"),
        [
            ("0", 0),
            ("7", 7),
            ("-12", -12),
            ("+3", 3),
            ("18446744073709551615", 2**64 - 1),
        ],
    )
    def test_whole_numbers(self, text, number):
        assert as_int(text) == number and type(as_int(text)) is int

    @pytest.mark.parametrize(
        "text", ["010", "0x1F", "0o17", "0b1", "1_000", "12:30", "1e3", "1.0", "", "-", "１", "1 2"]
    )
    def test_no_whole_numbers(self, text):
        assert as_int(text) is None

    @pytest.mark.parametrize(
        "text",
        ["1e-3", "1E-3", "1e5", "1.0e3", "1.e-3", ".5", "5.", "-2.5", "+1e+2", "0.1", "0", "0e0"],
    )
    def test_numbers(self, text):
        assert as_float(text) == float(text)

    @pytest.mark.parametrize(
        "text",
        [
            ".inf",
            "inf",
            ".nan",
            "nan",
            "1_0.0",
            "010",
            "01.5",
            "12:30:00",
            "1,5",
            "e5",
            ".",
            "0x1p3",
        ],
    )
    def test_no_numbers(self, text):
        assert as_float(text) is None

    @given(st.floats(allow_nan=False, allow_infinity=False))
    def test_every_float_as_python_prints_it(self, number):
        found = as_float(repr(number))
        assert found == number and math.copysign(1, found) == math.copysign(1, number)

    @pytest.mark.parametrize("text", ["no", "off", "on", "yes", "y", "n", "No", "tRue", "1", "0"])
    def test_switches_are_true_and_false_only(self, text):
        assert as_bool(text) is None
        assert as_bool("true") is True and as_bool("False") is False

    @pytest.mark.parametrize(
        "text",
        ["no", "on", "12:30", "1:30:00", "010", "695e0514x", "2026-01-01", "0x10", "1_0", "="],
    )
    def test_plain_words_stay_texts(self, text):
        assert plain_word(text) == text

    def test_what_yaml_1_1_makes_of_them(self):
        """The control: PyYAML's own loader does fall into these traps."""
        loaded = yaml.safe_load("[no, on, 12:30, 010, 1e-3, 0100]")
        assert loaded == [False, True, 750, 8, "1e-3", 64]
        assert value("[no, on, 12:30, 010, 1e-3, 0100]") == [
            "no",
            "on",
            "12:30",
            "010",
            0.001,
            "0100",
        ]

    def test_a_hash_is_no_infinity(self):
        assert plain_word("695e0514") == math.inf  # a number where no type is known
        assert tree("695e0514").text == "695e0514"  # and the text where one is wanted

    @pytest.mark.parametrize(
        ("text", "hint"),
        [
            ("007", "write 7"),
            ("00", "write 0"),
            ("1_000", "write 1000"),
            ("0x10", "write 16"),
            ("0b19", ""),
            ("Yes", "write true"),
            ("off", "write false"),
            ("None", "write null"),
            ("${N}", "environment values are not read"),
            ("x" * 10_000, ""),
        ],
    )
    def test_hints(self, text, hint):
        assert hint in hint_for(text) and bool(hint) == bool(hint_for(text))


class TestPlaces:
    def test_marks_count_from_one(self):
        found = tree("a: 1\nb:\n  - x\n  - {c: 'y'}\n")
        assert found.keys["b"] == Mark(SOURCE, 2, 1)
        assert found.entries["b"].items[0].mark == Mark(SOURCE, 3, 5)
        assert found.entries["b"].items[1].entries["c"].mark == Mark(SOURCE, 4, 9)

    def test_keys_are_texts(self):
        assert value("{on: 1, true: 2, 1: 3, no: 4, ~: 5}") == {
            "on": 1,
            "true": 2,
            "1": 3,
            "no": 4,
            "~": 5,
        }

    def test_duplicates_name_both_lines(self):
        with pytest.raises(ConfigError, match=r"^x.yaml:4:3: a.b: is given twice, first in line 2"):
            tree("a:\n  b: 1\n  c: 2\n  b: 3\n")

    def test_anchors_and_merge_keys_work(self):
        found = value(
            "base: &b {x: 1, y: 2}\nc: {<<: *b, y: 3}\nd: {y: 4, <<: [*b, {z: 5}]}\ne: *b"
        )
        assert found["c"] == {"y": 3, "x": 1}
        assert found["d"] == {"y": 4, "x": 1, "z": 5}
        assert found["e"] == found["base"]

    @pytest.mark.parametrize(
        "text", ["!!python/name:os.system x", "!x 1", "!!float 1", "!!set {a}"]
    )
    def test_tags_are_refused(self, text):
        with pytest.raises(ConfigError, match=r"^x.yaml:1:4: a: has the tag '.*'; tags are not"):
            tree(f"a: {text}")

    def test_a_tagged_key_is_refused(self):
        with pytest.raises(ConfigError, match="tags are not allowed"):
            tree("!!python/name:os.system a: 1")


class TestFiles:
    def test_the_name_is_the_typed_one(self, tmp_path, monkeypatch):
        (tmp_path / "sub").mkdir()
        (tmp_path / "sub" / "x.yaml").write_text("a: 1\n")
        monkeypatch.chdir(tmp_path)
        found = read_tree(Path("sub/x.yaml"), "sub/x.yaml")
        assert str(found.entries["a"].mark) == "sub/x.yaml:1:4"
        assert found.mark.source.folder == tmp_path / "sub"

    @pytest.mark.parametrize(
        ("data", "what"),
        [
            (b"", "x.yaml:1:1: is empty"),
            (b"\xef\xbb\xbf", "x.yaml:1:1: is empty"),
            (b"---\n...\n", "x.yaml:1:1: is empty"),
            (b"a: 1\nb: \xff", "x.yaml:2:1: is not UTF-8 text"),
            (b"a: 1\nb: \x07", "x.yaml:2:4: is not YAML: special characters are not allowed"),
            (b"a: 1\n---\nb: 2\n", "x.yaml:2:1: is not YAML"),
            (b"a: *nowhere", "x.yaml:1:4: is not YAML: found undefined alias 'nowhere'"),
            (b"a: " + b"[" * 61 + b"]" * 61, "is nested deeper than 60 levels"),
            (b"[" * MAX_BYTES, "x.yaml:1:62: is not YAML: nested deeper than 60 levels"),
            (b"- " * (MAX_BYTES // 2), "x.yaml:1:1: is nested deeper than 60 levels"),
            (b"a: " + b"x" * MAX_BYTES, "is larger than"),
            (b"? [a]\n: 1", "has a key that is no text"),
            (b"a: {<<: 1}", "merges what is no mapping"),
            (b'a: "\\UFFFFFFFF"', "x.yaml:1:1: is not YAML: an escape"),
            (b'a: "\\ud800"', "x.yaml:1:4: a: holds an escape that stands for no character"),
        ],
    )
    @pytest.mark.timeout(20)
    def test_wrong_ones(self, tmp_path, data, what):
        (tmp_path / "x.yaml").write_bytes(data)
        with pytest.raises(ConfigError) as caught:
            read_tree(tmp_path / "x.yaml", "x.yaml")
        assert what in str(caught.value) and "\n" not in str(caught.value)

    @pytest.mark.timeout(20)
    def test_aliases_cannot_explode(self, tmp_path):
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, 12)]
        (tmp_path / "x.yaml").write_text("\n".join(lines))
        with pytest.raises(ConfigError, match="is more than 20000 values"):
            read_tree(tmp_path / "x.yaml", "x.yaml")

    def test_a_folder_or_nothing(self, tmp_path):
        for path in (tmp_path, tmp_path / "none"):
            with pytest.raises(ConfigError, match="^x.yaml:1:1: cannot be read"):
                read_tree(path, "x.yaml")


class TestMerge:
    def merged(self, base, over):
        return plain_value(merge(tree(base), tree(over)))

    def test_entry_by_entry(self):
        base = "{a: {x: 1, y: [1, 2]}, b: 1}"
        assert self.merged(base, "{a: {y: [3]}, c: 2}") == {
            "a": {"x": 1, "y": [3]},
            "b": 1,
            "c": 2,
        }

    def test_another_type_replaces(self):
        base = "{optimizer: {type: adamw, beta1: 0.8}}"
        assert self.merged(base, "{optimizer: {type: sgd}}") == {"optimizer": {"type": "sgd"}}
        assert self.merged(base, "{optimizer: {type: adamw, eps: 1}}") == {
            "optimizer": {"type": "adamw", "beta1": 0.8, "eps": 1}
        }
        assert self.merged(base, "{optimizer: null}") == {"optimizer": None}


class TestOverrides:
    def after(self, *arguments, text="{a: {b: 1}, c: [{d: 1}, {d: 2}], e: adamw, f: null}"):
        found = tree(text)
        for number, argument in enumerate(arguments, start=1):
            found = apply_override(found, argument, number)
        return plain_value(found)

    @pytest.mark.parametrize(
        ("argument", "path", "wanted"),
        [
            ("a.b=2", ("a", "b"), 2),
            ("--a.b=1e-3", ("a", "b"), 0.001),
            ("a.b=[1, {x: y}]", ("a", "b"), [1, {"x": "y"}]),
            ("a.new.deep=no", ("a", "new", "deep"), "no"),
            ("c.1.d=7", ("c", 1, "d"), 7),
            ("a.b=", ("a", "b"), None),
            ("a.b=x=y", ("a", "b"), "x=y"),
            ("a.b='010'", ("a", "b"), "010"),
            ("e.beta1=0.9", ("e",), {"type": "adamw", "beta1": 0.9}),
            ("f.x=1", ("f",), {"x": 1}),
        ],
    )
    def test_put_the_value_there(self, argument, path, wanted):
        found = self.after(argument)
        for step in path:
            found = found[step]
        assert found == wanted and type(found) is type(wanted)

    def test_the_last_one_wins(self):
        assert self.after("a.b=2", "a.b=3")["a"] == {"b": 3}

    @pytest.mark.parametrize(
        ("argument", "what"),
        [
            ("+a=1", "command line:1:1: '+a=1' is not an override; it takes key=value"),
            ("~a", "command line:1:1: '~a' is not an override"),
            ("a.b", "command line:1:1: a.b: 'a.b' has no value; write a.b=value"),
            ("=1", "is not an override"),
            ("a..b=1", "is not an override"),
            ("c.2.d=1", "command line:1:7: c.2: is no place in a list of 2; it takes 0 to 1"),
            ("c.x=1", "is no place in a list"),
            ("a.b=[1", "command line:1:7: is not YAML"),
            ("a.b={x: 1, x: 2}", "command line:1:12: x: is given twice"),
            (".".join("a" * 100) + "=1", "is nested deeper than 60 levels"),
        ],
    )
    def test_wrong_ones_have_a_place(self, argument, what):
        with pytest.raises(ConfigError) as caught:
            self.after(argument)
        assert what in str(caught.value)

    def test_paths_in_them_are_relative_to_the_current_folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        found = apply_override(tree("{a: 1}"), "b=x", 1)
        assert found.entries["b"].mark.source.folder == Path(os.getcwd())


PIECES = ["a: ", "- ", "[", "]", "{", "}", ", ", "\n", "  ", "&x ", "*x", "<<: ", "? ", "| ", "> ",
          "'", '"', "!", "%", "@", "---\n", "...\n", "#", "null", "1e-3", "\t", "\\", ":",
          "\\ud800", "é"]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=80) | st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
@pytest.mark.timeout(60)
def test_any_text_is_a_tree_or_one_line(text):
    try:
        found = parse_text(text, SOURCE)
        assert found is None or plain_value(found) is not found
    except ConfigError as error:
        assert re.match(r"x\.yaml:\d+:\d+: \S", str(error)) and "\n" not in str(error)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=30))
def test_any_argument_is_an_override_or_one_line(argument):
    try:
        assert isinstance(apply_override(tree("{a: {b: [1]}}"), argument, 3), Entries)
    except ConfigError as error:
        assert re.match(r"command line:\d+:\d+: \S", str(error)) and "\n" not in str(error)
