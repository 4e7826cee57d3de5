"""The IDX format of the MNIST family: a magic number, the sizes, then the bytes."""

from __future__ import annotations

import gzip
import math
import pathlib
import struct
import zlib

import numpy as np
import numpy.typing as npt


def read_idx(path: pathlib.Path) -> npt.NDArray[np.uint8]:
    """An IDX file of bytes, plain or gzip, as an array.

    The format: two zero bytes, the type (8: unsigned byte), the number of dimensions, each size as
    a big-endian 32-bit number, the elements in row-major order (LeCun, Cortes, Burges, "The MNIST
    database", 1998).

    Raises:
        ValueError: the file is not what its header says, or cut; the text names it.
    """
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path} is a damaged gzip file: {error}") from None
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != 8:
        raise ValueError(
            f"{path} is no IDX file of bytes: it begins with {data[:4].hex(' ')}, expected "
            "00 00 08 and the number of dimensions"
        )
    ndim = data[3]
    head = 4 + 4 * ndim
    if len(data) < head:
        raise ValueError(f"{path} is cut: {len(data)} bytes, its header alone has {head}")
    shape = struct.unpack(f">{ndim}I", data[4:head])
    if len(data) - head != math.prod(shape):
        raise ValueError(
            f"{path} holds {len(data) - head} bytes after its header, which says "
            f"{' x '.join(map(str, shape))} = {math.prod(shape)}"
        )
    return np.frombuffer(data, np.uint8, offset=head).reshape(shape)
