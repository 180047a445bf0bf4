"""What an executor is told of a request when it takes a slot.

Owns the translation of sampling settings to `SlotOpening`, and which known ids go along. It decides
nothing: neutral settings stay neutral, and history is empty where no setting reads it.

Invariant: an opening of a request depends on its submission and its output ids alone, so that it is
the same after a retract, and after a restart.
"""

from __future__ import annotations

from array import array

from tokenspeed.errors import UserError
from tokenspeed.messages.base import pack_ids, view_ids
from tokenspeed.messages.executor import SlotOpening
from tokenspeed.messages.scheduler import Submit


def slot_opening(slot: int, submit: Submit, outputs: array[int]) -> SlotOpening:
    """Return the opening of `slot` for a request that has drawn `outputs` so far."""
    sampling = submit.sampling
    bias = dict(sampling.logit_bias)
    history_first, history = _history(submit, outputs)
    return SlotOpening(
        slot=slot,
        request=submit.request,
        seed=sampling.seed or 0,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=max(sampling.top_k, 0),
        min_p=sampling.min_p,
        suppress_until=submit.stream.prompt_tokens + submit.min_tokens,
        suppress=pack_ids(submit.end_ids if submit.min_tokens else ()),
        prompt_tokens=submit.stream.prompt_tokens,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        bias_ids=pack_ids(bias),
        bias_values=array("f", bias.values()).tobytes(),
        allowed=pack_ids(sorted(set(sampling.allowed_token_ids))),
        bad_word_ids=submit.bad_word_ids,
        bad_word_ends=submit.bad_word_ends,
        history_first=history_first,
        history=history,
        logprobs=submit.stream.logprobs,
        prompt_logprobs=submit.stream.prompt_logprobs if _scores(submit, outputs) else -1,
    )


def check_ids(submit: Submit, vocab_tokens: int) -> None:
    """Raise `UserError` for a setting that names an id which the model has no logit for."""
    sampling = submit.sampling
    for name, ids in (
        ("stop_token_ids", sampling.stop_token_ids),
        ("logit_bias", [token for token, _ in sampling.logit_bias]),
        ("allowed_token_ids", sampling.allowed_token_ids),
        ("bad_words", view_ids(submit.bad_word_ids)),
    ):
        if (highest := max(ids, default=0)) >= vocab_tokens:
            raise UserError(f"{name} names the token {highest}; the model has 0 to {vocab_tokens - 1}.", param=name)


def _scores(submit: Submit, outputs: array[int]) -> bool:
    # Until the first output, as in the native core: it comes after all scores.
    return submit.stream.prompt_logprobs >= 0 and not outputs


def _history(submit: Submit, outputs: array[int]) -> tuple[int, bytes]:
    sampling = submit.sampling
    if sampling.repetition_penalty != 1.0 or _scores(submit, outputs):
        return 0, submit.ids + outputs.tobytes()
    follows = len(submit.bad_word_ids) > len(submit.bad_word_ends)  # a bad word of several ids
    if sampling.presence_penalty or sampling.frequency_penalty or follows:
        return submit.stream.prompt_tokens, outputs.tobytes()
    return 0, b""
