"""Looking at a loader: a report in words, a benchmark, a picture of a batch."""

from __future__ import annotations

import os
import pathlib
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from renaissance import _native
from renaissance.data.batch import Batch
from renaissance.data.ledger import Ledger
from renaissance.data.program import Program
from renaissance.data.supply import Supply

if TYPE_CHECKING:
    from renaissance.data.loader import Loader

_LISTED = 20  # damaged samples that a report names
_CELL = 96  # least width of a picture in a preview, pixels
_CAPTION = 14  # height of the line below it

_FORMS = {
    "pictures": "pictures in memory, read by C++ workers",
    "rows": "arrays in memory, passed untouched by C++ workers",
    "files": "picture files, read by C++ workers",
    "python": "read() of a Python data set, called by reader threads under the GIL",
}

TORCH_NOTE = (
    "a torch data set: its __getitem__ runs in reader threads; where it draws random numbers, "
    "results depend on workers and resuming is not exact"
)


def report_of(loader: Loader, supply: Supply, program: Program | None, ledger: Ledger) -> str:
    """The text of `Loader.report`."""
    classes = "" if supply.classes is None else f" of {len(supply.classes)} classes"
    lines = [
        f"{loader.num_samples:,} samples{classes}: {_FORMS[supply.form]}",
        f"{loader.steps_per_epoch:,} batches of {loader.batch_size}, "
        f"{'shuffled' if loader.shuffle else 'in order'}, {loader.workers} workers",
    ]
    if supply.form == "files" or (supply.form == "python" and supply.is_picture):
        lines.append(f"JPEG: {_decoder()}")
    if supply.is_torch:
        lines.append(TORCH_NOTE)
    if program is not None:
        lines += ["  " + line for line in program.to_text().splitlines()]
    if loader.mix:
        lines.append(f"pairs of neighbours mixed by {' or '.join(map(repr, loader.mix))}")
    if ledger.damaged:
        lines.append(f"{len(ledger.damaged)} damaged samples ({loader.settings.on_error}):")
        lines += [_damage(supply, *entry) for entry in sorted(ledger.damaged.items())[:_LISTED]]
    return "\n".join(lines)


def _decoder() -> str:
    if _native.has_jpeg():
        return "libjpeg-turbo in C++, only the part that is needed; its warnings count as damage"
    return (
        "torchvision, as this build found no jpeglib.h; whole pictures, and bytes overwritten in "
        "the middle of a file go unnoticed"
    )


def _damage(supply: Supply, index: int, entry: tuple[str, int]) -> str:
    text, replacement = entry
    instead = "" if replacement < 0 else f"; first replaced by {supply.name(replacement)}"
    return f"  {supply.name(index)}: {text}{instead}"


def bench(loader: Loader, seconds: float, seed: int) -> dict[str, float]:
    """The figures of `Loader.bench`."""
    images, epoch = 0, 0
    with loader.stream(seed=seed) as stream:
        start = time.perf_counter()
        while time.perf_counter() - start < seconds:
            for batch in stream:
                images += len(batch)
                if time.perf_counter() - start >= seconds:
                    break
            else:
                epoch += 1
                stream.rewind(epoch)
        took = time.perf_counter() - start
        stats = stream.stats()
    cpu_ms = stats["decode_ms"] + stats["augment_ms"]
    return {
        "images_per_second": images / took,
        "images_per_second_per_core": 1000.0 / cpu_ms if cpu_ms else 0.0,
        "workers": loader.workers,
        **stats,
    }


def draw_batch(
    path: str | os.PathLike[str],
    batch: Batch,
    program: Program,
    classes: tuple[str, ...] | None,
    count: int,
) -> None:
    """Writes pictures (N, C, H, W) and their labels as a PNG grid, making the folders above it."""
    levels = _levels(batch.x[:count], program)
    count, height, width = len(levels), *levels.shape[1:3]
    scale = max(1, -(-_CELL // width))
    columns = int(np.ceil(np.sqrt(count)))
    cell = (width * scale + 4, height * scale + _CAPTION + 4)
    sheet = Image.new("RGB", (columns * cell[0], -(-count // columns) * cell[1]), "white")
    pen = ImageDraw.Draw(sheet)
    for k, pixels in enumerate(levels):
        left, top = k % columns * cell[0] + 2, k // columns * cell[1] + 2
        picture = Image.fromarray(pixels).resize(
            (width * scale, height * scale), Image.Resampling.NEAREST
        )
        sheet.paste(picture, (left, top))
        pen.text((left, top + height * scale), _caption(batch, k, classes), fill="black")
    place = pathlib.Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    sheet.save(place, format="PNG")


def _levels(x: npt.NDArray[np.float32], program: Program) -> npt.NDArray[np.uint8]:
    """Normalisation undone: (N, C, H, W) float32 to (N, H, W, 3) uint8."""
    channels = x.shape[1]
    value = next(op.value for op in reversed(program.operations) if op.kind == "normalize")
    scale = np.asarray(value[:channels]).reshape(-1, 1, 1)
    shift = np.asarray(value[4 : 4 + channels]).reshape(-1, 1, 1)
    rounded: npt.NDArray[np.float64] = np.clip(np.rint((x - shift) / scale), 0, 255)
    levels = rounded.astype(np.uint8).transpose(0, 2, 3, 1)
    if channels >= 3:
        return levels[..., :3]
    return np.repeat(levels[..., :1], 3, axis=3)


def _caption(batch: Batch, k: int, classes: tuple[str, ...] | None) -> str:
    """The class, or the two most probable ones of a mixed sample; other targets as they are."""
    if batch.y is None:
        return ""
    label: Any = batch.y[k]
    if classes is None or np.shape(label) not in ((), (len(classes),)):
        return str(label)[:20]
    if np.ndim(label) == 0:
        return str(classes[int(label)]) if 0 <= label < len(classes) else str(label)
    parts = [c for c in np.argsort(-label, kind="stable")[:2] if label[c] > 0]
    return ", ".join(f"{classes[c]}: {100 * label[c]:.0f}%" for c in parts)
