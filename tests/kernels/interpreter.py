"""Triton's interpreter, mended where version 3.6 falls short of the compiler.

A loop over range(tensor) fails there since numpy 2.4, and tl.dot multiplies the bit patterns of bfloat16.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import triton.language as tl
from triton.runtime import interpreter


def mend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mend the interpreter until the test is over; without effect on compiled kernels."""
    patch, dot = interpreter._patch_lang_tensor, interpreter.InterpreterBuilder.create_dot

    def patch_tensor(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: self.handle.data.item())

    def create_dot(self: Any, a: Any, b: Any, *others: Any) -> Any:
        return dot(self, _widened(a), _widened(b), *others)

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", patch_tensor)
    monkeypatch.setattr(interpreter.InterpreterBuilder, "create_dot", create_dot)


def _widened(handle: Any) -> Any:
    if handle.dtype.scalar != tl.bfloat16:
        return handle
    # The interpreter keeps bfloat16 as uint16: the upper half of a float32.
    return interpreter.TensorHandle((handle.data.astype(np.uint32) << 16).view(np.float32), tl.float32)
