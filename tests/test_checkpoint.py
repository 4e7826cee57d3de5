"""Checkpoints: whole or refused, by name, and nothing in them ever runs."""

import json
import os
import pickle
import re
import shutil

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from renaissance import checkpoint as module
from renaissance.checkpoint import read_checkpoint, write_checkpoint
from renaissance.saver import newest_intact, step_name
from renaissance.tensorfile import CheckpointError, digest_file

NAMES = ("model.safetensors", "optimizer.safetensors", "state.json", "MANIFEST.json")


def files(step):
    weight = torch.full((3, 4), float(step))
    return {"model": {"w": weight, "tied": weight}, "optimizer": {"w.m": weight.bfloat16()}}


def state(step):
    return {"step": step, "generator": ["1", "2"], "history": {"loss": [0.1, float("inf")]}}


@pytest.fixture(scope="module")
def pristine(tmp_path_factory):
    root = tmp_path_factory.mktemp("pristine")
    for step in (1, 2):
        write_checkpoint(root / step_name(step), files(step), state(step))
    return root


@pytest.fixture
def root(pristine, tmp_path):
    return shutil.copytree(pristine, tmp_path / "checkpoints")


def resign(folder):
    """Give an altered folder a valid manifest, as someone with bad intent would."""
    written = {p.name: digest_file(p) for p in folder.iterdir() if p.name != "MANIFEST.json"}
    (folder / "MANIFEST.json").write_bytes(module._manifest(written, serial=9))


def assert_is(found, step):
    assert found.state == state(step)
    for name, tensors in files(step).items():
        read = found.files[name].read_all()
        assert read.keys() == tensors.keys()
        assert all(torch.equal(read[key], tensors[key]) for key in tensors)


class TestWriting:
    def test_comes_back(self, tmp_path):
        place = write_checkpoint(tmp_path / "deep" / "er" / "final", files(7), state(7))
        assert_is(read_checkpoint(place), 7)
        assert sorted(os.listdir(place)) == sorted(NAMES)
        assert os.listdir(place.parent) == ["final"]

    def test_same_input_same_bytes(self, tmp_path):
        for name in ("a", "b"):
            write_checkpoint(tmp_path / name / "x", files(7), state(7))
        for name in NAMES:
            assert (tmp_path / "a/x" / name).read_bytes() == (tmp_path / "b/x" / name).read_bytes()

    def test_replaces_a_checkpoint_even_a_damaged_one(self, root):
        place = root / step_name(2)
        (place / "MANIFEST.json").unlink()
        write_checkpoint(place, files(5), state(5))
        assert_is(read_checkpoint(place), 5)
        assert sorted(os.listdir(root)) == [step_name(1), step_name(2)]

    def test_an_empty_folder_is_nothing(self, tmp_path):
        (tmp_path / "x").mkdir()
        assert_is(read_checkpoint(write_checkpoint(tmp_path / "x", files(1), state(1))), 1)

    @pytest.mark.parametrize("kind", ["file", "foreign", "weights", "link", "dangling"])
    def test_replaces_nothing_else(self, tmp_path, kind):
        place = tmp_path / "x"
        if kind == "file":
            place.write_text("thesis")
        elif kind == "foreign":
            place.mkdir()
            (place / "thesis.tex").write_text("thesis")
            (place / "state.json").write_text("{}")
        elif kind == "weights":
            place.mkdir()
            (place / "model.safetensors").write_text("someone's weights")
        else:
            (tmp_path / "y").mkdir()
            place.symlink_to(tmp_path / ("y" if kind == "link" else "z"))
        with pytest.raises(CheckpointError, match=r"checkpoint .*x: something else is there; only"):
            write_checkpoint(place, files(1), state(1))
        assert not (place / "MANIFEST.json").exists()

    def test_what_json_cannot_hold_is_named(self, tmp_path):
        with pytest.raises(TypeError, match=r"checkpoint state\.ids is tensor\(1\) \(Tensor\)"):
            write_checkpoint(tmp_path / "x", {}, {"ids": torch.tensor(1)})
        assert not os.listdir(tmp_path)

    @pytest.mark.parametrize("name", ["", "a/b", "../a", "Model", "a.b", "model\n"])
    def test_file_names_are_plain(self, tmp_path, name):
        with pytest.raises(ValueError, match="a tensor file cannot be called"):
            write_checkpoint(tmp_path / "x", {name: {}}, {})

    def test_an_unwritable_place_is_one_error(self, tmp_path):
        (tmp_path / "file").write_text("")
        with pytest.raises(CheckpointError, match="checkpoint .*: could not be written"):
            write_checkpoint(tmp_path / "file" / "x", {}, {})

    def test_between_the_two_renames_the_old_one_is_read(self, root):
        os.rename(root / step_name(2), root / f".{step_name(2)}.replaced")
        assert_is(read_checkpoint(root / step_name(2)), 2)
        assert_is(newest_intact(root)[0], 2)
        write_checkpoint(root / step_name(2), files(3), state(3))
        assert_is(read_checkpoint(root / step_name(2)), 3)
        assert sorted(os.listdir(root)) == [step_name(1), step_name(2)]


class TestDamage:
    """Cut, flip, remove or swap each file: the newest intact one loads, with the reason said."""

    def refused(self, root, name):
        place = root / step_name(2)
        with pytest.raises(CheckpointError, match=rf"^checkpoint {place}: {re.escape(name)}: "):
            read_checkpoint(place)
        found, rejected = newest_intact(root)
        assert_is(found, 1)
        assert [path for path, _ in rejected] == [place] and name in rejected[0][1]

    def test_untouched_is_newest(self, root):
        found, rejected = newest_intact(root)
        assert_is(found, 2)
        assert rejected == []

    @pytest.mark.parametrize("name", NAMES)
    def test_removed(self, root, name):
        (root / step_name(2) / name).unlink()
        self.refused(root, name)

    @pytest.mark.parametrize("name", NAMES)
    def test_cut_anywhere(self, root, name):
        path = root / step_name(2) / name
        size = path.stat().st_size
        for length in sorted({0, 1, size // 2, size - 1}, reverse=True):
            os.truncate(path, length)
            self.refused(root, name)

    @pytest.mark.parametrize("name", NAMES)
    def test_every_byte_flipped(self, root, name):
        path = root / step_name(2) / name
        data = path.read_bytes()
        for k in range(len(data)):
            other = ord(" ") if chr(data[k]) in "\t\n" else data[k] ^ (1 << k % 8)
            path.write_bytes(data[:k] + bytes([other]) + data[k + 1 :])
            with pytest.raises(CheckpointError, match="^checkpoint .*: "):
                read_checkpoint(path.parent)
        self.refused(root, name)

    @pytest.mark.parametrize("name", NAMES)
    def test_grown(self, root, name):
        with open(root / step_name(2) / name, "ab") as file:
            file.write(b"\n{}")
        self.refused(root, name)

    @pytest.mark.parametrize("kind", ["folder", "link", "pipe"])
    @pytest.mark.parametrize("name", NAMES)
    @pytest.mark.timeout(20)
    def test_no_ordinary_file(self, root, name, kind):
        path = root / step_name(2) / name
        path.unlink()
        if kind == "folder":
            path.mkdir()
        elif kind == "link":
            path.symlink_to(root / step_name(1) / name)
        else:
            os.mkfifo(path)
        self.refused(root, name)

    def test_a_file_too_many(self, root):
        (root / step_name(2) / "optimizer.pt").write_bytes(b"")
        self.refused(root, "optimizer.pt")

    def test_files_of_another_checkpoint(self, root):
        for name in NAMES[:-1]:
            shutil.copy(root / step_name(1) / name, root / step_name(2) / name)
            self.refused(root, "model.safetensors")

    def test_none_intact(self, root):
        for step in (1, 2):
            (root / step_name(step) / "state.json").unlink()
        found, rejected = newest_intact(root)
        assert found is None and len(rejected) == 2

    def test_nothing_there(self, tmp_path):
        assert newest_intact(tmp_path / "none") == (None, [])
        with pytest.raises(CheckpointError, match="checkpoint .*none: there is no such folder"):
            read_checkpoint(tmp_path / "none")


class TestForgery:
    """Contents nobody wrote in earnest, under a valid manifest."""

    def test_resigning_alone_is_valid(self, root):
        resign(root / step_name(2))
        assert_is(read_checkpoint(root / step_name(2)), 2)

    @pytest.mark.parametrize("name", NAMES[:-1])
    def test_pickles_never_run(self, root, tmp_path, name):
        class Attack:
            def __reduce__(self):
                return os.mkdir, (str(tmp_path / "pwned"),)

        payload = pickle.dumps(Attack())
        (root / step_name(2) / name).write_bytes(payload)
        resign(root / step_name(2))
        with pytest.raises(CheckpointError, match=f"checkpoint .*{name}: "):
            for file in read_checkpoint(root / step_name(2)).files.values():
                file.read_all()
        assert not (tmp_path / "pwned").exists()
        pickle.loads(payload)  # noqa: S301 - the control: this payload does run when unpickled
        assert (tmp_path / "pwned").exists()

    @settings(max_examples=150, deadline=None)
    @given(data=st.data())
    def test_any_content_is_read_or_refused(self, pristine, tmp_path_factory, data):
        root = tmp_path_factory.mktemp("forged")
        folder = shutil.copytree(pristine / step_name(2), root / step_name(2))
        path = folder / data.draw(st.sampled_from(NAMES[:-1]))
        text = path.read_bytes()
        begin = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(begin, len(text)))
        path.write_bytes(text[:begin] + data.draw(st.binary(max_size=12)) + text[end:])
        resign(folder)
        try:
            for file in read_checkpoint(folder).files.values():
                file.read_all()
        except CheckpointError as error:
            assert str(error).startswith(f"checkpoint {folder}: ") and path.name in str(error)

    @pytest.mark.parametrize(
        ("change", "what"),
        [
            ({"version": 2}, "is of format 2; this build reads 1"),
            ({"format": "other"}, "is not of a renaissance checkpoint"),
            ({"files": {}}, "does not list state.json"),
            ({"files": []}, "does not list files as a manifest does"),
            ({"files": {"state.json": {"bytes": float("inf"), "sha256": ""}}}, "does not list"),
            ({"serial": None}, "does not list files as a manifest does"),
            ({"files": {"../state.json": {"bytes": 1, "sha256": ""}}}, "which no checkpoint has"),
            ({"files": {"/etc/passwd": {"bytes": 1, "sha256": ""}}}, "which no checkpoint has"),
        ],
    )
    def test_manifests(self, root, change, what):
        path = root / step_name(2) / "MANIFEST.json"
        body = json.loads(path.read_text())
        del body["digest"]
        body |= change
        path.write_bytes(module._seal(body))
        with pytest.raises(CheckpointError, match=f"MANIFEST.json: .*{re.escape(what)}"):
            read_checkpoint(root / step_name(2))

    def test_a_huge_manifest_is_not_read(self, root):
        os.truncate(root / step_name(2) / "MANIFEST.json", 1 << 40)
        with pytest.raises(CheckpointError, match="MANIFEST.json: is far too large"):
            read_checkpoint(root / step_name(2))


class TestStateChecks:
    FIELDS = {"step": int, "generator": list, "history": {"loss": list}}

    @pytest.fixture
    def checkpoint(self, root):
        return read_checkpoint(root / step_name(2))

    def test_what_fits_passes(self, checkpoint):
        checkpoint.check_state(self.FIELDS)
        checkpoint.check_state({"step": (int, str), "generator": object, "history": object})

    @pytest.mark.parametrize(
        ("fields", "what"),
        [
            ({"ema": int}, "'ema' is missing"),
            ({"history": {"loss": list, "epoch": list}}, "'history.epoch' is missing"),
            ({"history": {}}, "'history.loss' is not part of this run"),
            ({"step": str}, r"'step' is 2 \(int\), str is needed"),
            ({"step": bool}, r"'step' is 2 \(int\), bool is needed"),
            ({"generator": {"seed": str}}, r"'generator' is \['1', '2'\] \(list\), an object is"),
        ],
    )
    def test_what_does_not_is_named(self, checkpoint, fields, what):
        with pytest.raises(CheckpointError, match=rf"^checkpoint .*: state.json: {what}"):
            checkpoint.check_state(self.FIELDS | fields)

    def test_a_switch_is_no_number(self, tmp_path):
        found = read_checkpoint(write_checkpoint(tmp_path / "x", {}, {"step": True}))
        with pytest.raises(CheckpointError, match=r"'step' is True \(bool\), int is needed"):
            found.check_state({"step": int})

    def test_a_missing_file_is_named(self, checkpoint):
        with pytest.raises(
            CheckpointError, match="ema.safetensors is missing; tensor files there: model, optim"
        ):
            checkpoint.file("ema")
