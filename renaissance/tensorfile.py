"""Tensor files: safetensors, written as a stream with its SHA-256, read lazily by tensor.

The layout is the published one (8 bytes length of the header, a JSON header padded to 8 bytes, the
data without gaps), so ``safetensors.torch.load_file`` reads every file written here. We write it
ourselves because the digest then costs no second pass, no tensor is held twice, and nothing but
small copies needs the interpreter lock while training goes on. Reading is left to the library.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import safetensors
import torch

#: Element types of the format that torch has, by the name in the header.
DTYPES: Mapping[str, torch.dtype] = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
CODES = {dtype: code for code, dtype in DTYPES.items()}

#: Bytes given to the file and to the digest at once; large enough to run without the lock.
CHUNK_BYTES = 8 << 20

#: Problems an error lists before it only counts the rest.
LISTED = 6


class CheckpointError(RuntimeError):
    """A checkpoint is damaged, foreign, does not fit this run, or could not be written."""


@dataclass(frozen=True)
class TensorSpec:
    """Shape and dtype of one stored tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorSpec:
        return cls(tuple(tensor.shape), tensor.dtype)

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')} {list(self.shape)}"


@dataclass(frozen=True)
class FileDigest:
    """Size in bytes and SHA-256 (hex) of one file."""

    nbytes: int
    sha256: str


class DigestWriter:
    """Writes to a file and digests the same bytes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._hash, self._count = file, hashlib.sha256(), 0

    def write(self, data: bytes | memoryview) -> None:
        view = memoryview(data)
        for begin in range(0, view.nbytes, CHUNK_BYTES):
            chunk = view[begin : begin + CHUNK_BYTES]
            self._file.write(chunk)
            self._hash.update(chunk)
        self._count += view.nbytes

    @property
    def digest(self) -> FileDigest:
        return FileDigest(self._count, self._hash.hexdigest())


def write_bytes(path: Path, data: bytes) -> FileDigest:
    """Write a new file, down to the disk."""
    with open(path, "xb") as file:
        writer = DigestWriter(file)
        writer.write(data)
        _to_disk(file)
    return writer.digest


def write_tensors(path: Path, tensors: Mapping[str, torch.Tensor]) -> FileDigest:
    """Write a new safetensors file, down to the disk.

    Every key is stored whole and contiguous, whatever its strides, and also when it shares memory
    with another one (tied parameters): readers need no knowledge of either.

    Args:
        path: The file; it must not exist.
        tensors: By name; on any device, copied to the host one at a time.

    Raises:
        TypeError: An element type the format does not have.
        OSError: The disk is full or the folder cannot be written.
    """
    for name, tensor in tensors.items():
        if tensor.dtype not in CODES:
            raise TypeError(
                f"checkpoint: {path.name}: {name!r} is {tensor.dtype}, which cannot be stored; "
                f"allowed: {', '.join(str(d).removeprefix('torch.') for d in CODES)}"
            )
    # Wide elements first: with a padded header every tensor is then aligned to its elements.
    names = sorted(tensors, key=lambda n: (-tensors[n].element_size(), n))
    with open(path, "xb") as file:
        writer = DigestWriter(file)
        writer.write(_header({name: tensors[name] for name in names}))
        for name in names:
            writer.write(_memory(tensors[name]))
        _to_disk(file)
    return writer.digest


def _header(tensors: Mapping[str, torch.Tensor]) -> bytes:
    entries: dict[str, object] = {"__metadata__": {"format": "pt"}}
    begin = 0
    for name, tensor in tensors.items():
        end = begin + tensor.numel() * tensor.element_size()
        entries[name] = {
            "dtype": CODES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
        begin = end
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def _memory(tensor: torch.Tensor) -> memoryview:
    """The elements in row-major order as bytes; a copy only where the tensor is not so already."""
    rows = tensor.detach().cpu().contiguous().reshape(-1)
    return memoryview(rows.view(torch.uint8).numpy().data)


def _to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def digest_file(path: Path) -> FileDigest:
    """Size and SHA-256 of a file, in pieces."""
    with open(path, "rb") as file:
        found, count = hashlib.sha256(), 0
        while chunk := file.read(CHUNK_BYTES):
            found.update(chunk)
            count += len(chunk)
    return FileDigest(count, found.hexdigest())


class TensorFile(Mapping[str, TensorSpec]):
    """A safetensors file, by name; tensors are read when asked for.

    As a mapping it gives the `TensorSpec` of each name. Every refusal is a `CheckpointError` that
    names the file.

    Args:
        path: The file, already checked against its manifest.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._specs: dict[str, TensorSpec] | None = None

    @property
    def specs(self) -> Mapping[str, TensorSpec]:
        if self._specs is None:
            with self._open() as file:
                found = {}
                for name in file.keys():
                    part = file.get_slice(name)
                    if part.get_dtype() not in DTYPES:
                        raise self.refusal(f"{name!r} has the element type {part.get_dtype()}")
                    found[name] = TensorSpec(tuple(part.get_shape()), DTYPES[part.get_dtype()])
            self._specs = found
        return self._specs

    def __getitem__(self, name: str) -> TensorSpec:
        return self.specs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.specs)

    def __len__(self) -> int:
        return len(self.specs)

    def read(self, name: str) -> torch.Tensor:
        """One tensor, contiguous, on the host."""
        if name not in self.specs:
            raise self.refusal(f"{name!r} is missing")
        with self._open() as file:
            return self._tensor(file, name)

    def read_all(self) -> dict[str, torch.Tensor]:
        """Every tensor, contiguous, on the host."""
        with self._open() as file:
            return {name: self._tensor(file, name) for name in self.specs}

    def load_into(self, targets: Mapping[str, torch.Tensor]) -> None:
        """Copy every tensor into the target of the same name, after `check`; all or nothing."""
        self.check({name: TensorSpec.of(tensor) for name, tensor in targets.items()})
        with self._open() as file, torch.no_grad():
            for name, target in targets.items():
                target.copy_(self._tensor(file, name))

    def check(self, expected: Mapping[str, TensorSpec]) -> None:
        """Refuse a missing, extra, misshapen or wrongly typed entry.

        Raises:
            CheckpointError: With the file and every name that does not fit (the first few spelled
                out).
        """
        problems = self.misfits(expected)
        if problems:
            raise self.refusal(listing(problems))

    def misfits(self, expected: Mapping[str, TensorSpec]) -> list[str]:
        """What `check` would refuse, one line for each entry."""
        problems = [f"{name!r} is missing" for name in expected if name not in self.specs]
        problems += [f"{name!r} is not part of this run" for name in self if name not in expected]
        problems += [
            f"{name!r} is {self[name]}, this run needs {spec}"
            for name, spec in expected.items()
            if name in self.specs and self[name] != spec
        ]
        return problems

    def refusal(self, what: str) -> CheckpointError:
        return CheckpointError(f"checkpoint {self.path.parent}: {self.path.name}: {what}")

    def _tensor(self, file: safetensors.safe_open, name: str) -> torch.Tensor:
        try:
            tensor: torch.Tensor = file.get_tensor(name)  # type: ignore[no-untyped-call]
        except safetensors.SafetensorError as error:
            raise self.refusal(f"{name!r} cannot be read ({error})") from None
        return tensor

    def _open(self) -> safetensors.safe_open:
        try:
            return safetensors.safe_open(self.path, framework="pt", device="cpu")
        except (safetensors.SafetensorError, OSError) as error:
            raise self.refusal(f"is no readable safetensors file ({error})") from None


def listing(problems: Iterable[str]) -> str:
    """The first few problems, separated by semicolons, and how many more there are."""
    found = list(problems)
    rest = len(found) - LISTED
    return "; ".join(found[:LISTED]) + (f"; and {rest} more" if rest > 0 else "")
