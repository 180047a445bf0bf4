"""What an actor sends: never blocks, never loses while both ends live.

Owns one lane per receiver: the writing end of a ring, and the encoded messages that found it full.
Those wait in order in memory and go out when the reader has made room.

Invariant: a message is handed to the ring only when nothing older waits in its lane.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from tokenspeed.errors import EngineError
from tokenspeed.ipc.codec import Encoder
from tokenspeed.ipc.ring import RingWriter
from tokenspeed.messages.base import Message


class Lane:
    """The way to one receiver."""

    def __init__(self, writer: RingWriter, on_moved: Callable[[], None]) -> None:
        self.backlog_bytes = 0
        self._writer = writer
        self._waiting: deque[bytes] = deque()
        self._on_moved = on_moved
        self._loop = asyncio.get_running_loop()

    def send(self, record: bytearray) -> None:
        """Send `record`, now or, as a copy, when there is room."""
        if not self._waiting and self._writer.try_send(record):
            return
        if not self._waiting:
            self._loop.add_reader(self._writer.space_fd, self._on_room)
        self._waiting.append(bytes(record))
        self.backlog_bytes += len(record)

    def close(self) -> None:
        """Close the ring's end and drop what waits."""
        if self._waiting:
            self._loop.remove_reader(self._writer.space_fd)
        self._waiting.clear()
        self.backlog_bytes = 0
        self._writer.close()

    def _on_room(self) -> None:
        while self._waiting and self._writer.try_send(self._waiting[0]):
            self.backlog_bytes -= len(self._waiting.popleft())
        if not self._waiting:
            self._loop.remove_reader(self._writer.space_fd)
        self._on_moved()


class Outbox:
    """All lanes of one actor. Use it from the loop's thread only.

    `congested` is true while some lane's backlog is above `backlog_bytes_max` (never, if None);
    `on_room` is called when that ends.
    """

    def __init__(self, backlog_bytes_max: int | None, on_room: Callable[[], None]) -> None:
        self.records = 0
        self.congested = False
        self._limit = backlog_bytes_max
        self._on_room = on_room
        self._lanes: dict[str, Lane] = {}
        self._encoder = Encoder()

    def send(self, receiver: str, message: Message) -> None:
        """Send `message`. It never blocks; with the receiver's present life gone it is dropped.

        Raises EngineError if there is no edge to `receiver`.
        """
        lane = self._lane(receiver)
        lane.send(self._encoder.encode(message))
        self.records += 1
        if self._limit is not None and lane.backlog_bytes > self._limit:
            self.congested = True

    def backlog(self, receiver: str) -> int:
        """Return the bytes that wait for room towards `receiver`; what is in the ring does not count."""
        return self._lane(receiver).backlog_bytes

    @property
    def backlog_bytes(self) -> int:
        """Return the bytes that wait for room, over all receivers."""
        return sum(lane.backlog_bytes for lane in self._lanes.values())

    def connect(self, receiver: str, writer: RingWriter) -> None:
        """Send to `receiver` through `writer`, which is closed here, from now on.

        An older ring's waiting messages are dropped.
        """
        if receiver in self._lanes:
            self._lanes.pop(receiver).close()
        self._lanes[receiver] = Lane(writer, self._moved)
        self._moved()

    def close(self) -> None:
        """Close all lanes."""
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()

    def _lane(self, receiver: str) -> Lane:
        lane = self._lanes.get(receiver)
        if lane is None:
            raise EngineError(f"no edge leads to {receiver!r}; edges lead to {sorted(self._lanes)}")
        return lane

    def _moved(self) -> None:
        """Note that a backlog has shrunk. Half the limit, so that reading does not start and stop at each record."""
        if not self.congested or self._limit is None:
            return
        if all(lane.backlog_bytes * 2 <= self._limit for lane in self._lanes.values()):
            self.congested = False
            self._on_room()
