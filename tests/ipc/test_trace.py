"""Trace buffers: whole points, the newest ones, and a true count of those that were missed."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator

import pytest

from tokenspeed.capi import ArgumentError, CorruptMemoryError, HandleClosedError
from tokenspeed.ipc.trace import NOWHERE, Trace, TraceFile, TraceReader, trace_collections
from tokenspeed.points import Kind, Point

CAPACITY = 64


@pytest.fixture
def buffer() -> Iterator[TraceFile]:
    """A small buffer."""
    made = TraceFile(CAPACITY)
    yield made
    made.close()


def test_points_come_back_as_they_were_written(buffer: TraceFile) -> None:
    """With the time of the call, or the one that was given; once, in order."""
    trace, reader = Trace(buffer.fileno()), TraceReader(buffer.fileno())
    before_ns = time.monotonic_ns()
    trace.point(Kind.CHUNK, 2**63 + 1, 2**32 - 1, -5)
    trace.points(Kind.TEXT, 8, [1, 2], [30, 40])
    trace.point_at(123, Kind.GC_BEGIN)
    first, *rest = reader.read()
    assert before_ns <= first.time_ns <= time.monotonic_ns()
    assert first[1:] == (Kind.CHUNK, 2**63 + 1, 2**32 - 1, -5)
    assert [each[1:] for each in rest[:2]] == [(Kind.TEXT, 1, 8, 30), (Kind.TEXT, 2, 8, 40)]
    assert rest[2] == Point(123, Kind.GC_BEGIN, 0, 0, 0)
    assert (reader.read(), reader.lost) == ([], 0)
    trace.close()
    reader.close()


def test_the_oldest_points_make_room_and_are_counted(buffer: TraceFile) -> None:
    """A reader that comes late has the newest `CAPACITY` points; one that skips has none and has lost none."""
    trace, reader, skipper = Trace(buffer.fileno()), TraceReader(buffer.fileno()), TraceReader(buffer.fileno())
    for value in range(3 * CAPACITY + 5):
        trace.point(Kind.RESULT, value=value)
    skipper.skip()
    assert [point.value for point in reader.read()] == list(range(2 * CAPACITY + 5, 3 * CAPACITY + 5))
    assert reader.lost == 2 * CAPACITY + 5
    assert (skipper.read(), skipper.lost) == ([], 0)
    trace.close()


def test_a_new_life_of_the_writer_goes_on_behind_the_old_one(buffer: TraceFile) -> None:
    """The buffer outlives its writers."""
    reader = TraceReader(buffer.fileno())
    for life in range(2):
        trace = Trace(buffer.fileno())
        trace.point(Kind.OPENED, value=life)
        trace.close()
        trace.point(Kind.OPENED, value=9)  # of no effect any more
    assert [point.value for point in reader.read()] == [0, 1]


def test_two_threads_write_and_no_point_is_torn() -> None:
    """Each of them in its own order, while it is read."""
    buffer = TraceFile(1 << 14)
    trace, reader = Trace(buffer.fileno()), TraceReader(buffer.fileno())
    count = 5000

    def write(request: int) -> None:
        for value in range(count):
            trace.point(Kind.RESULT, request, value, value * request)

    threads = [threading.Thread(target=write, args=(request,)) for request in (3, 7)]
    for thread in threads:
        thread.start()
    points: list[Point] = []
    while any(thread.is_alive() for thread in threads):
        points += reader.read()
    points += reader.read()
    assert reader.lost == 0
    for request in (3, 7):
        mine = [(point.step, point.value) for point in points if point.request == request]
        assert mine == [(value, value * request) for value in range(count)]
    buffer.close()


def test_a_reader_has_no_way_to_write(buffer: TraceFile) -> None:
    """What tools are handed can be read only."""
    descriptor = buffer.read_only_fd()
    with pytest.raises(ArgumentError, match="Permission denied"):
        Trace(descriptor)
    TraceReader(descriptor).close()
    os.close(descriptor)


def test_what_is_no_buffer_is_refused() -> None:
    """Another file, another size; and a closed reader says so."""
    descriptor = os.memfd_create("other")
    for size in (10, 1 << 16):
        os.ftruncate(descriptor, size)
        with pytest.raises(CorruptMemoryError, match=r"no buffer|does not hold"):
            TraceReader(descriptor)
    os.close(descriptor)
    with pytest.raises(ArgumentError, match="100 points; a power of two"):
        TraceFile(100)
    buffer = TraceFile(CAPACITY)
    reader = TraceReader(buffer.fileno())
    reader.close()
    with pytest.raises(HandleClosedError):
        reader.read()
    buffer.close()


def test_nowhere_takes_everything() -> None:
    """A part that nobody traces writes into nothing."""
    NOWHERE.point(Kind.TEXT, 1, 2, 3)
    NOWHERE.points(Kind.TEXT, 1, [1], [2])


def test_collections_are_noted(buffer: TraceFile) -> None:
    """Python's collector shows with its begin, its end and its generation."""
    trace, reader = Trace(buffer.fileno()), TraceReader(buffer.fileno())
    end = trace_collections(trace)
    gc.collect(1)
    end()
    gc.collect(1)
    noted = reader.read()
    assert [(point.kind, point.value) for point in noted] == [(Kind.GC_BEGIN, 1), (Kind.GC_END, 1)]
