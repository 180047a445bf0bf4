from __future__ import annotations

import asyncio
import json

import pytest

from tests.server.doors import CHAT, HI, Door, events, knock, request_bytes
from tests.server.fake_engine import FOREVER, FakeEngine
from tokenspeed.config import ServerConfig
from tokenspeed.server import http
from tokenspeed.server.app import build_app
from tokenspeed.server.bind import bind
from tokenspeed.server.doorman import Access
from tokenspeed.server.health import Probes
from tokenspeed.server.http import HttpServer

HEADER_BYTES_MAX = ServerConfig().header_bytes_max


@pytest.mark.parametrize(
    "data",
    [
        b"nonsense\r\n\r\n",
        b"GET /health HTTP/9.9\r\n\r\n",
        b"GET  HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nbad header\r\n\r\n",
        b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: localhost\r\nContent-Length: abc\r\n\r\n",
        b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
def test_what_is_not_http_gets_a_400_in_the_usual_shape(data: bytes) -> None:
    async def test(door: Door) -> None:
        head, _, body = (await door.send_raw(data)).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert json.loads(body)["error"]["code"] == "invalid_http"
        assert (await door.client.get("/health")).status_code == 200

    knock(test)


@pytest.mark.parametrize("endless", [b"GET /health HTTP/1.1\r\nX: %s\r\n\r\n", b"GET /%s HTTP/1.1\r\n\r\n"])
def test_endless_headers_are_cut_off(endless: bytes) -> None:
    async def test(door: Door) -> None:
        answer = await door.send_raw(endless % (b"a" * (HEADER_BYTES_MAX + 1)))
        assert b" 431 " in answer or answer == b""  # a client that still sends may see a reset
        answer = await door.send_raw(b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * HEADER_BYTES_MAX)
        assert b" 431 " in answer or answer == b""
        assert (await door.client.get("/health")).status_code == 200

    knock(test)


@pytest.mark.parametrize(
    "begin",
    [
        b"GET /health HTTP/1.1\r\n",
        b"",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;",
    ],
)
def test_a_header_that_never_ends_is_not_kept(begin: bytes) -> None:
    async def test(door: Door) -> None:
        reader, writer = await door.connect()
        writer.write(begin)
        try:
            for _ in range(64):
                writer.write((b"\r\n" * 16_384) if not begin else b"a" * 32_768)
                await asyncio.wait_for(writer.drain(), 5.0)
                await asyncio.sleep(0)
            answer = await asyncio.wait_for(reader.read(), 5.0)
        except ConnectionError:  # cut while this side was still sending
            answer = b" 431 "
        assert b" 431 " in answer
        writer.close()

    knock(test)


def test_a_body_beside_an_upgrade_is_refused_with_the_cause() -> None:
    # As Java's HttpClient sends it; the parser drops such a body.
    async def test(door: Door) -> None:
        body = json.dumps(HI).encode()
        answer = await door.send_raw(request_bytes(body, "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c"))
        head, _, found = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert "Upgrade" in json.loads(found)["error"]["message"]

    knock(test)


def test_a_connection_whose_request_never_comes_is_closed() -> None:
    async def test(door: Door) -> None:
        begins = [b"", b"GET /hea", b"GET /health HTTP/1.1\r\nHost: localhost\r\n"]
        begins.append(request_bytes(json.dumps({**HI, "stream": True}).encode()) + begins[-1])
        answers = await asyncio.gather(*map(door.send_raw, begins))
        assert answers[0] == b""
        assert [answer.split(b"\r\n")[0] for answer in answers[1:3]] == [b"HTTP/1.1 408 Request Timeout"] * 2
        assert b"[DONE]" in answers[3]

    knock(test, idle_s_max=1, header_timeout_s=0.2)


def test_headers_are_counted_for_each_request_of_a_connection() -> None:
    async def test(door: Door) -> None:
        for _ in range(4):
            reply = await door.client.get("/health", headers={"x": "a" * (HEADER_BYTES_MAX // 2)})
            assert reply.status_code == 200

    knock(test)


def test_pipelined_requests_are_answered_in_order() -> None:
    async def test(door: Door) -> None:
        body = json.dumps({**HI, "stream": True}).encode()
        last = request_bytes(body, "Connection: close")
        answer = (await door.send_raw(request_bytes(body) + last)).decode()
        assert answer.count("HTTP/1.1 200 OK") == 2
        assert [event for event in events(answer) if event == "[DONE]"] == ["[DONE]"] * 2

    knock(test)


def test_websockets_are_turned_away() -> None:
    async def test(door: Door) -> None:
        reply = await door.client.get(
            "/v1/models", headers={"connection": "upgrade", "upgrade": "websocket", "sec-websocket-key": "x"}
        )
        assert reply.status_code == 200

    knock(test)


@pytest.mark.parametrize("at_once", [True, False])
def test_stop_ends_within_its_time(at_once: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FLUSH_S_MAX", 0.3)

    async def main() -> None:
        engine = FakeEngine(script=[FOREVER]).begin()
        sock = bind("127.0.0.1", 0)
        port = sock.getsockname()[1]
        config = ServerConfig()
        app = build_app(engine, config, Probes(engine), Access(config.access, config.host))
        server = HttpServer(app, [sock], config.limits, 10)
        await server.start()
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_bytes(json.dumps({**HI, "stream": True}).encode()))
        await reader.readuntil(b"first")
        begun_s = asyncio.get_running_loop().time()
        await server.stop(at_once=at_once)
        took_s = asyncio.get_running_loop().time() - begun_s
        assert took_s < 2.0
        assert at_once or took_s > 0.3
        assert engine.cancelled == [1]
        with pytest.raises(OSError, match=r"refused|Connect"):
            await asyncio.open_connection("127.0.0.1", port)
        writer.close()

    asyncio.run(main())
