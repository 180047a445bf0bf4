from __future__ import annotations

import asyncio

import pytest

from tests.server.doors import CHAT, HI, Door, events, knock
from tests.server.fake_engine import END, FakeEngine, Output, Step
from tokenspeed.errors import EngineError, UserError

STREAM = {**HI, "stream": True}


@pytest.mark.parametrize("error", [UserError("too big", code="never_fits"), EngineError("lost"), ValueError("secret")])
def test_an_error_after_the_headers_is_an_event_and_then_done(error: Exception) -> None:
    async def test(door: Door) -> None:
        reply = await door.client.post(CHAT, json=STREAM)
        assert reply.status_code == 200
        *_, text, told, done = events(reply.text)
        assert text["choices"][0]["delta"] == {"content": "a"}
        assert done == "[DONE]"
        assert set(told["error"]) == {"message", "type", "param", "code"}
        assert ("secret" in reply.text) is False
        if isinstance(error, ValueError):
            assert reply.headers["x-request-id"] in told["error"]["message"]
        else:
            assert told["error"]["message"] == str(error)
        assert door.engine.requests_open == 0

    knock(test, lambda: FakeEngine(script=[[Output("a"), error]]).begin())


def test_a_stream_without_its_finish_ends_with_an_error() -> None:
    async def test(door: Door) -> None:
        *_, told, done = events((await door.client.post(CHAT, json=STREAM)).text)
        assert done == "[DONE]"
        assert told["error"]["type"] == "server_error"
        whole = await door.chat()
        assert whole.status_code == 500

    knock(test, lambda: FakeEngine(script=[[Output("a")]]).begin())


def test_silence_is_broken_by_a_comment_and_an_empty_delta() -> None:
    async def test(door: Door) -> None:
        text = (await door.client.post(CHAT, json=STREAM)).text
        *chunks, done = events(text)
        beats = text.count(": keep-alive\n\n")
        assert done == "[DONE]"
        assert 3 <= beats <= 12
        empty = [chunk for chunk in chunks if chunk["choices"][0]["delta"] == {"content": ""}]
        assert len(empty) == beats

    knock(test, lambda: FakeEngine(script=[[0.25, END]]).begin(), keep_alive_s=0.02)


def test_there_is_no_sign_of_life_while_tokens_come() -> None:
    steps: list[Step] = [step for _ in range(30) for step in (Output("a"), 0.01)]

    async def test(door: Door) -> None:
        assert ": keep-alive" not in (await door.client.post(CHAT, json=STREAM)).text

    knock(test, lambda: FakeEngine(script=[[*steps, END]]).begin(), keep_alive_s=0.2)


def test_an_output_without_text_sends_nothing() -> None:
    async def test(door: Door) -> None:
        chunks = events((await door.client.post(CHAT, json=STREAM)).text)
        assert len(chunks) == 4  # role, text, finish, done

    knock(test, lambda: FakeEngine(script=[[Output(""), Output(""), END]]).begin())


def test_two_streams_run_side_by_side() -> None:
    async def test(door: Door) -> None:
        replies = await asyncio.gather(*(door.client.post(CHAT, json=STREAM) for _ in range(20)))
        assert {"".join(c["choices"][0]["delta"].get("content", "") for c in events(r.text)[:-1]) for r in replies} == {
            "Hello wörld\n"
        }
        assert len({events(reply.text)[0]["id"] for reply in replies}) == 20

    knock(test, lambda: FakeEngine(script=[[Output("Hel"), 0.001, Output("lo"), 0.001, END]]).begin())
