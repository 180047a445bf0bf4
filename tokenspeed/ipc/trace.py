"""Trace buffers: an actor's latest points in shared memory, always written, read when somebody looks.

Owns the buffers and their two ends. It does not know what the points mean (`tokenspeed.points`). A
buffer is a memory file without a name; it outlives the process that writes it, and a new life of the
actor goes on behind the old one's points. Nothing here waits: who reads too late finds points missing,
and how many.

Invariant: a point is read whole or not at all.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence

from tokenspeed.capi import check, ffi, lib
from tokenspeed.points import Kind, Point

CAPACITY = 1 << 16  # points: 2 MiB, half a minute of a busy engine
BATCH = 8192
KINDS = {int(kind): kind for kind in Kind}


class Trace:
    """The writing end. Any thread of its process may write; with no file behind it, nothing is kept."""

    def __init__(self, descriptor: int | None = None) -> None:
        """Write to the buffer behind `descriptor`, which may be closed afterwards; CorruptMemoryError if it is none."""
        out = ffi.new("ts_trace **")
        if descriptor is not None:
            check(lib.ts_trace_open(descriptor, out))
        self.handle = out[0]  # for native parts that write points of their own

    def point(self, kind: int, request: int = 0, step: int = 0, value: int = 0) -> None:
        """Note that `kind` happens now."""
        lib.ts_trace_put(self.handle, kind, request, step, value)

    def point_at(self, time_ns: int, kind: int, request: int = 0, step: int = 0, value: int = 0) -> None:
        """Note that `kind` happened at `time_ns` of the monotonic clock."""
        lib.ts_trace_put_at(self.handle, time_ns, kind, request, step, value)

    def points(self, kind: int, step: int, requests: Sequence[int], values: Sequence[int]) -> None:
        """Note `kind` once for each of `requests`, with its value, all at one time."""
        lib.ts_trace_put_all(self.handle, kind, step, requests, values, len(requests))

    def close(self) -> None:
        """Keep nothing from here on. No native part may hold the handle any more."""
        handle, self.handle = self.handle, ffi.NULL
        lib.ts_trace_close(handle)


NOWHERE = Trace()
"""Takes points and keeps none."""


def trace_collections(trace: Trace) -> Callable[[], None]:
    """Note from now on when Python's cycle collector begins and ends: all else stands still. Returns what ends it."""

    def note(phase: str, info: dict[str, int]) -> None:
        trace.point(Kind.GC_BEGIN if phase == "start" else Kind.GC_END, value=info["generation"])

    gc.callbacks.append(note)
    return lambda: gc.callbacks.remove(note)


class TraceFile:
    """A buffer's memory file, kept by whoever outlives the writers."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        """Make an empty buffer of `capacity` points, a power of two. OSError if there is no memory."""
        size = check(lib.ts_trace_bytes(capacity))
        self._fd = os.memfd_create("tokenspeed-trace", os.MFD_CLOEXEC)
        try:
            os.fchmod(self._fd, 0o600)
            os.posix_fallocate(self._fd, 0, size)
            check(lib.ts_trace_format(self._fd, capacity))
        except BaseException:
            os.close(self._fd)
            raise

    def fileno(self) -> int:
        """Return the descriptor, for writers."""
        return self._fd

    def read_only_fd(self) -> int:
        """Return a new descriptor that can only be read; the caller closes it."""
        return os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the descriptor; ends that are open go on."""
        os.close(self._fd)


class TraceReader:
    """The reading end. A reader disturbs neither the writers nor other readers."""

    def __init__(self, descriptor: int) -> None:
        """Read the buffer behind `descriptor`, which may be closed afterwards, from its oldest point on."""
        out = ffi.new("ts_trace_reader **")
        check(lib.ts_trace_reader_open(descriptor, out))
        self._handle = out[0]
        self._room = ffi.new("ts_trace_point[]", BATCH)

    def read(self) -> list[Point]:
        """Return the points written since the last call, about in the order of time; [] if there are none."""
        points: list[Point] = []
        while found := check(lib.ts_trace_read(self._handle, self._room, BATCH)):
            points += (
                Point(each.time_ns, KINDS[each.kind], each.request, each.step, each.value)
                for each in ffi.unpack(self._room, found)
                if each.kind in KINDS
            )
            if found < BATCH:
                break
        return points

    @property
    def lost(self) -> int:
        """Return how many points were overwritten before they could be read."""
        return int(check(lib.ts_trace_lost(self._handle)))

    def skip(self) -> None:
        """Leave out all that was written up to now."""
        check(lib.ts_trace_skip(self._handle))

    def close(self) -> None:
        """Let go of the buffer."""
        lib.ts_trace_reader_close(self._handle)
        self._handle = ffi.NULL
