"""Which picture files a folder holds, by class: scanned once, kept, and checked before reuse."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import pathlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from renaissance.bars import open_bar

logger = logging.getLogger("renaissance")

#: Names of picture files; what a file really is, its first bytes say.
EXTENSIONS = (
    ".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".ppm", ".pgm", ".tif", ".tiff",
)  # fmt: skip

KEPT_FROM = 5000  # files; smaller folders are scanned faster than an index is worth

#: Folders of these names hold a split each, with class folders in it.
SPLITS = ("train", "training", "val", "valid", "validation", "test", "testing")

_VERSION = 1
_RACE_NANOSECONDS = 2_000_000_000  # a folder changed this shortly before the scan may change again


@dataclass(frozen=True)
class FolderIndex:
    """The files of a data set of class folders.

    Attributes:
        root: The folder.
        classes: Class names in the order of their numbers.
        paths: Files relative to root, "/" between parts; by class, then sorted by bytes.
        labels: (N,) int64 class numbers.
        skipped: Names of files that are no pictures by name.
    """

    root: pathlib.Path
    classes: tuple[str, ...]
    paths: tuple[str, ...]
    labels: npt.NDArray[np.int64]
    skipped: tuple[str, ...] = field(default=(), repr=False)

    def digest(self) -> str:
        """SHA-256 of names and labels; neither contents nor the place of the folder."""
        digest = hashlib.sha256()
        for path, label in zip(self.paths, self.labels.tolist()):
            digest.update(os.fsencode(path) + b"\0" + str(label).encode() + b"\n")
        return digest.hexdigest()


def index_folder(
    root: pathlib.Path, classes: Sequence[str] | None = None, kept_in: str = "auto"
) -> FolderIndex:
    """Scans class folders below `root`.

    Class folders are sorted by bytes, dot-files are skipped, links are followed, folders within a
    class folder belong to it. Pictures beside the class folders are left out, which is said.

    Args:
        root: Folder with one folder for each class.
        classes: The classes (of the train set), with or without pictures here; None: the folders
            that are there, each of which must hold some.
        kept_in: "auto" (the user's cache folder, for 5,000 files and more), "off", or a folder.

    Raises:
        FileNotFoundError: no such folder.
        ValueError: no class folders, no pictures, class folders that lie deeper, a class without
            pictures, or a folder that is none of `classes`.
    """
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is no folder; it takes one with a folder for each class")
    kept = _kept_file(root, kept_in)
    scan = _Scan(root, _read_kept(kept))
    _, folders, beside = scan.folder("")
    names = sorted(folders, key=os.fsencode)
    _check_depth(root, scan, names, sorted(beside))
    known = tuple(names if classes is None else map(str, classes))
    _check_names(root, names, known)
    paths, labels = _listed(scan, names, known)
    if not paths:
        raise ValueError(
            f"{root} holds no pictures in its {len(names)} class folders; names that count end "
            f"with {' '.join(EXTENSIONS)}"
        )
    if classes is None:
        _check_filled(root, known, labels)
    if kept is not None and scan.changed and (kept_in != "auto" or len(paths) >= KEPT_FROM):
        scan.keep(kept)
    return FolderIndex(root, known, tuple(paths), labels, tuple(scan.skipped))


def _check_depth(root: pathlib.Path, scan: _Scan, names: list[str], beside: list[str]) -> None:
    """ValueError where the class folders are missing or lie deeper than `root`."""
    if not names and beside:
        raise ValueError(
            f"{root} holds {len(beside)} pictures, such as {beside[0]}, and no folders; the "
            "pictures of each class belong into a folder of that class"
        )
    if not names:
        raise ValueError(f"{root} holds no folders; it takes one for each class")
    if beside:
        logger.warning(
            "%s: pictures beside the class folders are of no class and left out: %s and %d more",
            root,
            beside[0],
            len(beside) - 1,
        )
    inside = {name: scan.folder(name) for name in names if name in SPLITS or len(names) == 1}
    if len(inside) < len(names) or any(pictures for _, _, pictures in inside.values()):
        return
    deeper = [f"{name}/{folder}" for name, (_, folders, _) in inside.items() for folder in folders]
    if all(name in SPLITS for name in names) and deeper:
        raise ValueError(
            f"{root} holds splits ({', '.join(names)}) where class folders belong; name one, "
            f"split={names[0]!r}, or give the folder {root / names[0]}"
        )
    if deeper:
        raise ValueError(
            f"{root} has one class folder, {names[0]!r}, with no pictures but {len(deeper)} "
            f"folders in it, such as {deeper[0]}; if these are the classes, give the folder "
            f"{root / names[0]}"
        )


def _check_filled(
    root: pathlib.Path, classes: tuple[str, ...], labels: npt.NDArray[np.int64]
) -> None:
    """ValueError for class folders without a picture, which are more often a mistake than meant."""
    counts = np.bincount(labels, minlength=len(classes))
    empty = [name for name, count in zip(classes, counts.tolist()) if not count]
    if empty:
        others = f" and {len(empty) - 1} more" if len(empty) > 1 else ""
        raise ValueError(
            f"{root / empty[0]}{others}: a class folder without pictures (names that count end "
            f"with {' '.join(EXTENSIONS)}); delete it, or keep it as a class by naming all of them "
            "in order: classes=[...]"
        )


def _check_names(root: pathlib.Path, names: list[str], known: tuple[str, ...]) -> None:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(
            f"{root} has the class folder {unknown[0]!r}, which is none of the {len(known)} "
            f"classes: {', '.join(known[:10])}{' ...' if len(known) > 10 else ''}"
        )


def _listed(
    scan: _Scan, names: list[str], known: tuple[str, ...]
) -> tuple[list[str], npt.NDArray[np.int64]]:
    present = set(names)
    paths: list[str] = []
    labels: list[int] = []
    with open_bar(len(known), "indexing", "classes") as bar:
        for number, name in enumerate(known):
            if name in present:
                files = sorted(scan.files(name), key=os.fsencode)
                paths += files
                labels += [number] * len(files)
            bar.update(1)
    return paths, np.asarray(labels, np.int64)


#: (modification time in nanoseconds, folders in it, picture files in it)
_Entry = tuple[int, list[str], list[str]]


class _Scan:
    """Looks into folders, or takes what is known of those that did not change since."""

    def __init__(self, root: pathlib.Path, kept: dict[str, _Entry]) -> None:
        self._root, self._kept = root, kept
        self._now: dict[str, _Entry] = {}
        self.skipped: list[str] = []
        self.changed = False

    def folder(self, relative: str) -> _Entry:
        """The entry of one folder, "" for the root."""
        path = os.path.join(self._root, relative)
        modified = os.stat(path).st_mtime_ns
        entry = self._kept.get(relative)
        if entry is None or entry[0] != modified:
            entry = self._look(path, modified)
            self.changed = True
        self._now[relative] = entry
        return entry

    def files(self, relative: str) -> list[str]:
        """All pictures in a folder and in the folders within."""
        _, folders, names = self.folder(relative)
        found = [f"{relative}/{name}" for name in names]
        for name in folders:
            found += self.files(f"{relative}/{name}")
        return found

    def _look(self, path: str, modified: int) -> _Entry:
        folders, pictures = [], []
        with os.scandir(path) as entries:
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if entry.is_dir():
                    folders.append(entry.name)
                elif entry.name.lower().endswith(EXTENSIONS):
                    pictures.append(entry.name)
                else:
                    self.skipped.append(entry.path)
        return modified, folders, pictures

    def keep(self, file: pathlib.Path) -> None:
        """Writes what was seen; a cache that cannot be written is no error, and is said."""
        limit = time.time_ns() - _RACE_NANOSECONDS
        settled = {name: entry for name, entry in self._now.items() if entry[0] < limit}
        about = {"version": _VERSION, "root": str(self._root.resolve()), "folders": settled}
        partial = file.with_name(f"{file.name}.{os.getpid()}")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps(about))
            partial.replace(file)
        except OSError as error:
            logger.info("the index of %s is not kept: %s", self._root, error)


def _kept_file(root: pathlib.Path, kept_in: str) -> pathlib.Path | None:
    if kept_in == "off":
        return None
    if kept_in == "auto":
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        folder = pathlib.Path(cache) / "renaissance" / "index"
    else:
        folder = pathlib.Path(kept_in)
    name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:32]
    return folder / f"{name}.json"


def _read_kept(file: pathlib.Path | None) -> dict[str, _Entry]:
    """The folders of a kept index; nothing when it is absent, damaged or of another version."""
    if file is None or not file.is_file():
        return {}
    try:
        about: Any = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    if not isinstance(about, dict) or about.get("version") != _VERSION:
        return {}
    return {name: (entry[0], entry[1], entry[2]) for name, entry in about["folders"].items()}
