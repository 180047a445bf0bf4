"""Waits for the events of steps, in a thread that knows no Python.

Owns the native waiter and its descriptor. It does not know steps: tokens come back in the order in
which they were given.

Invariant: nothing here blocks, except `close`, and that for a bounded time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from tokenspeed.capi import check, ffi, lib
from tokenspeed.errors import EngineError

DRIVER = "libcuda.so.1"
CLOSE_LIMIT_MS = 2_000
ALREADY = 0  # the event that has come
TEXT_BYTES = 256


class Done(NamedTuple):
    """An event has come: `done_us` on the monotonic clock."""

    token: int
    done_us: int


class EventWaiter:
    """One thread that waits for the events of one device."""

    def __init__(self, device: int, driver: str = DRIVER) -> None:
        """Start the thread; raises `EngineError` if the driver or the device is not there."""
        handle = ffi.new("ts_waiter **")
        check(lib.ts_waiter_create(driver.encode(), device, handle))
        self._waiter = handle[0]
        self._done = ffi.new("ts_waiter_done *")

    def fileno(self) -> int:
        """Return a descriptor that is readable exactly while `done` has something."""
        return check(lib.ts_waiter_fd(self._waiter))

    def wait(self, event: int, token: int) -> None:
        """Wait for `event`, a recorded CUDA event, or for none (`ALREADY`)."""
        check(lib.ts_waiter_wait(self._waiter, event, token))

    def done(self) -> Iterator[Done]:
        """Yield the events that have come; raises `EngineError` once the GPU reports an error."""
        while check(lib.ts_waiter_next(self._waiter, self._done)):
            if self._done.status:
                raise EngineError(f"The GPU reports: {self._text(self._done.status)}.", code="gpu_lost")
            yield Done(self._done.token, self._done.done_us)

    def close(self) -> bool:
        """End the thread and return whether it has ended: one that the GPU holds is left to itself."""
        return check(lib.ts_waiter_destroy(self._waiter, CLOSE_LIMIT_MS)) == 1

    def _text(self, status: int) -> str:
        text = ffi.new("char[]", TEXT_BYTES)
        length = check(lib.ts_waiter_status_text(self._waiter, status, text, TEXT_BYTES))
        return str(ffi.string(text, length).decode())
