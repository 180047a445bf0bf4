"""Prompts to ids: equal to the reference, safe, within limits, with errors that say what to do."""

from __future__ import annotations

import logging
import time
from array import array
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.utils.chat_template_utils import render_jinja_template

from tests.text.samples import (
    chat_json,
    config_for,
    demo_builder,
    demo_tokenizer,
    hostile_texts,
    needs_demo,
    tokenizer_json,
    write_folder,
)
from tests.text.test_vocabulary import BOS, EOS, TURN, WORDS, template_processing
from tokenspeed.errors import UserError
from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.tokenizer import Chat, Ids, Prompt, Text
from tokenspeed.text.prompt import PromptBuilder, load_prompt_builder

USER = {"role": "user", "content": "Hi"}

conversations = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant"]), "content": hostile_texts}),
    min_size=1,
    max_size=5,
)


@needs_demo
def test_a_chat_with_the_demo() -> None:
    tokenizer = demo_tokenizer()
    text = (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert demo_builder().ids(Chat(chat_json(USER))) == tokenizer.encode(text, allow_control=True)
    short = demo_builder().ids(Chat(chat_json(USER), add_generation_prompt=False))
    assert short == tokenizer.encode(text.removesuffix("<|im_start|>assistant\n"), allow_control=True)


@needs_demo
@settings(deadline=None, max_examples=80)
@given(conversations)
def test_control_tokens_are_those_of_the_template(messages: list[dict[str, Any]]) -> None:
    tokenizer = demo_tokenizer()
    ids = demo_builder().ids(Chat(chat_json(*messages)))
    vocabulary = tokenizer.vocabulary
    turns = len(messages) + (messages[0]["role"] != "system")
    assert ids.count(vocabulary.marks["<|im_start|>"].id) == turns + 1
    assert ids.count(vocabulary.marks["<|im_end|>"].id) == turns
    assert ids.count(vocabulary.marks["<|endoftext|>"].id) == 0


@needs_demo
@settings(deadline=None, max_examples=80)
@given(conversations)
def test_equals_the_reference_where_users_write_no_marks(messages: list[dict[str, Any]]) -> None:
    tokenizer = demo_tokenizer()
    for message in messages:
        message["content"] = message["content"].replace("<", "(")
    (text,), _ = render_jinja_template(
        [messages], chat_template=tokenizer.vocabulary.template, add_generation_prompt=True
    )
    assert demo_builder().ids(Chat(chat_json(*messages))) == tokenizer.encode(text, allow_control=True)


@needs_demo
def test_a_turn_begins_with_the_ids_of_the_turn_before() -> None:
    messages = [USER]
    before = array("i")
    for index in range(4):
        ids = demo_builder().ids(Chat(chat_json(*messages), add_generation_prompt=False))
        assert ids[: len(before)] == before
        before = ids
        messages += [{"role": "assistant", "content": f"reply {index}"}, {"role": "user", "content": f"turn {index}"}]


@needs_demo
def test_parts_null_and_developer_give_the_ids_of_plain_messages() -> None:
    plain: list[dict[str, Any]] = [{"role": "system", "content": "s"}, USER, {"role": "assistant", "content": ""}]
    odd: list[dict[str, Any]] = [
        {"role": "developer", "content": [{"type": "text", "text": "s"}]},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": "{bad"}}]},
    ]
    assert demo_builder().ids(Chat(chat_json(*plain))) == demo_builder().ids(Chat(chat_json(*odd)))


@needs_demo
def test_text_and_ids() -> None:
    tokenizer = demo_tokenizer()
    assert demo_builder().ids(Text("a <|im_end|>")) == tokenizer.encode("a <|im_end|>")
    assert demo_builder().ids(Ids(pack_ids([5, 2, 49151]))).tolist() == [5, 2, 49151]
    for wrong in (49152, -1):
        with pytest.raises(UserError, match=f"token id {wrong}; 0 to 49151") as caught:
            demo_builder().ids(Ids(pack_ids([5, wrong])))
        assert caught.value.param == "prompt"
    with pytest.raises(UserError, match="int32"):
        demo_builder().ids(Ids(b"abc"))


@needs_demo
def test_empty_prompts() -> None:
    for prompt in (Text(""), Ids(b"")):
        with pytest.raises(UserError, match="prompt is empty"):
            demo_builder().ids(prompt)
    with pytest.raises(UserError) as caught:
        demo_builder().ids(Chat(b"[]"))
    assert (caught.value.param, caught.value.status) == ("messages", 400)


@needs_demo
def test_long_prompts_name_both_numbers() -> None:
    builder = PromptBuilder(demo_tokenizer(), demo_builder()._template, config_for("unused", max_model_len=50))
    assert len(builder.ids(Ids(pack_ids(range(49))))) == 49
    prompts: list[tuple[Prompt, str]] = [
        (Ids(pack_ids(range(50))), "prompt"),
        (Chat(chat_json({"role": "user", "content": "9" * 80})), "messages"),
    ]
    for prompt, param in prompts:
        with pytest.raises(UserError, match=r"maximum context length is 50 tokens, and the prompt has \d+") as caught:
            builder.ids(prompt)
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", param)
    builder = PromptBuilder(demo_tokenizer(), None, config_for("unused", template_chars_max=10))
    with pytest.raises(UserError, match="11 characters long; at most 10"):
        builder.ids(Text("x" * 11))


@needs_demo
def test_end_ids_of_the_demo() -> None:
    assert demo_builder().end_ids == (2,)


def builder(folder: Path, template: str | None, *added: dict[str, Any], **parts: Any) -> PromptBuilder:
    settings_ = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template}
    write_folder(folder, tokenizer_json(*(added or (BOS, EOS, TURN)), **parts), tokenizer_config=settings_)
    return load_prompt_builder(config_for(folder, max_model_len=1000))


def test_no_template(tmp_path: Path) -> None:
    plain = builder(tmp_path, None)
    with pytest.raises(UserError, match=r"no chat template.*chat_template\.jinja") as caught:
        plain.ids(Chat(chat_json(USER)))
    assert caught.value.code == "no_chat_template"
    assert len(plain.ids(Text("hello"))) == 1
    assert plain.end_ids == (WORDS + 1,)


def test_one_bos_at_most(tmp_path: Path) -> None:
    template = (
        "{{ bos_token }}{{ bos_token if messages | length > 1 }}{% for m in messages %}{{ m.content }}{% endfor %}"
    )
    parts = {"post_processor": template_processing(WORDS)}
    built = builder(tmp_path, template, **parts)
    hello = built.ids(Text("hello", add_special_tokens=False)).tolist()
    assert built.ids(Text("hello")).tolist() == [WORDS, *hello]
    assert built.ids(Text("")).tolist() == [WORDS]
    assert built.ids(Chat(chat_json({"role": "user", "content": "hello"}))).tolist() == [WORDS, *hello]
    two = built.ids(Chat(chat_json({"role": "user", "content": "hello"}, {"role": "user", "content": "<s>"})))
    assert two.tolist().count(WORDS) == 1


ENDS = [
    ("{% for m in messages %}{{ m.role }}: {{ m.content }}<|turn|>{% endfor %}", {WORDS + 1, WORDS + 2}),
    ("{% for m in messages %}<|turn|>{{ m.role }}: {{ m.content }}\n{% endfor %}", {WORDS + 1}),
    ("{% for m in messages %}{{ m.content }} {{ eos_token }}{% endfor %}", {WORDS + 1}),
    ("{{ raise_exception('never') }}", {WORDS + 1}),
]


@pytest.mark.parametrize(("template", "expected"), ENDS)
def test_the_templates_end_mark_ends_replies(tmp_path: Path, template: str, expected: set[int]) -> None:
    assert set(builder(tmp_path, template).end_ids) == expected


def test_says_when_a_template_hides_its_marks(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        builder(tmp_path, "{% for m in messages %}{{ m.content }}<|turn|>{% endfor %}")
        assert caplog.messages == []
        builder(
            tmp_path, "{% for m in messages %}{% set t = 'turn' %}{{ m.content }}{{ '<|%s|>' | format(t) }}{% endfor %}"
        )
    assert "operations that are not followed" in caplog.text


@needs_demo
def test_a_turn_costs_what_is_new() -> None:
    builder = PromptBuilder(demo_tokenizer(), demo_builder()._template, config_for("unused"))
    words = "".join(chr(97 + (i * i) % 26) + (" " if i % 5 == 0 else "") for i in range(2_000))
    messages = [{"role": "user", "content": f"{index} {words}"} for index in range(40)]
    cold = _seconds(builder, messages)
    warm = min(_seconds(builder, [*messages, {"role": "user", "content": f"new {index}"}]) for index in range(3))
    assert warm < cold / 3


def _seconds(builder: PromptBuilder, messages: list[dict[str, Any]]) -> float:
    chat = Chat(chat_json(*messages))
    begin = time.process_time()
    builder.ids(chat)
    return time.process_time() - begin


@needs_demo
def test_bad_words_are_spelled_with_and_without_a_space() -> None:
    builder = demo_builder()
    pieces = demo_tokenizer().vocabulary.token_bytes
    words = builder.bad_words(("hello", " goodbye", " "))
    assert sorted(b"".join(pieces[token] for token in word) for word in words) == [
        b" ",
        b"  ",
        b" goodbye",
        b" hello",
        b"goodbye",
        b"hello",
    ]
    with pytest.raises(UserError, match=r"bad_words are \d+ tokens") as caught:
        builder.bad_words(tuple(f"{number}" * 1024 for number in range(9)))
    assert caught.value.param == "bad_words"
