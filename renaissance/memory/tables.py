"""Plain text for people: sizes in human units and aligned tables."""

from __future__ import annotations

from collections.abc import Collection, Sequence


def human(nbytes: int) -> str:
    """A number of bytes in binary units: ``human(1536) == "1.50 KiB"``."""
    size, unit = float(nbytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{nbytes} B" if unit == "B" else f"{size:.2f} {unit}"


def table(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Lines of equal columns, two blanks apart; the first row is the head.

    Args:
        rows: Cells, equally many in each row.
        right: Columns that are aligned to the right.
    """
    widths = [max(len(cell) for cell in column) for column in zip(*rows)]
    return [
        "  ".join(
            cell.rjust(width) if place in right else cell.ljust(width)
            for place, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]
