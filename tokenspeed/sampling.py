"""How the next token is chosen and when a reply ends, as the caller asked for it."""

from __future__ import annotations

import math

import msgspec

from tokenspeed.errors import UserError

MAX_STOP_STRINGS = 16
MAX_STRING_CHARS = 1024
MAX_STOP_TOKEN_IDS = 64
MAX_LOGIT_BIAS = 300
MAX_ALLOWED_TOKEN_IDS = 1024
MAX_BAD_WORDS = 64
MAX_LOGPROBS = 20
MAX_REPETITION_PENALTY = 10.0
# A prompt's tokens times how many log-probabilities each brings: what is told in one go, beside other streams.
MAX_PROMPT_LOGPROBS_TOLD = 1 << 18
UINT64_MAX = 2**64 - 1


class SamplingParams(msgspec.Struct, array_like=True, frozen=True, gc=False, kw_only=True):
    """Sampling settings of one request.

    temperature 0 is greedy. `top_k` 0 and `top_p` 1 switch the filter off. `seed` None lets the
    engine draw one. `max_tokens` None means the rest of the context, 0 that
    only the prompt is computed. `stop` strings are cut from
    the text, `stop_token_ids` end the reply and are not shown. Until `min_tokens` tokens are out,
    no end-of-sequence id and no stop id is drawn.

    `presence_penalty` is taken once, `frequency_penalty` as often as it came, from the logit of each
    id that the reply has so far; `repetition_penalty` divides the positive and multiplies the
    negative logits of the ids of prompt and reply. `logit_bias` pairs are added to their ids' logits.
    With `allowed_token_ids` no other id is drawn. `bad_words` are texts that never come out, by the
    ids that they are encoded to, alone and behind a space.

    `logprobs` asks for the log-probability of each token drawn and of that many of the likeliest
    (0: none beside it), `prompt_logprobs` for the same of the prompt. They are those of the model:
    before temperature, penalties and bias.

    With `skip_special_tokens` control tokens show no text; with `include_stop_str_in_output` the
    stop string that ended the reply stays at the text's end.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    max_tokens: int | None = None
    min_tokens: int = 0
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    allowed_token_ids: tuple[int, ...] = ()
    bad_words: tuple[str, ...] = ()
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False

    def for_choice(self, index: int) -> SamplingParams:
        """Return the settings of reply `index` of several to one prompt: a given seed counts up."""
        if index == 0 or self.seed is None:
            return self
        return msgspec.structs.replace(self, seed=(self.seed + index) & UINT64_MAX)

    def check(self) -> None:
        """Raise `UserError`, naming the parameter, for a value out of its range."""
        _within("temperature", self.temperature, 0.0, 100.0)
        _within("top_p", self.top_p, 0.0, 1.0, above=True)
        _within("top_k", self.top_k, -1, 2**31 - 1)
        _within("min_p", self.min_p, 0.0, 1.0)
        if self.seed is not None:
            _within("seed", self.seed, -(2**63), UINT64_MAX)
        if self.max_tokens is not None:
            _within("max_tokens", self.max_tokens, 0, 2**31 - 1)
        _within("min_tokens", self.min_tokens, 0, 2**31 - 1)
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise UserError(
                f"min_tokens is {self.min_tokens}, above max_tokens {self.max_tokens}; lower one or raise the other.",
                param="min_tokens",
            )
        _at_most("stop", len(self.stop), MAX_STOP_STRINGS)
        _at_most("stop_token_ids", len(self.stop_token_ids), MAX_STOP_TOKEN_IDS)
        for token in self.stop_token_ids:
            _within("stop_token_ids", token, 0, 2**31 - 1)
        _texts("stop", self.stop)
        _within("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _within("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        _within("repetition_penalty", self.repetition_penalty, 0.0, MAX_REPETITION_PENALTY, above=True)
        self._check_lists()
        for name, count in (("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)):
            if count is not None:
                _within(name, count, 0, MAX_LOGPROBS)

    def _check_lists(self) -> None:
        _at_most("logit_bias", len(self.logit_bias), MAX_LOGIT_BIAS)
        for token, value in self.logit_bias:
            _within("logit_bias", token, 0, 2**31 - 1)
            _within("logit_bias", value, -100.0, 100.0)
        if len({token for token, _ in self.logit_bias}) < len(self.logit_bias):
            raise UserError("logit_bias names a token twice; give each one value.", param="logit_bias")
        _at_most("allowed_token_ids", len(self.allowed_token_ids), MAX_ALLOWED_TOKEN_IDS)
        for token in self.allowed_token_ids:
            _within("allowed_token_ids", token, 0, 2**31 - 1)
        _at_most("bad_words", len(self.bad_words), MAX_BAD_WORDS)
        _texts("bad_words", self.bad_words)


def _within(name: str, value: float, low: float, high: float, *, above: bool = False) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{name} is {value}; it must be a finite number.", param=name)
    if not (low < value if above else low <= value) or value > high:
        first = "above" if above else "at least"
        raise UserError(f"{name} is {value}; it must be {first} {low} and at most {high}.", param=name)


def _texts(name: str, texts: tuple[str, ...]) -> None:
    for text in texts:
        if not text or len(text) > MAX_STRING_CHARS:
            raise UserError(
                f"{name} has a string of {len(text)} characters; 1 to {MAX_STRING_CHARS} are allowed.",
                param=name,
            )


def _at_most(name: str, count: int, limit: int) -> None:
    if count > limit:
        raise UserError(f"{name} has {count} entries; at most {limit} are allowed.", param=name)
