"""The kept index of a folder: reused while nothing changed, never when something did."""

import json
import os
import pathlib

import pytest

from renaissance.data import index as index_module
from renaissance.data.index import index_folder


@pytest.fixture
def root(tmp_path):
    for name in ("a", "b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        for k in range(3):
            (tmp_path / "data" / name / f"{k}.png").write_bytes(b"x")
    settle(tmp_path / "data")
    return tmp_path / "data"


def settle(root):
    """Folders look as if they changed long ago, so that their entries may be kept."""
    for folder, _, _ in os.walk(root):
        os.utime(folder, (1e9, 1e9 + os.stat(folder).st_mtime % 1e6))


@pytest.fixture
def looks(monkeypatch):
    """Counts the folders that are really read."""
    seen = []
    look = index_module._Scan._look

    def counted(self, path, modified):
        seen.append(os.path.basename(path.rstrip("/")))
        return look(self, path, modified)

    monkeypatch.setattr(index_module._Scan, "_look", counted)
    return seen


def test_a_kept_index_is_reused(root, tmp_path, looks):
    cache = str(tmp_path / "cache")
    first = index_folder(root, kept_in=cache)
    assert len(looks) == 3
    second = index_folder(root, kept_in=cache)
    assert len(looks) == 3
    assert (second.paths, second.classes) == (first.paths, first.classes)
    assert second.digest() == first.digest()


def test_only_a_folder_that_changed_is_read_again(root, tmp_path, looks):
    cache = str(tmp_path / "cache")
    index_folder(root, kept_in=cache)
    (root / "b" / "9.png").write_bytes(b"x")
    looks.clear()
    assert "b/9.png" in index_folder(root, kept_in=cache).paths
    assert looks == ["b"]
    (root / "a" / "0.png").unlink()
    (root / "c").mkdir()
    (root / "c" / "0.png").write_bytes(b"x")
    looks.clear()
    found = index_folder(root, kept_in=cache)
    assert "a/0.png" not in found.paths and found.classes == ("a", "b", "c")
    assert {"a", "c", "data"} <= set(looks)


def test_a_folder_changed_just_now_is_not_trusted(root, tmp_path, looks):
    cache = str(tmp_path / "cache")
    (root / "b" / "9.png").write_bytes(b"x")  # within the clock's resolution it may change again
    index_folder(root, kept_in=cache)
    looks.clear()
    index_folder(root, kept_in=cache)
    assert looks == ["b"]


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 0, "folders": {}}'])
def test_a_damaged_index_is_ignored(root, tmp_path, content):
    cache = tmp_path / "cache"
    expected = index_folder(root, kept_in=str(cache)).paths
    (file,) = cache.iterdir()
    file.write_text(content)
    assert index_folder(root, kept_in=str(cache)).paths == expected
    assert json.loads(file.read_text())["version"] == 1


def test_small_folders_are_not_kept_by_default(root, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    index_folder(root)
    assert not (tmp_path / "home").exists()
    monkeypatch.setattr(index_module, "KEPT_FROM", 6)
    index_folder(root)
    (file,) = (tmp_path / "home" / "renaissance" / "index").iterdir()
    assert json.loads(file.read_text())["root"] == str(root.resolve())


def test_a_cache_that_cannot_be_written_is_no_error(root, tmp_path):
    (tmp_path / "file").write_text("in the way")
    assert len(index_folder(root, kept_in=str(tmp_path / "file" / "cache")).paths) == 6


def test_off_writes_nothing(root, tmp_path):
    before = sorted(pathlib.Path(tmp_path).rglob("*"))
    index_folder(root, kept_in="off")
    assert sorted(pathlib.Path(tmp_path).rglob("*")) == before
