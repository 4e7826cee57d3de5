"""Checkpoints: a folder of tensor files, a state file and a manifest, committed all at once.

::

    step-00011730/
      model.safetensors optimizer.safetensors ...   tensors by parameter name
      state.json                                    everything else, plain JSON
      MANIFEST.json                                 size and SHA-256 of each, and of itself

A checkpoint is written to a temporary folder beside its place, files and folder are forced to disk,
and one rename puts it there: at any moment, whatever is killed, each checkpoint is whole or absent.
The manifest is the proof of it. Nothing here can run code: there is no pickle, and reading never
imports. This module knows nothing of tasks; `renaissance.saver` writes in the background.
"""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import shutil
import socket
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch

from renaissance.jsontext import dump_json, load_json
from renaissance.tensorfile import (
    CheckpointError,
    FileDigest,
    TensorFile,
    digest_file,
    listing,
    write_bytes,
    write_tensors,
)

FORMAT = "renaissance checkpoint"
VERSION = 1
MANIFEST, STATE, SUFFIX = "MANIFEST.json", "state.json", ".safetensors"

#: A manifest or pointer larger than this is none of ours.
SMALL_FILE_BYTES = 1 << 20

_FILE_NAME = re.compile(r"[a-z][a-z0-9_]*")
_counter = itertools.count()


class Checkpoint:
    """An intact checkpoint: its state, and its tensor files, read when asked for.

    Attributes:
        path: Its folder.
        state: What state.json holds.
        files: `TensorFile` by name: ``checkpoint.files["model"].read("fc.weight")``.
        serial: Its place in the order of writing among the checkpoints of its parent folder.
    """

    def __init__(self, path: Path, state: dict[str, Any], names: list[str], serial: int) -> None:
        self.path, self.state, self.serial = path, state, serial
        self.files = {name: TensorFile(path / (name + SUFFIX)) for name in names}

    def file(self, name: str) -> TensorFile:
        """The tensor file of this name, or a `CheckpointError` that says what is there."""
        if name not in self.files:
            there = ", ".join(self.files) or "none"
            self.refuse(f"{name}{SUFFIX} is missing; tensor files there: {there}")
        return self.files[name]

    def check_state(self, fields: Mapping[str, Any]) -> None:
        """Refuse a state whose entries are missing, extra or of another type.

        Args:
            fields: Name -> type, tuple of types, or a mapping of the same kind for a nested
                object. `object` allows anything, and says only that the entry must be there.
        """
        problems = list(_state_problems(self.state, fields, ""))
        if problems:
            self.refuse(f"{STATE}: {listing(problems)}")

    def refuse(self, what: str) -> NoReturn:
        """Raise the `CheckpointError` that names this checkpoint."""
        raise CheckpointError(f"checkpoint {self.path}: {what}")

    def __repr__(self) -> str:
        return f"Checkpoint({str(self.path)!r})"


def _state_problems(state: Mapping[str, Any], fields: Mapping[str, Any], at: str) -> Iterator[str]:
    for name, wanted in fields.items():
        path = f"{at}{name}"
        if name not in state:
            yield f"{path!r} is missing"
        elif isinstance(wanted, Mapping):
            if isinstance(state[name], dict):
                yield from _state_problems(state[name], wanted, path + ".")
            else:
                yield f"{path!r} is {_type(state[name])}, an object is needed"
        elif not _fits(state[name], wanted):
            types = wanted if isinstance(wanted, tuple) else (wanted,)
            names = " or ".join(t.__name__ for t in types)
            yield f"{path!r} is {_type(state[name])}, {names} is needed"
    yield from (f"{at + name!r} is not part of this run" for name in state if name not in fields)


def _fits(found: object, wanted: type | tuple[type, ...]) -> bool:
    """isinstance, except that a switch is not a number."""
    types = wanted if isinstance(wanted, tuple) else (wanted,)
    if isinstance(found, bool):
        return bool in types or object in types
    return isinstance(found, types)


def _type(found: object) -> str:
    return f"{found!r:.40} ({type(found).__name__})"


# ------------------------------------------------------------------------------------- writing


def write_checkpoint(
    folder: str | os.PathLike[str],
    files: Mapping[str, Mapping[str, torch.Tensor]],
    state: Mapping[str, Any],
) -> Path:
    """Write one checkpoint and commit it; returns its folder once it is safe on the disk.

    Args:
        folder: Its place; parents are made. An existing checkpoint there is replaced, and stays
            readable until the new one is whole.
        files: Tensors by name, by file: ``{"model": {"fc.weight": tensor}}``.
        state: JSON objects, lists, texts, numbers (NaN and infinities too), switches and None.

    Raises:
        TypeError: The state holds something that would not come back equal.
        CheckpointError: The place is taken by something that is no checkpoint, or writing failed;
            what was there before is then untouched.
    """
    return write_encoded(Path(folder), files, encode_state(state))


def encode_state(state: Mapping[str, Any]) -> bytes:
    """The text of state.json; a TypeError names what would not come back equal."""
    return dump_json({"format_version": VERSION, **state}, what="checkpoint state")


def write_encoded(
    place: Path, files: Mapping[str, Mapping[str, torch.Tensor]], state: bytes
) -> Path:
    """`write_checkpoint` with a state already turned into text."""
    _check_names(files)
    try:
        _check_place(place)
        place.parent.mkdir(parents=True, exist_ok=True)
        temporary = temporary_beside(place, "new")
        try:
            _write_files(temporary, place, files, state)
            _commit(temporary, place)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise CheckpointError(
            f"checkpoint {place}: could not be written ({error}); earlier ones are untouched"
        ) from error
    return place


def _check_names(files: Mapping[str, object]) -> None:
    for name in files:
        if not _FILE_NAME.fullmatch(name):
            raise ValueError(
                f"checkpoint: a tensor file cannot be called {name!r}; "
                "it takes small letters, digits and underscores"
            )


def _check_place(place: Path) -> None:
    """Refuse to replace what is no checkpoint of ours (an empty folder is nothing)."""
    if place.is_dir() and not place.is_symlink():
        names = os.listdir(place)
        ours = all(name.endswith(SUFFIX) or name in (MANIFEST, STATE) for name in names)
        if not names or (ours and (MANIFEST in names or STATE in names)):
            return
    elif not os.path.lexists(place):
        return
    raise CheckpointError(
        f"checkpoint {place}: something else is there; only an existing checkpoint is replaced: "
        "choose another path"
    )


def _write_files(
    temporary: Path,
    place: Path,
    files: Mapping[str, Mapping[str, torch.Tensor]],
    state: bytes,
) -> None:
    temporary.mkdir()
    written = {
        name + SUFFIX: write_tensors(temporary / (name + SUFFIX), tensors)
        for name, tensors in files.items()
    }
    written[STATE] = write_bytes(temporary / STATE, state)
    write_bytes(temporary / MANIFEST, _manifest(written, _next_serial(place.parent)))
    sync_folder(temporary)


def _commit(temporary: Path, place: Path) -> None:
    """Put the finished folder in place; a reader finds the old or the new one at any moment."""
    replaced = replaced_beside(place)
    if place.exists():
        shutil.rmtree(replaced, ignore_errors=True)
        os.rename(place, replaced)
    os.rename(temporary, place)
    sync_folder(place.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def replaced_beside(place: Path) -> Path:
    """Where the previous checkpoint of this place stands between the two renames of `_commit`."""
    return place.with_name(f".{place.name}.replaced")


def temporary_beside(place: Path, purpose: str) -> Path:
    """A hidden name beside `place` that says which process it belongs to."""
    owner = f"{socket.gethostname()}-{os.getpid()}-{next(_counter)}"
    return place.with_name(f".{place.name}.{purpose}-{owner}")


def sync_folder(folder: Path) -> None:
    """Force the entries of a folder to disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _next_serial(parent: Path) -> int:
    serials = [0]
    for path in parent.iterdir():
        with contextlib.suppress(CheckpointError):
            if os.path.lexists(path / MANIFEST):
                serials.append(read_manifest(path)[1])
    return max(serials) + 1


def _manifest(written: Mapping[str, FileDigest], serial: int) -> bytes:
    body: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "serial": serial,
        "files": {n: {"bytes": d.nbytes, "sha256": d.sha256} for n, d in written.items()},
    }
    return _seal(body)


def _seal(body: Mapping[str, Any]) -> bytes:
    """The manifest with the SHA-256 of its own text, which reading compares byte by byte."""
    digest = hashlib.sha256(dump_json(body, what="manifest")).hexdigest()
    return dump_json({**body, "digest": digest}, what="manifest")


# ------------------------------------------------------------------------------------- reading


def read_checkpoint(folder: str | os.PathLike[str]) -> Checkpoint:
    """Read a checkpoint after checking every byte of it against its manifest.

    Raises:
        CheckpointError: It is not there, not whole, altered, foreign, or of a newer format; the
            text names the checkpoint and the file.
    """
    place = Path(folder)
    try:
        return _read(place)
    except OSError as error:
        raise CheckpointError(f"checkpoint {place}: cannot be read ({error})") from None


def _read(place: Path) -> Checkpoint:
    if not place.is_dir():
        if not replaced_beside(place).is_dir():
            raise CheckpointError(f"checkpoint {place}: there is no such folder")
        place = replaced_beside(place)  # killed between the two renames of a replacement
    digests, serial = read_manifest(place)
    _check_entries(place, digests)
    for name, wanted in digests.items():
        _check_file(place, name, wanted)
    state = _load_json(place, STATE)
    if state.pop("format_version", None) != VERSION:
        _refuse(place, STATE, f"is not of format {VERSION}")
    names = [name.removesuffix(SUFFIX) for name in digests if name.endswith(SUFFIX)]
    return Checkpoint(place, state, names, serial)


def _check_entries(place: Path, digests: Mapping[str, FileDigest]) -> None:
    for name in digests:
        stem = name.removesuffix(SUFFIX)
        if name != STATE and (stem == name or not _FILE_NAME.fullmatch(stem)):
            _refuse(place, MANIFEST, f"lists {name!r}, which no checkpoint has")
    if STATE not in digests:
        _refuse(place, MANIFEST, f"does not list {STATE}")
    extra = sorted(set(os.listdir(place)) - set(digests) - {MANIFEST})
    if extra:
        _refuse(place, extra[0], f"is not in {MANIFEST}")


def _check_file(place: Path, name: str, wanted: FileDigest) -> None:
    _check_regular(place, name)
    found = (place / name).stat().st_size
    if found != wanted.nbytes:
        _refuse(place, name, f"has {found} bytes, {MANIFEST} says {wanted.nbytes}")
    if digest_file(place / name) != wanted:
        _refuse(place, name, f"is damaged: its SHA-256 is not the one in {MANIFEST}")


def _check_regular(place: Path, name: str) -> None:
    """Refuse what is missing, and links, pipes and devices (reading a pipe would wait for ever)."""
    try:
        mode = os.lstat(place / name).st_mode
    except OSError:
        _refuse(place, name, "is missing")
    if not stat.S_ISREG(mode):
        _refuse(place, name, "is not an ordinary file")


def read_manifest(place: Path) -> tuple[dict[str, FileDigest], int]:
    """Digests by file name, and the serial number; the manifest's own digest is checked."""
    try:
        return _read_manifest(place)
    except OSError as error:  # no right to read it, a bad disk, or removed just now
        _refuse(place, MANIFEST, f"cannot be read ({error.strerror})")


def _read_manifest(place: Path) -> tuple[dict[str, FileDigest], int]:
    _check_regular(place, MANIFEST)
    if (place / MANIFEST).stat().st_size > SMALL_FILE_BYTES:
        _refuse(place, MANIFEST, "is far too large for a manifest")
    body = _load_json(place, MANIFEST)
    body.pop("digest", None)
    if body.get("format") != FORMAT:
        _refuse(place, MANIFEST, f"is not of a {FORMAT}")
    if (place / MANIFEST).read_bytes() != _seal(body):
        _refuse(place, MANIFEST, "is damaged: its own digest does not match")
    if body.get("version") != VERSION:
        _refuse(
            place,
            MANIFEST,
            f"is of format {body.get('version')!r}; this build reads "
            f"{VERSION}: use the release that wrote it",
        )
    try:
        files = {
            str(name): FileDigest(int(entry["bytes"]), str(entry["sha256"]))
            for name, entry in body["files"].items()
        }
        return files, int(body["serial"])
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        _refuse(place, MANIFEST, "does not list files as a manifest does")


def _load_json(place: Path, name: str) -> dict[str, Any]:
    try:
        found = load_json((place / name).read_bytes())
    except ValueError as error:
        _refuse(place, name, f"is no readable JSON ({error})")
    if not isinstance(found, dict):
        _refuse(place, name, "is not a JSON object")
    return found


def _refuse(place: Path, name: str, what: str) -> NoReturn:
    raise CheckpointError(f"checkpoint {place}: {name}: {what}")
