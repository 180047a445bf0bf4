"""The border to the native scheduler: `ffi`, `lib` and status codes as exceptions."""

from __future__ import annotations

from tokenspeed._native import ffi, lib
from tokenspeed.errors import EngineError

__all__ = ["check", "ffi", "last_error", "lib"]


def last_error() -> str:
    """Return the text of the newest failure on this thread."""
    text = ffi.string(lib.ts_last_error())
    return text.decode(errors="replace") if isinstance(text, bytes) else str(text)


def check(status: int) -> int:
    """Return `status` unless it is negative: then raise."""
    if status < 0:
        raise EngineError(last_error(), code="native_error")
    return status
