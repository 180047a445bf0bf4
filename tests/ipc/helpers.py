"""What the tests of rings share."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from contextlib import contextmanager

from tokenspeed.ipc.ring import RingFiles, RingReader, RingWriter, create_ring

CAPACITY = 4096


def readable(fd: int, timeout_s: float = 0.0) -> bool:
    """Return whether `fd` becomes readable in time."""
    return bool(select.select([fd], [], [], timeout_s)[0])


def open_descriptors() -> int:
    """Return how many descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))


@contextmanager
def ring_files(capacity: int = CAPACITY, readers: int = 1) -> Iterator[RingFiles]:
    """Give the files of a new ring."""
    files = create_ring(capacity, epoch=7, readers=readers)
    try:
        yield files
    finally:
        files.close()


@contextmanager
def ring(capacity: int = CAPACITY, readers: int = 1) -> Iterator[tuple[RingWriter, list[RingReader]]]:
    """Give both ends of a new ring, in this process and with poison."""
    with ring_files(capacity, readers) as files:
        writer = RingWriter(files)
        ends = [RingReader(files, index, poison=True) for index in range(readers)]
    try:
        yield writer, ends
    finally:
        writer.close()
        for end in ends:
            end.close()


def take(reader: RingReader) -> bytes | None:
    """Return a copy of the next message, released."""
    view = reader.receive()
    if view is None:
        return None
    data = bytes(view)
    reader.release()
    return data
