"""What a reply enters into the account of its caller."""

from __future__ import annotations

from array import array

import pytest

from tokenspeed.caller import CALLER, Account, Caller
from tokenspeed.engine.stream import Stream
from tokenspeed.errors import EngineError
from tokenspeed.messages.engine import OutputDelta
from tokenspeed.messages.tokenizer import Chat, GenerateRequest, Ids, Prompt, Text
from tokenspeed.sampling import SamplingParams


def opened(caller: Caller | None, prompt: Prompt) -> Stream:
    token = CALLER.set(caller)
    try:
        return Stream(GenerateRequest(1, 0, prompt, SamplingParams()), lambda stream: None)
    finally:
        CALLER.reset(token)


def delta(text: str, tokens: int, finish: str = "") -> OutputDelta:
    at = tokens - 1
    return OutputDelta(1, at, array("i", [7]).tobytes(), at, text, finish, None, 9, 4, tokens)


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        (Chat(b'[{"role":"user"}]'), '[{"role":"user"}]'),
        (Text("hello"), "hello"),
        (Ids(array("i", [1, 2]).tobytes()), "[1, 2]"),
    ],
)
def test_a_finished_reply_is_entered_once_with_text_by_wish_alone(prompt: Prompt, shown: str) -> None:
    for keep_text in (True, False):
        caller = Caller("a", keep_text=keep_text)
        stream = opened(caller, prompt)
        stream.push(delta("x", 1))
        assert caller.replies == []
        stream.push(delta("y", 2, finish="stop"))
        stream.cancel()
        (account,) = caller.replies
        assert (account.prompt, account.text) == ((shown, "xy") if keep_text else ("", ""))
        assert (account.finish, account.prompt_tokens, account.cached_tokens) == ("stop", 9, 4)
        assert account.completion_tokens == 2
        assert account.first_s is not None
        assert 0 <= account.first_s <= account.duration_s


def test_what_ends_otherwise_says_how() -> None:
    def ended(by_error: bool) -> Account:
        caller = Caller("a")
        stream = opened(caller, Text("x"))
        stream.accept(12)
        if by_error:
            stream.fail(EngineError("away", code="engine_lost"))
        else:
            stream.cancel()
        return caller.replies[0]

    assert [ended(True).finish, ended(False).finish] == ["engine_lost", "cancelled"]
    assert ended(True).prompt_tokens == 12
    assert ended(True).first_s is None


def test_without_a_caller_nothing_is_counted() -> None:
    opened(None, Text("x")).cancel()
