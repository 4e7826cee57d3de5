"""Transforms on data that lives on the GPU: the whole batch in one kernel, the workers' bits.

Nothing comes from the host: ids, key, epoch and position are read from device memory, so a captured
graph that holds the launch goes on to the next batch when ``state`` changes there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from renaissance import kernels
from renaissance.data.program import Program

_DTYPES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
_THREADS = 256
_PIXELS = 4096  # that a thread block makes: several share a large sample


class Resident(NamedTuple):
    """A data set that a device can hold and transform itself.

    ``order(seed, epoch, step)`` gives the ids of a batch, int64.
    """

    x: npt.NDArray[np.uint8]  # (N, H, W, C)
    y: npt.NDArray[Any] | None
    program: Program
    order: Callable[[int, int, int], npt.NDArray[np.int64]]


@dataclass(frozen=True)
class ResidentData:
    """A data set and its program in device memory.

    Args:
        program: A program with `Program.resident_reason` None.
        text: Its bytes, (n,) uint8 on the device.
        pictures: (N, H, W, C) uint8 on the device, any strides.
        labels: (N,) int64 on the device, or None.
    """

    program: Program
    text: torch.Tensor
    pictures: torch.Tensor
    labels: torch.Tensor | None

    @classmethod
    def load(
        cls, program: Program, pictures: torch.Tensor, labels: torch.Tensor | None
    ) -> ResidentData:
        """Check what the kernel takes, and bring the program to the pictures' device.

        Raises:
            ValueError: The program cannot run there (the text names the transform), or the
                tensors have another shape, type or device.
        """
        reason = program.resident_reason
        if reason is not None:
            raise ValueError(
                f"the transforms cannot run on resident data: {reason}; use device_cache='off'"
            )
        source = program.stages[0][1]
        expected = (source.height, source.width, source.channels)
        if pictures.dtype != torch.uint8 or tuple(pictures.shape[1:]) != expected:
            raise ValueError(
                f"pictures are {pictures.dtype} {tuple(pictures.shape)}; the program takes uint8 "
                f"(N, {source.height}, {source.width}, {source.channels})"
            )
        if labels is not None and (
            labels.dtype != torch.int64
            or labels.shape != pictures.shape[:1]
            or labels.device != pictures.device
            or not labels.is_contiguous()
        ):
            raise ValueError(
                f"labels are {labels.dtype} {tuple(labels.shape)} on {labels.device}; the kernel "
                f"takes contiguous int64 ({len(pictures)},) on {pictures.device}"
            )
        text = torch.frombuffer(bytearray(program.text), dtype=torch.uint8)
        return cls(program, text.to(pictures.device), pictures, labels)

    def state(self, key: int, epoch: int, first: int = 0) -> torch.Tensor:
        """(4,) int64 on the host: the words of `augment`, to be copied to the device."""
        words = np.array([key, epoch, first, 0], np.uint64).view(np.int64)
        return torch.from_numpy(words.copy())

    def augment(
        self,
        ids: torch.Tensor,
        state: torch.Tensor,
        out: torch.Tensor,
        out_labels: torch.Tensor | None = None,
        out_ids: torch.Tensor | None = None,
        *,
        end: int = 0,
    ) -> None:
        """Make the batch of samples ``ids[first : first + len(out)]`` on torch's current stream.

        Args:
            ids: int64 on the device, every one within the data set; at least first + len(out).
            state: (4,) int64 on the device: key, epoch, first, and a counter that is 0 (see
                `state`).
            out: (B, C, H, W) float32, bfloat16 or float16, contiguous or channels-last; channels
                beyond the program's become zeros.
            out_labels: (B,) int64, or None.
            out_ids: (B,) int64, or None.
            end: Number of samples: `first` moves on to the next batch, past the end to 0; with 0
                it stays.
        """
        channels, height, width = self.program.shape
        if out.dtype not in _DTYPES or out.shape[2:] != (height, width) or out.shape[1] < channels:
            raise ValueError(
                f"out is {out.dtype} {tuple(out.shape)}; the program makes (B, {channels} or more, "
                f"{height}, {width}) float32, bfloat16 or float16"
            )
        strides = self.pictures.stride()
        parts = -(-out.shape[2] * out.shape[3] // _PIXELS)
        kernels.launch(
            "augment_batch",
            len(out) * parts,
            _THREADS,
            self.pictures.data_ptr(),
            *(np.int64(stride) for stride in strides),
            0 if self.labels is None else self.labels.data_ptr(),
            ids.data_ptr(),
            state.data_ptr(),
            self.text.data_ptr(),
            out.data_ptr(),
            0 if out_labels is None or self.labels is None else out_labels.data_ptr(),
            0 if out_ids is None else out_ids.data_ptr(),
            np.int32(_DTYPES[out.dtype]),
            np.int32(_layout(out)),
            np.int32(out.shape[1]),
            np.int64(end),
            np.int32(parts),
        )


def _layout(out: torch.Tensor) -> int:
    """0 for (B, C, H, W) in memory, 1 for (B, H, W, C)."""
    if out.is_contiguous():
        return 0
    if out.is_contiguous(memory_format=torch.channels_last):
        return 1
    raise ValueError(f"out has strides {out.stride()}; it has to be contiguous or channels-last")
