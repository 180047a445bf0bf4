"""Chat templates: equal to what transformers renders, sandboxed, limited, and with trust in place."""

from __future__ import annotations

import time
from datetime import date
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.utils.chat_template_utils import render_jinja_template

from tests.text.samples import chat_json, demo_tokenizer, hostile_texts, needs_demo
from tokenspeed.errors import StartError, UserError
from tokenspeed.text.conversation import read_messages
from tokenspeed.text.template import ChatTemplate
from tokenspeed.text.trusted import plain, spans_of

PLUS = (
    "{{ bos_token }}{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' "
    "+ message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
BLOCKS = """
{%- for message in messages %}
    {%- if message.role == 'system' and loop.first %}
        <|im_start|>system: {{ message.content | trim }}<|im_end|>
    {% elif '</think>' in message.content %}
        {%- set said = message.content.split('</think>')[-1].lstrip('\\n') %}
<|im_start|>{{ message.role | upper }}>{{ said[:40] ~ '<|im_end|>' }}
    {%- else %}
        {%- set content -%} {{ message.content }} {%- endset %}
<|im_start|>{{ message.role }}
{{ content | replace('a', 'b') }}<|im_end|>
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant{% endif -%}
"""
MACROS = """
{%- macro turn(role, content, end='<|im_end|>') -%}
{{ '<|im_start|>' ~ role ~ ':' ~ content ~ end }}
{%- endmacro -%}
{%- set ns = namespace(text='', count=0) -%}
{%- for message in messages if message.role != 'tool' -%}
{%- set ns.text = ns.text + turn(message.role, message['content']) + '\\n' -%}
{%- set ns.count = ns.count + 1 -%}
{%- if ns.count > 3 -%}{%- break -%}{%- endif -%}
{%- endfor -%}
{{ ns.text.strip() }}{{ ['<|endoftext|>', messages[0] | tojson] | join('|') }}
{% generation %}{{ messages[-1].content[1:-1] }}{% endgeneration %}"""
TEMPLATES = {"plus": PLUS, "blocks": BLOCKS, "macros": MACROS}


def template(source: str, **changes: Any) -> ChatTemplate:
    return ChatTemplate(source, **{"bos": "<s>", "eos": "</s>", "chars_max": 1 << 20, "ms_max": 2_000, **changes})


def render(source: str, *messages: dict[str, Any], **changes: Any) -> str:
    return template(source, **changes).render(read_messages(chat_json(*messages)), {"add_generation_prompt": True})


def reference(source: str, messages: list[dict[str, Any]]) -> str:
    rendered, _ = render_jinja_template(
        [messages], chat_template=source, add_generation_prompt=True, bos_token="<s>", eos_token="</s>"
    )
    text: str = rendered[0]
    return text


USER = {"role": "user", "content": "hi"}

conversations = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": hostile_texts}),
    min_size=1,
    max_size=5,
)


@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES)
@settings(deadline=None, max_examples=50)
@given(conversations)
def test_text_is_that_of_the_reference(source: str, messages: list[dict[str, Any]]) -> None:
    assert plain(render(source, *messages)) == reference(source, messages)


@needs_demo
@settings(deadline=None, max_examples=50)
@given(conversations)
def test_text_of_the_demo_is_that_of_the_reference(messages: list[dict[str, Any]]) -> None:
    source = demo_tokenizer().vocabulary.template
    assert source is not None
    assert plain(render(source, *messages)) == reference(source, messages)


@pytest.mark.parametrize("source", TEMPLATES.values(), ids=TEMPLATES)
@settings(deadline=None, max_examples=50)
@given(conversations)
def test_only_the_templates_own_characters_are_trusted(source: str, messages: list[dict[str, Any]]) -> None:
    # Users write only capital X and Y, the templates write neither, so each character tells its origin.
    for message in messages:
        message["content"] = "".join("X" if ord(char) % 2 else "Y" for char in message["content"])
    text = render(source, *messages)
    trusted = "".join(text[begin:end] for begin, end in spans_of(text))
    assert not set(trusted) & {"X", "Y"}
    assert plain(text).count("<|im_") == trusted.count("<|im_")


def test_spans_of_a_simple_chat() -> None:
    text = render(PLUS, {"role": "user", "content": "<|im_end|>"})
    assert plain(text) == "<s><|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n"
    assert [plain(text[begin:end]) for begin, end in spans_of(text)] == [
        "<s><|im_start|>user\n",
        "<|im_end|>\n<|im_start|>assistant\n",
    ]


def test_tojson_keeps_order_and_letters() -> None:
    message = {"role": "user", "content": "ü<&>'", "b": 1, "a": [True, None]}
    expected = '{"role": "user", "content": "ü<&>\'", "b": 1, "a": [true, null]}'
    assert render("{{ messages[0] | tojson }}", message) == expected
    assert render("{{ messages[0].a | tojson(indent=1) }}", message) == "[\n true,\n null\n]"


def test_the_clock_has_no_time() -> None:
    day = date(2031, 2, 3)
    text = render("{{ strftime_now('%d %b %Y %H:%M:%S') }}", USER, today=lambda: day)
    assert text == "03 Feb 2031 00:00:00"


def test_join_of_attributes_and_without_a_separator() -> None:
    assert render("{{ messages | join('-', attribute='content') }}{{ ['a', 1] | join }}", USER, USER) == "hi-hia1"


REFUSED = {
    "own words": ("{{ raise_exception('Roles must alternate.') }}", "refused them: Roles must alternate."),
    "undefined": ("{{ messages[0].x.y }}", "has no attribute 'x'"),
    "type error": ("{{ 1 + 'a' }}", "failed on them: TypeError"),
    "division": ("{{ 1 // 0 }}", "ZeroDivisionError"),
    "recursion": ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "RecursionError"),
    "mutation": ("{{ messages.append(1) }}", "is unsafe"),
    "internals": ("{{ messages.__class__.__base__ }}", "__class__"),
    "format internals": ("{{ '{0.__class__.__mro__}'.format(messages) }}", "__class__"),
    "power": ("{{ 9 ** 99999 }}", "a power is too large"),
    "tower": ("{{ 9 ** (9 ** 9) }}", "a power is too large"),
    "range": ("{% for i in range(10 ** 9) %}{% endfor %}", "Range too big"),
    "repetition": ("{{ 'ab' * 10 ** 9 }}", "wrote more than 1048576 characters"),
    "list repetition": ("{% set x = [1] * 10 ** 9 %}", "wrote more than 1048576 characters"),
    "output": ("{% for i in range(99999) %}{{ 'x' * 999 }}{% endfor %}", "wrote more than 1048576 characters"),
    "time": (
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "took longer than 200 ms",
    ),
}


@pytest.mark.parametrize(("source", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals(source: str, message: str) -> None:
    begin = time.perf_counter()
    with pytest.raises(UserError) as caught:
        render(source, USER, ms_max=200)
    assert time.perf_counter() - begin < 3.0
    assert message in caught.value.message
    assert (caught.value.status, caught.value.param) == (400, "messages")


def test_small_powers_and_repetitions_work() -> None:
    assert render("{{ 2 ** 10 }}{{ '-' * 3 }}{{ 2 * 3 }}{{ 2.0 ** -1 }}", USER) == "1024---60.5"


def test_a_broken_template_stops_the_start() -> None:
    with pytest.raises(StartError, match="error in line 2"):
        template("x\n{% for %}")


def test_renders_leave_nothing_behind() -> None:
    shared = template("{% set ns = namespace(n=0) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}{{ messages[0].content }}")
    assert [shared.render([{"content": name}]) for name in "ab"] == ["1a", "1b"]
