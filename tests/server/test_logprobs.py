from __future__ import annotations

import json
import math

import msgspec
import pytest

from tests.server.positions import position
from tokenspeed.server.logprobs import chat_logprobs, piece_text, prompt_logprobs, text_logprobs


def test_chat_tokens_have_their_true_bytes_and_fragments_are_told_apart() -> None:
    told = chat_logprobs([position(b" w\xc3\xb6", top=((b"\xf0\x9f", -1.0), (b"\xf0\x9e", -2.0)))], False).content[0]
    assert (told.token, told.bytes) == (" wö", [32, 119, 195, 182])
    assert [(each.token, each.bytes) for each in told.top_logprobs] == [
        ("\\xf0\\x9f", [240, 159]),
        ("\\xf0\\x9e", [240, 158]),
    ]
    assert chat_logprobs([position(b"a", token=42)], True).content[0].token == "token_id:42"


@pytest.mark.parametrize("value", [-math.inf, math.nan, -1e30])
def test_numbers_are_finite(value: float) -> None:
    told = chat_logprobs([position(b"a", value, top=((b"b", value),))], False)
    assert json.loads(msgspec.json.encode(told))["content"][0]["logprob"] == -9999.0
    assert told.content[0].top_logprobs[0].logprob == -9999.0


def test_completions_join_prompt_and_reply() -> None:
    prompt = [None, position(b" w\xc3", -1.0), position(b"\xb6", -2.0), position(b"!", -3.0)]
    reply = [position(b"?", -4.0, top=((b"x", -0.1), (b"y", -0.2)))]
    told = text_logprobs(prompt, reply, first_piece=b"Hi", top=1, before=6, as_ids=False)
    assert told.tokens == ["Hi", "bytes:\\x20\\x77\\xc3", "bytes:\\xb6", "!", "?"]
    assert told.token_logprobs == [None, -1.0, -2.0, -3.0, -4.0]
    assert told.text_offset == [0, 2, 4, 5, 6]
    assert told.top_logprobs[0] is None
    assert told.top_logprobs[-1] == {"x": -0.1, "?": -4.0}


def test_two_tokens_of_one_text_keep_the_likelier() -> None:
    told = text_logprobs(
        [], [position(b"a", -3.0, top=((b"a", -1.0),))], first_piece=b"", top=5, before=0, as_ids=False
    )
    assert told.top_logprobs == [{"a": -1.0}]


def test_prompt_scores_are_by_id_with_rank() -> None:
    told = prompt_logprobs([None, position(b"a", -3.0, 7, top=((b"x", -1.0), (b"y", -2.0)))], 1)
    assert told[0] is None
    assert told[1] is not None
    assert {key: (each.rank, each.logprob) for key, each in told[1].items()} == {"100": (1, -1.0), "7": (1, -3.0)}


@pytest.mark.parametrize(("piece", "text"), [(b"", ""), (b"ab", "ab"), (b"\xe2\x80", "\\xe2\\x80")])
def test_pieces(piece: bytes, text: str) -> None:
    assert piece_text(piece) == text
