"""What a request asks of the engine, whatever the API: prompts, settings, and how the answer is told.

Owns the form that all APIs come to, the checks that they share, and those of a conversation. It
knows no transport.

Invariant: a field known to `schema` is honoured, or has a value that changes nothing, or is refused
by name; none is ignored in silence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from tokenspeed.config import ModelConfig
from tokenspeed.errors import TokenSpeedError, UserError
from tokenspeed.messages.tokenizer import Chat, Prompt
from tokenspeed.sampling import SamplingParams
from tokenspeed.server.ask_sampling import sampling_of
from tokenspeed.server.ask_template import request_template, template_variables
from tokenspeed.server.errors import renamed, shown
from tokenspeed.server.schema import NEUTRAL, ChatMessage, ChatRequest, CommonFields, ContentPart, StreamOptions

ROLES = ("system", "developer", "user", "assistant", "tool")
ROLES_WITH_CONTENT = ("system", "developer", "user")
LABEL_CHARS_MAX = 256
MESSAGES_MAX = 16_384  # and as many parts in each
N_MAX = 128
CHOICES_MAX = 1024  # of all prompts of a request together


class Part(msgspec.Struct, frozen=True):
    """One choice: what the engine is asked for it."""

    prompt: Prompt
    sampling: SamplingParams


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A checked request. Choice c of prompt p is `parts[p * n + c]`.

    `logprobs` and `prompt_logprobs` are how many of the likeliest tokens are told at each position of
    reply and prompt, None for no log-probability at all. `token_ids` tells the ids beside the text,
    `tokens_as_ids` tokens as "token_id:N". With `echo` the text of the prompt comes
    before the reply's; of a conversation that is `echo_text`. `scores_from` is the
    first position of the prompt whose log-probability is told. `names` gives, for a parameter of the
    engine, the name that the client wrote. `is_batch`: the client sent a list of prompts.
    """

    parts: list[Part]
    n: int = 1
    namespace: str = ""
    session: str = ""
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    token_ids: bool = False
    tokens_as_ids: bool = False
    echo: bool = False
    echo_text: str = ""
    scores_from: int = 0
    is_batch: bool = False
    names: Mapping[str, str] = {}

    @property
    def prompts(self) -> list[Prompt]:
        """The prompts, each once."""
        return [part.prompt for part in self.parts[:: self.n]]

    def renamed(self, error: TokenSpeedError) -> TokenSpeedError:
        """Return `error` with the parameter's name that the client wrote."""
        return renamed(error, self.names)


def chat_ask(
    body: ChatRequest, model: ModelConfig, session: str = "", *, trust_request_chat_template: bool = False
) -> Ask:
    """Return what `body` asks, or raise `UserError` naming the first field that is wrong.

    `session` is what the transport knows of the caller's session; `prompt_cache_key` goes before it.
    """
    check_model(body.model, model)
    check_neutral(body)
    check_messages(body.messages)
    names = {"logprobs": "top_logprobs"}
    if body.max_completion_tokens is not None:
        names["max_tokens"] = "max_completion_tokens"  # the newer name goes first
    logprobs = _chat_logprobs(body)
    sampling = sampling_of(
        body,
        names,
        model.defaults,
        max_tokens=body.max_completion_tokens if body.max_completion_tokens is not None else body.max_tokens,
        logprobs=logprobs,
        prompt_logprobs=body.prompt_logprobs,
    )
    prompt = chat_prompt(
        body.messages,
        body.add_generation_prompt,
        template_variables(body.chat_template_kwargs),
        request_template(body.chat_template, trust_request_chat_template),
    )
    return Ask(
        parts=choices([prompt], sampling, count_of(body)),
        logprobs=logprobs,
        echo=bool(body.echo),
        echo_text=_last_words(body.messages),
        names=names,
        **common(body, session),
    )


def common(body: CommonFields, session: str) -> dict[str, Any]:
    """Return the fields of `Ask` that do not depend on the prompt's form."""
    options = _stream_options(body)
    if body.stream and body.prompt_logprobs is not None:
        raise UserError(
            "prompt_logprobs cannot be streamed; leave stream out.", code="unsupported_parameter", param="stream"
        )
    return {
        "n": count_of(body),
        "namespace": label("cache_salt", body.cache_salt),
        "session": label("prompt_cache_key", body.prompt_cache_key) or session[:LABEL_CHARS_MAX],
        "stream": bool(body.stream),
        "include_usage": bool(options.include_usage),
        "continuous_usage": bool(options.continuous_usage_stats),
        "prompt_logprobs": body.prompt_logprobs,
        "token_ids": bool(body.return_token_ids),
        "tokens_as_ids": bool(body.return_tokens_as_token_ids),
    }


def choices(prompts: list[Prompt], sampling: SamplingParams, n: int) -> list[Part]:
    """Return the parts of `n` choices for each of `prompts`."""
    check_choices(len(prompts), n, "prompt")
    each = [sampling.for_choice(index) for index in range(n)]
    return [Part(prompt, settings) for prompt in prompts for settings in each]


def check_choices(prompts: int, n: int, name: str) -> None:
    """Raise `UserError` unless `n` replies to each of `prompts` prompts may be asked for; `name` has the prompts."""
    if prompts * n > CHOICES_MAX:
        raise UserError(
            f"{name} has {prompts} prompts, which with n {n} makes {prompts * n} replies; at most {CHOICES_MAX} are "
            "allowed: send several requests.",
            param=name,
        )


def count_of(body: CommonFields) -> int:
    """Return `n`, or raise `UserError`: replies are not ranked, so `best_of` must equal it."""
    n = 1 if body.n is None else body.n
    check_count(n)
    if body.best_of is not None and body.best_of != n:
        raise UserError(
            f"best_of is {body.best_of} and n is {n}; replies are not ranked: leave best_of out.",
            code="unsupported_parameter",
            param="best_of",
        )
    return n


def check_count(n: int, name: str = "n") -> None:
    """Raise `UserError` unless `n` replies may be asked for."""
    if not 1 <= n <= N_MAX:
        raise UserError(f"{name} is {n}; it must be at least 1 and at most {N_MAX}.", param=name)


def check_model(name: str | None, model: ModelConfig) -> None:
    """Raise 404 if `name` is given and is not the name of the model served."""
    if name is not None and name != model.served_name:
        raise UserError(
            f"The model {shown(name)!r} is not served here; use {model.served_name!r}.",
            status=404,
            code="model_not_found",
            param="model",
        )


def check_neutral(body: CommonFields) -> None:
    """Raise `UserError` for a field that is known, not honoured, and has a value that would change something."""
    for name, allowed in NEUTRAL.items():
        value = getattr(body, name, None)
        if value is not None and not any(same(value, neutral) for neutral in allowed):
            only = " or ".join(msgspec.json.encode(neutral).decode() for neutral in allowed) or "null"
            seen = shown(_as_json(name, value).decode())
            message = f"{name} is {seen}, which is not supported yet; leave it out or send {only}."
            raise UserError(message, code="unsupported_parameter", param=name)


def chat_prompt(
    messages: list[ChatMessage], add_generation_prompt: bool | None, variables: bytes = b"", template: str = ""
) -> Chat:
    """Return the conversation as the engine takes it."""
    return Chat(_as_json("messages", messages), add_generation_prompt is not False, variables, template)


def check_messages(messages: list[ChatMessage]) -> None:
    """Raise `UserError` naming the first part of a conversation that is wrong."""
    if not messages:
        raise UserError("messages is empty; send at least one message.", param="messages")
    _check_length("messages", len(messages))
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


def label(name: str, value: str | None) -> str:
    """Return `value`, "" if it is absent; raise `UserError` if it is long."""
    if value is not None and len(value) > LABEL_CHARS_MAX:
        raise UserError(f"{name} has {len(value)} characters; at most {LABEL_CHARS_MAX} are allowed.", param=name)
    return value or ""


def _as_json(name: str, value: Any) -> bytes:
    """Return `value` as JSON; MessagePack knows values that JSON does not."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise UserError(f"{name} has a value that JSON cannot hold ({error}); send plain ones.", param=name) from None


def same(value: Any, neutral: Any) -> bool:
    """Tell whether the two are equal as JSON: `true` is not 1, but 0.0 is 0."""
    return value == neutral and isinstance(value, bool) == isinstance(neutral, bool)


def _check_parts(where: str, parts: list[ContentPart]) -> None:
    _check_length(where, len(parts))
    for index, part in enumerate(parts):
        if part.type != "text":
            name = f"{where}[{index}].type"
            raise UserError(f"{name} is {shown(part.type)!r}; this model reads 'text' alone.", param=name)
        if part.text is None:
            name = f"{where}[{index}].text"
            raise UserError(f"{name} is missing; a text part needs it.", param=name)


def _check_length(name: str, count: int) -> None:
    if count > MESSAGES_MAX:
        raise UserError(f"{name} has {count} entries; at most {MESSAGES_MAX} are allowed: join some.", param=name)


def _stream_options(body: CommonFields) -> StreamOptions:
    options = body.stream_options
    if options is not None and not body.stream:
        raise UserError("stream_options is only allowed with stream: true.", param="stream_options")
    return options or StreamOptions()


def _chat_logprobs(body: ChatRequest) -> int | None:
    if body.top_logprobs is not None and not body.logprobs and body.top_logprobs != 0:
        raise UserError("top_logprobs is only allowed with logprobs: true.", param="top_logprobs")
    return (body.top_logprobs or 0) if body.logprobs else None


def _last_words(messages: list[ChatMessage]) -> str:
    """Return the text of the last message if it is the assistant's: what `echo` puts before the reply."""
    last = messages[-1]
    if last.role != "assistant" or last.content is None:
        return ""
    return last.content if isinstance(last.content, str) else "".join(part.text or "" for part in last.content)
