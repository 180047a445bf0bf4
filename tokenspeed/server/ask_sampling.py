"""Sampling settings in the words of OpenAI's APIs, to those of the engine.

Owns the translation of names and forms. Ranges are the engine's to check; the error then names the
parameter as the client wrote it.

Invariant: settings returned have passed the engine's check.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from tokenspeed.errors import UserError
from tokenspeed.generation import GenerationDefaults
from tokenspeed.sampling import SamplingParams
from tokenspeed.server.errors import renamed, shown
from tokenspeed.server.schema import CommonFields, SamplingFields

T = TypeVar("T")

# Those that have one name and one form on both sides.
SAME = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "ignore_eos",
    "skip_special_tokens",
)


def sampling_of(
    body: CommonFields,
    names: Mapping[str, str],
    defaults: GenerationDefaults,
    *,
    max_tokens: int | None,
    logprobs: int | None,
    prompt_logprobs: int | None,
) -> SamplingParams:
    """Return the settings in `body`; raise `UserError` with the name that `names` has for a parameter.

    Those left out are as `defaults` say.
    """
    given = shared(body) | {
        "max_tokens": max_tokens,
        "min_tokens": body.min_tokens,
        "seed": body.seed,
        "stop_token_ids": _there(body.stop_token_ids),
        "include_stop_str_in_output": body.include_stop_str_in_output,
        "logprobs": logprobs,
        "prompt_logprobs": prompt_logprobs,
    }
    return checked(given, names, defaults)


def shared(body: SamplingFields) -> dict[str, Any]:
    """Return what every API calls alike, by the engine's names."""
    return {name: getattr(body, name) for name in SAME} | {
        "stop": (body.stop,) if isinstance(body.stop, str) else _there(body.stop),
        "logit_bias": bias(body.logit_bias),
        "allowed_token_ids": allowed(body.allowed_token_ids),
        "bad_words": tuple(body.bad_words or ()),
    }


def checked(given: Mapping[str, Any], names: Mapping[str, str], defaults: GenerationDefaults) -> SamplingParams:
    """Return the settings `given` by the engine's names, or raise `UserError`.

    Those left out are as the model's maker recommends.
    """
    sampling = SamplingParams(**defaults.fill(given))
    try:
        sampling.check()
    except UserError as error:
        raise renamed(error, names) from None
    return sampling


def _there(items: Iterable[T | None] | None) -> tuple[T, ...]:
    return tuple(item for item in items or () if item is not None)


def bias(pairs: Mapping[str, float] | None) -> tuple[tuple[int, float], ...]:
    """Return the pairs of a `logit_bias`, whose keys are ids as text."""
    return tuple((_id(key), value) for key, value in (pairs or {}).items())


def allowed(ids: list[int] | None) -> tuple[int, ...]:
    """Return `allowed_token_ids`; an empty list would leave nothing to draw."""
    if ids is not None and not ids:
        raise UserError("allowed_token_ids is empty; list at least one id, or leave it out.", param="allowed_token_ids")
    return tuple(ids or ())


def _id(key: str) -> int:
    if not (key.isascii() and key.isdecimal()) or len(key) > 10 or str(int(key)) != key:
        raise UserError(f"logit_bias has the key {shown(key)!r}; keys are token ids such as '42'.", param="logit_bias")
    return int(key)
