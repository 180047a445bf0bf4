"""uvicorn inside the supervisor's process.

Owns how uvicorn is set up and started on sockets that are bound already. Signals, logging and the
life of the process are the service's. Malformed HTTP gets an error body like any other error, and
the headers of a request are bounded, which the parser does not do.

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


class Protocol(HttpToolsProtocol):
    """One connection."""

    _header_bytes = 0

    def on_message_begin(self) -> None:
        """Begin a request."""
        self._header_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Take a piece of the request's target."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take one header."""
        self._count(len(name) + len(value))
        super().on_header(name, value)

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP, and close."""
        error = UserError(f"{msg.rstrip('.')}; headers may have {HEADER_BYTES_MAX} bytes.", code="invalid_http")
        body = msgspec.json.encode(error_body(error))
        head = b"content-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n" % len(body)
        self.transport.write(STATUS_LINE[400] + head + body)
        self.transport.close()

    def _count(self, size: int) -> None:
        """Add to the header's bytes; raising inside a callback makes the parser give up."""
        self._header_bytes += size
        if self._header_bytes > HEADER_BYTES_MAX:
            raise ValueError("headers too large")


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
