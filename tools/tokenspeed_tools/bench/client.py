"""The client: requests to one server, each with the times of its answer.

Owns the idle connections, the address and the key. The key is in no message and no record. A request
that meets a connection which the server has just closed is sent once more on a new one.

Invariant: as many connections are open as requests are, or were at once.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tokenspeed import __version__
from tokenspeed_tools.bench.http import Address, Connection, Exchange, LostError

CONNECT_LIMIT_S = 30.0


class BadUrlError(ValueError):
    """A base URL that cannot be used; the text says why."""


class Client:
    """Requests to the server at `base_url`, such as http://127.0.0.1:8000, with or without /v1."""

    def __init__(self, base_url: str, key: str | None = None) -> None:
        self._address, self._root = parse_url(base_url)
        self._idle: list[Connection] = []
        scheme, port = ("https", 443) if self._address.tls else ("http", 80)
        host = f"[{self._address.host}]" if ":" in self._address.host else self._address.host
        place = host if self._address.port == port else f"{host}:{self._address.port}"
        self.url = f"{scheme}://{place}{self._root}"
        self._headers = f"Host: {place}\r\nUser-Agent: tokenspeed-bench/{__version__}\r\n"
        if key is not None:
            self._headers += f"Authorization: Bearer {key}\r\n"

    async def post(self, path: str, body: Any, exchange: Exchange, headers: str = "") -> None:
        """Send `body` as JSON to `path`; return when `exchange` has the answer. Raise `LostError`."""
        text = msgspec.json.encode(body)
        head = f"POST {self._root}{path} HTTP/1.1\r\n{self._headers}{headers}Content-Type: application/json\r\n"
        await self._send(exchange, head.encode() + b"Content-Length: %d\r\n\r\n" % len(text) + text)

    async def get(self, path: str, exchange: Exchange) -> None:
        """Get `path`, in the same way."""
        await self._send(exchange, f"GET {self._root}{path} HTTP/1.1\r\n{self._headers}\r\n".encode())

    def close(self) -> None:
        """Close the idle connections."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _send(self, exchange: Exchange, request: bytes) -> None:
        """Send on an idle connection, else on a new one."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.lost:
                try:
                    return await self._carry(connection, exchange, request)
                except LostError as error:
                    if not error.fresh:
                        raise
        return await self._carry(await self._connect(), exchange, request)

    async def _carry(self, connection: Connection, exchange: Exchange, request: bytes) -> None:
        await connection.carry(exchange, request)
        if not connection.lost:
            self._idle.append(connection)

    async def _connect(self) -> Connection:
        host, port, tls = self._address
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_LIMIT_S):
                _, connection = await loop.create_connection(Connection, host, port, ssl=tls)
        except (OSError, TimeoutError) as error:
            why = str(error) or f"no answer within {CONNECT_LIMIT_S:.0f} s"
            raise LostError(f"cannot connect to {self.url}: {why}") from None
        return connection


def parse_url(text: str) -> tuple[Address, str]:
    """Return the address and the path that goes before /v1; raise `BadUrlError`."""
    parts = urlsplit(text if "://" in text else f"http://{text}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadUrlError(f"{text!r} is not a URL such as http://127.0.0.1:8000")
    if parts.username or parts.password:
        raise BadUrlError("the URL has a password in it; give --api-key-file or --api-key-env instead")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        raise BadUrlError(f"{text!r} has no port from 1 to 65535") from None
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    return Address(parts.hostname, port, tls), parts.path.rstrip("/").removesuffix("/v1")
