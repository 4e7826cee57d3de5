"""Pictures that C++ does not decode: by their first bytes, to uint8 (H, W, C).

What becomes of odd inputs (checked one by one in ``tests/test_images.py``):

* grey becomes three equal channels where colour is wanted, colour becomes ITU-R 601 grey;
* alpha is dropped, a palette is looked up, CMYK is converted as every viewer does;
* 16 bits become 8 by their high byte (no clipping, no wrapping);
* an EXIF turn is ignored, as the published accuracies of ImageNet models were measured that way;
* a file that is cut, empty or no picture is an error; which format it is, its first bytes say, not
  its name.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image, UnidentifiedImageError

from renaissance import _native

Picture = npt.NDArray[np.uint8]  # (H, W, C)

#: First bytes of the formats we name in messages.
MAGIC = {
    b"\xff\xd8\xff": "JPEG",
    b"\x89PNG\r\n\x1a\n": "PNG",
    b"GIF8": "GIF",
    b"BM": "BMP",
    b"RIFF": "WebP",
    b"II*\x00": "TIFF",
    b"MM\x00*": "TIFF",
}


def format_of(data: bytes) -> str | None:
    """The picture format by its first bytes, or None."""
    return next((name for magic, name in MAGIC.items() if data.startswith(magic)), None)


def decode(data: bytes, channels: int) -> Picture:
    """An encoded picture as (H, W, channels) uint8.

    Args:
        data: The whole file.
        channels: 1 (grey) or 3 (RGB).

    Raises:
        ValueError: it is damaged, empty, or no picture.
    """
    if not data:
        raise ValueError("is empty (0 bytes)")
    if format_of(data) == "JPEG":
        if _native.has_jpeg():
            return _native.decode_jpeg(data, channels)
        fast = _decode_jpeg(data, channels)
        if fast is not None:
            return fast
    try:
        with Image.open(io.BytesIO(data)) as picture:
            return as_channels(_pixels(picture), channels)
    except UnidentifiedImageError:
        head = data[:8].hex(" ")
        raise ValueError(f"is no picture: its first bytes are {head} ({len(data)} bytes)") from None
    except (OSError, SyntaxError, EOFError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{error} ({len(data)} bytes)") from None


def _decode_jpeg(data: bytes, channels: int) -> Picture | None:
    """Through torchvision, which lets other threads run; None: not its kind of file."""
    from torchvision.io import ImageReadMode, decode_jpeg

    mode = ImageReadMode.GRAY if channels == 1 else ImageReadMode.RGB
    try:
        tensor = decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8), mode=mode)
    except RuntimeError:
        return None  # Pillow has the better message, or can read it after all
    picture: Picture = np.ascontiguousarray(tensor.permute(1, 2, 0).numpy())
    return picture


def _pixels(picture: Image.Image) -> Picture:
    """The pixels of an opened picture, (H, W) or (H, W, 3)."""
    mode = picture.mode
    if mode.startswith("I;16"):
        wide: npt.NDArray[np.uint16] = np.asarray(picture).astype(np.uint16)
        return high_byte(wide)
    if mode == "I":  # 16-bit PNG in older Pillow: 0 to 65535 in 32 bits
        return high_byte(np.clip(np.asarray(picture), 0, 65535).astype(np.uint16))
    if mode == "F":
        raise ValueError("holds floating-point pixels; convert it to 8 bits first")
    if mode in ("L", "1", "LA", "La"):
        return np.asarray(picture.convert("L"))
    if mode == "P" and "transparency" in picture.info:
        picture = picture.convert("RGBA")
    return np.asarray(picture.convert("RGB"))


def as_channels(pixels: npt.NDArray[Any], channels: int) -> Picture:
    """(H, W) or (H, W, 1 to 4) uint8 as contiguous (H, W, channels).

    Raises:
        ValueError: another dtype or shape.
    """
    if pixels.dtype == np.uint16:
        pixels = high_byte(pixels)
    if pixels.dtype != np.uint8 or pixels.ndim not in (2, 3):
        raise ValueError(
            f"a picture is uint8 (H, W) or (H, W, C); received {pixels.dtype} {pixels.shape}"
        )
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    found = pixels.shape[2]
    if found != channels and channels in (1, 3):
        if found in (2, 4):  # the last one is alpha
            pixels = pixels[:, :, : found - 1]
            found -= 1
        if found == 1 and channels == 3:
            pixels = np.repeat(pixels, 3, axis=2)
        elif found == 3 and channels == 1:
            pixels = grey_of(pixels)
    if pixels.shape[2] != channels:
        raise ValueError(f"has {pixels.shape[2]} channels; {channels} are expected")
    return np.ascontiguousarray(pixels)


def high_byte(wide: npt.NDArray[np.uint16]) -> Picture:
    """16-bit pixels as 8-bit ones."""
    narrow: Picture = (wide >> 8).astype(np.uint8)
    return narrow


def grey_of(pixels: Picture) -> Picture:
    """ITU-R 601 grey in 16-bit fixed point, rounded: (H, W, 3) to (H, W, 1)."""
    wide = pixels.astype(np.uint32)
    weighted = wide[:, :, 0] * 19595 + wide[:, :, 1] * 38470 + wide[:, :, 2] * 7471 + 0x8000
    return (weighted >> 16).astype(np.uint8)[:, :, None]


def picture_of(sample: Any, channels: int) -> Picture:
    """What a data set's `read` or `__getitem__` gave: array, bytes, tensor or PIL picture."""
    if isinstance(sample, (bytes, bytearray, memoryview)):
        return decode(bytes(sample), channels)
    if isinstance(sample, Image.Image):
        return as_channels(_pixels(sample), channels)
    if isinstance(sample, torch.Tensor):
        pixels = sample.detach().cpu().numpy()  # torchvision's (C, H, W)
        return as_channels(pixels if pixels.ndim == 2 else pixels.transpose(1, 2, 0), channels)
    return as_channels(np.asarray(sample), channels)


def is_picture(sample: Any) -> bool:
    """Whether transforms apply to it; everything else passes untouched."""
    if isinstance(sample, (bytes, bytearray, memoryview, Image.Image)):
        return True
    dtype = getattr(sample, "dtype", None)
    if isinstance(sample, torch.Tensor):
        return dtype == torch.uint8 and sample.ndim in (2, 3)
    return dtype is not None and np.dtype(dtype) in (np.uint8, np.uint16) and sample.ndim in (2, 3)
