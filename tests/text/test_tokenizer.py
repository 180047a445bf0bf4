"""Encoding: equal to the reference, and never a control token from plain text."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers
from tokenizers import Tokenizer as Backend
from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer

from tests.formats.gguf_files import F32, I32, STRING, GgufBytes, array_key, key, scalar, string_key, u32_key
from tests.text.oracles import byte_level_ids, sentencepiece_ids, words_of
from tests.text.samples import (
    MARKS,
    MERGES,
    TEXTS,
    demo_tokenizer,
    hostile_texts,
    needs_demo,
    tokenizer_json,
    write_folder,
)
from tokenspeed.demo import find_demo
from tokenspeed.errors import StartError
from tokenspeed.formats.gguf import read_gguf
from tokenspeed.text.backend_gguf import KINDS
from tokenspeed.text.byte_level import CHAR_OF_BYTE
from tokenspeed.text.tokenizer import Tokenizer, load_tokenizer


def demo_path() -> Path:
    path = find_demo()
    assert path is not None
    return path


@pytest.fixture(scope="module")
def reference() -> Backend:
    """Return transformers' conversion of the demo, with the digits rule of SmolLM that it leaves out."""
    file = read_gguf(demo_path())
    parts = {
        "tokenizer_type": "gpt2",
        "tokens": file.strings("tokenizer.ggml.tokens"),
        "token_type": file.ints("tokenizer.ggml.token_type"),
        "merges": file.strings("tokenizer.ggml.merges"),
    }
    backend, _ = convert_gguf_tokenizer("llama", parts)
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(r"\p{N}"), behavior="isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    result: Backend = backend
    return result


@needs_demo
@pytest.mark.parametrize("text", [*TEXTS, "\n".join(TEXTS)])
def test_equals_the_reference(reference: Backend, text: str) -> None:
    tokenizer = demo_tokenizer()
    assert tokenizer.encode(text, allow_control=True).tolist() == reference.encode(text, add_special_tokens=False).ids
    if not any(mark in text for mark in MARKS):
        assert tokenizer.encode(text) == tokenizer.encode(text, allow_control=True)


@needs_demo
@settings(deadline=None, max_examples=150)
@given(st.one_of(hostile_texts, st.text()))
def test_equals_the_reference_on_anything(reference: Backend, text: str) -> None:
    ids = demo_tokenizer().encode(text, allow_control=True).tolist()
    assert ids == reference.encode(text, add_special_tokens=False).ids


@needs_demo
def test_equals_the_rules() -> None:
    file = read_gguf(demo_path())
    vocab = {text: index for index, text in enumerate(file.strings("tokenizer.ggml.tokens"))}
    merges = file.strings("tokenizer.ggml.merges")
    for text in TEXTS:
        words = words_of(text, digits_alone=True)
        assert demo_tokenizer().encode(text).tolist() == byte_level_ids(words, vocab, merges)


@needs_demo
@settings(deadline=None, max_examples=150)
@given(hostile_texts)
def test_plain_text_never_becomes_control(text: str) -> None:
    tokenizer = demo_tokenizer()
    table = tokenizer.vocabulary.token_bytes
    ids = tokenizer.encode(text)
    assert not set(ids) & {mark.id for mark in tokenizer.vocabulary.marks.values()}
    known = set(table)  # the vocabulary lacks some bytes, such as 0x06 and 0xF1
    assert b"".join(table[token] for token in ids) == bytes(byte for byte in text.encode() if bytes([byte]) in known)


@needs_demo
def test_control_marks_count_only_inside_trusted_spans() -> None:
    tokenizer = demo_tokenizer()
    text = "a<|im_end|>b<|im_end|>"
    end = tokenizer.vocabulary.marks["<|im_end|>"].id
    assert tokenizer.cut(text, []) == [text]
    assert tokenizer.cut(text, [(0, len(text))]) == ["a", end, "b", end]
    assert tokenizer.cut(text, [(0, 11)]) == ["a", end, "b<|im_end|>"]
    assert tokenizer.cut(text, [(0, 10), (11, 20)]) == [text]


@needs_demo
def test_threads_share_a_tokenizer() -> None:
    tokenizer = demo_tokenizer()
    expected = [tokenizer.encode(text) for text in TEXTS]
    wrong: list[str] = []

    def work() -> None:
        for _ in range(20):
            wrong.extend(text for text, ids in zip(TEXTS, expected, strict=True) if tokenizer.encode(text) != ids)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


ENDS = {"content": "<|end|>", "rstrip": True}
THINK = {"content": "<think>", "special": False}


def folder_tokenizer(folder: Path, *added: dict[str, Any], template: str = "", **parts: Any) -> Tokenizer:
    settings_ = {"chat_template": template} if template else {}
    return load_tokenizer(write_folder(folder, tokenizer_json(*added, **parts), tokenizer_config=settings_))


def test_folder_encodes_like_the_library(tmp_path: Path) -> None:
    tokenizer = folder_tokenizer(tmp_path, ENDS, THINK)
    backend = Backend.from_file(str(tmp_path / "tokenizer.json"))
    backend.no_truncation()
    for text in [*TEXTS, "hello<|end|>  hello", "<think>hello world"]:
        assert tokenizer.encode(text, allow_control=True).tolist() == backend.encode(text).ids
    assert tokenizer.encode("hello world" * 5).tolist() != []


def test_marks_in_plain_text_of_a_folder(tmp_path: Path) -> None:
    tokenizer = folder_tokenizer(tmp_path, ENDS, THINK, template="{{ '<think>' }}")
    marks = {mark.id for mark in tokenizer.vocabulary.marks.values()}
    assert set(tokenizer.vocabulary.marks) == {"<|end|>", "<think>"}
    for text in ("<|end|>  x", "<think>"):
        ids = tokenizer.encode(text)
        assert not marks & set(ids)
        assert b"".join(tokenizer.vocabulary.token_bytes[token] for token in ids).decode() == text
    assert tokenizer.encode("a<|end|>  b", allow_control=True).tolist() == [
        *tokenizer.encode("a"),
        tokenizer.vocabulary.marks["<|end|>"].id,
        *tokenizer.encode("b"),
    ]


def test_white_space_before_a_mark(tmp_path: Path) -> None:
    tokenizer = folder_tokenizer(tmp_path, {"content": "<|end|>", "lstrip": True})
    assert tokenizer.cut("a \u3000\n<|end|> b", [(0, 12)]) == ["a", tokenizer.vocabulary.marks["<|end|>"].id, " b"]


def test_a_vocabulary_that_takes_whole_words_is_kept_from_control(tmp_path: Path) -> None:
    parts = tokenizer_json({"content": "STOP"})
    parts["model"] |= {"ignore_merges": True, "vocab": parts["model"]["vocab"] | {"STOP": len(parts["model"]["vocab"])}}
    tokenizer = load_tokenizer(write_folder(tmp_path, parts))
    stop = tokenizer.vocabulary.marks["STOP"].id
    assert tokenizer.encode("STOP", allow_control=True).tolist() == [stop]
    ids = tokenizer.encode("hello STOP STOPSTOP")
    assert stop not in ids
    assert b"".join(tokenizer.vocabulary.token_bytes[token] for token in ids) == b"hello STOP STOPSTOP"


def test_space_before_the_first_word_only(tmp_path: Path) -> None:
    metaspace = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": False}
    vocab = {"▁": 0, "a": 1, "▁a": 2, "<|end|>": 3}
    model = {"type": "BPE", "vocab": vocab, "merges": [["▁", "a"]]}
    tokenizer = folder_tokenizer(
        tmp_path, {"content": "<|end|>", "id": 3}, pre_tokenizer=metaspace, decoder=metaspace, model=model
    )
    backend = Backend.from_file(str(tmp_path / "tokenizer.json"))
    backend.no_truncation()
    assert tokenizer.position_matters
    for text in ("a<|end|>a", "<|end|>a", "a", "a a<|end|> a"):
        assert tokenizer.encode(text, allow_control=True).tolist() == backend.encode(text).ids
    assert [ids.tolist() for ids in tokenizer.encode_pieces(["a", "a"], first=True)] == [[2], [1]]


def test_damaged_tokenizer_json(tmp_path: Path) -> None:
    parts = tokenizer_json(normalizer={"type": "Nonsense"})
    with pytest.raises(StartError, match=r"tokenizer\.json cannot be read .*download it again"):
        load_tokenizer(write_folder(tmp_path, parts))


def byte_gguf(folder: Path, kind: str | None, texts: list[str] | None = None, merges: list[str] | None = None) -> Path:
    texts = texts or [CHAR_OF_BYTE[byte] for byte in range(256)] + [a + b for a, b in MERGES] + ["<|end|>", "\t\t"]
    keys = [
        string_key("tokenizer.ggml.model", "gpt2"),
        array_key("tokenizer.ggml.tokens", STRING, texts),
        array_key("tokenizer.ggml.token_type", I32, [1] * (len(texts) - 2) + [3, 4]),
        array_key("tokenizer.ggml.merges", STRING, [f"{a} {b}" for a, b in MERGES] if merges is None else merges),
        *([string_key("tokenizer.ggml.pre", kind)] if kind else []),
    ]
    return GgufBytes(keys).write(folder / "model.gguf")


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_gguf_is_lossless(tmp_path: Path, kind: str) -> None:
    tokenizer = load_tokenizer(byte_gguf(tmp_path, kind))
    table = tokenizer.vocabulary.token_bytes
    for text in TEXTS:
        composed = "é" if kind in ("qwen2", "deepseek-r1-qwen") else "e\u0301"
        expected = text.replace("e\u0301", composed)
        assert b"".join(table[token] for token in tokenizer.encode(text)).decode() == expected
    assert len(tokenizer.encode("hello")) == 1
    assert tokenizer.encode("\t\t").tolist() == [len(table) - 1]


@pytest.mark.parametrize(
    ("kind", "text", "words"),
    [
        ("gpt-2", "it's 1234  x", ["it", "'s", "Ġ1234", "Ġ", "Ġx"]),
        ("smollm", "a  12", ["a", "ĠĠ", "1", "2"]),
        ("llama-bpe", "a 12345\n\nIT'S", ["a", "Ġ", "123", "45", "ĊĊ", "IT", "'S"]),
        ("qwen2", "a 12\n x", ["a", "Ġ", "1", "2", "Ċ", "Ġx"]),
        ("tekken", "HelloWorld 12", ["Hello", "World", "Ġ", "1", "2"]),
        ("gpt-4o", "HelloWorld's 1234", ["Hello", "World's", "Ġ", "123", "4"]),
    ],
)
def test_how_each_kind_cuts_words(tmp_path: Path, kind: str, text: str, words: list[str]) -> None:
    # One token a word and no merges: with the library's "whole words first" off, the cut is asked directly.
    tokenizer = load_tokenizer(byte_gguf(tmp_path, kind))
    assert [word for word, _ in tokenizer._rest.pre_tokenizer.pre_tokenize_str(text)] == words


REFUSED = {
    "unknown kind": ({"kind": "martian"}, "unknown pre-tokenizer martian; known are gpt-2,"),
    "no kind": ({"kind": None}, "no pre-tokenizer named"),
    "no merges": ({"kind": "gpt-2", "merges": []}, "without merges"),
    "merge of unknown": ({"kind": "gpt-2", "merges": ["zz zz"]}, "cannot be used"),
}


@pytest.mark.parametrize(("changes", "message"), REFUSED.values(), ids=REFUSED)
def test_refused_gguf_vocabularies(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(StartError, match=message) as caught:
        load_tokenizer(byte_gguf(tmp_path, **changes))
    assert str(tmp_path) in caught.value.message


SP_WORDS = ["▁", "a", "b", "c", "▁a", "ab", "bc", "▁ab", "abc", "▁▁", "▁abc"]
SP_TEXTS = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *SP_WORDS]
SP_TYPES = [2, 3, 3] + [6] * 256 + [1] * len(SP_WORDS)
SP_SCORES = [0.0] * 259 + [-20.0, -21.0, -22.0, -23.0, -3.0, -5.0, -1.0, -4.0, -2.0, -6.0, -7.0]


def sentencepiece_gguf(folder: Path, **changes: Any) -> Path:
    parts = {"scores": SP_SCORES, "prefix": True, **changes}
    keys = [
        string_key("tokenizer.ggml.model", "llama"),
        array_key("tokenizer.ggml.tokens", STRING, SP_TEXTS),
        array_key("tokenizer.ggml.token_type", I32, SP_TYPES),
        array_key("tokenizer.ggml.scores", F32, parts["scores"]),
        u32_key("tokenizer.ggml.bos_token_id", 1),
        u32_key("tokenizer.ggml.eos_token_id", 2),
        key("tokenizer.ggml.add_space_prefix", 7, scalar(7, parts["prefix"])),
    ]
    return GgufBytes(keys).write(folder / "sp.gguf")


@settings(deadline=None, max_examples=150)
@given(st.text(st.sampled_from("abc é日\n"), max_size=20), st.booleans())
def test_sentencepiece_equals_the_rules(tmp_path_factory: pytest.TempPathFactory, text: str, prefix: bool) -> None:
    tokenizer = load_tokenizer(sentencepiece_gguf(tmp_path_factory.getbasetemp(), prefix=prefix))
    ids = tokenizer.encode(text).tolist()
    full = f" {text}" if prefix and text else text
    assert ids == sentencepiece_ids(full, SP_TEXTS, SP_SCORES, set(SP_WORDS))
    assert b"".join(tokenizer.vocabulary.token_bytes[token] for token in ids).decode() == full


def test_sentencepiece_control(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(sentencepiece_gguf(tmp_path))
    assert tokenizer.encode("<s>ab</s>", allow_control=True).tolist() == [1, SP_TEXTS.index("▁ab"), 2]
    assert not {1, 2} & set(tokenizer.encode("<s>ab</s>"))


def test_sentencepiece_needs_scores(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="scores"):
        load_tokenizer(sentencepiece_gguf(tmp_path, scores=[0.0]))
