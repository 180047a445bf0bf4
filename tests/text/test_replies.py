"""A reply that comes back has the ids that it was sampled as; anything else those of its text."""

from __future__ import annotations

import codecs
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.samples import (
    chat_json,
    config_for,
    demo_builder,
    demo_tokenizer,
    needs_demo,
    tokenizer_json,
    write_folder,
)
from tests.text.test_tokenizer import sentencepiece_gguf
from tests.text.test_vocabulary import BOS, EOS, TURN
from tokenspeed.messages.tokenizer import Chat
from tokenspeed.text.prompt import PromptBuilder, load_prompt_builder
from tokenspeed.text.replies import ENTRY_BYTES, ReplyCache

Message = dict[str, Any]


def user(content: str) -> Message:
    return {"role": "user", "content": content}


def said(content: str) -> Message:
    return {"role": "assistant", "content": content}


def shown(builder: PromptBuilder, ids: Sequence[int]) -> str:
    """Return the text that a client sees for `ids`, as the detokenizer decodes it."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    table = builder._tokenizer.vocabulary.token_bytes
    return "".join(decoder.decode(table[token]) for token in ids) + decoder.decode(b"", True)


def ids_of(builder: PromptBuilder, *messages: Message, namespace: str = "") -> list[int]:
    return builder.ids(Chat(chat_json(*messages)), namespace).tolist()


def answer(
    builder: PromptBuilder, messages: list[Message], ids: list[int], text: str, namespace: str = ""
) -> list[int]:
    """Let `ids`, shown as `text`, be the reply to `messages`; return the ids of the prompt."""
    begun = builder.begin(Chat(chat_json(*messages)), namespace)
    assert begun.place is not None
    builder.learn(begun.place, text, ids)
    return builder.finish(begun).tolist()


def by_char(builder: PromptBuilder, text: str) -> list[int]:
    """Return ids that no encoder would choose for `text`."""
    return [token for char in text for token in builder._tokenizer.encode(char)]


def fresh() -> PromptBuilder:
    return PromptBuilder(demo_tokenizer(), demo_builder()._template, config_for("unused"))


# Ordinary tokens, single bytes that make no character, control tokens, white space.
sampled = st.lists(
    st.one_of(st.integers(3, 49151), st.integers(3, 300), st.sampled_from([0, 1, 2, 28, 198, 216])), max_size=12
)


@needs_demo
@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["Hi", "", "\n a", "<|im_end|>"]), sampled), min_size=1, max_size=4))
def test_each_turn_begins_with_the_ids_of_the_turn_before_and_its_reply(turns: list[tuple[str, list[int]]]) -> None:
    builder = fresh()
    messages: list[Message] = []
    before: list[int] = []
    for asked, ids in turns:
        messages.append(user(asked))
        prompt = ids_of(builder, *messages)
        assert prompt[: len(before)] == before
        text = shown(builder, ids)
        answer(builder, messages, ids, text)
        before = prompt + (ids if text else [])
        messages.append(said(text))
    assert ids_of(builder, *messages, user("end"))[: len(before)] == before
    builder._replies.check()


@needs_demo
def test_what_is_not_that_reply_at_that_place_is_encoded_as_its_text() -> None:
    builder = fresh()
    text = "wonderful"
    split = by_char(builder, text)
    answer(builder, [user("Hi")], split, text)

    def check(known: bool, *messages: Message, namespace: str = "") -> None:
        plain = ids_of(fresh(), *messages)
        found = ids_of(builder, *messages, namespace=namespace)
        assert shown(builder, found) == shown(builder, plain)
        assert (found != plain) == known

    check(True, user("Hi"), said(text), user("and?"))
    check(True, user("Hi"), said(text))
    check(False, user("Hi"), said(text + "!"), user("and?"))  # edited
    check(False, user("Hi"), said(text[:-1]), user("and?"))
    check(False, user("Hi"), said(" " + text), user("and?"))
    check(False, user("Hi"), user(text), user("and?"))  # nobody else's words
    check(False, user("Hi!"), said(text), user("and?"))  # elsewhere
    check(False, user("a"), said("b"), user("Hi"), said(text))
    check(False, user("Hi"), said(text), namespace="another tenant")


@needs_demo
@pytest.mark.parametrize("cut", range(1, 12))
def test_a_reply_cut_inside_a_token_keeps_what_is_whole(cut: int) -> None:
    builder = fresh()
    ids = builder._tokenizer.encode("Hello wonderful 😀").tolist()
    text = shown(builder, ids)[:cut]
    prompt = answer(builder, [user("Hi")], ids, text)
    whole = [token for end, token in enumerate(ids, 1) if text.startswith(shown(builder, ids[:end]))]
    later = ids_of(builder, user("Hi"), said(text), user("x"))
    assert later[: len(prompt) + len(whole)] == prompt + whole
    assert shown(builder, later) == shown(builder, ids_of(fresh(), user("Hi"), said(text), user("x")))


@needs_demo
def test_text_that_does_not_come_from_the_ids_is_not_learned() -> None:
    builder = fresh()
    answer(builder, [user("Hi")], by_char(builder, "wonderful"), "something else")
    answer(builder, [user("Hi")], [], "nothing drawn")
    answer(builder, [user("Hi")], [2], "")
    assert not builder._replies._replies


@needs_demo
def test_several_replies_to_one_prompt_are_told_apart() -> None:
    builder = fresh()
    replies = {text: by_char(builder, text) for text in ("Hel", "Hello", "He", "Hello there")}
    for text, ids in replies.items():
        answer(builder, [user("Hi")], ids, text)
    prompt = ids_of(builder, user("Hi"))
    for text, ids in replies.items():
        assert ids_of(builder, user("Hi"), said(text), user("x"))[: len(prompt) + len(ids)] == prompt + ids


@needs_demo
def test_what_was_used_longest_ago_goes_first() -> None:
    tokenizer = demo_tokenizer()
    cache = ReplyCache(tokenizer, 3 * (ENTRY_BYTES + 4 * 10))
    parts: list[list[tuple[str | int, int]]] = [[(number, 1)] for number in range(4)]
    ids = tokenizer.encode("a b c d e f g h i j").tolist()
    text = tokenizer.spell(ids).decode()

    def known(number: int) -> bool:
        full = [*parts[number], (text, 1 + len(text))]
        cache.check()
        return isinstance(cache.resolve(full, [], "")[0][-1], array)

    for number in range(3):
        cache.learn(cache.resolve(parts[number], [], "")[1], text, ids)
    assert known(0)
    cache.learn(cache.resolve(parts[3], [], "")[1], text, ids)
    assert [known(number) for number in range(4)] == [True, False, True, True]


def plain_builder(folder: Path, template: str) -> PromptBuilder:
    names = {"bos_token": "<s>", "eos_token": "</s>", "chat_template": template}
    write_folder(folder, tokenizer_json(BOS, EOS, TURN), tokenizer_config=names)
    return load_prompt_builder(config_for(folder, max_model_len=1000))


TEMPLATES = {
    "no control marks": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: ",
    "something behind": "{% for m in messages %}<s>{{ m.content }} {{ eos_token }}{% endfor %}<s>",
    "trimmed": "{% for m in messages %}<|turn|>{{ m.content | trim }}{{ eos_token }}{% endfor %}<|turn|>",
    "put back": "{% for m in messages %}[{{ ' ' + m.content | trim + ' ' }}]{{ eos_token }}{% endfor %}[",
}


@pytest.mark.parametrize(("template", "text"), [(each, " hello world") for each in TEMPLATES.values()], ids=TEMPLATES)
def test_templates_that_write_around_a_reply(tmp_path: Path, template: str, text: str) -> None:
    builder = plain_builder(tmp_path, template)
    ids = by_char(builder, text)
    messages = [user("hello")]
    before = list[int]()
    for number in range(3):
        prompt = answer(builder, messages, ids, text)
        if "m.content | trim }" not in template:
            assert prompt[: len(before)] == before
        before = prompt + ids
        messages += [said(text), user(f"hello {number}")]
    plain = load_prompt_builder(config_for(tmp_path, max_model_len=1000))
    assert shown(plain, ids_of(plain, *messages)) == shown(builder, ids_of(builder, *messages))


def test_a_vocabulary_with_a_space_before_each_piece(tmp_path: Path) -> None:
    path = sentencepiece_gguf(tmp_path)
    for template, known in (("{{ m.content }}{{ eos_token }}", True), ("{{ m.content }}c{{ eos_token }}", False)):
        (tmp_path / "chat_template.jinja").write_text("{% for m in messages %}<s>" + template + "{% endfor %}<s>")
        builder = load_prompt_builder(config_for(path, max_model_len=1000))
        a, b = (builder._tokenizer.encode(char)[-1] for char in ("a", "ab"))
        prompt = answer(builder, [user("abc")], [a, b], shown(builder, [a, b]))
        later = ids_of(builder, user("abc"), said(shown(builder, [a, b])), user("c"))
        assert (later[: len(prompt) + 2] == [*prompt, a, b]) == known
