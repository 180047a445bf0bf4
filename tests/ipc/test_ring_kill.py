"""A peer dies at any moment: what arrives is whole and in order, and nobody hangs."""

from __future__ import annotations

import mmap
import os
import random
import select
import signal
import struct
import time
import zlib
from collections.abc import Callable

import pytest

from tests.conftest import Record
from tests.ipc.helpers import ring_files
from tokenspeed.ipc.ring import RingFiles, RingReader, RingWriter

CAPACITY = 1 << 20
HEAD = struct.Struct("<II")
TAIL_AT = 128
DATA_AT = 4096


def _child(body: Callable[[], None]) -> int:
    """Run `body` in a forked process, which never returns, and return its id."""
    pid = os.fork()
    if pid == 0:
        try:
            body()
        finally:
            os._exit(1)
    return pid


def _message(number: int) -> bytes:
    """Return message `number`: mostly large, some larger than half the ring, checksummed."""
    size = (number * 2654435761 >> 7) % 250_000 if number % 8 else CAPACITY // 2 + number % 1000 * 1000
    body = number.to_bytes(4, "little") * (size // 4 + 1)
    return HEAD.pack(number, zlib.crc32(body)) + body


MESSAGES = [_message(number) for number in range(32)]


def _write_forever(files: RingFiles) -> None:
    writer = RingWriter(files)
    for number in range(1 << 30):
        data = MESSAGES[number % len(MESSAGES)]
        while not writer.try_send(data):
            select.select([writer.space_fd], [], [])


def _check(number: int, data: bytes) -> None:
    said, checksum = HEAD.unpack_from(data)
    assert said == number % len(MESSAGES)
    assert zlib.crc32(memoryview(data)[HEAD.size :]) == checksum


class _Watcher:
    """Reads what a writer sends, and looks into its memory to see when it is inside a record."""

    def __init__(self, files: RingFiles) -> None:
        self.reader = RingReader(files)
        self.kept: list[bytes] = []
        self._memory = mmap.mmap(files.segment_fd, DATA_AT + CAPACITY, prot=mmap.PROT_READ)

    def read(self) -> bool:
        """Keep a copy of the next message, if there is one."""
        view = self.reader.receive()
        if view is None:
            return False
        self.kept.append(bytes(view))
        self.reader.release()
        return True

    def read_or_sleep(self) -> None:
        """Keep a copy of the next message, or sleep until something comes."""
        if not self.read() and self.reader.prepare_sleep():
            assert select.select([self.reader.data_fd], [], [], 10)[0]
            self.reader.clear_wakeup()

    def inside_a_record(self) -> bool:
        """Return whether the length word at tail (or, behind padding, at the lap's start) is negative."""
        (tail,) = struct.unpack_from("<Q", self._memory, TAIL_AT)
        lengths = [struct.unpack_from("<i", self._memory, DATA_AT + at)[0] for at in (tail % CAPACITY, 0)]
        return bool(min(lengths) < 0)

    def close(self) -> None:
        """Give up the reader and the memory."""
        self.reader.close()
        self._memory.close()


def _kill_a_writer(moment_s: float) -> tuple[int, bool]:
    """Kill a writer, `moment_s` after its first message and, if it can be hit, inside a record.

    Returns the number of messages read and whether it died inside a record.
    """
    with ring_files(CAPACITY) as files:
        pid = _child(lambda: _write_forever(files))
        watcher = _Watcher(files)
        while not watcher.kept:
            watcher.read_or_sleep()
        begin = time.monotonic()
        while time.monotonic() < begin + moment_s:
            watcher.read_or_sleep()
        while not watcher.inside_a_record() and time.monotonic() < begin + moment_s + 0.02:
            watcher.read()
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        while watcher.read():
            continue
        assert watcher.reader.prepare_sleep()
        inside = watcher.inside_a_record()
        watcher.close()
    for number, data in enumerate(watcher.kept):
        _check(number, data)
    return len(watcher.kept), inside


def _kill_many(times: int, seed: int) -> tuple[int, int]:
    moments = random.Random(seed)
    results = [_kill_a_writer(moments.uniform(0, 0.005)) for _ in range(times)]
    return sum(read for read, _ in results), sum(inside for _, inside in results)


def test_a_killed_writer_tears_nothing() -> None:
    read, _ = _kill_many(25, seed=1)
    assert read > 25


@pytest.mark.prove(shows="of 400 writers killed mid-write none tears a message or hangs its reader", limit_s=120)
def test_many_killed_writers_tear_nothing(proof: Record) -> None:
    read, inside = _kill_many(400, seed=2)
    proof(kills=400, died_inside_a_record=inside, messages_read=read)
    assert inside >= 5


def _read_forever(files: RingFiles) -> None:
    reader = RingReader(files)
    while True:
        if reader.receive() is not None:
            reader.release()
        elif reader.prepare_sleep():
            select.select([reader.data_fd], [], [])
            reader.clear_wakeup()


def test_a_killed_reader_is_back_pressure_and_no_more() -> None:
    with ring_files(CAPACITY) as files:
        pid = _child(lambda: _read_forever(files))
        writer = RingWriter(files)
        data = bytes(50_000)
        for _ in range(200):
            while not writer.try_send(data):
                assert select.select([writer.space_fd], [], [], 10)[0]
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        sent = 0
        while writer.try_send(data):
            sent += 1
        assert sent <= CAPACITY // 50_000
        assert not writer.try_send(data)
        writer.close()
