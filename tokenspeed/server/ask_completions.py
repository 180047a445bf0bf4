"""What a `/v1/completions` request asks: text to go on with, in each of the forms a prompt may have.

Owns the forms (a string, ids, or a list of either), the default length of 16 tokens, and how `echo`,
`logprobs` and `max_tokens` 0 make a scoring of the prompt.

Invariant: choice c of prompt p has the index p * n + c.
"""

from __future__ import annotations

from tokenspeed.config import ModelConfig
from tokenspeed.errors import UserError
from tokenspeed.generation import GenerationDefaults
from tokenspeed.messages.base import pack_ids
from tokenspeed.messages.tokenizer import Ids, Prompt, Text
from tokenspeed.sampling import SamplingParams
from tokenspeed.server.ask import Ask, check_model, check_neutral, choices, common, count_of
from tokenspeed.server.ask_sampling import sampling_of
from tokenspeed.server.schema import CompletionRequest

MAX_TOKENS_DEFAULT = 16
ID_MAX = 2**31 - 1


def completion_ask(body: CompletionRequest, model: ModelConfig, session: str = "") -> Ask:
    """Return what `body` asks, or raise `UserError` naming the first field that is wrong."""
    check_model(body.model, model)
    check_neutral(body)
    prompts = _prompts(body)
    return Ask(
        parts=choices(prompts, _sampling(body, model.defaults), count_of(body)),
        logprobs=body.logprobs,
        echo=bool(body.echo),
        is_batch=len(prompts) > 1,
        **common(body, session),
    )


def ids_prompt(name: str, ids: list[int]) -> Ids:
    """Return `ids` as a prompt; raise `UserError` for numbers that no token has."""
    wrong = next((token for token in ids if not 0 <= token <= ID_MAX), None)
    if wrong is not None:
        raise UserError(f"{name} has the token id {wrong}; ids are at least 0 and at most {ID_MAX}.", param=name)
    return Ids(pack_ids(ids))


def _sampling(body: CompletionRequest, defaults: GenerationDefaults) -> SamplingParams:
    scored = [count for count in (body.prompt_logprobs, body.logprobs if body.echo else None) if count is not None]
    return sampling_of(
        body,
        {},
        defaults,
        max_tokens=MAX_TOKENS_DEFAULT if body.max_tokens is None else body.max_tokens,
        logprobs=body.logprobs,
        prompt_logprobs=max(scored, default=None),
    )


def _prompts(body: CompletionRequest) -> list[Prompt]:
    prompt = body.prompt
    special = body.add_special_tokens is not False
    if isinstance(prompt, str):
        return [Text(prompt, special)]
    if not prompt:
        raise UserError("prompt is an empty list; send a text, ids, or a list of either.", param="prompt")
    ids = [each for each in prompt if isinstance(each, int)]
    if len(ids) == len(prompt):
        return [ids_prompt("prompt", ids)]
    return [_one(f"prompt[{index}]", each, special) for index, each in enumerate(prompt)]


def _one(name: str, each: str | int | list[int], special: bool) -> Prompt:
    if isinstance(each, int):
        raise UserError(f"{name} is a token id among prompts; a prompt of ids is a list of its own.", param=name)
    return Text(each, special) if isinstance(each, str) else ids_prompt(name, each)
