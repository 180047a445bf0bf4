"""The body of `POST /generate`, the engine's own request.

Owns the fields: those that are honoured, and those of other engines of this kind that are not, with
the reason and what to use. Unknown fields are refused: nothing here is a label that could be ignored.

Invariant: a field without a type of its own is in `REFUSED`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tokenspeed.server.schema import SamplingFields

NO_MEDIA = "this model reads text alone; send the text in text, input_ids or messages of /v1/chat/completions"
NO_GRAMMAR = "replies are not bound to a grammar; say in the prompt what is wanted, and check the reply"
NO_SPLIT = "prefill and decoding are done by one server; leave it out, and send the request to the server itself"


class SamplingBody(SamplingFields, kw_only=True, forbid_unknown_fields=True):
    """`sampling_params`. The second block holds what is only accepted neutral."""

    max_new_tokens: int | None = None
    min_new_tokens: int | None = None
    sampling_seed: int | None = None
    stop_token_ids: list[int] | None = None
    no_stop_trim: bool | None = None

    spaces_between_special_tokens: Any = None
    stop_regex: Any = None
    json_schema: Any = None
    regex: Any = None
    ebnf: Any = None
    structural_tag: Any = None
    custom_params: Any = None


class GenerateBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The body. The second block holds what is only accepted neutral."""

    text: str | list[str] | None = None
    input_ids: list[int | list[int]] | None = None
    sampling_params: SamplingBody | list[SamplingBody] | None = None
    return_logprob: bool | None = None
    logprob_start_len: int | None = None
    top_logprobs_num: int | None = None
    stream: bool | None = None
    model: str | None = None
    cache_salt: str | None = None
    prompt_cache_key: str | None = None

    image_data: Any = None
    audio_data: Any = None
    video_data: Any = None
    token_ids_logprob: Any = None
    custom_logit_processor: Any = None
    return_hidden_states: Any = None
    bootstrap_host: Any = None
    bootstrap_port: Any = None
    bootstrap_room: Any = None


# The values that change nothing, and why others are refused.
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "image_data": (([],), NO_MEDIA),
    "audio_data": (([],), NO_MEDIA),
    "video_data": (([],), NO_MEDIA),
    "token_ids_logprob": (
        ([],),
        "log-probabilities are told of the likeliest tokens, not of chosen ones; use top_logprobs_num",
    ),
    "custom_logit_processor": (
        ("",),
        "code that comes with a request is never run; use logit_bias, allowed_token_ids or bad_words",
    ),
    "return_hidden_states": (
        (False,),
        "hidden states do not leave the model's process; use return_logprob, or the model in transformers",
    ),
    "bootstrap_host": ((), NO_SPLIT),
    "bootstrap_port": ((), NO_SPLIT),
    "bootstrap_room": ((), NO_SPLIT),
    "spaces_between_special_tokens": ((True,), "text is given as the tokens spell it; leave it out"),
    "stop_regex": (("", []), "replies stop at strings and ids; use stop or stop_token_ids"),
    "json_schema": ((), NO_GRAMMAR),
    "regex": ((), NO_GRAMMAR),
    "ebnf": ((), NO_GRAMMAR),
    "structural_tag": ((), NO_GRAMMAR),
    "custom_params": (({},), "there is no processor that would read it; leave it out"),
}
