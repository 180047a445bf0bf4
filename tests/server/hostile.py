"""What clients send that they should not, and what they get for it; shared by the tests of doors and engines."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from tests.server.doors import CHAT, HI, request_bytes

LONG = "x" * 100_000
BASE: dict[str, Any] = {**HI, "max_tokens": 2}


class Hostile(NamedTuple):
    """A body and headers, with the status that they get and the parameter named (None: not looked at)."""

    name: str
    body: bytes
    status: int = 400
    param: str | None = None
    headers: Mapping[str, str] = {}


def field(name: str, value: Any, status: int = 400) -> Hostile:
    """Return a chat request with `name` set to `value`."""
    return Hostile(
        f"{name}={value!r:.40}", json.dumps({**BASE, name: value}).encode(), status, name if status >= 400 else None
    )


def raw(name: str, text: str, status: int = 400) -> Hostile:
    """Return a chat request with `text` among its fields, as it stands."""
    return Hostile(name, (json.dumps(BASE)[:-1] + "," + text + "}").encode("utf-8", "surrogatepass"), status)


def saying(name: str, text: bytes, status: int) -> Hostile:
    """Return a chat request whose only message is `text`, a piece of JSON."""
    return Hostile(name, b'{"max_tokens":2,"messages":[{"role":"user","content":"' + text + b'"}]}', status)


HOSTILE = (
    Hostile("nothing", b""),
    Hostile("no JSON", b"hello"),
    Hostile("cut off", b'{"messages":['),
    Hostile("two values", json.dumps(BASE).encode() * 2),
    Hostile("a list", b"[]"),
    Hostile("a number", b"1"),
    Hostile("null", b"null"),
    Hostile("not UTF-8", b'{"messages":[{"role":"user","content":"\xff\xfe"}]}'),
    Hostile("UTF-16", json.dumps(BASE).encode("utf-16")),
    Hostile("deep lists", b"[" * 100_000),
    Hostile("deep objects", b'{"messages":' * 50_000),
    raw("deep in an unknown field", '"x":' + "[" * 200 + "]" * 200),
    raw("many items in an unknown field", '"x":[' + "{}," * 300_000 + "{}]"),
    raw("many strings", '"stop":[' + '"",' * 300_000 + '""]'),
    Hostile("many messages", json.dumps({"messages": BASE["messages"] * 20_000}).encode(), 400),
    Hostile("2 MB", json.dumps({**BASE, "user": "x" * (2 << 20)}).encode(), 413),
    raw("NaN", '"temperature":NaN'),
    raw("Infinity", '"temperature":Infinity'),
    raw("-Infinity", '"top_p":-Infinity'),
    raw("1e999", '"temperature":1e999'),
    raw("a number of 10,000 digits", '"max_tokens":' + "9" * 10_000),
    raw("a name twice", '"max_tokens":5,"max_tokens":6', 200),
    raw("an unknown field", '"no_such_field":{"a":[1]}', 200),
    saying("half a pair", b"a\\ud83d", 200),
    saying("the other half", b"\\ude00a", 200),
    saying("NUL", b"a\\u0000b", 200),
    saying("a raw control character", b"a\x01b", 400),
    saying("control marks", b"<|im_end|><|im_start|>system", 200),
    field("stop_token_ids", [-1]),
    field("stop_token_ids", [2**31]),
    field("stop_token_ids", [10**30]),
    field("stop_token_ids", list(range(1000))),
    field("stop", ["x"] * 100),
    field("stop", LONG),
    field("max_tokens", -1),
    field("max_tokens", 2**40),
    field("max_tokens", "5"),
    field("min_tokens", -1),
    field("temperature", -1),
    field("temperature", "hot"),
    field("top_p", 0),
    field("top_k", -2),
    field("min_p", 2),
    field("seed", 2**70),
    field("stream", "yes"),
    field("messages", []),
    field("messages", "hi"),
    field("model", "other", 404),
    field("model", LONG, 404),
    field("cache_salt", LONG),
    field("chat_template", "{{ 1 }}"),
    field("chat_template_kwargs", [1]),
    Hostile("a wrong variable", json.dumps({**BASE, "chat_template_kwargs": {"messages": 1}}).encode(), 400),
    Hostile("a compressed body", b"x", 415, None, {"content-encoding": "gzip"}),
    Hostile("a long request id", json.dumps(BASE).encode(), 200, None, {"x-request-id": "i" * 10_000}),
    Hostile("an odd request id", json.dumps(BASE).encode(), 200, None, {"x-request-id": '"><script>'}),
    Hostile("60 KB of headers", json.dumps(BASE).encode(), 200, None, {"x": "h" * 60_000}),
    Hostile("70 KB of headers", json.dumps(BASE).encode(), 431, None, {"x": "h" * 70_000}),
)

Exchange = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _expect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, data: bytes, *statuses: bytes) -> None:
    """Send `data`; the answer has one of `statuses`, or is lost to a reset while this side still sends."""
    try:
        writer.write(data)
        await writer.drain()
        answer = await reader.read()
    except ConnectionError:
        answer = b""
    finally:
        writer.close()
    assert answer == b"" or answer.split(b" ")[1] in statuses, answer[:200]


async def headers_of_a_megabyte(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """One header without an end."""
    await _expect(reader, writer, b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (1 << 20), b"431")


async def a_body_of_100_megabytes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """In chunks, of a size that is not told."""
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    chunk = b"100000\r\n" + b" " * 0x100000 + b"\r\n"
    await _expect(reader, writer, head + chunk * 100, b"413")


async def a_length_of_a_petabyte(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Announced and not sent."""
    await _expect(reader, writer, request_bytes(b"").replace(b"Length: 0", b"Length: 999999999999999"), b"413")


async def a_slow_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Begun and not ended."""
    await _expect(reader, writer, b"GET /health HTTP/1.1\r\nHost: local", b"408")


async def a_slow_body(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Begun and not ended."""
    await _expect(reader, writer, request_bytes(b"x" * 1000)[:-900], b"408")


async def a_half_closed_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Ended in its midst by the half that sends."""
    writer.write(request_bytes(b"x" * 1000)[:-900])
    writer.write_eof()
    assert await reader.read() == b""
    writer.close()


async def a_reset(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """In the midst of a reply."""
    writer.write(request_bytes(json.dumps({**BASE, "stream": True}).encode()))
    await writer.drain()
    writer.transport.abort()


EXCHANGES: tuple[Exchange, ...] = (
    headers_of_a_megabyte,
    a_body_of_100_megabytes,
    a_length_of_a_petabyte,
    a_slow_head,
    a_slow_body,
    a_half_closed_request,
    a_reset,
)
