"""Incremental encoding equals encoding, and its cache keeps to its bound."""

from __future__ import annotations

import functools
import tempfile
import threading
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.samples import demo_tokenizer, hostile_texts, needs_demo, tokenizer_json, write_folder
from tests.text.test_tokenizer import sentencepiece_gguf
from tests.text.test_vocabulary import BOS, EOS, TURN, WORDS, template_processing
from tokenspeed.text.encoder import ENTRY_BYTES, Encoder, PieceCache
from tokenspeed.text.tokenizer import Tokenizer, load_tokenizer

parts_lists = st.lists(st.one_of(hostile_texts.filter(bool), st.integers(0, 5)), max_size=8)


@needs_demo
@settings(deadline=None, max_examples=60)
@given(st.lists(parts_lists, min_size=1, max_size=4), st.sampled_from([0, 600, 1 << 20]))
def test_equals_encoding_everything(prompts: list[list[str | int]], cache_bytes: int) -> None:
    tokenizer = demo_tokenizer()
    encoder = Encoder(tokenizer, cache_bytes)
    for parts in [*prompts, *prompts]:
        assert encoder.ids(parts) == tokenizer.encode_all(parts)


METASPACE = {"type": "Metaspace", "replacement": "▁", "split": False}
LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
SPLIT = {"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "Isolated", "invert": False}
QUIRKS: dict[str, dict[str, Any]] = {
    "a space before each piece": {"pre_tokenizer": LEVEL, "decoder": LEVEL},
    "a space before the first": {"pre_tokenizer": {**METASPACE, "prepend_scheme": "first"}, "decoder": METASPACE},
    "a space always": {"pre_tokenizer": {**METASPACE, "prepend_scheme": "always"}, "decoder": METASPACE},
    "composed": {"normalizer": {"type": "NFC"}},
    "stripped": {"normalizer": {"type": "Strip", "strip_left": True, "strip_right": True}},
    "prepended": {"normalizer": {"type": "Prepend", "prepend": "_"}},
    "split": {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [SPLIT, {**LEVEL, "add_prefix_space": False}]}},
    "processed": {"post_processor": template_processing(WORDS)},
}


@functools.cache
def quirky(quirk: str) -> Tokenizer:
    with tempfile.TemporaryDirectory() as folder:
        if quirk.startswith("sentencepiece"):
            return load_tokenizer(sentencepiece_gguf(Path(folder), prefix=quirk.endswith("prefix")))
        return load_tokenizer(write_folder(Path(folder), tokenizer_json(BOS, EOS, TURN, **QUIRKS[quirk])))


@pytest.mark.parametrize("quirk", [*QUIRKS, "sentencepiece", "sentencepiece with prefix"])
@settings(deadline=None, max_examples=25)
@given(st.lists(parts_lists, min_size=1, max_size=3), st.sampled_from([0, 900, 1 << 20]))
def test_whatever_the_vocabulary_does(quirk: str, prompts: list[list[str | int]], cache_bytes: int) -> None:
    tokenizer = quirky(quirk)
    encoder = Encoder(tokenizer, cache_bytes)
    for parts in [*prompts, *reversed(prompts)]:
        assert encoder.ids(parts) == tokenizer.encode_all(parts)
    encoder._cache.check()


def first_only_tokenizer(folder: Path) -> Tokenizer:
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    model = {"type": "BPE", "vocab": {"▁": 0, "a": 1, "▁a": 2}, "merges": [["▁", "a"]]}
    parts = tokenizer_json(pre_tokenizer=metaspace, decoder=metaspace, model=model)
    return load_tokenizer(write_folder(folder, parts))


def test_the_first_piece_may_differ(tmp_path: Path) -> None:
    tokenizer = first_only_tokenizer(tmp_path)
    encoder = Encoder(tokenizer, 1 << 20)
    prompts: list[list[str | int]] = [["a", 7, "a", "a"], [7, "a"], ["a"], [], ["aa", "a"]]
    for parts in [*prompts, *reversed(prompts)]:
        assert encoder.ids(parts) == tokenizer.encode_all(parts)
    assert encoder.ids(["a", 7, "a"]).tolist() == [2, 7, 1]


class Counting(Tokenizer):
    """Counts the pieces that are really encoded."""

    encoded = 0

    def encode_pieces(self, pieces: list[str], first: bool = False) -> list[array[int]]:  # type: ignore[override]
        self.encoded += len(pieces)
        return super().encode_pieces(pieces, first)


@needs_demo
def test_only_new_pieces_are_encoded() -> None:
    demo = demo_tokenizer()
    tokenizer = Counting(demo.vocabulary, demo._first, demo._rest)
    encoder = Encoder(tokenizer, 1 << 20)
    tokenizer.encoded = 0
    turns: list[str | int] = [1, "one", 2, "\n", 1, "two", 2, "\n"]
    encoder.ids(turns)
    assert tokenizer.encoded == 3
    encoder.ids([*turns, 1, "three", 2, "\n"])
    assert tokenizer.encoded == 4
    assert encoder.look_up(turns).chars_missing == 0
    assert encoder.look_up([*turns, "four"]).chars_missing == 4
    assert encoder.look_up(turns, "another tenant").chars_missing == len("onetwo\n")


@settings(deadline=None)
@given(st.lists(st.tuples(st.text("ab", max_size=3), st.integers(0, 100)), max_size=40), st.integers(0, 3000))
def test_cache_keeps_its_bound(puts: list[tuple[str, int]], bytes_max: int) -> None:
    cache = PieceCache(bytes_max)
    for piece, size in puts:
        cache.put(piece.encode(), array("i", range(size)))
        cache.check()


def test_cache_forgets_what_was_used_longest_ago() -> None:
    cache = PieceCache(3 * (ENTRY_BYTES + 40))
    for key in (b"a", b"b", b"c"):
        cache.put(key, array("i", range(10)))
    cache.find([b"a"])
    cache.put(b"d", array("i", range(10)))
    assert set(cache.find([b"a", b"b", b"c", b"d"])) == {b"a", b"c", b"d"}


@needs_demo
def test_threads_share_an_encoder() -> None:
    tokenizer = demo_tokenizer()
    encoder = Encoder(tokenizer, 2_000)
    prompts: list[list[str | int]] = [[f"turn {index % 7} of {index}", 2, "\n"] for index in range(50)]
    expected = [tokenizer.encode_all(parts) for parts in prompts]
    results: list[bool] = []

    def work() -> None:
        for _ in range(10):
            found = [encoder.ids(parts) for parts in prompts]
            results.append(found == expected)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 40
    encoder._cache.check()
