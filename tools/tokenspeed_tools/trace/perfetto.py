"""Files that Perfetto reads: tracks with slices, instants, counters and flows, as protobuf.

Owns the encoding (https://perfetto.dev/docs/reference/trace-packet-proto; the numbers below are fields of
those messages). It does not know what is drawn. Events may be added in any order of tracks; on one track
slices come before instants of the same time.

Invariant: packets are in the order of time, slices of a track nest, and names are written once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from operator import attrgetter
from typing import NamedTuple

SEQUENCE = 1
CLEARED, NEEDED = 1, 2  # of names written before
REALTIME, MONOTONIC, BOOTTIME = 1, 3, 6  # clocks of Linux
Argument = int | str


class Type(IntEnum):
    """What an event is."""

    BEGIN = 1
    END = 2
    INSTANT = 3
    COUNTER = 4


class Order(IntEnum):
    """How the tracks below a track are sorted."""

    NAME = 1
    TIME = 2
    RANK = 3


class Slice(NamedTuple):
    """Something that lasts. What is inside lies within it, one behind the other.

    Each number in `flows` is an arrow through all events that have it, in the order of time.
    """

    name: str
    begin_ns: int
    end_ns: int
    arguments: Mapping[str, Argument] = {}
    inside: Sequence[Slice] = ()
    flows: Sequence[int] = ()


class Event(NamedTuple):
    """One packet to be. `value` is a counter's."""

    time_ns: int
    type: Type
    track: int
    name: str = ""
    arguments: Mapping[str, Argument] = {}
    flows: Sequence[int] = ()
    value: int = 0


class Picture:
    """What will be in the file."""

    def __init__(self) -> None:
        self._descriptors: list[bytes] = []
        self._events: list[Event] = []

    def process(self, pid: int, name: str, rank: int) -> int:
        """Add a process and return its track."""
        return self._add(_whole(12, rank) + _block(3, _whole(1, pid) + _text(6, name)))

    def thread(self, pid: int, tid: int, name: str) -> int:
        """Add a thread of the process `pid` and return its track."""
        return self._add(_block(4, _whole(1, pid) + _whole(2, tid) + _text(5, name)))

    def track(self, name: str, parent: int = 0, order: Order = Order.TIME, rank: int = 0) -> int:
        """Add a track, below `parent` if there is one."""
        above = _whole(5, parent) if parent else b""
        return self._add(_text(2, name) + above + _whole(11, order) + _whole(12, rank))

    def counter(self, name: str, unit: str, parent: int = 0) -> int:
        """Add a track of numbers, below `parent` if there is one."""
        above = _whole(5, parent) if parent else b""
        return self._add(_text(2, name) + above + _block(8, _text(6, unit)))

    def slices(self, track: int, slices: Sequence[Slice]) -> None:
        """Draw `slices`, which do not overlap, in the order of time."""
        latest_ns = slices[0].begin_ns if slices else 0
        for each in slices:
            latest_ns = self._slice(track, each, latest_ns, max(each.end_ns, latest_ns))

    def instant(self, track: int, time_ns: int, name: str, arguments: Mapping[str, Argument], *flows: int) -> None:
        """Draw a point in time; those of one track in the order of time."""
        self._events.append(Event(time_ns, Type.INSTANT, track, name, arguments, flows))

    def count(self, track: int, time_ns: int, value: int) -> None:
        """Note that the counter has `value` from `time_ns` on; those of one track in the order of time."""
        self._events.append(Event(time_ns, Type.COUNTER, track, value=value))

    def encode(self, monotonic_ns: int, realtime_s: float) -> Iterator[bytes]:
        """Yield the file piece by piece. `monotonic_ns` was the time when the time of day was `realtime_s`."""
        defaults = _block(59, _whole(58, MONOTONIC))  # the clock of all packets
        yield _packet(defaults + _block(6, _clocks(monotonic_ns, realtime_s)), monotonic_ns, CLEARED)
        for descriptor in self._descriptors:
            yield _packet(_block(60, descriptor), monotonic_ns, 0)
        names, keys = Names(2), Names(3)
        # The sort is stable: what ends at the same time on one track stays before what begins.
        for event in sorted(self._events, key=attrgetter("time_ns")):
            body = _block(11, _event(event, names, keys))
            fresh = names.fresh() + keys.fresh()
            yield _packet((_block(12, fresh) if fresh else b"") + body, event.time_ns, NEEDED)

    def _add(self, descriptor: bytes) -> int:
        track = len(self._descriptors) + 1
        self._descriptors.append(_whole(1, track) + descriptor)
        return track

    def _slice(self, track: int, each: Slice, from_ns: int, to_ns: int) -> int:
        """Draw `each`, cut to what lies between, and return when it ends."""
        begin_ns = min(max(each.begin_ns, from_ns), to_ns)
        end_ns = min(max(each.end_ns, begin_ns), to_ns)
        self._events.append(Event(begin_ns, Type.BEGIN, track, each.name, each.arguments, each.flows))
        latest_ns = begin_ns
        for inner in each.inside:
            latest_ns = self._slice(track, inner, latest_ns, end_ns)
        self._events.append(Event(end_ns, Type.END, track))
        return end_ns


class Names:
    """Numbers for texts that come often; a text is written when it is first used, as `field` of InternedData."""

    def __init__(self, field: int) -> None:
        self._field = field
        self._numbers: dict[str, int] = {}
        self._fresh = b""

    def number(self, text: str) -> int:
        """Return the number of `text`."""
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self._numbers) + 1
            self._fresh += _block(self._field, _whole(1, found) + _text(2, text))
        return found

    def fresh(self) -> bytes:
        """Return the texts that were new since the last call."""
        fresh, self._fresh = self._fresh, b""
        return fresh


def _event(event: Event, names: Names, keys: Names) -> bytes:
    parts = [_whole(9, event.type), _whole(11, event.track)]
    if event.type is Type.COUNTER:
        parts.append(_whole(30, event.value))
    elif event.type is not Type.END:
        parts.append(_whole(10, names.number(event.name)))
        parts += (_block(4, _argument(keys.number(key), value)) for key, value in event.arguments.items())
        parts += (_fixed(47, flow) for flow in event.flows)
    return b"".join(parts)


def _argument(key: int, value: Argument) -> bytes:
    return _whole(1, key) + (_whole(4, value) if isinstance(value, int) else _text(6, value))


def _clocks(monotonic_ns: int, realtime_s: float) -> bytes:
    """Return the clocks at one moment; times of the file are those of the monotonic one."""
    # The trace processor relates all clocks to the last, which differs by the time that the machine slept.
    clocks = ((MONOTONIC, monotonic_ns), (REALTIME, int(realtime_s * 1e9)), (BOOTTIME, monotonic_ns))
    return b"".join(_block(1, _whole(1, clock) + _whole(2, time_ns)) for clock, time_ns in clocks) + _whole(
        2, MONOTONIC
    )


def _packet(body: bytes, time_ns: int, state: int) -> bytes:
    return _block(1, _whole(8, time_ns) + _whole(10, SEQUENCE) + (_whole(13, state) if state else b"") + body)


# ---- protobuf: https://protobuf.dev/programming-guides/encoding/ ----


def _varint(value: int) -> bytes:
    if 0 <= value < 0x80:
        return SMALL[value]
    value &= (1 << 64) - 1  # negative numbers are written as two's complement
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


SMALL = [bytes([value]) for value in range(0x80)]
KEYS = {key: _varint(key) for field in range(64) for wire in (0, 1, 2) if (key := field << 3 | wire)}


def _whole(field: int, value: int) -> bytes:
    return KEYS[field << 3] + _varint(value)


def _fixed(field: int, value: int) -> bytes:
    return KEYS[field << 3 | 1] + value.to_bytes(8, "little")


def _block(field: int, data: bytes) -> bytes:
    return KEYS[field << 3 | 2] + _varint(len(data)) + data


def _text(field: int, text: str) -> bytes:
    return _block(field, text.encode())
