"""The status page: what each actor is doing, as numbers in shared memory.

One cache line per actor, written by that actor's own loop and read by the supervisor and by tools.
An actor that is stopped or stuck cannot write, so its silence shows whatever the cause. The page
knows no names: a line's index is its meaning, which the topology tells.

Invariant: a line has one writer at a time, and every word is one aligned 8-byte store.

    line i:  | turns | turned_us | phase_us | limit_us | records_in | records_out | backlog | - |
"""

from __future__ import annotations

import mmap
import os
import time
from enum import IntEnum

WORD_BYTES = 8
LINE_WORDS = 8
LINE_BYTES = WORD_BYTES * LINE_WORDS


class Word(IntEnum):
    """Index of each number in a line. Times are microseconds of the machine's monotonic clock."""

    TURNS = 0
    TURNED_US = 1
    PHASE_US = 2
    LIMIT_US = 3
    RECORDS_IN = 4
    RECORDS_OUT = 5
    BACKLOG_BYTES = 6


def now_us() -> int:
    """Return the monotonic clock, which all processes of a machine share, in microseconds."""
    return time.monotonic_ns() // 1_000


class StatusLine:
    """One actor's numbers. Only that actor writes, except for `begin`, before its process lives."""

    def __init__(self, words: memoryview) -> None:
        self._words = words

    def begin(self, now: int, limit_us: int) -> None:
        """Start a new life: nothing done yet, and `limit_us` for the first phase."""
        for word in Word:
            self._words[word] = 0
        self._words[Word.TURNED_US] = now
        self.announce(now, limit_us)

    def announce(self, now: int, limit_us: int) -> None:
        """Say that a phase begins now, and that `limit_us` without news of it are no reason to worry."""
        self._words[Word.LIMIT_US] = limit_us
        self._words[Word.PHASE_US] = now

    def turned(self, now: int) -> None:
        """Say that the loop turns."""
        self._words[Word.TURNED_US] = now
        self._words[Word.TURNS] += 1

    def count(self, records_in: int, records_out: int, backlog_bytes: int) -> None:
        """Publish the records handled and sent in this life, and the bytes that wait for room."""
        self._words[Word.RECORDS_IN] = records_in
        self._words[Word.RECORDS_OUT] = records_out
        self._words[Word.BACKLOG_BYTES] = backlog_bytes

    def release(self) -> None:
        """Let go of the page's memory; the line is of no use from here on."""
        self._words.release()

    def __getitem__(self, word: Word) -> int:
        """Return one number."""
        return int(self._words[word])


class StatusPage:
    """The mapping of all lines, and its descriptor."""

    def __init__(self, descriptor: int, *, writable: bool = True) -> None:
        """Map the page behind `descriptor` and own that; OSError or ValueError if it is none."""
        self._fd = descriptor
        access = mmap.PROT_READ | mmap.PROT_WRITE if writable else mmap.PROT_READ
        self._map = mmap.mmap(descriptor, os.fstat(descriptor).st_size, mmap.MAP_SHARED, access)
        self._words = memoryview(self._map).cast("Q")
        self._lines: list[StatusLine] = []

    @classmethod
    def create(cls, lines: int) -> StatusPage:
        """Return a new page of `lines` zeroed lines. It has no name in any file system."""
        descriptor = os.memfd_create("tokenspeed-status", os.MFD_CLOEXEC)
        os.fchmod(descriptor, 0o600)
        os.ftruncate(descriptor, lines * LINE_BYTES)
        return cls(descriptor)

    def __len__(self) -> int:
        """Return the number of lines."""
        return len(self._words) // LINE_WORDS

    def line(self, index: int) -> StatusLine:
        """Return line `index`; IndexError outside the page."""
        if not 0 <= index < len(self):
            raise IndexError(f"line {index} of a status page with {len(self)} lines")
        line = StatusLine(self._words[index * LINE_WORDS : (index + 1) * LINE_WORDS])
        self._lines.append(line)
        return line

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._fd

    def read_only_fd(self) -> int:
        """Return a new descriptor that can only be read or mapped for reading; the caller closes it."""
        return os.open(f"/proc/self/fd/{self._fd}", os.O_RDONLY | os.O_CLOEXEC)

    def close(self) -> None:
        """Unmap the page, whose lines end with it, and close its descriptor."""
        for line in self._lines:
            line.release()
        self._words.release()
        self._map.close()
        os.close(self._fd)
