from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.server.doors import Door, events, knock
from tests.server.fake_engine import BOS, FakeEngine, Output
from tests.server.positions import position
from tokenspeed.config import ModelConfig
from tokenspeed.errors import UserError
from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.tokenizer import Ids, Text
from tokenspeed.sampling import SamplingParams
from tokenspeed.server.ask import Ask
from tokenspeed.server.ask_generate import generate_ask
from tokenspeed.server.parse import decode_json
from tokenspeed.server.schema_generate import REFUSED, GenerateBody, SamplingBody

MODEL = ModelConfig(path="/m", served_name="m", max_model_len=100)
PATH = "/generate"
# The fields of the request that the published description of the engine names.
PUBLISHED = (
    "text",
    "input_ids",
    "sampling_params",
    "image_data",
    "audio_data",
    "video_data",
    "return_logprob",
    "logprob_start_len",
    "top_logprobs_num",
    "token_ids_logprob",
    "custom_logit_processor",
    "return_hidden_states",
    "stream",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
)
HONOURED: dict[str, Any] = {
    "text": "Hello",
    "input_ids": [1, 2],
    "sampling_params": {"max_new_tokens": 3},
    "return_logprob": True,
    "logprob_start_len": 0,
    "top_logprobs_num": 2,
    "stream": True,
}


def ask(**body: Any) -> Ask:
    return generate_ask(decode_json(msgspec.json.encode(body), GenerateBody), MODEL)


def refused(**body: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        ask(**body)
    assert caught.value.status == 400
    return caught.value


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_field_is_honoured_or_refused_by_name_with_what_to_use(name: str) -> None:
    if name in HONOURED:
        base: dict[str, Any] = {} if name in ("text", "input_ids") else {"text": "Hi"}
        if name in ("logprob_start_len", "top_logprobs_num"):
            base["return_logprob"] = True
        assert ask(**{**base, name: HONOURED[name]}) != (ask(**base) if base else None)
        return
    error = refused(text="Hi", **{name: "x"})
    assert (error.code, error.param) == ("unsupported_parameter", name)
    assert error.message.startswith(f"{name} is ")
    assert error.message.endswith(f"{REFUSED[name][1]}.")
    assert ";" in error.message  # the reason; what to use
    assert ask(text="Hi", **{name: None}) == ask(text="Hi")


def test_values_that_change_nothing_are_accepted() -> None:
    for kind, wrap in ((GenerateBody, lambda more: more), (SamplingBody, lambda more: {"sampling_params": more})):
        for name, (neutral, _) in REFUSED.items():
            if name in kind.__struct_fields__:
                for value in (None, *neutral):
                    assert ask(text="Hi", **wrap({name: value})) == ask(text="Hi")
                assert refused(text="Hi", **wrap({name: {"x": 1}})).param == name


def test_unknown_fields_are_refused() -> None:
    assert "temprature" in refused(text="Hi", sampling_params={"temprature": 1}).message
    assert "prompt" in refused(prompt="Hi").message


def test_sampling_settings_under_their_names_here() -> None:
    given = {
        "max_new_tokens": 5,
        "min_new_tokens": 1,
        "sampling_seed": 9,
        "no_stop_trim": True,
        "stop": "x",
        "stop_token_ids": [3],
        "logit_bias": {"4": -1},
        "temperature": 0.5,
        "skip_special_tokens": False,
    }
    assert ask(text="Hi", sampling_params=given).parts[0].sampling == SamplingParams(
        max_tokens=5,
        min_tokens=1,
        seed=9,
        include_stop_str_in_output=True,
        stop=("x",),
        stop_token_ids=(3,),
        logit_bias=((4, -1.0),),
        temperature=0.5,
        skip_special_tokens=False,
    )
    error = refused(text="Hi", sampling_params={"max_new_tokens": -1})
    assert (error.param, error.message.split()[0]) == ("max_new_tokens", "max_new_tokens")


def test_prompts_in_every_form() -> None:
    assert ask(text=["a", "b"]).prompts == [Text("a"), Text("b")]
    assert ask(input_ids=[[1], [2, 3]]).prompts == [Ids(pack_ids([1])), Ids(pack_ids([2, 3]))]
    each = ask(text=["a", "b"], sampling_params=[{"max_new_tokens": 1, "n": 2}, {"max_new_tokens": 2, "n": 2}])
    assert [part.sampling.max_tokens for part in each.parts] == [1, 1, 2, 2]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "text"),
        ({"text": "a", "input_ids": [1]}, "text"),
        ({"text": []}, "text"),
        ({"input_ids": [1, [2]]}, "input_ids"),
        ({"input_ids": [[-1]]}, "input_ids[0]"),
        ({"text": "a", "sampling_params": [{}, {}]}, "sampling_params"),
        ({"text": ["a", "b"], "sampling_params": [{"n": 1}, {"n": 2}]}, "n"),
        ({"text": "a", "sampling_params": {"n": 0}}, "n"),
        ({"text": "a", "top_logprobs_num": 1}, "top_logprobs_num"),
        ({"text": "a", "logprob_start_len": 0}, "logprob_start_len"),
        ({"text": "a", "return_logprob": True, "logprob_start_len": -2}, "logprob_start_len"),
        ({"text": "a", "return_logprob": True, "top_logprobs_num": -1}, "top_logprobs_num"),
    ],
)
def test_a_wrong_field_is_named(body: dict[str, Any], param: str) -> None:
    assert refused(**body).param == param


REPLY = [
    Output(
        "He",
        ids=[5],
        logprobs=[position(b"He", -1.0, 5, top=((b"Ho", -2.0),))],
        prompt_logprobs=[None, position(b"i", -3.0, 105)],
    ),
    Output("y", ids=[6], finish="stop", stop_reason="!", completion_tokens=2, logprobs=[position(b"y", -0.5, 6)]),
]


def test_a_whole_answer() -> None:
    async def test(door: Door) -> None:
        asked = {"text": "i", "return_logprob": True, "logprob_start_len": 0, "top_logprobs_num": 1}
        told = (await door.client.post(PATH, json=asked)).json()
        meta = told.pop("meta_info")
        assert told == {"text": "Hey", "output_ids": [5, 6]}
        assert meta.pop("id").startswith("gen-")
        assert meta.pop("e2e_latency") >= 0
        assert meta == {
            "finish_reason": {"type": "stop", "matched": "!"},
            "prompt_tokens": 7,
            "completion_tokens": 2,
            "cached_tokens": 4,
            "output_token_logprobs": [[-1.0, 5, "He"], [-0.5, 6, "y"]],
            "output_top_logprobs": [[[-2.0, 100, "Ho"]], []],
            "input_token_logprobs": [[None, BOS, ""], [-3.0, 105, "i"]],
            "input_top_logprobs": [None, []],
        }
        assert "output_token_logprobs" not in (await door.client.post(PATH, json={"text": "i"})).json()["meta_info"]

    knock(test, lambda: FakeEngine(script=[REPLY]).begin())


def test_a_list_is_answered_by_a_list_and_streamed_with_indexes() -> None:
    async def test(door: Door) -> None:
        whole = (await door.client.post(PATH, json={"text": ["a", "b"]})).json()
        assert [each["text"] for each in whole] == ["Hey", "Hey"]
        *pieces, done = events((await door.client.post(PATH, json={"text": ["a", "b"], "stream": True})).text)
        assert done == "[DONE]"
        for index in (0, 1):
            mine = [piece for piece in pieces if piece["index"] == index]
            assert "".join(piece["text"] for piece in mine) == "Hey"
            assert [token for piece in mine for token in piece["output_ids"]] == [5, 6]
            assert [piece["meta_info"]["finish_reason"] is None for piece in mine] == [True, False]

    knock(test, lambda: FakeEngine(script=[REPLY]).begin())
