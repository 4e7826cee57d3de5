"""Where a task runs: devices by name."""

from __future__ import annotations

import os
import re

import torch


def resolve_device(device: str | torch.device) -> torch.device:
    """ "auto" (cuda:LOCAL_RANK or cuda when there is one, else cpu), "cpu", "cuda" or "cuda:N"."""
    text = str(device)
    if text == "auto":
        if not torch.cuda.is_available():
            return torch.device("cpu")
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    if text == "cpu":
        return torch.device("cpu")
    match = re.fullmatch(r"cuda(?::(\d+))?", text)
    if match is None:
        raise ValueError(
            f"device = {text!r} is not allowed; it takes 'auto', 'cpu', 'cuda' or 'cuda:N'"
        )
    number = int(match[1] or 0)
    if number >= torch.cuda.device_count():
        raise ValueError(
            f"device = {text!r} is not there: torch sees {torch.cuda.device_count()} CUDA devices; "
            "'auto' falls back to the CPU"
        )
    return torch.device("cuda", number)
