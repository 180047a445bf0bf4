"""The client against a server with exact habits: its times are those at which bytes were written."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
import uvloop
from tokenspeed_tools.bench.ask import Ask, Place
from tokenspeed_tools.bench.asking import Asking
from tokenspeed_tools.bench.client import BadUrlError, Client, parse_url
from tokenspeed_tools.bench.http import Exchange, LostError, now
from tokenspeed_tools.bench.lag import LoopWatch
from tokenspeed_tools.bench.plan import user
from tokenspeed_tools.bench.raw import Request
from tokenspeed_tools.bench.summary import quantile, summarise

from tests.tools.bench import made
from tests.tools.bench.fake_server import FakeServer, serving


def asked(server: FakeServer, count: int, tokens: int, key: str | None = None, begin_s: float = 0.0) -> list[Request]:
    """Send `count` requests one after the other and return their lines."""

    async def go() -> list[Request]:
        client, watch, lines = Client(server.url, key), LoopWatch(), []
        watch.start()
        for index in range(count):
            ask = Ask(Place(index, index, 0, False, now()), begin_s, watch)
            error = await ask.run(client, Asking("chat", "fake"), [user("hello you")], tokens, 5.0)
            lines.append(ask.record(error, 12, tokens))
        watch.stop()
        client.close()
        return lines

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(go())


def test_times_are_those_at_which_the_server_wrote() -> None:
    """On a busy machine a thread may wake late, so the better quarter of all pieces must be right."""
    with serving(first_s=0.02, gap_s=0.006) as server:
        lines = asked(server, 6, 12)
        pairs = list(zip(lines, server.seen, strict=True))
    late = [
        seen - written
        for line, served in pairs
        for (seen, _), written in zip(line.chunks, served.written_s, strict=True)
    ]
    ttft_off = [
        abs((line.first_token_s or 0.0) - line.sent_s - (served.written_s[0] - served.read_s)) for line, served in pairs
    ]
    gap_off = [
        abs((seen[1][0] - seen[0][0]) - (written[1] - written[0]))
        for line, served in pairs
        for seen, written in zip(pairwise(line.chunks), pairwise(served.written_s), strict=True)
    ]
    assert all(line.error is None for line in lines)
    assert min(late) >= 0
    for off in (late, ttft_off, gap_off):
        assert quantile(sorted(off), 0.25) < 0.001
    summary = summarise(made.run(), lines)
    assert summary.ttft_ms is not None
    assert summary.itl_ms is not None
    assert summary.ttft_ms.p50 > 20
    assert summary.itl_ms.p50 == pytest.approx(summary.gap_ms.p50 if summary.gap_ms else 0)


def test_what_a_line_says_beside_times() -> None:
    with serving(tokens_per_piece=3) as server:
        (line,) = asked(server, 1, 8)
    assert [tokens for _, tokens in line.chunks] == [2, 3, 3]
    assert (line.output_tokens, line.prompt_tokens, line.cached_tokens) == (8, 12, 6)
    assert (line.finish, line.status, line.request_id, line.tokens_from) == ("length", 200, "r1", "usage")
    assert 0 <= line.client_busy <= 1
    assert line.sent_s <= (line.headers_s or 0) <= (line.first_token_s or 0) <= line.end_s


def test_a_connection_is_used_again_and_replaced_once_the_server_has_closed_it() -> None:
    with serving() as server:
        assert all(line.error is None for line in asked(server, 3, 1))
        assert server.connections == 1
    with serving(closes=True) as server:
        assert all(line.error is None for line in asked(server, 3, 1))
        assert server.connections == 3


@pytest.mark.parametrize(
    ("habits", "says", "tokens"),
    [
        ({"fails": lambda _: True}, "500: out of luck", 0),
        ({"breaks_off": True}, "the server closed the connection", 2),
    ],
)
def test_what_went_wrong_is_told_with_what_had_come(habits: dict[str, object], says: str, tokens: int) -> None:
    with serving(**habits) as server:
        (line,) = asked(server, 1, 2)
    assert line.error == says
    assert line.output_tokens == tokens


def test_a_key_goes_out_as_a_bearer() -> None:
    with serving() as server:
        asked(server, 1, 1, key="secret")
        assert server.seen[0].headers["authorization"] == "Bearer secret"


def test_nobody_there() -> None:
    async def knock() -> None:
        await Client("http://127.0.0.1:1").get("/v1/models", Exchange())

    with pytest.raises(LostError, match=r"cannot connect to http://127\.0\.0\.1:1"):
        asyncio.run(knock())


def test_urls() -> None:
    assert parse_url("host:80/proxy/v1/")[1] == "/proxy"
    address, root = parse_url("https://host")
    assert (address.port, address.tls is not None, root) == (443, True, "")
    assert Client("http://[::1]:8000/v1").url == "http://[::1]:8000"


@pytest.mark.parametrize("url", ["ftp://host", "http://", "http://user:word@host", "http://host:99999"])
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(BadUrlError) as refused:
        parse_url(url)
    assert "word@" not in str(refused.value)


def test_a_loop_that_was_held_up_is_seen() -> None:
    async def held_up() -> tuple[float, float]:
        watch = LoopWatch()
        watch.start()
        marks = watch.marks()
        await asyncio.sleep(0.02)
        end_s = now() + 0.05
        while now() < end_s:
            pass
        await asyncio.sleep(0.02)
        watch.stop()
        return watch.worst_s(marks[0]), watch.busy(marks)

    late_s, busy = asyncio.run(held_up())
    assert late_s > 0.035
    assert 0 < busy <= 1
