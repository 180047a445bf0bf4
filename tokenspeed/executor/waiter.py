"""The end of GPU work, as something that a loop can watch.

Owns the handle of the native thread that waits for CUDA events. It does not know what the work was:
an event comes with a token, and the token comes back.

Invariant: events are told in the order of `wait`, each once, also those that the driver refuses.
"""

from __future__ import annotations

from typing import NamedTuple

from tokenspeed.capi import check, ffi, lib

DRIVER = "libcuda.so.1"
EVENTS_MAX: int = lib.TS_WAITER_EVENTS_MAX
CLOSE_LIMIT_S = 2.0
TEXT_BYTES = 256


class EventEnd(NamedTuple):
    """`token`'s event has come at `done_us` (monotonic), or failed: `status` is then a CUresult."""

    token: int
    done_us: int
    status: int


class EventWaiter:
    """One native thread in the primary context of a device. Of one thread itself."""

    def __init__(self, device: int, driver: str = DRIVER) -> None:
        """Start the thread; raises `ArgumentError` if the driver or the device is not there."""
        out = ffi.new("ts_waiter **")
        check(lib.ts_waiter_create(driver.encode(), device, out))
        self._handle = out[0]
        self._end = ffi.new("ts_waiter_done *")

    def wait(self, event: int, token: int) -> None:
        """Wait for `event` behind those before; 0 stands for one that has come.

        `event` is the address of a CUDA event that was recorded, made with the blocking flag so
        that the wait takes no processor time; it must live until it was collected. Raises
        `CapacityError` with `EVENTS_MAX` waited for or not collected.
        """
        check(lib.ts_waiter_wait(self._handle, event, token))

    def fileno(self) -> int:
        """Return an eventfd that is readable exactly while `collect` has something."""
        return check(lib.ts_waiter_fd(self._handle))

    def collect(self) -> list[EventEnd]:
        """Return the events that have ended since; never waits."""
        ends = []
        end = self._end
        while check(lib.ts_waiter_next(self._handle, end)):
            ends.append(EventEnd(end.token, end.done_us, end.status))
        return ends

    def explain(self, status: int) -> str:
        """Return the driver's name for `status`, and what it means."""
        text = ffi.new("char[]", TEXT_BYTES)
        length = check(lib.ts_waiter_status_text(self._handle, status, text, TEXT_BYTES))
        return bytes(ffi.buffer(text, length)).decode(errors="replace")

    def close(self, limit_s: float = CLOSE_LIMIT_S) -> bool:
        """End the thread and drop what it has not begun to wait for.

        Returns False if an event does not come within `limit_s`: the thread is left behind, and the
        event that it waits for must not be destroyed.
        """
        handle, self._handle = self._handle, ffi.NULL
        return handle == ffi.NULL or check(lib.ts_waiter_destroy(handle, int(limit_s * 1e3))) == 1
