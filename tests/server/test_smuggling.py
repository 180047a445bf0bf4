"""Requests that a proxy in front may read differently are refused, each with 400 and a closed connection."""

from __future__ import annotations

import pytest

from tests.server.doors import Door, knock
from tokenspeed.server.strict import head_fault

POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
NEXT = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"

REFUSED = {
    "length and chunks": POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n" + END,
    "chunks and length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" + END,
    "two lengths": POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    "two equal lengths": POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
    "a list of lengths": POST + b"Content-Length: 3, 3\r\n\r\nabc",
    "a signed length": POST + b"Content-Length: +3\r\n\r\nabc",
    "a negative length": POST + b"Content-Length: -3\r\n\r\nabc",
    "no length": POST + b"Content-Length:\r\n\r\nabc",
    "a hexadecimal length": POST + b"Content-Length: 0x3\r\n\r\nabc",
    "a length of 70 bits": POST + b"Content-Length: 999999999999999999999\r\n\r\nabc",
    "a folded header": POST + b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "a folded coding": POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n" + END,
    "bare LF": b"POST / HTTP/1.1\nHost: localhost\nContent-Length: 0\n\n",
    "bare LF after a header": POST + b"X: a\nY: b\r\nContent-Length: 0\r\n\r\n",
    "bare LF at the end": POST + b"Content-Length: 0\r\n\n",
    "bare LF after a chunk's size": CHUNKED + b"3\nabc\r\n" + END,
    "bare CR": POST + b"X: a\rY: b\r\nContent-Length: 0\r\n\r\n",
    "a chunk of 72 bits": CHUNKED + b"fffffffffffffffff1\r\nabc",
    "a negative chunk": CHUNKED + b"-1\r\nabc",
    "a chunk with 0x": CHUNKED + b"0x3\r\nabc\r\n" + END,
    "a blank after a chunk's size": CHUNKED + b"3 \r\nabc\r\n" + END,
    "a chunk longer than its size": CHUNKED + b"3\r\nabcd\r\n" + END,
    "a chunk's extension with LF": CHUNKED + b"3;a=\nb\r\nabc\r\n" + END,
    "another coding": POST + b"Transfer-Encoding: gzip\r\n\r\n" + END,
    "two codings": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n" + END,
    "chunked twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n" + END,
    "almost chunked": POST + b"Transfer-Encoding: xchunked\r\n\r\n" + END,
    "a hidden coding": POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n" + END,
    "identity": POST + b"Transfer-Encoding: identity\r\nContent-Length: 0\r\n\r\n",
    "a coding in HTTP/1.0": CHUNKED.replace(b"HTTP/1.1", b"HTTP/1.0") + END,
    "a blank before the colon": POST + b"Content-Length : 0\r\n\r\n",
    "a blank in a name": POST + b"Content Length: 0\r\n\r\n",
    "a blank before the first name": b"POST / HTTP/1.1\r\n Host: localhost\r\n\r\n",
    "no name": POST + b": a\r\nContent-Length: 0\r\n\r\n",
    "NUL in a value": POST + b"X: a\0b\r\nContent-Length: 0\r\n\r\n",
    "NUL in a name": POST + b"X\0: a\r\nContent-Length: 0\r\n\r\n",
    "another host as target": b"GET http://evil/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "an authority as target": b"GET evil:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a tunnel": b"CONNECT evil:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a star": b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a fragment": b"GET /health#a HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "two hosts": b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "a host with a path": b"GET /health HTTP/1.1\r\nHost: localhost/evil\r\n\r\n",
    "a host with a user": b"GET /health HTTP/1.1\r\nHost: evil@localhost\r\n\r\n",
    "two hosts in one": b"GET /health HTTP/1.1\r\nHost: localhost, evil\r\n\r\n",
    "HTTP/0.9": b"GET /health\r\n\r\n",
    "HTTP/2.0": b"GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n",
    "HTTP/1.2": b"GET /health HTTP/1.2\r\nHost: localhost\r\n\r\n",
    "a preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "a control character in the target": b"GET /\x01 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a byte beyond ASCII in the target": b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


def test_each_is_refused_and_what_follows_is_not_read() -> None:
    async def test(door: Door) -> None:
        for name, data in REFUSED.items():
            answer = await door.send_raw(data + NEXT)
            assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n"), name
            assert b'"code":"invalid_http"' in answer, name
            assert answer.count(b"HTTP/1.1 ") == 1, name
        assert not door.engine.asked
        assert (await door.client.get("/health")).status_code == 200

    knock(test)


def test_nothing_is_answered_after_a_request_that_said_it_was_the_last() -> None:
    async def test(door: Door) -> None:
        last = NEXT.replace(b"Host", b"Connection: close\r\nHost")
        assert (await door.send_raw(last + NEXT)).count(b"HTTP/1.1 ") == 1

    knock(test)


def test_a_body_that_goes_on_after_the_answer_ends_the_connection() -> None:
    async def test(door: Door) -> None:
        answer = await door.send_raw(
            b"POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999\r\n\r\nabc" + NEXT
        )
        assert answer.startswith(b"HTTP/1.1 404 ")
        assert answer.count(b"HTTP/1.1 ") == 1

    knock(test)


@pytest.mark.parametrize("host", [b"localhost", b"127.0.0.1:8000", b"[::1]:8000", b"a-b.example", b"x_y%41"])
def test_plain_heads_have_no_fault(host: bytes) -> None:
    headers = [(b"host", host), (b"transfer-encoding", b"Chunked")]
    assert head_fault(b"/v1/models?a=b", "1.1", headers) is None
    assert head_fault(b"/", "1.0", []) is None
