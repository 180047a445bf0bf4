"""uvicorn inside the supervisor's process.

Owns how uvicorn is set up and started on sockets that are bound already. Signals, logging and the
life of the process are the service's; what happens on a connection is `connection`'s.

Invariant: `HttpServer.start` returns only when the sockets are being served.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from tokenspeed.config import RequestLimits
from tokenspeed.errors import StartError
from tokenspeed.server.connection import Connection

FLUSH_S_MAX = 2.0


class _Uvicorn(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield


class HttpServer:
    """The HTTP door, on `sockets` that are bound, for at most `connections_max` connections."""

    def __init__(self, app: ASGIApp, sockets: list[socket.socket], limits: RequestLimits, connections_max: int) -> None:
        self._sockets = sockets
        kind = type("Limited", (Connection,), {"limits": limits, "connections_max": connections_max})
        self._server = _Uvicorn(
            uvicorn.Config(
                app,
                http=kind,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=limits.idle_s_max,
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
