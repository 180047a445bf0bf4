"""HTTP/1.1 to one server, for measuring: when each byte came, before anything is read in it.

Owns the connections and what is in flight on them. Bytes are stamped as the socket gives them, and
parsed behind all sockets of the same turn of the loop, so that no stream waits for another one's
parsing. It does not know what bodies mean.

Invariant: a connection carries one exchange at a time, and is used again only after a whole answer
that lets it.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import NamedTuple, cast

import httptools

now = time.perf_counter  # CLOCK_MONOTONIC, as the engine's trace
BodySink = Callable[[float, bytes], None]


class LostError(Exception):
    """The server closed or refused a connection; `fresh` if no byte of the answer had come."""

    def __init__(self, why: str, *, fresh: bool = False) -> None:
        super().__init__(why)
        self.fresh = fresh


class Address(NamedTuple):
    """Where the server is. `tls` is None for plain HTTP."""

    host: str
    port: int
    tls: ssl.SSLContext | None


class Exchange:
    """One request and its answer: times are seconds of `now`, and the body of a 200 goes to `sink` as it comes."""

    def __init__(self, sink: BodySink | None = None) -> None:
        self.sent_s: float | None = None
        self.headers_s: float | None = None
        self.end_s: float | None = None
        self.status = 0
        self.headers: dict[str, str] = {}
        self.keep = False
        self.body: list[bytes] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sink = sink
        self._at_s = 0.0
        self._parser = httptools.HttpResponseParser(self)

    def begin(self) -> None:
        """Begin, or begin again after a connection that was closed before it brought a byte."""
        self.ended = asyncio.get_running_loop().create_future()
        self.sent_s, self.end_s = now(), None

    def feed(self, at_s: float, data: bytes) -> None:
        """Read bytes that came at `at_s`."""
        self._at_s = at_s
        if self.headers_s is None:
            self.headers_s = at_s
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self.fail(LostError(f"the answer is not HTTP: {error}"))

    def fail(self, error: LostError) -> None:
        """End without a whole answer."""
        if not self.ended.done():
            self.end_s = now()
            self.ended.set_exception(error)

    def close(self) -> None:
        """Hear that the server closed the connection: the end of a body without a length, else a loss."""
        if self.status and not {"content-length", "transfer-encoding"} & self.headers.keys():
            self.on_message_complete()
        else:
            self.fail(LostError("the server closed the connection", fresh=self.headers_s is None))

    # What httptools calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; the last one of a name counts."""
        self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Keep the status."""
        self.status = self._parser.get_status_code()

    def on_body(self, data: bytes) -> None:
        """Hand a part of a good stream on, keep that of another answer."""
        if self._sink is not None and self.status == 200:
            self._sink(self._at_s, data)
        else:
            self.body.append(data)

    def on_message_complete(self) -> None:
        """End well."""
        self.keep = self._parser.should_keep_alive()
        if not self.ended.done():
            self.end_s = self._at_s
            self.ended.set_result(None)


class Connection(asyncio.Protocol):
    """One connection; bytes wait in `_arrived` until every socket of this turn was read."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._exchange: Exchange | None = None
        self._arrived: list[tuple[float, bytes]] = []
        self.lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by inheritance

    def data_received(self, data: bytes) -> None:
        """Stamp `data`."""
        self._arrived.append((now(), data))
        if len(self._arrived) == 1:
            self._loop.call_soon(self._parse)

    def eof_received(self) -> None:
        """Let the transport close."""

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the exchange, after what has come before."""
        self.lost = True
        self._parse()
        if self._exchange is not None:
            if error is None:
                self._exchange.close()
            else:
                self._exchange.fail(LostError(f"the connection broke: {error}", fresh=self._exchange.headers_s is None))

    async def carry(self, exchange: Exchange, request: bytes) -> None:
        """Send `request` and return when `exchange` has its whole answer; raise `LostError`.

        A cancelled exchange closes the connection, which tells the server.
        """
        assert self._transport is not None
        self._exchange = exchange
        exchange.begin()
        self._transport.write(request)
        try:
            await exchange.ended
        finally:
            self._exchange = None
            if not exchange.keep:
                self.close()

    def close(self) -> None:
        """Close at once."""
        self.lost = True
        if self._transport is not None:
            self._transport.abort()

    def _parse(self) -> None:
        arrived, self._arrived = self._arrived, []
        for at_s, data in arrived:
            if self._exchange is not None:
                self._exchange.feed(at_s, data)
            else:
                self.close()  # bytes that nobody asked for
