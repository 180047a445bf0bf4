"""Rings as Python sees them: the files they are made of, a writer, and readers.

Owns descriptors and views; the bytes and their order are the native ring's business. An end
duplicates what it needs, so that the `RingFiles` may be closed once it is open. Ends belong to one
thread. A reader's views lie in a read-only mapping that lives as long as any of them: a view that is
kept too long shows other bytes, never unmapped memory.

Invariant: every descriptor opened here is closed by the `close` of its owner.
"""

from __future__ import annotations

import mmap
import os
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

from tokenspeed.capi import check, ffi, lib, raise_status
from tokenspeed.ipc.segment import create_segment
from tokenspeed.ipc.trace import Trace
from tokenspeed.ipc.wakeup import create_wakeup


@dataclass(frozen=True, slots=True, eq=False)
class RingFiles:
    """What a ring consists of, to be handed to the processes at its ends.

    `data_fds` holds one eventfd per reader, `capacity` is in bytes, `epoch` the life of the edge.
    The ends open what they need anew: once they are, the files may be closed.
    """

    segment_fd: int
    data_fds: tuple[int, ...]
    space_fd: int
    capacity: int
    epoch: int
    _open: list[int] = field(init=False, repr=False, default_factory=list)

    def __post_init__(self) -> None:
        self._open.extend(self.fds())

    @classmethod
    def from_fds(cls, fds: Sequence[int], capacity: int, epoch: int) -> RingFiles:
        """Return the files of a ring from the descriptors of `fds()`, which it then owns."""
        segment_fd, space_fd, *data_fds = fds
        return cls(segment_fd, tuple(data_fds), space_fd, capacity, epoch)

    def fds(self) -> list[int]:
        """Return all descriptors in the order that `from_fds` takes."""
        return [self.segment_fd, self.space_fd, *self.data_fds]

    def close(self) -> None:
        """Close the descriptors; ends that are open live on."""
        while self._open:
            os.close(self._open.pop())

    def __del__(self) -> None:
        if self._open:
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)
            self.close()


def create_ring(capacity_bytes: int, epoch: int, readers: int = 1) -> RingFiles:
    """Return a new, empty ring of at least `capacity_bytes` (rounded up to a power of two).

    A message above half the capacity travels in parts. Raises `StartError` when there is no memory.
    """
    capacity = 1 << (max(capacity_bytes, lib.TS_RING_CAPACITY_MIN) - 1).bit_length()
    fds = [create_segment(check(lib.ts_ring_segment_bytes(capacity)))]
    try:
        check(lib.ts_ring_format(fds[0], capacity, epoch, readers))
        # One by one: what is open already is closed on failure.
        while len(fds) < 2 + readers:
            fds.append(create_wakeup())
    except BaseException:
        for fd in fds:
            os.close(fd)
        raise
    return RingFiles.from_fds(fds, capacity, epoch)


class RingWriter:
    """The one end that sends. After a refused `try_send` wait for `space_fd`, then try again."""

    __slots__ = ("_handle", "space_fd")

    def __init__(self, files: RingFiles) -> None:
        out = ffi.new("ts_ring_writer **")
        data_fds = ffi.new("int32_t[]", files.data_fds)
        check(
            lib.ts_ring_writer_open(
                files.segment_fd, data_fds, len(files.data_fds), files.space_fd, files.capacity, files.epoch, out
            )
        )
        self._handle = ffi.gc(out[0], lib.ts_ring_writer_close)
        self.space_fd: int = lib.ts_ring_writer_space_fd(self._handle)

    def try_send(self, data: bytes | bytearray | memoryview) -> bool:
        """Send `data` and wake sleeping readers, or return False: the ring is full.

        False also arms `space_fd`: it becomes readable once a try is worth while (and is cleared by
        it). A message that was refused is to be tried again first: of one above half the capacity,
        a part may be under way, which a different message would throw away.
        """
        if type(data) is bytes:
            status = lib.ts_ring_send(self._handle, data, len(data))
        else:
            buffer = ffi.from_buffer(data)
            status = lib.ts_ring_send(self._handle, buffer, len(buffer))
        if status < 0:
            raise_status(status)
        return status == 1

    def trace_to(self, trace: Trace, edge: int) -> None:
        """Note every message sent or refused for want of room as that of `edge`; the trace must outlive this end."""
        check(lib.ts_ring_writer_trace(self._handle, trace.handle, edge))

    def clear_space(self) -> None:
        """Make `space_fd` unreadable; only for one who watches it without having been refused."""
        check(lib.ts_ring_clear_space(self._handle))

    @property
    def fill(self) -> int:
        """Bytes in use, as the slowest reader leaves them."""
        return check(lib.ts_ring_writer_fill(self._handle))

    def close(self) -> None:
        """Give the ring up; what was sent stays readable."""
        handle, self._handle = self._handle, ffi.NULL
        if handle != ffi.NULL:
            ffi.release(handle)


class RingReader:
    """An end that receives: `receive`, use the view, `release`, and again until None.

    To wait: when `prepare_sleep` returns True, `data_fd` becomes readable with the next message;
    then `clear_wakeup` and receive. With `poison`, released records are overwritten and a view that
    something still holds on to is an error: for tests and debugging.
    """

    __slots__ = ("_handle", "_memory", "_poison", "_record", "_view", "data_fd")

    def __init__(self, files: RingFiles, index: int = 0, *, poison: bool = False) -> None:
        out = ffi.new("ts_ring_reader **")
        if not 0 <= index < len(files.data_fds):
            raise ValueError(f"reader {index} of a ring for {len(files.data_fds)}")
        check(
            lib.ts_ring_reader_open(
                files.segment_fd,
                index,
                files.data_fds[index],
                files.space_fd,
                files.capacity,
                files.epoch,
                lib.TS_RING_POISON if poison else 0,
                out,
            )
        )
        self._handle = ffi.gc(out[0], lib.ts_ring_reader_close)
        self._record = ffi.new("ts_ring_record *")
        self._memory = _map_read_only(files)
        self._poison = poison
        self._view: memoryview = _NOTHING
        self.data_fd: int = lib.ts_ring_reader_data_fd(self._handle)

    def receive(self) -> memoryview | None:
        """Return the next message, read-only and valid until `release`; None when there is none."""
        status = lib.ts_ring_receive(self._handle, self._record)
        if status <= 0:
            if status < 0:
                raise_status(status)
            return None
        record = self._record
        begin = record.offset
        if begin >= 0:
            view = self._memory[begin : begin + record.bytes]
        else:
            view = memoryview(bytes(ffi.buffer(record.data, record.bytes)))
        self._view = view
        return view

    def trace_to(self, trace: Trace, edge: int) -> None:
        """Note every message received as that of `edge`; the trace must outlive this end."""
        check(lib.ts_ring_reader_trace(self._handle, trace.handle, edge))

    def release(self) -> None:
        """Give the message back to the writer; its view becomes unusable."""
        status = lib.ts_ring_release(self._handle)
        if status < 0:
            raise_status(status)
        try:
            self._view.release()
        except BufferError:
            if self._poison:
                raise

    def prepare_sleep(self) -> bool:
        """Return True when the ring is empty and `data_fd` is armed; False: there are messages."""
        status = lib.ts_ring_prepare_sleep(self._handle)
        if status < 0:
            raise_status(status)
        return status == 1

    def clear_wakeup(self) -> None:
        """Make `data_fd` unreadable and tell the writer that this reader is awake."""
        check(lib.ts_ring_clear_wakeup(self._handle))

    @property
    def fill(self) -> int:
        """Bytes that wait for this reader, headers included."""
        return check(lib.ts_ring_reader_fill(self._handle))

    def close(self) -> None:
        """Give this end up. Its writer would wait for it: rings end with their edge, not before."""
        handle, self._handle = self._handle, ffi.NULL
        if handle != ffi.NULL:
            ffi.release(handle)
            self._memory = self._view = _NOTHING


_NOTHING = memoryview(b"")


def _map_read_only(files: RingFiles) -> memoryview:
    size = check(lib.ts_ring_segment_bytes(files.capacity))
    flags = mmap.MAP_SHARED | mmap.MAP_POPULATE
    return memoryview(mmap.mmap(files.segment_fd, size, flags=flags, prot=mmap.PROT_READ))
