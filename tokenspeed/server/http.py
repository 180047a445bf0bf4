"""uvicorn inside the supervisor's process.

Owns how uvicorn is set up and started on sockets that are bound already. Signals, logging and the
life of the process are the service's. Malformed HTTP gets an error body like any other error, and
the headers of a request are bounded in size and time, which neither parser nor uvicorn does.

Invariant: `HttpServer.start` returns only when the sockets are being served.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from tokenspeed.errors import StartError, UserError
from tokenspeed.server.errors import error_body

HEADER_BYTES_MAX = 64 << 10
FLUSH_S_MAX = 2.0
BODY_HEADERS = {b"content-length", b"transfer-encoding"}
_UPGRADE = (
    "The request asks for another protocol with its Upgrade header, which cannot be done with a body; send it as "
    "plain HTTP/1.1 (in Java: HttpClient.Builder.version(HTTP_1_1))"
)


class Protocol(HttpToolsProtocol):
    """One connection."""

    _fault = ""
    _header_bytes = 0
    _unread_bytes = 0  # that the parser holds without having said anything of them
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request; uvicorn's own limit begins with the first answer."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no more."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take what came; the parser keeps a header until its end, however long."""
        self._unread_bytes += len(data)
        super().data_received(data)
        if self._unread_bytes > HEADER_BYTES_MAX and not self.transport.is_closing():
            self.send_400_response(f"A header does not end; all of them may have {HEADER_BYTES_MAX} bytes")

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._header_bytes = self._unread_bytes = 0
        self._expect_head()
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a piece of the request's target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Begin to answer. The parser drops the body of a request that asks for another protocol."""
        self._unread_bytes = 0
        self._stop_timer()
        if self.parser.should_upgrade() and BODY_HEADERS.intersection(name for name, _ in self.headers):
            self._give_up(_UPGRADE)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Take a piece of the body."""
        self._unread_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """End a request."""
        self._unread_bytes = 0
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, and close."""
        error = UserError(f"{(self._fault or msg).rstrip('.')}.", code="invalid_http")
        body = msgspec.json.encode(error_body(error))
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[400] + head + body)
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """Say nothing: a server may ignore the wish."""

    def _expect_head(self) -> None:
        self._stop_timer()
        self._head_timer = self.loop.call_later(self.timeout_keep_alive, self._head_overdue)

    def _head_overdue(self) -> None:
        if self.cycle is None or self.cycle.response_complete:
            self.transport.close()
        else:
            self._expect_head()  # an answer is still on its way; the next request was begun early

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()

    def _count(self, size: int) -> None:
        self._header_bytes += size
        if self._header_bytes > HEADER_BYTES_MAX:
            self._give_up(f"The headers are longer than {HEADER_BYTES_MAX} bytes; send fewer or shorter ones")

    def _give_up(self, fault: str) -> None:
        """Answer with `fault`: what is raised inside a callback makes the parser stop."""
        self._fault = fault
        raise ValueError(fault)


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


class HttpServer:
    """The HTTP door, on `sockets` that are bound."""

    def __init__(self, app: ASGIApp, sockets: list[socket.socket], idle_s_max: int) -> None:
        self._sockets = sockets
        self._server = _Uvicorn(
            uvicorn.Config(
                app,
                http=Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=idle_s_max,
                proxy_headers=False,
            )
        )
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Serve from now on."""
        self._task = asyncio.create_task(self._server.serve(self._sockets))
        while not self._server.started:
            await asyncio.wait((self._task,), timeout=0.002)
            if self._task.done():
                self._task.result()
                raise StartError("The HTTP server ended before it began; the log says why.")

    async def stop(self, *, at_once: bool = False) -> None:
        """Close the sockets, let answers flush for a moment (not with `at_once`), cut the rest."""
        self._server.should_exit = True
        if self._task is not None and not at_once:
            await asyncio.wait((self._task,), timeout=FLUSH_S_MAX)
        state = self._server.server_state
        for connection in list(state.connections):
            connection.transport.abort()
        await asyncio.gather(*state.tasks, return_exceptions=True)
        if self._task is not None:
            await self._task
