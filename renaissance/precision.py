"""What the four names of a precision mean on a device."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

import torch

NAMES = ("32-true", "tf32", "bf16-mixed", "16-mixed")

#: What other frameworks call them.
_FOREIGN = {
    "32": "32-true",
    "fp32": "32-true",
    "float32": "32-true",
    "16": "16-mixed",
    "fp16": "16-mixed",
    "float16": "16-mixed",
    "mixed_float16": "16-mixed",
    "amp": "16-mixed",
    "bf16": "bf16-mixed",
    "bfloat16": "bf16-mixed",
    "mixed_bfloat16": "bf16-mixed",
    "tf32-true": "tf32",
}


@dataclass(frozen=True)
class Precision:
    """A precision resolved for a device.

    Attributes:
        name: One of `NAMES`.
        working_dtype: Type of the weights' 16-bit copy (region A), None without one.
        autocast_dtype: Type of torch.autocast around forward, None without it.
        tf32: Whether float32 products may run on tensor cores with 10 bits of mantissa.
        loss_scaling: Whether the loss is scaled dynamically.
        note: A line for the report when the choice has a drawback here, else empty.
    """

    name: str
    working_dtype: torch.dtype | None
    autocast_dtype: torch.dtype | None
    tf32: bool
    loss_scaling: bool
    note: str = ""


def resolve_precision(name: str, device: torch.device | str) -> Precision:
    """The precision of that name on a device.

    Args:
        name: "32-true" (never TF32), "tf32", "bf16-mixed" or "16-mixed" (CUDA only).
        device: Where training runs.

    Raises:
        TypeError: The name is no text.
        ValueError: No such precision, or not on this device.
    """
    if not isinstance(name, str):
        raise TypeError(
            f"precision = {name!r} ({type(name).__name__}) is not allowed; it takes one of {NAMES}"
        )
    if name not in NAMES:
        close = [_FOREIGN[name.lower()]] if name.lower() in _FOREIGN else []
        close = close or difflib.get_close_matches(name.lower(), NAMES, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"precision = {name!r} is not allowed; {hint}it takes one of {NAMES}")
    kind = torch.device(device).type
    if name == "16-mixed" and kind != "cuda":
        raise ValueError(
            f"precision = '16-mixed' needs a CUDA device, this task runs on {kind!r}; write "
            "'bf16-mixed' or '32-true'"
        )
    note = ""
    if name == "bf16-mixed" and kind == "cpu":
        note = "bf16-mixed is slower than 32-true on most CPUs; it is meant for testing here"
    if name == "tf32" and kind != "cuda":
        note = f"tf32 has no effect on {kind!r}: products are float32"
    dtype = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}.get(name)
    return Precision(
        name=name,
        working_dtype=dtype,
        autocast_dtype=dtype,
        tf32=name == "tf32" and kind == "cuda",
        loss_scaling=name == "16-mixed",
        note=note,
    )
