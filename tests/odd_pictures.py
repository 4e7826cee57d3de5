"""Picture files as they occur: odd kinds of JPEG and PNG, and damaged ones."""

import io
import struct
import zlib

import numpy as np
from PIL import Image

COLOURS = {"4:4:4": 0, "4:2:2": 1, "4:2:0": 2}


def scene(height, width, channels=3, seed=0):
    """A picture with edges, gradients and grain, (H, W, C) uint8."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[:height, :width]
    planes = [
        128 + 90 * np.sin(x / (5 + 3 * c) + seed) * np.cos(y / (7 + 2 * c)) for c in range(channels)
    ]
    picture = np.stack(planes, -1) + rng.normal(0, 12, (height, width, channels))
    picture[height // 3 : height // 2, width // 4 : width // 2] = rng.integers(0, 256, channels)
    return np.clip(picture, 0, 255).astype(np.uint8)


def jpeg(pixels, *, mode=None, **options):
    """Encoded by Pillow; grey for one channel, CMYK for four."""
    modes = {1: "L", 3: "RGB", 4: "CMYK"}
    channels = 1 if pixels.ndim == 2 else pixels.shape[2]
    picture = (
        Image.fromarray(
            pixels[..., 0] if pixels.shape[2:] == (1,) else pixels, mode or modes[channels]
        )
        if channels != 3
        else (Image.fromarray(pixels))
    )
    out = io.BytesIO()
    picture.save(out, "JPEG", **({"quality": 92} | options))
    return out.getvalue()


def png(picture, **options):
    out = io.BytesIO()
    picture.save(out, "PNG", **options)
    return out.getvalue()


def png16(pixels):
    """A 16-bit PNG, grey (H, W) or colour (H, W, 3) uint16, without any library's opinion."""
    height, width = pixels.shape[:2]
    colour = 0 if pixels.ndim == 2 else 2
    rows = pixels.astype(">u2").reshape(height, -1)
    raw = b"".join(b"\0" + row.tobytes() for row in rows)

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 16, colour, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(raw))
        + chunk(b"IEND", b"")
    )


def overwritten(data, *, count=64, seed=0):
    """The file with bytes in the middle of its scan replaced by noise without markers."""
    rng = np.random.default_rng(seed)
    noise = rng.integers(0, 255, count).astype(np.uint8).tobytes()  # never 0xFF
    middle = len(data) // 2
    return data[:middle] + noise + data[middle + count :]


def pil(data, mode="RGB"):
    return np.asarray(Image.open(io.BytesIO(data)).convert(mode))
