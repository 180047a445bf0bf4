"""Replies: pieces and tokens are told apart whatever a server tells of them, and however its bytes are cut."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenspeed_tools.bench.http import Exchange
from tokenspeed_tools.bench.reply import Reply
from tokenspeed_tools.bench.sse import Cutter


def chunk(text: str | None = None, finish: str | None = None, total: int | None = None, **more: Any) -> bytes:
    usage = None if total is None else {"prompt_tokens": 5, "completion_tokens": total}
    choice = {"delta": {"role": "assistant", "content": text}, "finish_reason": finish, **more}
    return json.dumps({"id": "c1", "choices": [choice], "usage": usage}).encode()


def usage(total: int) -> bytes:
    counted = {"prompt_tokens": 5, "completion_tokens": total, "prompt_tokens_details": {"cached_tokens": 3}}
    return json.dumps({"choices": [], "usage": counted}).encode()


def read(*events: bytes) -> Reply:
    reply = Reply()
    for number, event in enumerate(events):
        reply.take(float(number), event)
    return reply


ROLE, END, DONE = chunk(""), chunk(None, "length"), b"[DONE]"
CASES = {
    "one token a piece": ((ROLE, chunk("a"), chunk("b"), END, usage(2)), [(1.0, 1), (2.0, 1)], "usage"),
    "spread over the pieces": ((chunk("a"), chunk("b"), chunk("c"), usage(7)), [(0.0, 2), (1.0, 2), (2.0, 3)], "usage"),
    "fewer tokens than pieces": ((chunk("a"), chunk("b"), usage(1)), [(0.0, 0), (1.0, 1)], "usage"),
    "told with each piece": (
        (chunk("", total=0), chunk("ab", total=2), chunk("", total=3), chunk("d", total=4), usage(5)),
        [(1.0, 2), (2.0, 1), (3.0, 2)],
        "usage",
    ),
    "ids in each piece": (
        (chunk("", token_ids=[]), chunk("ab", token_ids=[7, 8]), chunk("", token_ids=[9]), usage(4)),
        [(1.0, 2), (2.0, 2)],
        "ids",
    ),
    "nothing told": ((ROLE, chunk("ab"), chunk("c"), END, DONE), [(1.0, 1), (2.0, 1)], "chunks"),
    "tokens without text": ((ROLE, END, usage(2)), [(1.0, 2)], "usage"),
}


@pytest.mark.parametrize("case", CASES)
def test_pieces_and_their_tokens(case: str) -> None:
    events, pieces, told = CASES[case]
    assert read(*events).chunks() == (pieces, told)


def test_text_reason_and_counts_are_kept() -> None:
    thought = json.dumps({"choices": [{"delta": {"reasoning_content": "hm"}}]}).encode()
    reply = read(ROLE, thought, chunk("so"), END, usage(3), DONE)
    assert (reply.id, reply.text, reply.finish, reply.done, reply.pieces) == ("c1", "so", "length", True, 2)
    assert reply.usage.prompt_tokens_details is not None
    assert reply.usage.prompt_tokens_details.cached_tokens == 3


def test_the_text_api_is_read_too() -> None:
    assert read(b'{"choices":[{"text":"a"}]}', b'{"choices":[{"text":"b","finish_reason":"stop"}]}').text == "ab"


@pytest.mark.parametrize(
    ("event", "says"),
    [(b'{"error":{"message":"no room"}}', "no room"), (b'{"error":"no room"}', "no room"), (b"<html>", "not a chunk")],
)
def test_an_error_in_the_stream_is_kept(event: bytes, says: str) -> None:
    assert says in str(read(ROLE, event).error)


EVENTS = [ROLE, chunk("wörld"), b'{"choices":[{"text":"\\n\\n"}]}', END, usage(9), DONE]
LINES = [b": comment\n\n", *(b"data: " + event + b"\n\n" for event in EVENTS[:3]), b"event: x\r\ndata:" + EVENTS[3]]
STREAM = b"".join(LINES) + b"\r\n\r\n" + b"".join(b"data: " + event + b"\n\n" for event in EVENTS[4:])
ANSWER = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"".join(
    b"%x\r\n%s\r\n" % (len(part), part) for part in (STREAM[:9], STREAM[9:70], STREAM[70:], b"")
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    ends = sorted({place % len(data) for place in places} | {0, len(data)})
    return [data[begin:end] for begin, end in pairwise(ends)]


@given(st.lists(st.integers(0, 10_000), max_size=12))
def test_events_are_the_same_however_the_stream_is_cut(places: list[int]) -> None:
    cutter = Cutter()
    assert [event for part in cut(STREAM, places) for event in cutter.feed(part)] == EVENTS


@given(st.lists(st.integers(0, 10_000), max_size=12))
def test_an_answer_is_the_same_however_it_is_cut(places: list[int]) -> None:
    async def answer() -> tuple[Exchange, list[tuple[float, bytes]]]:
        cutter = Cutter()
        events: list[tuple[float, bytes]] = []
        exchange = Exchange(lambda at_s, data: events.extend((at_s, event) for event in cutter.feed(data)))
        exchange.begin()
        for number, part in enumerate(cut(ANSWER, places)):
            exchange.feed(float(number), part)
        await exchange.ended
        return exchange, events

    exchange, events = asyncio.run(answer())
    assert [event for _, event in events] == EVENTS
    assert (exchange.status, exchange.keep, exchange.headers_s) == (200, True, 0.0)
    assert [at_s for at_s, _ in events] == sorted(at_s for at_s, _ in events)
