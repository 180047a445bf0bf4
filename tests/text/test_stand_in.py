"""The vocabulary of a folder without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.dummies import write_shape
from tests.text.samples import tokenizer_json, write_folder
from tokenspeed.config import ModelConfig, TokenizerConfig
from tokenspeed.errors import StartError, UserError
from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.tokenizer import Chat, Ids, Text
from tokenspeed.text.prompt import PromptBuilder, load_prompt_builder
from tokenspeed.text.tokenizer import load_tokenizer
from tokenspeed.text.vocabulary import load_vocabulary

TEXT = "é <|im_end|>\x00\n日"


@pytest.fixture
def builder(tmp_path: Path) -> PromptBuilder:
    model = ModelConfig(path=str(write_shape(tmp_path)), served_name="", max_model_len=100, load_format="dummy")
    return load_prompt_builder(TokenizerConfig(model=model))


def test_text_is_its_bytes_and_comes_back(tmp_path: Path, builder: PromptBuilder) -> None:
    ids = builder.ids(Text(TEXT))
    assert list(ids) == list(TEXT.encode())
    token_bytes = load_vocabulary(tmp_path, dummy=True).token_bytes
    assert b"".join(token_bytes[token] for token in ids) == TEXT.encode()
    assert (len(token_bytes), token_bytes[1023]) == (1024, b" 1023")


def test_a_conversation_is_written_plainly_and_nothing_ends_a_reply(builder: PromptBuilder) -> None:
    asked = Chat(json.dumps([{"role": "user", "content": "Hi"}]).encode())
    assert bytes(list(builder.ids(asked))) == b"user: Hi\nassistant:"
    assert builder.end_ids == ()


def test_ids_are_those_of_the_model(builder: PromptBuilder) -> None:
    assert list(builder.ids(Ids(pack_ids([0, 2, 1023])))) == [0, 2, 1023]
    with pytest.raises(UserError, match="0 to 1023"):
        builder.ids(Ids(pack_ids([1024])))


def test_a_vocabulary_that_is_there_is_used(tmp_path: Path) -> None:
    write_folder(write_shape(tmp_path), tokenizer_json())
    assert list(load_tokenizer(tmp_path, dummy=True).encode("hello")) == [259]
    assert load_vocabulary(tmp_path, dummy=True).template is None


def test_only_dummy_weights_get_one(tmp_path: Path) -> None:
    (write_shape(tmp_path) / "model.safetensors").touch()
    for load in (load_tokenizer, load_vocabulary):
        with pytest.raises(StartError, match=r"no tokenizer\.json"):
            load(tmp_path)


def test_fewer_tokens_than_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="vocab_size 255; its stand-in needs 256"):
        load_vocabulary(write_shape(tmp_path, vocab_size=255), dummy=True)
