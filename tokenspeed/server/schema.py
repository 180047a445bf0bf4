"""The bodies that clients of OpenAI's APIs send: the names that they use, and their types.

Owns the fields: those that are honoured, and those that are known and not honoured yet, with the
values of the latter that change nothing. What is asked of the engine is the business of `ask` and its
neighbours. Null means absent for every optional field, and unknown fields are ignored.

Invariant: a field without a type of its own is in `NEUTRAL`.
"""

from __future__ import annotations

from typing import Any

import msgspec


class ContentPart(msgspec.Struct, omit_defaults=True):
    """A part of a message; text is the only kind that can be read."""

    type: str
    text: str | None = None


class ChatMessage(msgspec.Struct, omit_defaults=True):
    """One message; what the template gets is this with nulls and unknown fields left out."""

    role: str
    content: str | list[ContentPart] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Any] | None = None
    tool_call_id: str | None = None


class StreamOptions(msgspec.Struct):
    """`include_usage` asks for one more chunk, with the usage and no choice; the other for it in each chunk."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class SamplingFields(msgspec.Struct, kw_only=True):
    """The settings that every API calls alike."""

    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    stop: str | list[str | None] | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None


class CommonFields(SamplingFields, kw_only=True):
    """What chat and completions have in common. The second block holds what is only accepted neutral."""

    model: str | None = None
    best_of: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    seed: int | None = None
    stop_token_ids: list[int | None] | None = None
    include_stop_str_in_output: bool | None = None
    prompt_logprobs: int | None = None
    echo: bool | None = None
    return_token_ids: bool | None = None
    return_tokens_as_token_ids: bool | None = None
    prompt_cache_key: str | None = None
    cache_salt: str | None = None

    response_format: Any = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    truncate_prompt_tokens: Any = None
    use_beam_search: Any = None
    length_penalty: Any = None
    priority: Any = None


class ChatRequest(CommonFields, kw_only=True):
    """The body of `POST /v1/chat/completions`. The second block holds what is only accepted neutral."""

    messages: list[ChatMessage]
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    add_generation_prompt: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    tools: Any = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    reasoning_effort: Any = None
    continue_final_message: Any = None
    modalities: Any = None
    audio: Any = None
    web_search_options: Any = None
    store: Any = None


class CompletionRequest(CommonFields, kw_only=True):
    """The body of `POST /v1/completions`. The second block holds what is only accepted neutral."""

    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None
    add_special_tokens: bool | None = None

    suffix: Any = None
    prompt_embeds: Any = None


class TokenizeRequest(msgspec.Struct):
    """The body of `POST /tokenize`: `prompt` or `messages`."""

    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    return_token_strs: bool | None = None
    cache_salt: str | None = None


class DetokenizeRequest(msgspec.Struct):
    """The body of `POST /detokenize`."""

    tokens: list[int]
    model: str | None = None


NEUTRAL: dict[str, tuple[Any, ...]] = {
    "suffix": ("",),
    "prompt_embeds": (),
    "tools": ([],),
    "tool_choice": ("auto", "none"),
    "functions": ([],),
    "function_call": ("auto", "none"),
    "response_format": ({"type": "text"},),
    "structured_outputs": (),
    "guided_json": (),
    "guided_regex": (),
    "guided_choice": (),
    "guided_grammar": (),
    "reasoning_effort": ("none",),
    "continue_final_message": (False,),
    "truncate_prompt_tokens": (),
    "use_beam_search": (False,),
    "length_penalty": (1,),
    "priority": (0,),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
    "store": (False,),
}
