"""Region S by name: the numbers that move between steps, wherever the region lies.

The fields and what moves them stand in ``ext/include/renaissance/scalars.h``; this is the host's
window on them. Reading a field of a region on a GPU waits for the device.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from renaissance import _native

#: Fields that a checkpoint keeps, by name.
STATE = (
    *("attempted", "applied", "skipped", "good", "bad", "averaged", "micro", "batches"),
    "loss_scale",
)

#: The fields as one NumPy record.
RECORD = np.dtype(
    {
        "names": list(_native.scalars_layout()),
        "formats": [(kind, count) for _, kind, count in _native.scalars_layout().values()],
        "offsets": [offset for offset, _, _ in _native.scalars_layout().values()],
        "itemsize": _native.SCALARS_BYTES,
    }
)

_TYPES = {
    "f4": torch.float32,
    "f8": torch.float64,
    "i8": torch.int64,
    "u8": torch.int64,
    "u4": torch.int32,
}

#: Of float16 gradients; it doubles and halves from there.
FIRST_LOSS_SCALE = 65536.0


class Scalars:
    """The fields of region S.

    Args:
        region: The region, any dtype, contiguous, at least ``_native.SCALARS_BYTES`` bytes.

    Example:
        >>> scalars = Scalars(torch.zeros(_native.SCALARS_BYTES, dtype=torch.uint8))
        >>> scalars.write(lr=0.1)
        >>> scalars["lr"]
        0.1
    """

    def __init__(self, region: torch.Tensor) -> None:
        self.bytes = region.view(torch.uint8)[: _native.SCALARS_BYTES]  # (SCALARS_BYTES,) uint8
        if self.bytes.numel() < _native.SCALARS_BYTES:
            raise ValueError(
                f"region S has {self.bytes.numel()} bytes; it needs {_native.SCALARS_BYTES}"
            )

    @property
    def address(self) -> int:
        return self.bytes.data_ptr()

    def view(self, name: str) -> torch.Tensor:
        """A field as a tensor over the same bytes, (count,); u4 and u8 as int32 and int64."""
        offset, kind, count = _native.scalars_layout()[name]
        end = offset + count * int(kind[1:])
        return self.bytes[offset:end].view(_TYPES[kind])

    def read(self) -> npt.NDArray[Any]:
        """All fields at one moment: a copy, (1,) of dtype `RECORD`."""
        return self.bytes.cpu().numpy().copy().view(RECORD)

    def __getitem__(self, name: str) -> Any:
        """A field as a Python number, or a list of them."""
        found = self.read()[name][0]
        return found.item() if found.size == 1 else found.tolist()

    def write(self, **fields: Any) -> None:
        """Write fields; numbers that float kernels read follow (`derive_scalars`)."""
        record = self.read()
        for name, given in fields.items():
            record[name][0] = given
        _native.derive_scalars(record.ctypes.data)
        self.bytes.copy_(torch.from_numpy(record.view(np.uint8)))

    def state(self) -> dict[str, int | float]:
        """The fields of `STATE`: counters and the loss scale."""
        record = self.read()
        return {name: record[name][0].item() for name in STATE}

    def restart(self, seed: int) -> None:
        """Counters as before the first step, and the loss scale that scaling begins with."""
        scale = FIRST_LOSS_SCALE if self["is_scaling"] else 1.0
        self.write(**dict.fromkeys(STATE, 0) | {"loss_scale": scale, "seed": seed, "stop": 0})

    def load_state(self, state: Mapping[str, int | float]) -> None:
        """Continue from what `state` gave; a missing or unknown field is a ValueError."""
        if set(state) != set(STATE):
            raise ValueError(
                f"counters are {sorted(state)}; a checkpoint has {sorted(STATE)}, all of them"
            )
        self.write(**state)
