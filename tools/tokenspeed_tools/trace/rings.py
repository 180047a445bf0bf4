"""Messages on the rings: which receive belongs to which send, and what waits in between.

Owns the pairing. A ring keeps the order, and sizes tell where the two sides' points begin: buffers reach
back differently far. What lay on a ring that was replaced, and what was sent before the oldest point, stays
without its other half.

Invariant: a message is received once by each reader, never before it was sent.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from tokenspeed.observe.attach import EdgeEntry
from tokenspeed.points import Kind, Point

AHEAD = 64  # messages, at most, that were under way at the begin, or lay on a ring that was replaced


class Message(NamedTuple):
    """One message of `bytes` bytes on an edge (an index in the topology), sent and received when."""

    edge: int
    reader: str
    bytes: int
    sent_ns: int
    received_ns: int


def messages(edges: Sequence[EdgeEntry], points: Mapping[str, Sequence[Point]]) -> Iterator[Message]:
    """Yield the messages whose both ends are among `points`, by actor and in the order of time; edge by edge."""
    for index, edge in enumerate(edges):
        sent = _of(points.get(edge.writer, ()), Kind.RING_SENT, index)
        for reader in edge.readers:
            received = _of(points.get(reader, ()), Kind.RING_RECEIVED, index)
            for begin, end in _paired(sent, received):
                yield Message(index, reader, begin.value, begin.time_ns, end.time_ns)


def fill(found: Sequence[Message]) -> list[tuple[int, int]]:
    """Return the bytes that waited on one ring, as (time, bytes from then on)."""
    changes = [(each.sent_ns, each.bytes) for each in found] + [(each.received_ns, -each.bytes) for each in found]
    levels: list[tuple[int, int]] = []
    level = 0
    for time_ns, change in sorted(changes, key=itemgetter(0)):
        level += change
        if levels and levels[-1][0] == time_ns:
            levels.pop()
        levels.append((time_ns, level))
    return levels


def _of(points: Sequence[Point], kind: Kind, edge: int) -> list[Point]:
    return [point for point in points if point.kind is kind and point.step == edge]


def _paired(sent: Sequence[Point], received: Sequence[Point]) -> Iterator[tuple[Point, Point]]:
    sent, received = _aligned(sent, received)
    waiting = deque(sent)
    for end in received:
        ahead = enumerate(islice(waiting, AHEAD))
        index = next((index for index, begin in ahead if _fits(begin, end)), None)
        if index is not None:
            for _ in range(index):
                waiting.popleft()
            yield waiting.popleft(), end


def _aligned(sent: Sequence[Point], received: Sequence[Point]) -> tuple[Sequence[Point], Sequence[Point]]:
    """Leave out of both what has no other half at the begin: all that remains fits, with the least time between."""
    if not sent or not received:
        return (), ()
    sent = sent[max(0, bisect_right(sent, received[0].time_ns, key=_time) - AHEAD) :]
    received = received[bisect_left(received, sent[0].time_ns, key=_time) :]
    for shift in range(min(AHEAD, len(sent)), -AHEAD - 1, -1):
        begins, ends = sent[max(0, shift) :], received[max(0, -shift) :]
        window = min(AHEAD, len(ends))
        if len(begins) >= window and all(map(_fits, begins[:window], ends[:window])):
            return begins, ends
    return sent, received


def _fits(begin: Point, end: Point) -> bool:
    return begin.value == end.value and begin.time_ns <= end.time_ns


def _time(point: Point) -> int:
    return point.time_ns
