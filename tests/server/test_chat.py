from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import openai
import pytest

from tests.server.doors import CHAT, HI, Door, events, knock, request_bytes, until
from tests.server.fake_engine import END, FOREVER, FakeEngine, Output
from tokenspeed.errors import EngineError, UserError
from tokenspeed.messages.tokenizer import Chat

TOO_LONG = UserError(
    "The prompt has 3000 tokens; at most 2048 are allowed.", code="context_length_exceeded", param="messages"
)


def test_whole_reply() -> None:
    async def test(door: Door) -> None:
        reply = await door.chat(max_tokens=5)
        told = reply.json()
        assert reply.status_code == 200
        assert reply.headers["content-type"] == "application/json"
        assert told["choices"][0]["message"]["content"] == "Hello wörld\n"
        assert told["choices"][0]["finish_reason"] == "stop"
        assert told["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}
        prompt, sampling, _, _ = door.engine.asked[0]
        assert isinstance(prompt, Chat)
        assert msgspec.json.decode(prompt.messages) == HI["messages"]
        assert sampling.max_tokens == 5
        assert door.engine.requests_open == 0

    knock(test)


def test_streamed_reply() -> None:
    async def test(door: Door) -> None:
        reply = await door.chat(stream=True)
        assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
        *chunks, done = events(reply.text)
        assert done == "[DONE]"
        assert len({chunk["id"] for chunk in chunks}) == 1
        assert all("usage" not in chunk for chunk in chunks)
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
        assert deltas[0] == {"role": "assistant", "content": ""}
        assert deltas[-1] == {}
        assert "".join(delta.get("content", "") for delta in deltas) == "Hello wörld\n"
        reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
        assert reasons == [None] * (len(chunks) - 1) + ["stop"]

    knock(test)


@pytest.mark.parametrize(("options", "count"), [({"include_usage": True}, 1), ({}, 0), (None, 0)])
def test_usage_comes_once_and_only_when_asked(options: Any, count: int) -> None:
    async def test(door: Door) -> None:
        *chunks, _ = events((await door.chat(stream=True, stream_options=options)).text)
        with_usage = [chunk for chunk in chunks if "usage" in chunk]
        assert len(with_usage) == count
        assert [chunk["choices"] for chunk in chunks].count([]) == count
        assert with_usage == chunks[len(chunks) - count :]

    knock(test)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("error", [TOO_LONG, EngineError("down", status=503, code="not_ready"), EngineError("bug")])
def test_an_error_before_the_first_output_has_its_own_status(stream: bool, error: UserError | EngineError) -> None:
    async def test(door: Door) -> None:
        reply = await door.chat(stream=stream)
        assert reply.status_code == error.status
        assert reply.headers["content-type"] == "application/json"
        assert reply.json()["error"]["message"] == error.message
        assert reply.json()["error"]["code"] == error.code
        assert reply.json()["error"]["param"] == error.param
        assert ("retry-after" in reply.headers) == (error.status == 503)

    knock(test, lambda: FakeEngine(accept=(0.001, error)).begin())


@pytest.mark.parametrize("stream", [False, True])
def test_an_engine_that_takes_nothing_answers_503(stream: bool) -> None:
    async def test(door: Door) -> None:
        for state in ("starting", "draining"):
            door.engine.state = state
            reply = await door.chat(stream=stream)
            assert reply.status_code == 503
            assert int(reply.headers["retry-after"]) > 0
            assert reply.json()["error"]["code"] in ("not_ready", "draining")

    knock(test, FakeEngine)


def test_headers_go_out_before_the_first_token() -> None:
    async def test(door: Door) -> None:
        async with door.client.stream("POST", CHAT, json={**HI, "stream": True}) as reply:
            assert reply.status_code == 200
            lines = reply.aiter_lines()
            assert json.loads((await anext(lines))[6:])["choices"][0]["delta"]["role"] == "assistant"

    knock(test, lambda: FakeEngine(script=[[3600.0]]).begin())


def test_the_session_comes_from_the_body_or_a_header() -> None:
    async def test(door: Door) -> None:
        await door.client.post(CHAT, json=HI, headers={"X-Session-Id": "s" * 1000})
        await door.client.post(
            CHAT, json={**HI, "prompt_cache_key": "p", "cache_salt": "n"}, headers={"X-Session-Id": "s"}
        )
        await door.client.post(CHAT, json=HI)
        await door.client.post(CHAT, json={**HI, "prompt_cache_key": "s" * 256})
        (first, second, none, same) = [asked[2:] for asked in door.engine.asked]
        assert first == same != second
        assert first[0] == "" != second[0]
        assert none == ("", "")

    knock(test)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("state", ["accepting", "prefilling", "decoding"])
def test_a_client_that_leaves_is_cancelled_in_every_state(stream: bool, state: str) -> None:
    def make() -> FakeEngine:
        accept = [3600.0] if state == "accepting" else []
        return FakeEngine(accept=accept, script=[[3600.0] if state == "prefilling" else FOREVER]).begin()

    async def test(door: Door) -> None:
        _, writer = await door.connect()
        writer.write(request_bytes(json.dumps({**HI, "stream": stream}).encode()))
        await until(lambda: door.engine.requests_open == 1)
        await asyncio.sleep(0.01)
        writer.close()
        await until(lambda: door.engine.cancelled == [1])
        assert door.engine.requests_open == 0

    knock(test, make)


def test_a_client_that_reads_nothing_and_leaves_is_cancelled() -> None:
    async def test(door: Door) -> None:
        _, writer = await door.connect()
        writer.write(request_bytes(json.dumps({**HI, "stream": True}).encode()))
        await until(lambda: door.engine.requests_open == 1)
        await asyncio.sleep(0.05)  # all buffers are full by now
        writer.transport.abort()
        await until(lambda: door.engine.cancelled == [1])

    knock(test, lambda: FakeEngine(script=[[Output("x" * 100_000)] * 500 + [3600.0]]).begin(), keep_alive_s=0.01)


def test_one_that_leaves_does_not_disturb_another() -> None:
    gate: list[asyncio.Event] = []

    def make() -> FakeEngine:
        gate.append(asyncio.Event())
        return FakeEngine(script=[FOREVER, [Output("a"), gate[0], END]]).begin()

    async def test(door: Door) -> None:
        _, writer = await door.connect()
        writer.write(request_bytes(json.dumps({**HI, "stream": True}).encode()))
        await until(lambda: door.engine.requests_open == 1)
        other = asyncio.create_task(door.chat(stream=True))
        await until(lambda: door.engine.requests_open == 2)
        writer.close()
        await until(lambda: door.engine.cancelled == [1])
        gate[0].set()
        assert events((await other).text)[-1] == "[DONE]"

    knock(test, make)


def test_bad_bodies_are_told_and_the_door_stays_open() -> None:
    async def test(door: Door) -> None:
        for body in (b"", b"{", b"[]", b"\xff\xfe", b'{"messages":[]}', b'{"messages":' + b"[" * 200_000):
            reply = await door.client.post(CHAT, content=body)
            assert reply.status_code == 400
            assert reply.json()["error"]["type"] == "invalid_request_error"
        reply = await door.chat(model="other")
        assert reply.status_code == 404
        assert reply.json()["error"]["code"] == "model_not_found"
        assert (await door.chat()).status_code == 200
        assert len(door.engine.asked) == 1

    knock(test)


def test_a_model_name_and_any_content_type_are_fine() -> None:
    async def test(door: Door) -> None:
        body = json.dumps({**HI, "model": "fake-model"}).encode()
        reply = await door.client.post(CHAT, content=body, headers={"content-type": "text/plain"})
        assert reply.status_code == 200

    knock(test)


def test_the_openai_package_reads_every_answer() -> None:
    def make() -> FakeEngine:
        hello = [Output("Hel"), Output("lo", finish="length", completion_tokens=2)]
        return FakeEngine(script=[hello, hello, [TOO_LONG], [Output("a"), EngineError("lost")]]).begin()

    async def test(door: Door) -> None:
        async with openai.AsyncOpenAI(base_url=f"{door.url}/v1", api_key="none", max_retries=0) as client:
            ask: Any = client.chat.completions.create
            want: dict[str, Any] = {"model": "fake-model", "messages": HI["messages"]}
            whole = await ask(**want)
            assert whole.choices[0].message.content == "Hello"
            assert whole.choices[0].finish_reason == "length"
            assert whole.usage.prompt_tokens_details.cached_tokens == 4
            chunks = [chunk async for chunk in await ask(**want, stream=True, stream_options={"include_usage": True})]
            assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "Hello"
            assert chunks[-1].usage.total_tokens == 9
            with pytest.raises(openai.BadRequestError) as refused:
                await ask(**want)
            assert refused.value.code == "context_length_exceeded"
            with pytest.raises(openai.APIError, match="lost"):
                async for _ in await ask(**want, stream=True):
                    pass
            with pytest.raises(openai.NotFoundError):
                await ask(**{**want, "model": "gpt"})
            assert [model.id async for model in client.models.list()] == ["fake-model"]

    knock(test, make)
