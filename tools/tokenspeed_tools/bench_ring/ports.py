"""The two transports that are compared, behind one small interface.

Owns sockets and ends of rings. Neither side polls: when there is nothing to do, both wait in the
event loop. Each direction has at most `IN_FLIGHT_BYTES` under way.

Invariant: the tests know a transport only as a `Port`.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

import zmq.asyncio
from zmq.constants import SocketOption, SocketType

from tokenspeed.ipc.ring import RingFiles, RingReader, RingWriter
from tokenspeed.ipc.wakeup import wait_readable

IN_FLIGHT_BYTES = 4 << 20
COPY_BYTES_MAX = 64 << 10


class Port(Protocol):
    """Two channels: one to send on, one to receive from."""

    async def send(self, data: bytes) -> None:
        """Send `data`, waiting while too much is in flight."""

    async def receive(self) -> memoryview | bytes:
        """Return the next message; it is valid until `release`."""

    def release(self) -> None:
        """Give the message back."""

    def close(self) -> None:
        """Give the channels up."""


class RingPort:
    """Two rings of `IN_FLIGHT_BYTES` each."""

    def __init__(self, out: RingFiles, back: RingFiles) -> None:
        self._writer = RingWriter(out)
        self._reader = RingReader(back)
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        self._loop.add_reader(self._reader.data_fd, self._wake)
        self.release = self._reader.release

    async def send(self, data: bytes) -> None:
        while not self._writer.try_send(data):
            await wait_readable(self._writer.space_fd)

    async def receive(self) -> memoryview:
        while (view := self._reader.receive()) is None:
            if self._reader.prepare_sleep():
                self._waiter = self._loop.create_future()
                await self._waiter
        return view

    def close(self) -> None:
        self._loop.remove_reader(self._reader.data_fd)
        self._reader.close()
        self._writer.close()

    def _wake(self) -> None:
        self._reader.clear_wakeup()
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class ZmqPort:
    """PUSH and PULL over `ipc://`. A message in flight is in the queue of either side: half each."""

    def __init__(self, out: str, back: str, size_bytes: int) -> None:
        self._context = zmq.asyncio.Context()
        queue = max(1, IN_FLIGHT_BYTES // size_bytes // 2)
        self._push = self._socket(SocketType.PUSH, SocketOption.SNDHWM, queue)
        self._pull = self._socket(SocketType.PULL, SocketOption.RCVHWM, queue)
        # Without a copy a small message costs more, a large one less.
        self._copy = size_bytes < COPY_BYTES_MAX
        self._pull.bind(f"ipc://{back}")
        self._push.connect(f"ipc://{out}")

    async def send(self, data: bytes) -> None:
        await self._push.send(data, copy=self._copy)

    async def receive(self) -> memoryview | bytes:
        if self._copy:
            data: bytes = await self._pull.recv()
            return data
        frame = await self._pull.recv(copy=False)
        view: memoryview = frame.buffer
        return view

    def release(self) -> None:
        pass

    def close(self) -> None:
        self._push.close(linger=0)
        self._pull.close(linger=0)
        self._context.term()

    def _socket(self, kind: int, limit: int, queue: int) -> zmq.asyncio.Socket:
        socket = self._context.socket(kind)
        socket.setsockopt(limit, queue)
        return socket
