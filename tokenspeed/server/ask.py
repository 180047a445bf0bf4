"""What a chat request asks of the engine.

Owns the checks that types cannot make, and the translation from the names of the API to the
engine's. It knows no transport.

Invariant: a field known to `schema` is honoured, or has a value that changes nothing, or is
refused by name; none is ignored in silence.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tokenspeed.config import ModelConfig
from tokenspeed.errors import UserError
from tokenspeed.generation import GenerationDefaults
from tokenspeed.messages.tokenizer import Chat
from tokenspeed.sampling import SamplingParams
from tokenspeed.server.ask_template import request_template, template_variables
from tokenspeed.server.errors import shown
from tokenspeed.server.schema import NEUTRAL, ChatMessage, ChatRequest, ContentPart, StreamOptions

ROLES = ("system", "developer", "user", "assistant", "tool")
ROLES_WITH_CONTENT = ("system", "developer", "user")
LABEL_CHARS_MAX = 256
MESSAGES_MAX = 16_384  # and as many parts in each


class ChatAsk(msgspec.Struct, frozen=True):
    """A checked request: what the engine is asked, and how the answer is told."""

    prompt: Chat
    sampling: SamplingParams
    namespace: str
    session: str
    stream: bool
    include_usage: bool


def chat_ask(
    body: ChatRequest, model: ModelConfig, session: str = "", *, trust_request_chat_template: bool = False
) -> ChatAsk:
    """Return what `body` asks, or raise `UserError` naming the first field that is wrong.

    `session` is what the transport knows of the caller's session; `prompt_cache_key` goes before it.
    """
    check_model(body.model, model)
    _check_neutral(body)
    _check_messages(body.messages)
    options = _stream_options(body)
    generation_prompt = True if body.add_generation_prompt is None else body.add_generation_prompt
    return ChatAsk(
        prompt=Chat(
            _as_json("messages", body.messages),
            generation_prompt,
            template_variables(body.chat_template_kwargs),
            request_template(body.chat_template, trust_request_chat_template),
        ),
        sampling=_sampling(body, model.defaults),
        namespace=_label("cache_salt", body.cache_salt),
        session=_label("prompt_cache_key", body.prompt_cache_key) or session[:LABEL_CHARS_MAX],
        stream=bool(body.stream),
        include_usage=bool(options.include_usage),
    )


def check_model(name: str | None, model: ModelConfig) -> None:
    """Raise 404 if `name` is given and is not the name of the model served."""
    if name is not None and name != model.served_name:
        raise UserError(
            f"The model {shown(name)!r} is not served here; use {model.served_name!r}.",
            status=404,
            code="model_not_found",
            param="model",
        )


def _check_neutral(body: ChatRequest) -> None:
    for name, allowed in NEUTRAL.items():
        value = getattr(body, name)
        if value is not None and not any(_same(value, neutral) for neutral in allowed):
            only = " or ".join(msgspec.json.encode(neutral).decode() for neutral in allowed) or "null"
            seen = shown(_as_json(name, value).decode())
            message = f"{name} is {seen}, which is not supported yet; leave it out or send {only}."
            raise UserError(message, code="unsupported_parameter", param=name)


def _as_json(name: str, value: Any) -> bytes:
    """Return `value` as JSON; MessagePack knows values that JSON does not."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{name} has a value that JSON cannot hold ({error}); send plain ones.", param=name) from None


def _same(value: Any, neutral: Any) -> bool:
    """Tell whether the two are equal as JSON: `true` is not 1, but 0.0 is 0."""
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)


def _check_messages(messages: list[ChatMessage]) -> None:
    if not messages:
        raise UserError("messages is empty; send at least one message.", param="messages")
    _check_count("messages", len(messages))
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if message.role not in ROLES:
            raise UserError(
                f"{where}.role is {shown(message.role)!r}; allowed: {', '.join(ROLES)}.", param=f"{where}.role"
            )
        if message.content is None and message.role in ROLES_WITH_CONTENT:
            raise UserError(f"{where}.content is missing; a {message.role} message needs it.", param=f"{where}.content")
        if message.content is None and message.role == "tool":
            message.content = ""  # a tool that said nothing
        if isinstance(message.content, list):
            _check_parts(f"{where}.content", message.content)


def _check_parts(where: str, parts: list[ContentPart]) -> None:
    _check_count(where, len(parts))
    for index, part in enumerate(parts):
        if part.type != "text":
            name = f"{where}[{index}].type"
            raise UserError(f"{name} is {shown(part.type)!r}; this model reads 'text' alone.", param=name)
        if part.text is None:
            name = f"{where}[{index}].text"
            raise UserError(f"{name} is missing; a text part needs it.", param=name)


def _check_count(name: str, count: int) -> None:
    if count > MESSAGES_MAX:
        raise UserError(f"{name} has {count} entries; at most {MESSAGES_MAX} are allowed: join some.", param=name)


def _stream_options(body: ChatRequest) -> StreamOptions:
    options = body.stream_options
    if options is None:
        return StreamOptions()
    if not body.stream:
        raise UserError("stream_options is only allowed with stream: true.", param="stream_options")
    if options.continuous_usage_stats:
        name = "stream_options.continuous_usage_stats"
        raise UserError(
            f"{name} is not supported; use include_usage for one chunk at the end.",
            code="unsupported_parameter",
            param=name,
        )
    return options


def _sampling(body: ChatRequest, defaults: GenerationDefaults) -> SamplingParams:
    """Return the sampling settings, those left out as the model's maker recommends.

    `max_completion_tokens`, the newer name, goes before `max_tokens`.
    """
    limit = body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or ()
    given: dict[str, Any] = {
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "min_p": body.min_p,
        "seed": body.seed,
        "max_tokens": limit,
        "min_tokens": body.min_tokens,
        "stop": tuple(text for text in stop if text is not None),
        "stop_token_ids": tuple(token for token in body.stop_token_ids or () if token is not None),
        "ignore_eos": body.ignore_eos,
    }
    sampling = SamplingParams(**defaults.fill(given))
    try:
        sampling.check()
    except UserError as error:
        if error.param != "max_tokens" or body.max_completion_tokens is None:
            raise
        message = error.message.replace("max_tokens", "max_completion_tokens")
        raise UserError(message, param="max_completion_tokens") from None
    return sampling


def _label(name: str, value: str | None) -> str:
    if value is not None and len(value) > LABEL_CHARS_MAX:
        raise UserError(f"{name} has {len(value)} characters; at most {LABEL_CHARS_MAX} are allowed.", param=name)
    return value or ""
