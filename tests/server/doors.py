"""A real HTTP door on a free loopback port in front of the scripted engine, and ways to knock."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvloop

from tests.server.fake_engine import FakeEngine
from tokenspeed.config import ServerConfig
from tokenspeed.server.app import build_app
from tokenspeed.server.bind import bind, url_of
from tokenspeed.server.descriptors import connections_max, raise_file_limit
from tokenspeed.server.doorman import Access
from tokenspeed.server.health import Probes
from tokenspeed.server.http import HttpServer
from tokenspeed.server.metrics import Metrics
from tokenspeed.server.record import SpansLike
from tokenspeed.server.tenants import TenantEngine

CHAT = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "Hi"}]}


class Door:
    """What a test needs of an open door."""

    def __init__(self, engine: FakeEngine, url: str, client: httpx.AsyncClient) -> None:
        self.engine = engine
        self.url = url
        self.client = client
        self._writers: list[asyncio.StreamWriter] = []

    async def chat(self, **more: Any) -> httpx.Response:
        """Send a chat request with `more` in its body."""
        return await self.client.post(CHAT, json={**HI, **more})

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a plain connection; the end of the test closes it, if nothing did before."""
        reader, writer = await asyncio.open_connection("127.0.0.1", int(self.url.rpartition(":")[2]))
        self._writers.append(writer)
        return reader, writer

    def hang_up(self) -> None:
        """Close what `connect` opened."""
        for writer in self._writers:
            writer.close()

    async def send_raw(self, data: bytes) -> bytes:
        """Send `data`, and return everything that comes until the server closes; b"" if it resets."""
        reader, writer = await self.connect()
        writer.write(data)
        try:
            return await asyncio.wait_for(reader.read(), 5.0)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()


@asynccontextmanager
async def opened(engine: FakeEngine, *, spans: SpansLike | None = None, **settings: Any) -> AsyncIterator[Door]:
    """Yield an open door in front of `engine`."""
    sock = bind("127.0.0.1", 0)
    config = ServerConfig(**settings)
    access, metrics = Access(config.access, config.host), Metrics(engine, vllm_names=config.vllm_metric_names)
    app = build_app(TenantEngine(engine), config, Probes(engine), access, metrics, spans)
    server = HttpServer(app, [sock], config.limits, connections_max(config.connections_max, raise_file_limit()))
    url = url_of(sock)
    await server.start()
    try:
        async with httpx.AsyncClient(base_url=url, timeout=10.0) as client:
            door = Door(engine, url, client)
            try:
                yield door
            finally:
                door.hang_up()
    finally:
        await server.stop(at_once=True)


def knock(
    test: Callable[[Door], Coroutine[Any, Any, None]],
    make: Callable[[], FakeEngine] = lambda: FakeEngine().begin(),
    **settings: Any,
) -> None:
    """Run `test` against a door in front of the engine that `make` returns."""

    async def main() -> None:
        async with opened(make(), **settings) as door:
            await test(door)

    uvloop.run(main())


def request_bytes(body: bytes, *headers: str, path: str = CHAT) -> bytes:
    """Return a POST as it goes over the wire."""
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


def events(text: str) -> list[Any]:
    """Return the data of server-sent events; `[DONE]` stays a string."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


async def until(condition: Callable[[], bool], limit_s: float = 5.0) -> None:
    """Wait until `condition` holds, or fail."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + limit_s
    while not condition():
        assert loop.time() < end_s, "it did not happen in time"
        await asyncio.sleep(0.002)
