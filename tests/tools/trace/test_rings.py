"""Which receive belongs to which send."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tokenspeed_tools.trace.rings import Message, fill, messages

from tokenspeed.observe.attach import EdgeEntry
from tokenspeed.points import Kind, Point

EDGES = (EdgeEntry("a", ("b", "c"), 1 << 10, 1),)


def _sent(time_ns: int, size: int) -> Point:
    return Point(time_ns, Kind.RING_SENT, 0, 0, size)


def _received(time_ns: int, size: int) -> Point:
    return Point(time_ns, Kind.RING_RECEIVED, 0, 0, size)


def test_each_reader_receives_once() -> None:
    found = messages(EDGES, {"a": [_sent(1, 5), _sent(2, 6)], "b": [_received(3, 5), _received(4, 6)], "c": []})
    assert list(found) == [Message(0, "b", 5, 1, 3), Message(0, "b", 6, 2, 4)]


def test_what_was_sent_before_the_recording_has_no_begin() -> None:
    points = {"a": [_sent(2, 6)], "b": [_received(1, 5), _received(3, 6)]}
    assert list(messages(EDGES, points)) == [Message(0, "b", 6, 2, 3)]


def test_what_lay_on_a_ring_that_was_replaced_has_no_end() -> None:
    points = {"a": [_sent(1, 5), _sent(2, 7), _sent(3, 6)], "b": [_received(4, 6)]}
    assert list(messages(EDGES, points)) == [Message(0, "b", 6, 3, 4)]


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 9)), max_size=20), st.integers(0, 5), st.integers(0, 20))
def test_any_recording_pairs_what_it_holds(sizes: list[tuple[int, int]], delay: int, begin: int) -> None:
    """Messages in their order; the recording begins somewhere, and each pair that it holds whole is found."""
    sent, received, time_ns = [], [], 0
    for wait, size in sizes:
        time_ns += wait
        sent.append(_sent(time_ns, size))
        received.append(_received(time_ns + delay, size))
    kept = {"a": [p for p in sent if p.time_ns >= begin], "b": [p for p in received if p.time_ns >= begin]}
    found = list(messages(EDGES, kept))
    assert [(each.sent_ns, each.received_ns) for each in found] == [(p.time_ns, p.time_ns + delay) for p in kept["a"]]


def test_a_buffer_that_reaches_further_back() -> None:
    """Of many old messages the receives are overwritten already."""
    sent = [_sent(10 * index, index % 7) for index in range(1000)]
    received = [_received(10 * index + 3, index % 7) for index in range(900, 1000)]
    found = list(messages(EDGES, {"a": sent, "b": received}))
    assert [(each.sent_ns, each.received_ns) for each in found] == [(10 * i, 10 * i + 3) for i in range(900, 1000)]


def test_fill_rises_and_falls() -> None:
    found = [Message(0, "b", 5, 1, 4), Message(0, "b", 7, 2, 4), Message(0, "b", 1, 6, 7)]
    assert fill(found) == [(1, 5), (2, 12), (4, 0), (6, 1), (7, 0)]
