"""The output stream, against decoding everything at once and searching by eye."""

from __future__ import annotations

import codecs
import random
import time
from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.samples import TEXTS, demo_tokenizer, needs_demo
from tests.text.test_stops import first_complete
from tokenspeed.text.output_stream import OutputStream

# Ids below 256 are single bytes, as byte-level vocabularies have them; then words and a control token.
WORDS = ["ab", "ba", "abab", "日本", " end", "é", "😀!"]
TABLE = [bytes([byte]) for byte in range(256)] + [word.encode() for word in WORDS] + [b""]
SILENT = len(TABLE) - 1
UNKNOWN = 10_000
_Utf8 = codecs.getincrementaldecoder("utf-8")

tokens = st.one_of(
    st.sampled_from([*range(256, len(TABLE)), UNKNOWN, ord("a"), ord("b")]),
    st.sampled_from([*"é日😀".encode(), 0x80, 0xFF]),
)
streams = st.lists(tokens, max_size=30)
stops = st.lists(st.text("ab日é \ufffd", min_size=1, max_size=4), max_size=4)


def data_of(ids: Sequence[int]) -> bytes:
    return b"".join(TABLE[token] if token < len(TABLE) else b"" for token in ids)


def tokens_up_to(ids: list[int], stop: list[str]) -> int:
    """Return how many tokens it takes until a stop string is complete, judged by decoding anew each time."""
    for count in range(1, len(ids) + 1):
        # Bytes of a character that is not complete yet say nothing.
        text = data_of(ids[:count]).decode("utf-8", "replace")
        whole = data_of(ids).decode("utf-8", "replace")
        settled = len(text) - (0 if whole.startswith(text) else 1)
        if first_complete(whole[:settled], stop) is not None:
            return count
    return len(ids)


def run(ids: Sequence[int], stop: Sequence[str], cuts: Sequence[int]) -> tuple[str, OutputStream]:
    stream = OutputStream(TABLE, stop)
    texts, begin = [], 0
    for size in [*cuts, len(ids)]:
        texts.append(stream.push(ids[begin : begin + size]))
        begin += size
    texts.append(stream.finish())
    assert stream.chars == sum(map(len, texts))
    return "".join(texts), stream


@settings(deadline=None, max_examples=200)
@given(streams, stops, st.lists(st.integers(1, 7), max_size=30))
def test_every_cut_gives_what_one_search_gives(ids: list[int], stop: list[str], cuts: list[int]) -> None:
    whole = data_of(ids).decode("utf-8", "replace")
    match = first_complete(whole, stop)
    expected = whole if match is None else whole[: match[0] - len(match[1])]
    text, stream = run(ids, stop, cuts)
    assert text == expected
    assert stream.stopped == (None if match is None else match[1])
    at_once, other = run(ids, stop, [len(ids)])
    assert (at_once, other.stopped, other.tokens_kept) == (text, stream.stopped, stream.tokens_kept)


@settings(deadline=None, max_examples=200)
@given(streams, stops, st.lists(st.integers(1, 7), max_size=30), st.booleans())
def test_every_cut_places_the_same_tokens(ids: list[int], stop: list[str], cuts: list[int], include: bool) -> None:
    """A token is placed where its bytes begin, decoding everything at once, if the text reaches that place."""
    whole = data_of(ids).decode("utf-8", "replace")
    match = first_complete(whole, stop)
    stream = OutputStream(TABLE, stop, include_stop=include, placed=True)
    text, begin = "", 0
    for size in [*cuts, len(ids)]:
        text += stream.push(ids[begin : begin + size])
        assert all(offset < len(text) for offset in stream.offsets)
        begin += size
    text += stream.finish()
    end = len(whole) if match is None else match[0] - (0 if include else len(match[1]))
    assert text == whole[:end]
    at_once = OutputStream(TABLE, stop, include_stop=include, placed=True)
    at_once.push(ids)
    at_once.finish()
    assert stream.offsets == at_once.offsets
    decoder = _Utf8(errors="replace")
    places = list(accumulate((len(decoder.decode(data_of([token]))) for token in ids), initial=0))[:-1]
    assert stream.offsets == (places if match is None else [place for place in places if place < end])


def test_a_token_is_placed_with_its_first_character() -> None:
    stream = OutputStream(TABLE, ["bab!"], placed=True)
    assert (stream.push([256]), stream.offsets) == ("a", [0])
    assert (stream.push([257]), stream.offsets) == ("b", [0])  # "ba" is held back: it may begin the stop
    assert (stream.push([ord("x")]), stream.offsets) == ("bax", [0, 2, 4])


valid = st.lists(st.sampled_from([ord("a"), ord("b"), *range(256, len(TABLE))]), max_size=20)


@settings(deadline=None, max_examples=200)
@given(
    valid, st.lists(st.text("ab日é !", min_size=1, max_size=4), max_size=4), st.lists(st.integers(1, 7), max_size=20)
)
def test_tokens_kept_end_with_the_one_that_completed_the_stop(ids: list[int], stop: list[str], cuts: list[int]) -> None:
    _, stream = run(ids, stop, cuts)
    assert stream.tokens_kept == tokens_up_to(ids, stop)


@settings(deadline=None, max_examples=80)
@given(valid, stops)
def test_holds_back_only_what_may_begin_a_stop(ids: list[int], stop: list[str]) -> None:
    stream = OutputStream(TABLE, stop)
    shown = ""
    for count, token in enumerate(ids, 1):
        shown += stream.push([token])
        if stream.stopped is not None:
            return
        text = data_of(ids[:count]).decode()
        beginnings = [part[:size] for part in stop for size in range(1, len(part))]
        held = max((len(part) for part in beginnings if text.endswith(part)), default=0)
        assert shown == text[: len(text) - held]


def test_a_character_waits_for_its_last_byte() -> None:
    stream = OutputStream(TABLE)
    assert [stream.push([byte]) for byte in "a😀".encode()] == ["a", "", "", "", "😀"]


def test_an_unfinished_character_is_flushed() -> None:
    stream = OutputStream(TABLE, ["x"])
    assert stream.push([ord("a"), 0xF0, 0x9F]) == "a"
    assert stream.finish() == "\ufffd"
    assert stream.tokens_kept == 3


def test_a_flushed_character_can_complete_a_stop() -> None:
    stream = OutputStream(TABLE, ["b\ufffd"])
    assert stream.push([ord("a"), ord("b"), 0xF0]) == "a"
    assert stream.finish() == ""
    assert stream.stopped == "b\ufffd"


def test_held_text_is_flushed() -> None:
    stream = OutputStream(TABLE, ["abc"])
    assert stream.push([256]) == ""
    assert stream.finish() == "ab"
    assert stream.stopped is None


def test_a_stop_inside_a_token_cuts_inside_it() -> None:
    stream = OutputStream(TABLE, ["ba"])
    assert stream.push([258, ord("x"), 300]) == "a"
    assert (stream.stopped, stream.tokens_kept, stream.chars) == ("ba", 1, 1)


def test_nothing_follows_a_stop() -> None:
    stream = OutputStream(TABLE, ["b"])
    assert stream.push([ord("a"), ord("b")]) == "a"
    assert [stream.push([256]), stream.finish(), stream.push([256])] == ["", "", ""]
    assert stream.tokens_kept == 2


def test_nothing_follows_the_end() -> None:
    stream = OutputStream(TABLE)
    assert stream.push([256]) + stream.finish() + stream.finish() + stream.push([256]) == "ab"
    assert stream.tokens_kept == 1


@pytest.mark.parametrize("stop", [[], ["ab!"]])
def test_the_hidden_last_id_counts(stop: list[str]) -> None:
    stream = OutputStream(TABLE, stop)
    assert stream.push([ord("x"), 256], hide_last=True) + stream.finish() == "x"
    assert stream.tokens_kept == 2


def test_control_tokens_are_not_seen_but_count() -> None:
    stream = OutputStream(TABLE, ["aa"])
    assert stream.push([ord("b"), ord("a"), SILENT, -1, UNKNOWN, ord("a")]) == "b"
    assert (stream.stopped, stream.tokens_kept) == ("aa", 6)


@needs_demo
@pytest.mark.parametrize("text", TEXTS)
def test_encoded_text_comes_back(text: str) -> None:
    tokenizer = demo_tokenizer()
    stream = OutputStream(tokenizer.vocabulary.token_bytes)
    shown = [stream.push([token]) for token in tokenizer.encode(text)]
    assert "".join(shown) + stream.finish() == text


@pytest.mark.parametrize("stop", [(), ("\n\nUser:", "</answer>", "ababababababc")])
def test_work_per_token_does_not_grow(stop: tuple[str, ...]) -> None:
    stream = OutputStream(TABLE, stop)
    ids = random.Random(0).choices([ord("a"), ord("b"), 256, 257, 259, 260, 261], k=40_000)
    early = _seconds(stream, ids[:4_000])
    _seconds(stream, ids[4_000:-4_000])
    late = _seconds(stream, ids[-4_000:])
    assert stream.stopped is None
    assert late < 5 * early + 0.02


def _seconds(stream: OutputStream, ids: list[int]) -> float:
    begin = time.process_time()
    for token in ids:
        stream.push([token])
    return time.process_time() - begin
