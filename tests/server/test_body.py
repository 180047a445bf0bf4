from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

from tests.server.doors import CHAT, HI, Door, knock, request_bytes

LIMIT = 4096


def test_a_body_up_to_the_limit_is_read_and_one_byte_more_is_413() -> None:
    async def test(door: Door) -> None:
        body = json.dumps(HI).encode()
        assert (await door.client.post(CHAT, content=body.ljust(LIMIT))).status_code == 200
        reply = await door.client.post(CHAT, content=body.ljust(LIMIT + 1))
        assert reply.status_code == 413
        assert reply.json()["error"]["code"] == "request_too_large"
        assert str(LIMIT) in reply.json()["error"]["message"]
        assert (await door.client.post(CHAT, content=body)).status_code == 200

    knock(test, request_bytes_max=LIMIT)


def test_a_body_without_a_length_is_counted() -> None:
    async def pieces(count: int) -> AsyncIterator[bytes]:
        for _ in range(count):
            yield b" " * 1000

    async def test(door: Door) -> None:
        assert (await door.client.post(CHAT, content=pieces(50))).status_code == 413
        reply = await door.client.post(CHAT, content=pieces(3))
        assert reply.status_code == 400
        assert reply.json()["error"]["code"] == "invalid_json"

    knock(test, request_bytes_max=LIMIT)


def test_a_client_that_asks_first_need_not_send_what_is_too_large() -> None:
    async def test(door: Door) -> None:
        reader, writer = await door.connect()
        head = request_bytes(b"", "Expect: 100-continue").replace(b"Content-Length: 0", b"Content-Length: 9999999")
        writer.write(head)
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), 1.0)
        assert answer == b"HTTP/1.1 413 Request Entity Too Large\r\n" or b" 413 " in answer
        writer.close()

    knock(test, request_bytes_max=LIMIT)


def test_compressed_bodies_are_refused_by_name() -> None:
    async def test(door: Door) -> None:
        reply = await door.client.post(CHAT, content=b"x", headers={"content-encoding": "zstd"})
        assert reply.status_code == 415
        assert "zstd" in reply.json()["error"]["message"]

    knock(test)


def test_a_body_that_stops_coming_is_408() -> None:
    async def test(door: Door) -> None:
        answer = await door.send_raw(request_bytes(b"{", "Connection: close").replace(b": 1\r\n", b": 100\r\n"))
        assert b" 408 " in answer
        assert b'"code":"timeout"' in answer

    knock(test, body_timeout_s=0.05)


def test_a_client_that_leaves_in_its_body_reaches_no_engine() -> None:
    async def test(door: Door) -> None:
        _, writer = await door.connect()
        writer.write(request_bytes(b'{"mess').replace(b": 6\r\n", b": 100\r\n"))
        await writer.drain()
        writer.close()
        await asyncio.sleep(0.05)
        assert not door.engine.asked
        assert (await door.chat()).status_code == 200

    knock(test)
