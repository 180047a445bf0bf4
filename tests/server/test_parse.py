from __future__ import annotations

import contextlib
import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenspeed.errors import UserError
from tokenspeed.server.parse import decode_json, decode_msgpack, mend_surrogates


class Inner(msgspec.Struct):
    count: int


class Outer(msgspec.Struct):
    items: list[Inner]
    name: str = ""
    more: Any = None


def refused(body: bytes) -> UserError:
    with pytest.raises(UserError) as caught:
        decode_json(body, Outer)
    assert caught.value.status == 400
    return caught.value


def test_a_good_body_is_typed() -> None:
    assert decode_json(b'{"items":[{"count":3}],"unknown":1}', Outer) == Outer([Inner(3)])


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        (b'{"items":[{"count":1},{"count":"x"}]}', "items[1].count", "has the type str; expected: int"),
        (b'{"items":5}', "items", "has the type int; expected: array"),
        (b'{"items":null}', "items", "has the type null"),
        (b"{}", "items", "items is missing"),
        (b'{"items":[{}]}', "items[0].count", "items[0].count is missing"),
        (b"[]", None, "The body has the type array; expected: object"),
        (b'{"items":[{"count":1e999}]}', "items[0].count", "Number out of range"),
    ],
)
def test_a_wrong_field_is_named(body: bytes, param: str | None, words: str) -> None:
    error = refused(body)
    assert error.param == param
    assert words in error.message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "empty"),
        (b"  \n", "empty"),
        (b"{", "truncated"),
        (b"{'items':[]}", "byte 1"),
        (b'{"items":[],}', "trailing comma"),
        (b'{"items":[]} x', "trailing characters"),
        (b'{"items":[],"name":"\xff"}', "UTF-8"),
        (b'{"items":[],"more":NaN}', "invalid character"),
        (b'{"items":[],"more":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b'{"items":[],"skipped":' + b'{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_what_is_not_json_says_why(body: bytes, words: str) -> None:
    error = refused(body)
    assert error.code == "invalid_json"
    assert words in error.message


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (rb"\ud83d", "\ufffd"),
        (rb"cut \ud83d, and on", "cut \ufffd, and on"),
        (rb"\ude00", "\ufffd"),
        (rb"\ud83d\ude00 \ud83d", "\U0001f600 \ufffd"),
        (rb"\ud83d\ud83d\ude00", "\ufffd\U0001f600"),
        (rb"\\ud83d \uD83D", "\\ud83d \ufffd"),
        (rb"\\\ud83d", "\\\ufffd"),
        (rb"\\ud83d\ude00", "\\ud83d\ufffd"),
        (rb"\\\ud83d\ude00 \ude00", "\\\U0001f600 \ufffd"),
    ],
)
def test_half_an_emoji_becomes_a_replacement_character(sent: bytes, read: str) -> None:
    assert decode_json(b'{"items":[],"name":"' + sent + b'"}', Outer).name == read


@pytest.mark.parametrize("piece", [rb"\ud83d", rb"\ud83d\ude00", rb"\\", b"a", rb"a\n"])
def test_a_large_wrong_body_is_refused_in_a_moment(piece: bytes) -> None:
    # Nothing else is served meanwhile: the time must not grow faster than the body.
    body = b'{"items":[],"name":"' + piece * ((8 << 20) // len(piece)) + rb'\ud83d"'
    begun_s = time.process_time()
    error = refused(body)
    assert time.process_time() - begun_s < 1.0
    assert error.code == "invalid_json"


@given(st.text())
def test_whole_texts_are_never_mended(text: str) -> None:
    for body in (json.dumps(text).encode(), json.dumps(text, ensure_ascii=False).encode()):
        assert mend_surrogates(body) == body


@given(st.binary())
def test_any_bytes_give_a_value_or_a_user_error(body: bytes) -> None:
    for decode in (decode_json, decode_msgpack):
        with contextlib.suppress(UserError):
            assert isinstance(decode(body, Outer), Outer)


def test_messagepack_names_fields_too() -> None:
    with pytest.raises(UserError) as caught:
        decode_msgpack(msgspec.msgpack.encode({"items": [{"count": "x"}]}), Outer)
    assert caught.value.param == "items[0].count"
    with pytest.raises(UserError) as caught:
        decode_msgpack(b"\xc1", Outer)
    assert caught.value.code == "invalid_msgpack"
