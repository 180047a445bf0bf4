from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.server.fake_engine import Output
from tests.server.positions import position
from tokenspeed.engine.reply import Reply
from tokenspeed.messages.tokenizer import Chat
from tokenspeed.sampling import SamplingParams
from tokenspeed.server.ask import Ask, Part
from tokenspeed.server.opened import Known
from tokenspeed.server.replies import ChatTeller
from tokenspeed.server.replies_completions import CompletionTeller
from tokenspeed.server.sse import Events
from tokenspeed.server.telling import Teller

LAST = Output("bye", finish="stop", stop_reason="END", completion_tokens=5, ids=[7])


def teller(kind: type[Teller] = ChatTeller, model: str = "m", choices: int = 1, **asked: Any) -> Any:
    parts = [Part(Chat(b"[]"), SamplingParams())] * choices
    return kind(Ask(parts=parts, n=choices, **asked), [Known([4, 5], echo="Hi ")], model)


def plain(struct: Any) -> Any:
    return msgspec.json.decode(msgspec.json.encode(struct))


@pytest.mark.parametrize("kind", [ChatTeller, CompletionTeller])
@pytest.mark.parametrize("model", ["m", "-", 'a"-"b', "content", '{"content":"-"}'])
@pytest.mark.parametrize("text", ["", "-", 'quo"te', "two\nlines\r\u2028", "wörld \U0001f600", "\0\x1f\\"])
def test_glued_events_are_what_the_struct_says(kind: type[Teller], model: str, text: str) -> None:
    tells = teller(kind, model, choices=2)
    for index in (0, 1, 0):
        event = Events(tells).text(index, text)
        assert (event[:6], event[-2:], event.count(b"\n")) == (b"data: ", b"\n\n", 2)
        assert msgspec.json.decode(event[6:]) == plain(tells.text(index, text))


def test_a_chat_opens_with_the_role_of_each_choice_and_what_is_echoed() -> None:
    opening = plain(teller(choices=2).opening())
    deltas = [(chunk["choices"][0]["index"], chunk["choices"][0]["delta"]) for chunk in opening]
    assert deltas == [
        (0, {"role": "assistant", "content": ""}),
        (0, {"content": "Hi "}),
        (1, {"role": "assistant", "content": ""}),
        (1, {"content": "Hi "}),
    ]
    assert {chunk["object"] for chunk in opening} == {"chat.completion.chunk"}


def test_an_output_with_the_end_tells_text_then_why() -> None:
    text, end = plain(teller().pieces(0, LAST))
    assert text["choices"][0]["delta"] == {"content": "bye"}
    assert end["choices"][0] == {
        "index": 0,
        "delta": {},
        "logprobs": None,
        "finish_reason": "stop",
        "stop_reason": "END",
    }


def test_usage_comes_once_when_asked_and_in_each_chunk_when_that_is_asked() -> None:
    usage = {
        "prompt_tokens": 7,
        "completion_tokens": 5,
        "total_tokens": 12,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    tells = teller(include_usage=True)
    tells.tally.note(0, LAST)
    assert [(chunk["choices"], chunk["usage"]) for chunk in plain(tells.closing())] == [([], usage)]
    assert teller().closing() == []
    tells = teller(CompletionTeller, continuous_usage=True)
    tells.tally.note(0, LAST)
    assert [chunk["usage"] for chunk in plain(tells.pieces(0, LAST))] == [usage]


def test_what_has_no_text_yet_is_told_if_log_probabilities_are_asked() -> None:
    fragment = Output("", ids=[7], logprobs=[position(b"\xf0\x9f")])
    assert teller().pieces(0, fragment) == []
    (chunk,) = plain(teller(logprobs=0, token_ids=True).pieces(0, fragment))
    choice = chunk["choices"][0]
    assert choice["delta"] == {"content": ""}
    assert choice["token_ids"] == [7]
    assert choice["logprobs"]["content"][0]["bytes"] == [240, 159]


def test_whole_chat() -> None:
    tells = teller(prompt_logprobs=1, token_ids=True)
    reply = Reply.of([Output("hello ", ids=[6], prompt_logprobs=[None, position(b"x", token=9)]), LAST])
    tells.tally.note(0, reply)
    told = plain(tells.whole([reply]))
    assert told["object"] == "chat.completion"
    assert told["id"].startswith("chatcmpl-")
    assert told["choices"][0]["message"] == {"role": "assistant", "content": "Hi hello bye"}
    assert told["choices"][0]["token_ids"] == [6, 7]
    assert told["prompt_token_ids"] == [4, 5]
    assert told["prompt_logprobs"][0] is None
    assert told["prompt_logprobs"][1]["9"] == {"logprob": -0.5, "rank": 1, "decoded_token": "x"}
    assert teller().head.id != tells.head.id
