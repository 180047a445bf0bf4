from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tokenspeed.config import ModelConfig
from tokenspeed.errors import UserError
from tokenspeed.generation import GenerationDefaults
from tokenspeed.sampling import SamplingParams
from tokenspeed.server.ask import MESSAGES_MAX, ChatAsk, chat_ask
from tokenspeed.server.parse import decode_json, decode_msgpack
from tokenspeed.server.schema import NEUTRAL, ChatRequest

MODEL = ModelConfig(path="/m", served_name="m", max_model_len=100)
USER = {"role": "user", "content": "Hi"}


def ask(**more: Any) -> ChatAsk:
    body = msgspec.json.encode({"messages": [USER], **more})
    return chat_ask(decode_json(body, ChatRequest), MODEL)


def refused(**more: Any) -> UserError:
    with pytest.raises(UserError) as caught:
        ask(**more)
    assert caught.value.status in (400, 404)
    return caught.value


def test_absent_settings_are_the_defaults() -> None:
    assert ask().sampling == SamplingParams()
    assert not ask().stream


def test_the_model_s_defaults_fill_what_a_request_leaves_out() -> None:
    defaults = GenerationDefaults(temperature=0.6, top_p=0.95, top_k=20, min_p=0.05, repetition_penalty=1.1)
    model = msgspec.structs.replace(MODEL, defaults=defaults)
    asked = {"messages": [USER], "temperature": 0, "top_p": 1.0, "top_k": None}
    sampling = chat_ask(decode_json(msgspec.json.encode(asked), ChatRequest), model).sampling
    assert sampling == SamplingParams(temperature=0.0, top_p=1.0, top_k=20, min_p=0.05, repetition_penalty=1.1)


def test_null_is_absent_for_every_optional_field() -> None:
    fields = [field for field in msgspec.structs.fields(ChatRequest) if field.name != "messages"]
    assert len(fields) > 40
    assert ask(**dict.fromkeys(field.name for field in fields)) == ask()


def test_settings_reach_the_engine() -> None:
    settings = {
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 20,
        "min_p": 0.1,
        "seed": 7,
        "max_tokens": 9,
        "min_tokens": 2,
        "stop_token_ids": [1, None, 2],
        "ignore_eos": True,
    }
    expected = SamplingParams(
        temperature=0.0,
        top_p=0.5,
        top_k=20,
        min_p=0.1,
        seed=7,
        max_tokens=9,
        min_tokens=2,
        stop=("a", "b"),
        stop_token_ids=(1, 2),
        ignore_eos=True,
    )
    asked = ask(**settings, stop=["a", None, "b"], cache_salt="salt", prompt_cache_key="me")
    assert asked.sampling == expected
    assert (asked.namespace, asked.session) == ("salt", "me")


@pytest.mark.parametrize(("stop", "seen"), [("x", ("x",)), (["x"], ("x",)), ([], ()), ([None], ()), (None, ())])
def test_stop_takes_every_form(stop: Any, seen: tuple[str, ...]) -> None:
    assert ask(stop=stop).sampling.stop == seen


def test_of_two_limits_the_newer_name_rules() -> None:
    assert ask(max_tokens=5, max_completion_tokens=9).sampling.max_tokens == 9
    assert ask(max_tokens=5, max_completion_tokens=None).sampling.max_tokens == 5
    assert ask(max_completion_tokens=9).sampling.max_tokens == 9


@pytest.mark.parametrize(
    ("name", "value", "param"),
    [
        ("temperature", -1, "temperature"),
        ("temperature", "hot", "temperature"),
        ("top_p", 0, "top_p"),
        ("top_p", 1.5, "top_p"),
        ("top_k", 1.5, "top_k"),
        ("top_k", -2, "top_k"),
        ("min_p", 2, "min_p"),
        ("seed", "x", "seed"),
        ("seed", 2**70, "seed"),
        ("max_tokens", 0, "max_tokens"),
        ("max_tokens", 1.0, "max_tokens"),
        ("max_completion_tokens", 0, "max_completion_tokens"),
        ("min_tokens", -1, "min_tokens"),
        ("stop", 3, "stop"),
        ("stop", [3], "stop[0]"),
        ("stop", [""], "stop"),
        ("stop", ["x"] * 17, "stop"),
        ("stop_token_ids", ["x"], "stop_token_ids[0]"),
        ("stop_token_ids", [-1], "stop_token_ids"),
        ("stop_token_ids", [2**31], "stop_token_ids"),
        ("stop_token_ids", [1] * 65, "stop_token_ids"),
        ("ignore_eos", 1, "ignore_eos"),
        ("stream", "yes", "stream"),
        ("stream_options", {"include_usage": True}, "stream_options"),
        ("model", 3, "model"),
        ("cache_salt", "x" * 257, "cache_salt"),
        ("prompt_cache_key", "x" * 257, "prompt_cache_key"),
    ],
)
def test_a_wrong_setting_is_named(name: str, value: Any, param: str) -> None:
    error = refused(**{name: value})
    assert error.param == param
    assert param.partition("[")[0] in error.message


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        ([], "messages"),
        (None, "messages"),
        ("Hi", "messages"),
        ([USER, "Hi"], "messages[1]"),
        ([{"content": "Hi"}], "messages[0].role"),
        ([{"role": "wizard", "content": "Hi"}], "messages[0].role"),
        ([{"role": 3, "content": "Hi"}], "messages[0].role"),
        ([USER, {"role": "user"}], "messages[1].content"),
        ([{"role": "user", "content": None}], "messages[0].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": [{"text": "Hi"}]}], "messages[0].content[0].type"),
        ([{"role": "user", "content": [{"type": "text"}]}], "messages[0].content[0].text"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "messages[0].content[0].type"),
    ],
)
def test_a_wrong_message_is_named(messages: Any, param: str) -> None:
    error = refused(messages=messages)
    assert error.param == param
    assert param in error.message


def test_messages_go_on_without_nulls_and_unknown_fields() -> None:
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "Be brief.", "cache_control": {}}], "name": None},
        {"role": "assistant", "content": None, "refusal": None, "reasoning_content": "hm"},
        {"role": "assistant", "content": ""},
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
        {"role": "tool", "content": None, "tool_call_id": "c2"},
    ]
    assert msgspec.json.decode(ask(messages=messages).prompt.messages) == [
        {"role": "system", "content": [{"type": "text", "text": "Be brief."}]},
        {"role": "assistant", "reasoning_content": "hm"},
        {"role": "assistant", "content": ""},
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
        {"role": "tool", "content": "", "tool_call_id": "c2"},
    ]
    assert not ask(add_generation_prompt=False).prompt.add_generation_prompt


def test_an_unknown_model_is_404_and_names_the_served_one() -> None:
    error = refused(model="gpt-9")
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")
    assert "'gpt-9'" in error.message
    assert "'m'" in error.message
    assert ask(model="m") == ask()


@pytest.mark.parametrize("name", NEUTRAL)
def test_what_cannot_be_honoured_is_refused_by_name(name: str) -> None:
    error = refused(**{name: {"something": "else"}})
    assert (error.status, error.code, error.param) == (400, "unsupported_parameter", name)
    assert error.message.startswith(f"{name} is ")


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in NEUTRAL.items() for value in values])
def test_what_changes_nothing_is_accepted(name: str, value: Any) -> None:
    assert ask(**{name: value}) == ask()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 0),
        ("n", 2),
        ("n", True),
        ("logprobs", True),
        ("logprobs", 0),
        ("presence_penalty", 0.5),
        ("frequency_penalty", -1),
        ("logit_bias", {"50256": -100}),
        ("tools", [{"type": "function", "function": {"name": "f"}}]),
        ("tool_choice", "required"),
        ("response_format", {"type": "json_object"}),
        ("response_format", {"type": "json_schema", "json_schema": {}}),
    ],
)
def test_known_values_that_would_change_the_reply_are_refused(name: str, value: Any) -> None:
    assert refused(**{name: value}).param == name


def test_penalty_zero_is_neutral_in_both_number_forms() -> None:
    assert ask(presence_penalty=0.0, frequency_penalty=0, repetition_penalty=1.0) == ask()


def test_unknown_fields_and_labels_are_ignored() -> None:
    assert ask(user="me", metadata={"a": "b"}, context_management={}, client_metadata=[1]) == ask()


def test_stream_options() -> None:
    assert ask(stream=True, stream_options={"include_usage": True}).include_usage
    assert not ask(stream=True, stream_options={}).include_usage
    assert not ask(stream=True, stream_options={"include_usage": None, "include_obfuscation": False}).include_usage
    error = refused(stream=True, stream_options={"continuous_usage_stats": True})
    assert error.param == "stream_options.continuous_usage_stats"


def test_long_values_are_not_repeated_whole() -> None:
    assert len(refused(logit_bias={"x": "y" * 10_000}).message) < 500
    assert len(refused(model="y" * 10_000).message) < 500


def test_there_is_a_limit_to_messages_and_to_parts() -> None:
    assert len(msgspec.json.decode(ask(messages=[USER] * MESSAGES_MAX).prompt.messages)) == MESSAGES_MAX
    error = refused(messages=[USER] * (MESSAGES_MAX + 1))
    assert (error.param, str(MESSAGES_MAX) in error.message) == ("messages", True)
    parts = [{"type": "text", "text": ""}] * (MESSAGES_MAX + 1)
    assert refused(messages=[{"role": "user", "content": parts}]).param == "messages[0].content"


@pytest.mark.parametrize("value", [{"a": {None: 1}}, msgspec.msgpack.Ext(5, b"x")])
def test_what_json_cannot_hold_is_refused_by_name(value: Any) -> None:
    call = {"function": {"name": "f", "arguments": value}}
    for name, more in (("tools", {"tools": value}), ("messages", {"messages": [{**USER, "tool_calls": [call]}]})):
        body = decode_msgpack(msgspec.msgpack.encode({"messages": [USER], **more}), ChatRequest)
        with pytest.raises(UserError) as caught:
            chat_ask(body, MODEL)
        assert caught.value.param == name
