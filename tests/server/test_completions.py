from __future__ import annotations

from typing import Any

import msgspec
import openai
import pytest

from tests.server.doors import Door, events, knock
from tests.server.fake_engine import BOS, FakeEngine, Output, Step
from tests.server.positions import position
from tokenspeed.config import ModelConfig
from tokenspeed.errors import UserError
from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.tokenizer import Ids, Prompt, Text
from tokenspeed.server.ask import CHOICES_MAX, Ask
from tokenspeed.server.ask_completions import completion_ask
from tokenspeed.server.parse import decode_json
from tokenspeed.server.schema import NEUTRAL, CompletionRequest

MODEL = ModelConfig(path="/m", served_name="m", max_model_len=100)
SCORED = Output(
    "",
    finish="length",
    prompt_logprobs=[None, position(b"H", -1.0), position(b"i", -2.0, top=((b"o", -0.5),))],
    logprobs=[],
)
PATH = "/v1/completions"


def ask(prompt: Any = "Hi", **more: Any) -> Ask:
    return completion_ask(decode_json(msgspec.json.encode({"prompt": prompt, **more}), CompletionRequest), MODEL)


def refused(prompt: Any = "Hi", **more: Any) -> str | None:
    with pytest.raises(UserError) as caught:
        ask(prompt, **more)
    assert caught.value.status == 400
    return caught.value.param


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("Hi", [Text("Hi")]),
        (["Hi", ""], [Text("Hi"), Text("")]),
        ([1, 2], [Ids(pack_ids([1, 2]))]),
        ([[1], [2, 3]], [Ids(pack_ids([1])), Ids(pack_ids([2, 3]))]),
        (["Hi", [4]], [Text("Hi"), Ids(pack_ids([4]))]),
    ],
)
def test_every_form_of_a_prompt(prompt: Any, expected: list[Prompt]) -> None:
    assert ask(prompt).prompts == expected


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        ([], "prompt"),
        (["a", 1], "prompt[1]"),
        ([1, "a"], "prompt[0]"),
        ([-1], "prompt"),
        ([2**31], "prompt"),
        ([[1], [2**40]], "prompt[1]"),
        ([1.5], "prompt[0]"),
        ({}, "prompt"),
        (None, "prompt"),
        (["x"] * (CHOICES_MAX + 1), "prompt"),
    ],
)
def test_a_wrong_prompt_is_named(prompt: Any, param: str) -> None:
    assert refused(prompt) == param


def test_null_is_absent_for_every_optional_field() -> None:
    names = [field.name for field in msgspec.structs.fields(CompletionRequest) if field.name != "prompt"]
    assert ask(**dict.fromkeys(names)) == ask()


@pytest.mark.parametrize("name", [name for name in NEUTRAL if name in CompletionRequest.__struct_fields__])
def test_what_cannot_be_honoured_is_refused_by_name(name: str) -> None:
    assert refused(**{name: {"something": "else"}}) == name
    assert [ask(**{name: value}) for value in NEUTRAL[name]] == [ask()] * len(NEUTRAL[name])


def test_settings_and_their_defaults() -> None:
    assert ask().parts[0].sampling.max_tokens == 16
    assert ask(max_tokens=0).parts[0].sampling.max_tokens == 0
    assert ask(logprobs=3).parts[0].sampling.prompt_logprobs is None
    assert ask(logprobs=3, echo=True).parts[0].sampling.prompt_logprobs == 3
    assert ask(logprobs=1, prompt_logprobs=5, echo=True).parts[0].sampling.prompt_logprobs == 5
    assert ask(add_special_tokens=False).prompts == [Text("Hi", add_special_tokens=False)]
    assert refused(best_of=3, n=2) == "best_of"
    assert refused(n=0, stream=True) == "n"


def test_choices_lie_prompt_by_prompt() -> None:
    asked = ask(["a", "b"], n=2, seed=5)
    assert [(part.prompt, part.sampling.seed) for part in asked.parts] == [
        (Text("a"), 5),
        (Text("a"), 6),
        (Text("b"), 5),
        (Text("b"), 6),
    ]


def test_a_list_of_prompts_is_answered_in_its_order_with_the_usage_summed() -> None:
    def make() -> FakeEngine:
        replies: list[list[Step]] = [
            [0.05 * (4 - n), Output(f"r{n}", finish="stop", completion_tokens=n + 1)] for n in range(4)
        ]
        return FakeEngine(script=replies).begin()

    async def test(door: Door) -> None:
        told = (await door.client.post(PATH, json={"prompt": ["a", "b"], "n": 2})).json()
        assert told["object"] == "text_completion"
        assert [(each["index"], each["text"]) for each in told["choices"]] == [(n, f"r{n}") for n in range(4)]
        assert told["usage"] == {
            "prompt_tokens": 14,
            "completion_tokens": 10,
            "total_tokens": 24,
            "prompt_tokens_details": {"cached_tokens": 8},
        }

    knock(test, make)


def test_a_stream_tells_every_choice_and_the_echo() -> None:
    async def test(door: Door) -> None:
        asked = {"prompt": ["A", [66, 67]], "stream": True, "echo": True, "stream_options": {"include_usage": True}}
        *chunks, done = events((await door.client.post(PATH, json=asked)).text)
        assert done == "[DONE]"
        usage = chunks.pop()
        assert (usage["choices"], usage["usage"]["completion_tokens"]) == ([], 6)
        choices = [chunk["choices"][0] for chunk in chunks]
        for index, echo in ((0, "A"), (1, "BC")):
            mine = [each for each in choices if each["index"] == index]
            assert "".join(each["text"] for each in mine) == f"{echo}Hello wörld\n"
            assert [each["finish_reason"] for each in mine] == [None] * (len(mine) - 1) + ["stop"]

    knock(test)


@pytest.mark.parametrize("stream", [False, True])
def test_scoring_a_prompt(stream: bool) -> None:
    async def test(door: Door) -> None:
        asked = {"prompt": "Hi", "echo": True, "logprobs": 1, "max_tokens": 0, "stream": stream}
        reply = await door.client.post(PATH, json=asked)
        told = events(reply.text)[0] if stream else reply.json()
        assert told["choices"][0]["text"] == "Hi"
        assert told["choices"][0]["finish_reason"] == "length"
        assert told["choices"][0]["logprobs"] == {
            "text_offset": [0, 0, 1],
            "tokens": ["", "H", "i"],
            "token_logprobs": [None, -1.0, -2.0],
            "top_logprobs": [None, {"H": -1.0}, {"o": -0.5, "i": -2.0}],
        }
        assert door.engine.asked[0][1].max_tokens == 0

    knock(test, lambda: FakeEngine(script=[[SCORED]]).begin())


def test_ids_are_told_when_asked() -> None:
    async def test(door: Door) -> None:
        told = (await door.client.post(PATH, json={"prompt": "Hi", "return_token_ids": True})).json()["choices"][0]
        assert (told["prompt_token_ids"], told["token_ids"]) == ([BOS, 72, 105], [5, 6])

    knock(test, lambda: FakeEngine(script=[[Output("a", ids=[5]), Output(ids=[6], finish="stop")]]).begin())


def test_the_openai_package_reads_completions_with_echo_and_logprobs() -> None:
    async def test(door: Door) -> None:
        async with openai.AsyncOpenAI(base_url=f"{door.url}/v1", api_key="none", max_retries=0) as client:
            whole = await client.completions.create(
                model="fake-model", prompt="Hi", echo=True, logprobs=1, max_tokens=0
            )
            scores = whole.choices[0].logprobs
            assert scores is not None
            assert (whole.choices[0].text, scores.token_logprobs) == ("Hi", [None, -1.0, -2.0])

    knock(test, lambda: FakeEngine(script=[[SCORED]]).begin())
