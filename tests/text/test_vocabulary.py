"""What checkpoints say of their tokens: bytes, marks, end ids, templates."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.formats.gguf_files import I32, STRING, GgufBytes, array_key, key, scalar, string_key, u32_key
from tests.text.samples import needs_demo, tokenizer_json, write_folder
from tokenspeed.demo import find_demo
from tokenspeed.errors import StartError
from tokenspeed.text.vocabulary import Mark, load_vocabulary

WORDS = 264  # tokens of the small tokenizer.json before its added ones


@needs_demo
def test_demo() -> None:
    path = find_demo()
    assert path is not None
    vocabulary = load_vocabulary(path)
    assert len(vocabulary.token_bytes) == 49152
    assert vocabulary.marks["<|im_end|>"] == Mark(2)
    assert len(vocabulary.marks) == 17
    assert (vocabulary.bos, vocabulary.eos, vocabulary.add_bos, vocabulary.end_ids) == (1, 2, False, frozenset({2}))
    assert vocabulary.mark_text(1) == "<|im_start|>"
    assert vocabulary.mark_text(None) == vocabulary.mark_text(500) == ""
    assert vocabulary.template is not None
    assert vocabulary.token_bytes[2] == b""
    assert b" the" in vocabulary.token_bytes


def gguf(folder: Path, *keys: bytes, model: str = "llama", types: list[int] | None = None) -> Path:
    texts = ["<unk>", "<s>", "▁a", "<think>", "  ", "[PAD]", "<0xE2>"]
    head = [
        string_key("tokenizer.ggml.model", model),
        array_key("tokenizer.ggml.tokens", STRING, texts),
        array_key("tokenizer.ggml.token_type", I32, [2, 3, 1, 4, 4, 5, 6] if types is None else types),
    ]
    return GgufBytes([*head, *keys]).write(folder / "model.gguf")


def test_gguf_token_types(tmp_path: Path) -> None:
    template = string_key("tokenizer.chat_template", "{{ '<think>' }}  ")
    ends = [u32_key(f"tokenizer.ggml.{name}_token_id", value) for name, value in [("eos", 1), ("eot", 3), ("eom", 2)]]
    vocabulary = load_vocabulary(gguf(tmp_path, template, *ends, u32_key("tokenizer.ggml.bos_token_id", 1)))
    assert vocabulary.token_bytes == [b"", b"", b" a", b"", b"  ", b"", b"\xe2"]
    assert vocabulary.marks == {"<s>": Mark(1), "<think>": Mark(3)}
    assert vocabulary.end_ids == {1, 2, 3}
    assert vocabulary.add_bos


def test_gguf_user_defined_tokens_that_no_template_writes_are_text(tmp_path: Path) -> None:
    vocabulary = load_vocabulary(gguf(tmp_path))
    assert vocabulary.token_bytes[3] == b"<think>"
    assert (vocabulary.bos, vocabulary.add_bos, vocabulary.template) == (None, False, None)


def test_gguf_says_whether_to_add_bos(tmp_path: Path) -> None:
    flag = key("tokenizer.ggml.add_bos_token", 7, scalar(7, False))
    assert not load_vocabulary(gguf(tmp_path, u32_key("tokenizer.ggml.bos_token_id", 1), flag)).add_bos


def test_gguf_template_beside_the_weights(tmp_path: Path) -> None:
    path = gguf(tmp_path)
    (tmp_path / "chat_template.jinja").write_text("beside")
    assert load_vocabulary(path).template == "beside"


def test_gguf_refusals(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="tokenizer of kind bert; gpt2 and llama"):
        load_vocabulary(gguf(tmp_path, model="bert"))
    with pytest.raises(StartError, match="7 tokens and 1 token types"):
        load_vocabulary(gguf(tmp_path, types=[1]))
    with pytest.raises(StartError, match=r"no tokenizer\.ggml\.model"):
        load_vocabulary(GgufBytes().write(tmp_path / "bare.gguf"))
    for name in ("bos", "eos", "eot"):
        with pytest.raises(StartError, match=r"token 7 as one that begins or ends a text; it has 0 to 6"):
            load_vocabulary(gguf(tmp_path, u32_key(f"tokenizer.ggml.{name}_token_id", 7)))


BOS = {"content": "<s>"}
EOS = {"content": "</s>"}
TURN = {"content": "<|turn|>"}


def template_processing(token: int) -> dict[str, Any]:
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [],
        "special_tokens": {"<s>": {"id": "<s>", "ids": [token], "tokens": ["<s>"]}},
    }


def test_folder(tmp_path: Path) -> None:
    write_folder(
        tmp_path,
        tokenizer_json(BOS, EOS, TURN, {"content": "  \n", "special": False}),
        tokenizer_config={"bos_token": {"content": "<s>"}, "eos_token": "</s>", "chat_template": "t"},
        generation_config={"eos_token_id": [WORDS + 1, WORDS + 2]},
        config={"eos_token_id": 5},
    )
    vocabulary = load_vocabulary(tmp_path)
    assert vocabulary.marks == {"<s>": Mark(WORDS), "</s>": Mark(WORDS + 1), "<|turn|>": Mark(WORDS + 2)}
    assert (vocabulary.bos, vocabulary.eos, vocabulary.add_bos) == (WORDS, WORDS + 1, False)
    assert vocabulary.end_ids == {WORDS + 1, WORDS + 2, 5}
    assert vocabulary.template == "t"
    assert vocabulary.token_bytes[WORDS:] == [b"", b"", b"", b"  \n"]
    assert vocabulary.token_bytes[ord(" ")] == b" "


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(("flag", "expected"), [({}, True), ({"add_bos_token": False}, False)])
def test_folder_bos_from_the_post_processor(
    tmp_path: Path, nested: bool, flag: dict[str, bool], expected: bool
) -> None:
    processor = template_processing(WORDS)
    if nested:
        processor = {"type": "Sequence", "processors": [{"type": "ByteLevel"}, processor]}
    write_folder(tmp_path, tokenizer_json(BOS, post_processor=processor), tokenizer_config=flag)
    vocabulary = load_vocabulary(tmp_path)
    assert (vocabulary.bos, vocabulary.add_bos) == (WORDS, expected)


def test_folder_templates(tmp_path: Path) -> None:
    named = [{"name": "tool_use", "template": "no"}, {"name": "default", "template": "yes"}]
    write_folder(tmp_path, tokenizer_json(), tokenizer_config={"chat_template": named})
    assert load_vocabulary(tmp_path).template == "yes"
    write_folder(tmp_path, tokenizer_json(), tokenizer_config={}, chat_template={"chat_template": "json"})
    assert load_vocabulary(tmp_path).template == "json"
    (tmp_path / "chat_template.jinja").write_text("jinja")
    assert load_vocabulary(tmp_path).template == "jinja"


def test_unreadable_template(tmp_path: Path) -> None:
    write_folder(tmp_path, tokenizer_json())
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(StartError, match=r"chat_template\.jinja cannot be read"):
        load_vocabulary(tmp_path)


def test_folder_unigram_vocabulary(tmp_path: Path) -> None:
    model = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["▁a", -1.0], ["<0x41>", -2.0]]}
    decoder = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Metaspace"}]}
    write_folder(tmp_path, tokenizer_json({"content": "<unk>", "id": 0}, model=model, decoder=decoder))
    assert load_vocabulary(tmp_path).token_bytes == [b"", b" a", b"A"]


def test_folder_refusals(tmp_path: Path) -> None:
    write_folder(tmp_path, tokenizer_json(decoder={"type": "WordPiece"}))
    with pytest.raises(StartError, match="decoder WordPiece"):
        load_vocabulary(tmp_path)
    for token in (-1, 1 << 60):
        write_folder(tmp_path, tokenizer_json({"content": "x", "id": token}))
        with pytest.raises(StartError, match="ids outside 0 to"):
            load_vocabulary(tmp_path)
    write_folder(tmp_path, tokenizer_json(), tokenizer_config=[1])
    with pytest.raises(StartError, match=r"tokenizer_config\.json is damaged"):
        load_vocabulary(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(StartError, match=r"tokenizer\.json is damaged"):
        load_vocabulary(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    with pytest.raises(StartError, match=r"has no tokenizer\.json"):
        load_vocabulary(tmp_path)


def test_the_text_side_needs_no_torch_and_the_way_back_no_tokenizers() -> None:
    code = (
        "import sys\n"
        "import tokenspeed.text.vocabulary, tokenspeed.text.output_stream\n"
        "assert 'tokenizers' not in sys.modules\n"
        "import tokenspeed.text.prompt\n"
        "assert not {'torch', 'numpy', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
