"""The body of a chat request: the names that clients use, and their types.

Owns the fields: those that are honoured, and those that are known and not honoured yet, with the
values of the latter that change nothing. What is asked of the engine is `ask`'s business. Null
means absent for every optional field, and unknown fields are ignored.

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
    """`include_usage` asks for one more chunk, with the usage and no choice."""

    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class ChatRequest(msgspec.Struct):
    """The body of `POST /v1/chat/completions`. The second block holds what is only accepted neutral."""

    messages: list[ChatMessage]
    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: str | list[str | None] | None = None
    stop_token_ids: list[int | None] | None = None
    ignore_eos: bool | None = None
    add_generation_prompt: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    prompt_cache_key: str | None = None
    cache_salt: str | None = None

    n: Any = None
    best_of: Any = None
    logprobs: Any = None
    top_logprobs: Any = None
    prompt_logprobs: Any = None
    echo: Any = None
    presence_penalty: Any = None
    frequency_penalty: Any = None
    repetition_penalty: Any = None
    logit_bias: Any = None
    bad_words: Any = None
    allowed_token_ids: Any = None
    tools: Any = None
    tool_choice: Any = None
    functions: Any = None
    function_call: Any = None
    response_format: Any = None
    structured_outputs: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    guided_choice: Any = None
    guided_grammar: Any = None
    reasoning_effort: Any = None
    continue_final_message: Any = None
    include_stop_str_in_output: Any = None
    skip_special_tokens: Any = None
    truncate_prompt_tokens: Any = None
    return_token_ids: Any = None
    use_beam_search: Any = None
    length_penalty: Any = None
    priority: Any = None
    modalities: Any = None
    audio: Any = None
    web_search_options: Any = None
    store: Any = None


NEUTRAL: dict[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "prompt_logprobs": (),
    "echo": (False,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "bad_words": ([],),
    "allowed_token_ids": (),
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
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "truncate_prompt_tokens": (),
    "return_token_ids": (False,),
    "use_beam_search": (False,),
    "length_penalty": (1,),
    "priority": (0,),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
    "store": (False,),
}
