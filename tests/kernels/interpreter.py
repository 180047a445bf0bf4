"""Mends of Triton's interpreter, so that it computes on the CPU what a GPU computes.

It holds bf16 as 16-bit integers. As it comes (3.6), it cuts off where a GPU rounds to nearest even
and multiplies the integers in `tl.dot`; and NumPy from 2.4 refuses its loop bounds. `mend` replaces
these three pieces; it must run before the first kernel is launched.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import triton.language as tl
from numpy.typing import NDArray
from triton.runtime import interpreter


def mend() -> None:
    """Replace the three pieces, once."""
    builder = interpreter.InterpreterBuilder
    if builder.cast_impl is _cast:
        return
    _plain.update(cast=builder.cast_impl, dot=builder.create_dot, patch=interpreter._patch_lang_tensor)
    builder.cast_impl, builder.create_dot = _cast, _dot
    interpreter._patch_lang_tensor = _patch


_plain: dict[str, Any] = {}


def widened(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    """Return the float32 numbers of bf16 `bits`."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def rounded(numbers: NDArray[np.float32]) -> NDArray[np.uint16]:
    """Return the bits of the nearest bf16 numbers, ties to even."""
    bits = np.ascontiguousarray(numbers).view(np.uint32)
    nearest = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(numbers), 0x7FC0, nearest).astype(np.uint16)


def _cast(self: Any, source: Any, target: Any) -> Any:
    match source.dtype.scalar, target.scalar:
        case (tl.bfloat16, tl.float32):
            return interpreter.TensorHandle(widened(source.data), tl.float32)
        case (tl.float32, tl.bfloat16):
            return interpreter.TensorHandle(rounded(source.data), tl.bfloat16)
    return _plain["cast"](self, source, target)


def _dot(self: Any, left: Any, right: Any, *rest: Any) -> Any:
    wide = (_cast(self, side, tl.float32) if side.dtype.scalar == tl.bfloat16 else side for side in (left, right))
    return _plain["dot"](self, *wide, *rest)


def _patch(tensor: Any, scope: Any) -> None:
    _plain["patch"](tensor, scope)
    scope.set_attr(tensor, "__index__", lambda number: number.handle.data.item())
