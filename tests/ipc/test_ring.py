"""Rings through their Python face: order, laps, fragments, back-pressure, wake-ups, broken peers."""

from __future__ import annotations

import os
from array import array

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ipc.helpers import CAPACITY, open_descriptors, readable, ring, ring_files, take
from tokenspeed.capi import ArgumentError, CorruptMemoryError, HandleClosedError, IllegalEventError, ffi
from tokenspeed.ipc.codec import Encoder
from tokenspeed.ipc.ring import RingFiles, RingReader, RingWriter, create_ring


def test_carries_bytes_of_every_kind() -> None:
    ids = array("i", [1, 2, 3])
    with ring() as (writer, [reader]):
        for data in (b"", b"bytes", bytearray(b"array"), memoryview(b"a view")[2:], memoryview(ids)):
            assert writer.try_send(data)
            assert take(reader) == bytes(data)
        assert reader.receive() is None


def test_a_view_is_read_only_and_ends_with_its_release() -> None:
    with ring() as (writer, [reader]):
        writer.try_send(b"hello")
        view = reader.receive()
        assert view is not None
        assert view.readonly
        kept = view[1:]
        assert bytes(kept) == b"ello"
        with pytest.raises(IllegalEventError):
            reader.receive()
        reader.release()
        with pytest.raises(ValueError, match="released"):
            bytes(view)
        assert bytes(kept) == b"\xdb" * 4  # what was kept too long is poisoned
        with pytest.raises(IllegalEventError):
            reader.release()


@pytest.mark.parametrize("poison", [False, True])
def test_a_buffer_that_holds_on_to_a_record_is_an_error_when_poisoning(poison: bool) -> None:
    with ring_files() as files:
        writer, reader = RingWriter(files), RingReader(files, poison=poison)
    writer.try_send(b"hello")
    view = reader.receive()
    assert view is not None
    kept = ffi.from_buffer(view)
    if poison:
        with pytest.raises(BufferError):
            reader.release()
    else:
        reader.release()
    assert bytes(ffi.buffer(kept)) == (b"\xdb" * 5 if poison else b"hello")
    assert writer.fill == 0  # the record was given back in either case
    writer.close()
    reader.close()


def test_views_outlive_the_reader() -> None:
    with ring() as (writer, [reader]):
        writer.try_send(b"hello")
        view = reader.receive()
        assert view is not None
        reader.close()
        assert bytes(view) == b"hello"


def test_capacity_is_rounded_up() -> None:
    for wanted, given_bytes in ((1, 4096), (4096, 4096), (4097, 8192), (100_000, 131072)):
        with ring_files(wanted) as files:
            assert files.capacity == given_bytes
            assert os.fstat(files.segment_fd).st_size == 4096 + given_bytes


def test_fill_counts_the_bytes_in_use() -> None:
    with ring(readers=2) as (writer, [first, second]):
        assert writer.fill == first.fill == 0
        writer.try_send(b"x" * 100)
        assert writer.fill == first.fill == second.fill == 128
        take(first)
        assert (writer.fill, first.fill, second.fill) == (128, 0, 128)
        take(second)
        assert writer.fill == 0


def test_a_full_ring_says_so_and_when_there_is_room() -> None:
    with ring() as (writer, [reader]):
        sent = 0
        while writer.try_send(b"%4d" % sent * 30):
            sent += 1
        assert sent == CAPACITY // 144
        assert not readable(writer.space_fd)
        for number in range(sent):
            assert take(reader) == b"%4d" % number * 30
        assert readable(writer.space_fd)
        assert writer.try_send(b"more")
        assert not readable(writer.space_fd)
        assert take(reader) == b"more"


def test_clear_space() -> None:
    with ring() as (writer, [reader]):
        while writer.try_send(bytes(100)):
            continue
        while take(reader) is not None:
            continue
        assert readable(writer.space_fd)
        writer.clear_space()
        assert not readable(writer.space_fd)


@pytest.mark.parametrize("size", [CAPACITY // 2 - 15, CAPACITY, 100_000])
def test_a_message_larger_than_half_the_ring_arrives_whole(size: int) -> None:
    message = os.urandom(size)
    with ring(readers=2) as (writer, readers):
        while not writer.try_send(message):
            assert [take(reader) for reader in readers] == [None, None]
            assert readable(writer.space_fd)
        assert [take(reader) for reader in readers] == [message, message]
        assert writer.try_send(b"next")
        assert [take(reader) for reader in readers] == [b"next", b"next"]


def test_a_large_message_that_is_given_up_is_never_seen() -> None:
    with ring() as (writer, [reader]):
        assert not writer.try_send(bytes(100_000))
        assert take(reader) is None
        assert writer.try_send(b"instead")
        assert take(reader) == b"instead"
        assert take(reader) is None


def test_sleep_and_wake() -> None:
    with ring() as (writer, [reader]):
        assert writer.try_send(b"1")
        assert not readable(reader.data_fd)
        assert not reader.prepare_sleep()
        assert take(reader) == b"1"
        assert reader.prepare_sleep()
        assert not readable(reader.data_fd)
        assert writer.try_send(b"2")
        assert readable(reader.data_fd)
        reader.clear_wakeup()
        assert not readable(reader.data_fd)
        assert writer.try_send(b"3")
        assert not readable(reader.data_fd)
        assert [take(reader), take(reader), take(reader)] == [b"2", b"3", None]


def test_only_sleeping_readers_are_woken() -> None:
    with ring(readers=3) as (writer, readers):
        assert readers[1].prepare_sleep()
        writer.try_send(b"1")
        assert [readable(reader.data_fd) for reader in readers] == [False, True, False]


def _files_again(files: RingFiles, capacity: int = CAPACITY, epoch: int = 7, readers: int = 1) -> RingFiles:
    """Return what another process would hold: duplicates, and perhaps another idea of the ring."""
    fds = files.fds()
    fds += fds[2:] * (readers - len(files.data_fds))
    return RingFiles.from_fds([os.dup(fd) for fd in fds], capacity, epoch)


def test_files_travel_as_descriptors() -> None:
    with ring_files(readers=2) as files:
        same = _files_again(files, readers=2)
        writer, reader = RingWriter(files), RingReader(same, 1)
        same.close()
        writer.try_send(b"x")
        assert take(reader) == b"x"
        reader.close()
        writer.close()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"epoch": 8}, "epoch is 7, expected 8"),
        ({"capacity": 8192}, "segment size is 8192, expected 12288"),
        ({"readers": 2}, "1 readers, expected 2"),
    ],
)
def test_an_end_refuses_another_ring_than_it_was_told_of(changed: dict[str, int], message: str) -> None:
    before = open_descriptors()
    with ring_files() as files:
        other = _files_again(files, **changed)
        with pytest.raises(CorruptMemoryError, match=message):
            RingWriter(other)
        other.close()
    assert open_descriptors() == before


def test_a_reader_refuses_a_foreign_segment_and_a_wrong_index() -> None:
    with ring_files() as files:
        with pytest.raises(ValueError, match="reader 1 of a ring for 1"):
            RingReader(files, 1)
        os.pwrite(files.segment_fd, b"other", 0)
        with pytest.raises(CorruptMemoryError, match="magic"):
            RingReader(files)


def test_too_many_readers_are_refused_and_leave_nothing() -> None:
    before = open_descriptors()
    with pytest.raises(ArgumentError, match="ring readers: 9, allowed are 1 to 8"):
        create_ring(CAPACITY, epoch=1, readers=9)
    assert open_descriptors() == before


def test_a_broken_record_is_an_error() -> None:
    with ring_files() as files:
        writer, reader = RingWriter(files), RingReader(files)
        writer.try_send(b"hello")
        os.pwrite(files.segment_fd, (-5 & 0xFFFFFFFF).to_bytes(4, "little"), 4096)
        with pytest.raises(CorruptMemoryError, match="a record of length -5 at position 0"):
            reader.receive()
        writer.close()
        reader.close()


def test_a_closed_end_says_so() -> None:
    with ring() as (writer, [reader]):
        for end in (writer, reader):
            end.close()
            end.close()
        calls = [lambda: writer.try_send(b"x"), reader.receive, reader.release, reader.prepare_sleep]
        for call in calls:
            with pytest.raises(HandleClosedError, match="closed"):
                call()
        with pytest.raises(HandleClosedError):
            _ = reader.fill


def test_nothing_leaks() -> None:
    before = open_descriptors()
    for _ in range(3):
        with ring(readers=2) as (writer, readers):
            writer.try_send(b"x")
            assert take(readers[0]) == b"x"
    assert open_descriptors() == before
    files = create_ring(CAPACITY, epoch=1)
    ends = [RingWriter(files), RingReader(files)]
    del ends  # the garbage collector closes ends
    with pytest.warns(ResourceWarning, match="unclosed RingFiles"):
        del files
    assert open_descriptors() == before


class _Op(msgspec.Struct, frozen=True):
    kind: str
    number: int


_OPS = st.lists(
    st.one_of(
        st.builds(_Op, st.just("send"), st.integers(0, 300)),
        st.builds(_Op, st.just("send"), st.integers(0, 9000)),
        st.builds(_Op, st.just("take"), st.integers(0, 2)),
        st.builds(_Op, st.just("sleep"), st.integers(0, 2)),
    ),
    max_size=80,
)


@settings(max_examples=150, deadline=None)
@given(ops=_OPS)
def test_behaves_like_a_queue_for_each_reader(ops: list[_Op]) -> None:
    """Any mix of sends, receives and sleeps: every reader sees each accepted message once, in order."""
    with ring(readers=3) as (writer, readers):
        accepted: list[bytes] = []
        seen = [0, 0, 0]

        def drain(index: int) -> None:
            while (data := take(readers[index])) is not None:
                assert data == accepted[seen[index]]
                seen[index] += 1

        for count, op in enumerate(ops):
            if op.kind == "send":
                message = (count % 251).to_bytes(1, "little") * op.number
                if not writer.try_send(message):
                    for index in range(3):
                        drain(index)
                    assert readable(writer.space_fd)
                    while not writer.try_send(message):
                        assert [take(reader) for reader in readers] == [None] * 3
                accepted.append(message)
            elif op.kind == "take":
                data = take(readers[op.number])
                if data is None:
                    assert seen[op.number] == len(accepted)
                else:
                    assert data == accepted[seen[op.number]]
                    seen[op.number] += 1
            else:
                assert readers[op.number].prepare_sleep() == (seen[op.number] == len(accepted))
        for index in range(3):
            drain(index)
        assert seen == [len(accepted)] * 3
        assert writer.fill == 0


def test_an_encoder_feeds_a_ring() -> None:
    class Note(msgspec.Struct, array_like=True):
        data: bytes

    encoder = Encoder()
    with ring(1 << 20) as (writer, [reader]):
        for size in (5, 200_000, 1):  # its memory is resized: the ring must not hold on to it
            assert writer.try_send(encoder.encode(Note(bytes(size))))
            assert msgspec.msgpack.decode(take(reader) or b"", type=Note) == Note(bytes(size))
