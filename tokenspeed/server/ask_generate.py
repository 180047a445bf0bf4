"""What a `/generate` request asks.

Owns the forms of its prompt (one text, one list of ids, or a list of either), its names for sampling
settings, and where the log-probabilities of the prompt begin.

Invariant: every field is honoured, has a value that changes nothing, or is refused with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from tokenspeed.config import ModelConfig
from tokenspeed.errors import UserError
from tokenspeed.generation import GenerationDefaults
from tokenspeed.messages.tokenizer import Prompt, Text
from tokenspeed.sampling import SamplingParams
from tokenspeed.server.ask import LABEL_CHARS_MAX, Ask, Part, check_choices, check_count, check_model, label, same
from tokenspeed.server.ask_completions import ids_prompt
from tokenspeed.server.ask_sampling import checked, shared
from tokenspeed.server.errors import shown
from tokenspeed.server.schema_generate import REFUSED, GenerateBody, SamplingBody

NAMES = {
    "max_tokens": "max_new_tokens",
    "min_tokens": "min_new_tokens",
    "seed": "sampling_seed",
    "logprobs": "top_logprobs_num",
    "prompt_logprobs": "top_logprobs_num",
}


def generate_ask(body: GenerateBody, model: ModelConfig, session: str = "") -> Ask:
    """Return what `body` asks, or raise `UserError` naming the first field that is wrong."""
    check_model(body.model, model)
    _check_refused(body)
    name, prompts, is_batch = _prompts(body)
    settings, n = _settings(body, len(prompts), model.defaults)
    check_choices(len(prompts), n, name)
    top, first = _scores(body)
    return Ask(
        parts=[
            Part(prompt, each.for_choice(index))
            for prompt, each in zip(prompts, settings, strict=True)
            for index in range(n)
        ],
        n=n,
        namespace=label("cache_salt", body.cache_salt),
        session=label("prompt_cache_key", body.prompt_cache_key) or session[:LABEL_CHARS_MAX],
        stream=bool(body.stream),
        logprobs=top,
        prompt_logprobs=top if first >= 0 else None,
        scores_from=max(0, first),
        token_ids=first == 0,  # of the first token nothing but its id can be told
        is_batch=is_batch or n > 1,
        names={**NAMES, "prompt": name},
    )


def _check_refused(body: msgspec.Struct) -> None:
    for name, (neutral, reason) in REFUSED.items():
        value = getattr(body, name, None)
        if value is not None and not any(same(value, each) for each in neutral):
            seen = shown(repr(value))
            raise UserError(f"{name} is {seen}: {reason}.", code="unsupported_parameter", param=name)


def _prompts(body: GenerateBody) -> tuple[str, list[Prompt], bool]:
    """Return the name of the field that has the prompts, the prompts, and whether they came as a list."""
    if (body.text is None) == (body.input_ids is None):
        seen = "neither is there" if body.text is None else "both are there"
        raise UserError(f"Send either text or input_ids; {seen}.", param="text")
    if isinstance(body.text, str):
        return "text", [Text(body.text)], False
    if body.text is not None:
        _check_some("text", body.text)
        return "text", [Text(text) for text in body.text], True
    assert body.input_ids is not None
    _check_some("input_ids", body.input_ids)
    flat = [each for each in body.input_ids if isinstance(each, int)]
    if len(flat) == len(body.input_ids):
        return "input_ids", [ids_prompt("input_ids", flat)], False
    if flat:
        raise UserError("input_ids mixes ids and lists of ids; send one prompt or a list of them.", param="input_ids")
    lists = [each for each in body.input_ids if isinstance(each, list)]
    return "input_ids", [ids_prompt(f"input_ids[{index}]", each) for index, each in enumerate(lists)], True


def _check_some(name: str, prompts: Sequence[Any]) -> None:
    if not prompts:
        raise UserError(f"{name} is an empty list; send at least one prompt.", param=name)


def _settings(body: GenerateBody, prompts: int, defaults: GenerationDefaults) -> tuple[list[SamplingParams], int]:
    """Return the settings of each prompt, and how many replies each gets."""
    given = body.sampling_params
    each = given if isinstance(given, list) else [given or SamplingBody()] * prompts
    if len(each) != prompts:
        raise UserError(
            f"sampling_params has {len(each)} entries for {prompts} prompts; send one for all or one for each.",
            param="sampling_params",
        )
    counts = {1 if one.n is None else one.n for one in each}
    if len(counts) > 1:
        raise UserError("n differs between sampling_params; all prompts of a request have the same.", param="n")
    n = counts.pop()
    check_count(n)
    return [_sampling(body, one, defaults) for one in each], n


def _sampling(body: GenerateBody, given: SamplingBody, defaults: GenerationDefaults) -> SamplingParams:
    _check_refused(given)
    top, first = _scores(body)
    values = shared(given) | {
        "max_tokens": given.max_new_tokens,
        "min_tokens": given.min_new_tokens,
        "seed": given.sampling_seed,
        "stop_token_ids": tuple(given.stop_token_ids or ()),
        "include_stop_str_in_output": given.no_stop_trim,
        "logprobs": top,
        "prompt_logprobs": top if first >= 0 else None,
    }
    return checked(values, NAMES, defaults)


def _scores(body: GenerateBody) -> tuple[int | None, int]:
    """Return how many likeliest tokens are told, None for no log-probability at all, and where the prompt's begin.

    That is -1 if none of the prompt's are wanted.
    """
    first = -1 if body.logprob_start_len is None else body.logprob_start_len
    if first < -1:
        raise UserError(f"logprob_start_len is {first}; it must be at least -1.", param="logprob_start_len")
    if body.return_logprob:
        return body.top_logprobs_num or 0, first
    for name, value in (("top_logprobs_num", body.top_logprobs_num or 0), ("logprob_start_len", first + 1)):
        if value:
            raise UserError(f"{name} is only allowed with return_logprob: true.", param=name)
    return None, -1
