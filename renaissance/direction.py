"""Whether a watched value should fall or rise, by its name."""

from __future__ import annotations

import re

#: What "auto" takes a name for, by its last part; other names need mode="min" or "max".
LOWER_IS_BETTER = (
    "loss", "error", "mse", "mae", "rmse", "nll", "ce", "bce", "perplexity", "wer", "cer",
)  # fmt: skip
HIGHER_IS_BETTER = ("accuracy", "acc", "auc", "precision", "recall", "f1", "iou", "dice", "r2")


def direction(owner: str, name: str, mode: str) -> str:
    """ "min" or "max" of a value's name and a mode, which may be "auto".

    Args:
        owner: Who watches, for errors.
        name: A name in the epoch's logs, such as "val_loss".
        mode: "min", "max" or "auto".

    Raises:
        ValueError: Another mode, or "auto" for a name that does not tell.
    """
    if mode in ("min", "max"):
        return mode
    if mode != "auto":
        raise ValueError(f"{owner}: mode = {mode!r} is not allowed; it takes auto, min or max")
    last = name.rsplit("_", 1)[-1]
    if last in LOWER_IS_BETTER:
        return "min"
    if last in HIGHER_IS_BETTER or re.fullmatch(r"top\d+", last):
        return "max"
    raise ValueError(
        f"{owner}: mode = 'auto' does not know whether {name!r} should fall or rise; "
        "say mode='min' or mode='max'"
    )
