"""A small HTTP server with exact habits, in a thread of its own, so that what a client measured can be compared.

A word of a prompt is one token and every message brings ten more. It notes when it read each request and
when it wrote each piece, on the same clock that the client reads.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

AROUND = 10
Body = dict[str, Any]


@dataclass
class Habits:
    """What the server does. `refuses` are fields of the body that are 400; `fails` tells the requests that are 500."""

    first_s: float = 0.0
    gap_s: float = 0.0
    tokens_per_piece: int = 1
    usage: bool = True
    refuses: frozenset[str] = frozenset()
    fails: Callable[[int], bool] = lambda number: False
    breaks_off: bool = False
    closes: bool = False
    context_tokens: int = 100_000
    on_request: Callable[[int], None] = lambda number: None


@dataclass
class Seen:
    """One request: its headers and body, when it was read, and when each piece was written."""

    headers: dict[str, str]
    body: Body
    read_s: float
    written_s: list[float] = field(default_factory=list)


class FakeServer:
    def __init__(self, habits: Habits) -> None:
        self.habits = habits
        self.seen: list[Seen] = []
        self.connections = 0
        self.url = ""

    async def serve(self, ready: threading.Event, stop: asyncio.Event) -> None:
        server = await asyncio.start_server(self._connection, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()
        async with server:
            await stop.wait()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                first, *rest = head.decode().strip().split("\r\n")
                headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
                data = await reader.readexactly(int(headers.get("content-length", 0)))
                await self._answer(first.split()[1], headers, data, writer)
                if self.habits.closes:
                    break
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: str, headers: dict[str, str], data: bytes, writer: asyncio.StreamWriter) -> None:
        if path == "/v1/models":
            card = {"id": "fake", "owned_by": "fakery", "max_model_len": self.habits.context_tokens}
            return _plain(writer, 200, {"data": [card]})
        if path == "/version":
            return _plain(writer, 200, {"version": "7.1"})
        if not data:
            return _plain(writer, 404, {})
        seen = Seen(headers, json.loads(data), time.perf_counter())
        self.seen.append(seen)
        number = len(self.seen) - 1
        self.habits.on_request(number)
        if refused := self.habits.refuses & (seen.body.keys() | seen.body.get("stream_options", {}).keys()):
            return _plain(writer, 400, {"error": {"message": f"unknown field {min(refused)}"}})
        if self.habits.fails(number):
            return _plain(writer, 500, {"error": {"message": "out of luck"}})
        return await self._stream(seen, writer)

    async def _stream(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        habits, chat = self.habits, "messages" in seen.body
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Request-Id: r%d\r\n\r\n" % len(self.seen))
        count = min(int(seen.body.get("max_tokens", 3)), habits.context_tokens)
        _event(writer, {"id": "x", "choices": [_choice(chat, "")]})
        await asyncio.sleep(habits.first_s)
        for begin in range(0, count, habits.tokens_per_piece):
            if begin:
                await asyncio.sleep(habits.gap_s)
            words = min(habits.tokens_per_piece, count - begin)
            seen.written_s.append(time.perf_counter())
            _event(writer, {"id": "x", "choices": [_choice(chat, " so" * words)]})
            await writer.drain()
        if habits.breaks_off:
            writer.close()
            return
        _event(writer, {"id": "x", "choices": [_choice(chat, "", "length")]})
        if habits.usage and seen.body.get("stream_options"):
            prompt = prompt_tokens(seen.body)
            details = {"cached_tokens": prompt // 2}
            usage = {"prompt_tokens": prompt, "completion_tokens": count, "prompt_tokens_details": details}
            _event(writer, {"id": "x", "choices": [], "usage": usage})
        _chunk(writer, b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def prompt_tokens(body: Body) -> int:
    """Return the tokens of a request's prompt."""
    if "prompt" in body:
        return len(body["prompt"].split())
    return sum(len(message["content"].split()) + AROUND for message in body["messages"])


def _choice(chat: bool, text: str, finish: str | None = None) -> Body:
    said = {"delta": {"content": text}} if chat else {"text": text}
    return {"index": 0, "finish_reason": finish, **said}


def _event(writer: asyncio.StreamWriter, data: Body) -> None:
    _chunk(writer, b"data: " + json.dumps(data).encode() + b"\n\n")


def _chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def _plain(writer: asyncio.StreamWriter, status: int, body: Body) -> None:
    text = json.dumps(body).encode()
    writer.write(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(text), text))


@contextmanager
def serving(**habits: Any) -> Iterator[FakeServer]:
    """Yield a running server with these habits."""
    server, ready = FakeServer(Habits(**habits)), threading.Event()
    loop = asyncio.new_event_loop()
    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(_until(server, ready, stop)))
    thread.start()
    try:
        assert ready.wait(10)
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


async def _until(server: FakeServer, ready: threading.Event, stop: asyncio.Event) -> None:
    await server.serve(ready, stop)
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
