"""Ids that end a reply: from every source, each once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.formats.gguf_files import I32, STRING, GgufBytes, array_key, string_key, u32_key
from tests.text.samples import needs_demo, tokenizer_json, write_folder
from tests.tiny import demo_path
from tokenspeed.config import ModelConfig, TokenizerConfig
from tokenspeed.messages.engine import EndId
from tokenspeed.text.prompt import load_prompt_builder
from tokenspeed.text.vocabulary import load_vocabulary

WORDS = 264  # tokens of the small tokenizer.json before its added ones
EOS, TURN, OTHER = ({"content": text} for text in ("</s>", "<|im_end|>", "<|other|>"))
WRITES_TURN = "{% for m in messages %}{{ m.role }}: {{ m.content }}<|im_end|>{% endfor %}"
REFUSES = "{{ raise_exception('<|im_end|>') }}"


def ends_of(path: Path) -> tuple[EndId, ...]:
    model = ModelConfig(path=str(path), served_name="m", max_model_len=100)
    return load_prompt_builder(TokenizerConfig(model=model)).ends


@needs_demo
def test_the_demo_s() -> None:
    assert ends_of(demo_path()) == (EndId(2, "<|im_end|>", ("GGUF eos_token_id", "chat template")),)


@pytest.mark.parametrize("template", [WRITES_TURN, REFUSES])
def test_all_sources_of_a_folder_are_joined(tmp_path: Path, template: str) -> None:
    """The mark of a template that cannot be tried out is known by its name."""
    write_folder(
        tmp_path,
        tokenizer_json(EOS, TURN, OTHER),
        tokenizer_config={"eos_token": "</s>", "chat_template": template},
        generation_config={"eos_token_id": [WORDS, WORDS + 2]},
        config={"eos_token_id": WORDS},
    )
    assert ends_of(tmp_path) == (
        EndId(WORDS, "</s>", ("generation_config.json", "config.json", "tokenizer_config.json")),
        EndId(WORDS + 1, "<|im_end|>", ("chat template",)),
        EndId(WORDS + 2, "<|other|>", ("generation_config.json",)),
    )


def test_a_mark_in_no_template_ends_nothing(tmp_path: Path) -> None:
    write_folder(tmp_path, tokenizer_json(EOS, TURN), tokenizer_config={"eos_token": "</s>", "chat_template": "x"})
    assert [end.id for end in ends_of(tmp_path)] == [WORDS]


def test_config_json_counts_as_it_was_changed(tmp_path: Path) -> None:
    write_folder(tmp_path, tokenizer_json(EOS, TURN), tokenizer_config={}, config={"eos_token_id": WORDS})
    assert load_vocabulary(tmp_path).end_ids == {WORDS}
    assert load_vocabulary(tmp_path, overrides={"eos_token_id": [WORDS + 1]}).end_ids == {WORDS + 1}


def test_every_key_of_a_gguf_file(tmp_path: Path) -> None:
    names = ("eos", "eot", "eom")
    keys = [
        string_key("tokenizer.ggml.model", "llama"),
        array_key("tokenizer.ggml.tokens", STRING, ["<a>", "<b>", "<c>"]),
        array_key("tokenizer.ggml.token_type", I32, [3, 3, 3]),
        *(u32_key(f"tokenizer.ggml.{name}_token_id", index) for index, name in enumerate(names)),
    ]
    vocabulary = load_vocabulary(GgufBytes(keys).write(tmp_path / "m.gguf"))
    assert vocabulary.ends == tuple((index, f"GGUF {name}_token_id") for index, name in enumerate(names))
