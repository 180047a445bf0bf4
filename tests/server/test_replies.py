from __future__ import annotations

import msgspec
import pytest

from tests.server.fake_engine import Output
from tokenspeed.server.replies import ChatChunk, JsonChunks, ReplyHead

LAST = Output("bye", finish="stop", stop_reason="END", completion_tokens=5)


def chunk(event: bytes) -> ChatChunk:
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    assert event.count(b"\n") == 2
    return msgspec.json.decode(event[6:], type=ChatChunk)


@pytest.mark.parametrize("model", ["m", "-", 'a"-"b', "content", '{"content":"-"}'])
@pytest.mark.parametrize("text", ["", "-", 'quo"te', "two\nlines\r\u2028", "wörld \U0001f600", "\0\x1f\\"])
def test_glued_chunks_are_what_the_struct_says(model: str, text: str) -> None:
    head = ReplyHead.new(model)
    assert chunk(JsonChunks(head).text(text)) == head.delta(content=text)


def test_role_comes_first() -> None:
    first = chunk(JsonChunks(ReplyHead.new("m")).role())
    assert first.choices[0].delta == {"role": "assistant", "content": ""}
    assert first.object == "chat.completion.chunk"


def test_the_end_has_usage_only_when_asked() -> None:
    chunks = JsonChunks(ReplyHead.new("m"))
    finish, done = chunks.end(LAST, include_usage=False).split(b"\n\n")[:2]
    assert done == b"data: [DONE]"
    choice = chunk(finish + b"\n\n").choices[0]
    assert (choice.delta, choice.finish_reason, choice.stop_reason) == ({}, "stop", "END")
    _, usage, done = chunks.end(LAST, include_usage=True).split(b"\n\n")[:3]
    assert done == b"data: [DONE]"
    told = msgspec.json.decode(usage[6:])
    assert told["choices"] == []
    assert told["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 5,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 4},
    }


def test_whole_reply() -> None:
    head = ReplyHead.new("m")
    told = msgspec.json.decode(msgspec.json.encode(head.whole("hello", LAST)))
    assert told["object"] == "chat.completion"
    assert told["id"].startswith("chatcmpl-")
    assert told["choices"][0]["message"] == {"role": "assistant", "content": "hello"}
    assert told["choices"][0]["finish_reason"] == "stop"
    assert told["usage"]["total_tokens"] == 12
    assert ReplyHead.new("m").id != head.id
