from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

from tests.server.doors import HI
from tests.server.fake_engine import FakeEngine, Output
from tests.server.sockets import knock_unix
from tokenspeed.client import AsyncClient
from tokenspeed.errors import EngineError, UserError

CHAT = "/v1/chat/completions"


async def read_all(chunks: AsyncGenerator[Any, None]) -> list[Any]:
    return [chunk async for chunk in chunks]


def test_a_whole_reply_has_the_form_of_the_http_api() -> None:
    async def test(_engine: FakeEngine, path: Path) -> None:
        status, body = await AsyncClient(path).call(CHAT, HI)
        assert status == 200
        assert body["object"] == "chat.completion"
        assert body["choices"][0]["message"]["content"] == "Hello wörld\n"
        assert body["usage"]["prompt_tokens_details"]["cached_tokens"] == 4

    knock_unix(test)


def test_a_streamed_reply_has_the_chunks_of_the_http_api() -> None:
    async def test(_engine: FakeEngine, path: Path) -> None:
        want = {**HI, "stream_options": {"include_usage": True}}
        chunks = await read_all(AsyncClient(path).stream(CHAT, want))
        assert chunks[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
        assert chunks[-1]["choices"] == []
        assert chunks[-1]["usage"]["total_tokens"] == 10

    knock_unix(test)


def test_admin_calls() -> None:
    async def test(engine: FakeEngine, path: Path) -> None:
        client = AsyncClient(path)
        assert await client.flush_cache() == 5
        status, stats = await client.call("/stats")
        assert status == 200
        assert stats["pages_total"] == 4096
        assert "call" not in stats
        assert (await client.call("/health"))[1]["actors"]["executor"]["state"] == "ready"
        assert await client.ready()
        engine.ready = False
        assert not await client.ready()
        assert (await client.models())[0]["max_model_len"] == 2048

    knock_unix(test)


@pytest.mark.parametrize("stream", [True, False])
def test_errors_keep_their_kind(stream: bool) -> None:
    errors = [UserError("long", code="context_length_exceeded", param="messages"), EngineError("bug")]

    async def test(_engine: FakeEngine, path: Path) -> None:
        for error in errors:
            client = AsyncClient(path)
            with pytest.raises(type(error)) as caught:
                await (read_all(client.stream(CHAT, HI)) if stream else client.call(CHAT, HI))
            assert caught.value.info() == error.info()

    knock_unix(test, lambda: FakeEngine(script=[[Output("a"), error] for error in errors]).begin())


def test_an_unplanned_exception_tells_nothing_but_an_id(caplog: pytest.LogCaptureFixture) -> None:
    async def test(_engine: FakeEngine, path: Path) -> None:
        with pytest.raises(EngineError) as caught:
            await AsyncClient(path).call(CHAT, HI)
        assert "secret" not in caught.value.message
        assert "req-" in caught.value.message

    knock_unix(test, lambda: FakeEngine(script=[[ValueError("the secret")]]).begin())
    assert "the secret" in caplog.text


def test_a_stream_without_its_finish_fails() -> None:
    async def test(_engine: FakeEngine, path: Path) -> None:
        with pytest.raises(EngineError, match="before it was finished"):
            await read_all(AsyncClient(path).stream(CHAT, HI))

    knock_unix(test, lambda: FakeEngine(script=[[Output("a")]]).begin())
