"""Templates of requests: rendered as the model's are, and harmless whatever they say."""

from __future__ import annotations

import time
from collections.abc import Iterator

import msgspec
import pytest

from tests.text.samples import chat_json
from tokenspeed.errors import UserError
from tokenspeed.text.requested import SOURCE_CHARS_MAX, Job, RequestedTemplates
from tokenspeed.text.trusted import plain, spans_of

GOOD = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{{ bos_token }}{{ shout }}{% endfor %}"
MS_MAX = 300


@pytest.fixture(scope="module")
def templates() -> Iterator[RequestedTemplates]:
    made = RequestedTemplates()
    yield made
    made.close()


def job(source: str) -> Job:
    messages = chat_json({"role": "user", "content": "<|hi|>"})
    return Job(source, messages, b'{"shout":"!"}', "<s>", "</s>", chars_max=1 << 20, ms_max=MS_MAX)


def test_it_renders_and_only_its_own_words_are_trusted(templates: RequestedTemplates) -> None:
    text = templates.render(job(GOOD))
    assert plain(text) == "<|user|><|hi|><s>!"
    assert [plain(text)[begin:end] for begin, end in spans_of(text)] == ["<|user|>", "<s>"]


@pytest.mark.parametrize(
    "hostile",
    [
        "{% for a in range(10**9) %}x{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ range(99999) | map('string') | join('x' * 100) }}",
        "{{ 'x' * 10**9 }}",
        "{{ '%1000000000s' % 'x' }}",
        "{{ 'x' | center(10**10) }}",
        "{{ '{:>10000000000}'.format('x') }}",
        "{% set n = namespace(l=[]) %}{% for a in range(99) %}{% set n.l = [n.l, n.l] %}{% endfor %}{{ n.l }}",
        "{% set n = namespace(s='x') %}{% for a in range(99) %}{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
        "{% set n = namespace(i=9) %}{% for a in range(99) %}{% set n.i = n.i * n.i %}{% endfor %}{{ n.i }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ lipsum(10**6) }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{% include '/etc/passwd' %}",
        "{{ " + "(" * 5000 + ")" * 5000 + " }}",
        "{% for a in b %}" * 200,
        "{{ unfinished",
        "{{ raise_exception('no') }}",
        "x" * (SOURCE_CHARS_MAX + 1),
    ],
    ids=range(22),
)
def test_a_hostile_one_is_refused_in_time(templates: RequestedTemplates, hostile: str) -> None:
    begun_s = time.monotonic()
    with pytest.raises(UserError) as caught:
        templates.render(job(hostile))
    assert time.monotonic() - begun_s < 10 * MS_MAX / 1000
    assert caught.value.status == 400
    assert caught.value.param == "chat_template"
    assert "chat_template" in caught.value.message
    assert len(caught.value.message) < 1000


def test_the_next_one_is_rendered_by_a_new_process(templates: RequestedTemplates) -> None:
    for _ in range(2):
        assert plain(templates.render(job("ok"))) == "ok"


def test_bad_messages_are_the_messages_fault(templates: RequestedTemplates) -> None:
    wrong = msgspec.structs.replace(job(GOOD), messages=b'[{"role":"king","content":"x"}]')
    with pytest.raises(UserError, match="allowed are") as caught:
        templates.render(wrong)
    assert caught.value.param == "messages[0].role"
