"""What users give as arrays, as the NumPy arrays that are trained on; or why not."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from renaissance.data.parts import SEVERAL

logger = logging.getLogger("renaissance")

#: Labels as a data set stores them: int64 class numbers, or float32 targets of any shape.
Labels = npt.NDArray[Any]

INT64 = np.iinfo(np.int64)

#: What to do about labels that are words.
NUMBER_THEM = (
    "number them: classes, y = np.unique(labels, return_inverse=True), and classes=classes beside "
    "y keeps their names"
)


def as_inputs(x: Any, *, say: bool = True) -> npt.NDArray[Any]:
    """x as a contiguous array or planar pictures; floats of another type become float32, said."""
    array = as_numpy(x, "x")
    if array.dtype.kind not in "fiub":
        raise TypeError(
            f"x is {_named(array)}; it takes uint8 pictures, floats, whole numbers or booleans"
        )
    if array.ndim == 0:
        raise ValueError(f"x is one number, {array}; it takes an array of samples, (N, ...)")
    if len(array) == 0:
        raise ValueError(
            f"the data is empty: x has shape {array.shape}; it takes at least 1 sample"
        )
    if array.dtype == np.uint8:
        _check_pictures(array)
    elif array.dtype.kind == "f" and array.dtype.itemsize != 4:
        if say:
            name = array.dtype.name
            logger.warning("x is %s and becomes float32; pass float32 to silence this", name)
        array = _as_float32(array, "x")
    if not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    if array.dtype == np.uint8 and is_planar(array):
        return array
    return np.ascontiguousarray(array)


def is_planar(pictures: npt.NDArray[Any]) -> bool:
    """Whether (N, H, W, C) pictures lie in memory as (N, C, H, W), which programs read fastest."""
    return pictures.ndim == 4 and pictures.transpose(0, 3, 1, 2).flags.c_contiguous


def _check_pictures(array: npt.NDArray[Any]) -> None:
    if array.ndim not in (3, 4):
        raise ValueError(
            f"x is uint8 of shape {array.shape}; uint8 arrays are pictures, (N, H, W) or "
            "(N, H, W, C). For plain numbers pass float32"
        )
    if array.ndim == 4 and array.shape[-1] > 4:
        hint = (
            "; it looks like (N, C, H, W): pass x.transpose(0, 2, 3, 1)"
            if array.shape[1] in (1, 3, 4)
            else ""
        )
        raise ValueError(
            f"x is uint8 of shape {array.shape}; pictures are (N, H, W, C) with 1 to 4 channels"
            + hint
        )


def as_targets(y: Any, *, say: bool = True) -> Labels:
    """Integers as int64, floats as float32; that float64 becomes float32 is said."""
    array = as_numpy(y, "y")
    if array.ndim == 0 and array.dtype.kind in "fiub":
        raise ValueError(f"y is one number, {array}; it takes a target for each sample, (N, ...)")
    if array.dtype.kind in "iub":
        if array.dtype.kind == "u" and array.size and array.max() > INT64.max:
            raise ValueError(f"y holds {array.max()}; it takes int64, up to {INT64.max}")
        return np.ascontiguousarray(array, np.int64)
    if array.dtype.kind != "f":
        words = f": {NUMBER_THEM}" if array.dtype.kind in "US" else ""
        raise TypeError(f"y is {_named(array)}; it takes integer labels or float targets{words}")
    if array.dtype == np.float64 and say:
        logger.warning("y is float64 and becomes float32; pass float32 to silence this")
    return np.ascontiguousarray(_as_float32(array, "y"))


def as_numpy(data: Any, what: str) -> npt.NDArray[Any]:
    """A NumPy view of an array, a tensor or nested lists.

    Raises:
        TypeError: It is something else, or holds something else than numbers or text.
        ValueError: Its rows are of unequal length, or parts of it are masked.
    """
    if isinstance(data, torch.Tensor):
        data = _of_tensor(data, what)
    try:
        array: npt.NDArray[Any] = np.asarray(data)
    except ValueError as error:  # rows of unequal length
        several = SEVERAL if isinstance(data, tuple) else ""
        raise ValueError(
            f"{what} is no array: {error}; rows of unequal length need padding{several}"
        ) from None
    if array.dtype == object:
        several = SEVERAL if isinstance(data, (dict, tuple, list)) else ""
        raise TypeError(_of_objects(array, data, what) + several)
    if isinstance(data, np.ma.MaskedArray) and (masked := int(np.sum(data.mask))):
        raise ValueError(
            f"{what} is a masked array, and {masked} numbers under the mask would count; fill them "
            f"in: {what}.filled(0)"
        )
    return array


def _of_tensor(tensor: torch.Tensor, what: str) -> npt.NDArray[Any]:
    """A tensor's numbers, in its memory where it is on the host; its graph stays behind."""
    if tensor.layout is not torch.strided:
        raise TypeError(f"{what} is a {tensor.layout} tensor; it takes dense ones: .to_dense()")
    if tensor.is_meta:
        raise TypeError(f"{what} is a tensor on the meta device, which has no numbers")
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    is_known = tensor.dtype in (torch.float16, torch.float32, torch.float64)
    found = tensor if is_known or not tensor.is_floating_point() else tensor.float()
    array: npt.NDArray[Any] = found.numpy()
    return array


def _as_float32(array: npt.NDArray[Any], what: str) -> npt.NDArray[np.float32]:
    """Rounded; ValueError where that makes a finite number infinite."""
    with np.errstate(over="raise"):
        try:
            return array.astype(np.float32)
        except FloatingPointError:
            largest = np.abs(array[np.isfinite(array)]).max()
            raise ValueError(
                f"{what} holds {largest:.4g} (or its negative), which float32 makes infinite; it "
                f"takes up to {np.finfo(np.float32).max:.4g}: scale it"
            ) from None


def _named(array: npt.NDArray[Any]) -> str:
    """What an array that is refused holds."""
    if array.dtype.kind in "US":
        first = str(array.flat[0]) if array.size else ""
        return f"text, such as {first!r:.40}"
    return f"an array of {array.dtype}"


def _of_objects(array: npt.NDArray[Any], data: Any, what: str) -> str:
    """What is refused of an array that NumPy has no type for."""
    if array.ndim == 0:
        came = "None" if data is None else f"a {type(data).__name__}"
        return f"{what} is {came}; it takes an array, a tensor or lists of numbers"
    others = (one for one in array.flat if not isinstance(one, (int, float, np.number, np.bool_)))
    first = next(others, 0)
    if isinstance(first, int):
        return (
            f"{what} is an array of objects, which are numbers; say of which type: "
            f"np.asarray({what}, np.float32)"
        )
    words = f": {NUMBER_THEM}" if isinstance(first, str) else ""
    return (
        f"{what} is an array of objects, a {type(first).__name__} among them, {first!r:.40}; it "
        f"takes numbers{words}"
    )
