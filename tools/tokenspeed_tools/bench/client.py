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
from tokenspeed_tools.bench.http import Address, BodySink, Connection, ConnectionLost, Exchange

CONNECT_LIMIT_S = 30.0


class BadUrl(ValueError):
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

    async def post(self, path: str, body: Any, sink: BodySink | None = None, headers: str = "") -> Exchange:
        """Send `body` as JSON to `path`; a good answer's body goes to `sink` as it comes."""
        text = msgspec.json.encode(body)
        head = f"POST {self._root}{path} HTTP/1.1\r\n{self._headers}{headers}Content-Type: application/json\r\n"
        return await self._send(head.encode() + b"Content-Length: %d\r\n\r\n" % len(text) + text, sink)

    async def get(self, path: str) -> Exchange:
        """Get `path`."""
        return await self._send(f"GET {self._root}{path} HTTP/1.1\r\n{self._headers}\r\n".encode(), None)

    def close(self) -> None:
        """Close the idle connections."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    async def _send(self, request: bytes, sink: BodySink | None) -> Exchange:
        """Send on an idle connection, else on a new one; raise `ConnectionLost`."""
        while self._idle:
            connection = self._idle.pop()
            if not connection.lost:
                try:
                    return await self._exchange(connection, request, sink)
                except ConnectionLost as error:
                    if not error.fresh:
                        raise
        return await self._exchange(await self._connect(), request, sink)

    async def _exchange(self, connection: Connection, request: bytes, sink: BodySink | None) -> Exchange:
        exchange = await connection.exchange(request, sink)
        if not connection.lost:
            self._idle.append(connection)
        return exchange

    async def _connect(self) -> Connection:
        host, port, tls = self._address
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_LIMIT_S):
                _, connection = await loop.create_connection(Connection, host, port, ssl=tls)
        except (OSError, TimeoutError) as error:
            why = str(error) or f"no answer within {CONNECT_LIMIT_S:.0f} s"
            raise ConnectionLost(f"cannot connect to {self.url}: {why}") from None
        return connection


def parse_url(text: str) -> tuple[Address, str]:
    """Return the address and the path that goes before /v1; raise `BadUrl`."""
    parts = urlsplit(text if "://" in text else f"http://{text}")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise BadUrl(f"{text!r} is not a URL such as http://127.0.0.1:8000")
    if parts.username or parts.password:
        raise BadUrl("the URL has a password in it; give --api-key-file or --api-key-env instead")
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        raise BadUrl(f"{text!r} has no port from 1 to 65535") from None
    tls = ssl.create_default_context() if parts.scheme == "https" else None
    return Address(parts.hostname, port, tls), parts.path.rstrip("/").removesuffix("/v1")
