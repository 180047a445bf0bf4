"""What the engine (the process of the doors) receives."""

from __future__ import annotations

import msgspec

from tokenspeed.errors import ErrorInfo
from tokenspeed.messages.base import Message
from tokenspeed.messages.detokenizer import PromptTimes


class Accepted(Message, frozen=True):
    """From the scheduler: `request` is valid, fits, and waits for its turn or runs."""

    request: int
    prompt_tokens: int


class Refused(Message, frozen=True):
    """From tokenizer or scheduler: `request` ends with an error and holds nothing."""

    request: int
    error: ErrorInfo


class TokenLogprob(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A token and the natural logarithm of its probability; `piece` is what it adds to the text."""

    id: int
    logprob: float
    piece: bytes


class PositionLogprobs(msgspec.Struct, array_like=True, frozen=True):
    """One position: the token that stands there, its rank (1: the likeliest), and the likeliest ones in order.

    `offset` is the number of characters of the reply before the token's first; 0 in a prompt.
    """

    token: TokenLogprob
    rank: int
    top: list[TokenLogprob]
    offset: int = 0


class EndId(msgspec.Struct, array_like=True, frozen=True):
    """An id that ends a reply, its text, and the files and keys that say so."""

    id: int
    text: str
    sources: tuple[str, ...]


class ModelEnds(Message, frozen=True):
    """From the tokenizer once it has loaded: every id that ends a reply."""

    ends: tuple[EndId, ...]


class OutputDelta(Message, frozen=True):
    """New text of one request.

    `first` is the output index of the first of `ids` (int32 bytes), `text_offset` the number of
    characters before `text`: after a detokenizer restart, deltas repeat from the start and the
    engine drops what it has. `finish` is "" while the reply goes on, else "stop" or "length";
    `stop_reason` is the stop string or the caller's stop id that ended it. `completion_tokens` counts
    kept tokens. `logprobs` has one entry for each of `ids`, if asked for: an id comes then with the
    first character that it shows, and never if a stop string cut all of it off. The first delta brings
    `times`, and `prompt_logprobs`, one for each prompt token, None for the first.
    """

    request: int
    first: int
    ids: bytes
    text_offset: int
    text: str
    finish: str
    stop_reason: str | int | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    logprobs: list[PositionLogprobs] | None = None
    prompt_logprobs: list[PositionLogprobs | None] | None = None
    times: PromptTimes | None = None


class StreamsFenced(Message, frozen=True):
    """From the detokenizer after a scheduler restart: every delta of the old life came before this."""

    scheduler_epoch: int


class CacheFlushed(Message, frozen=True):
    """Answer to `FlushCache`."""

    call: int
    pages_freed: int


class Tokenized(Message, frozen=True):
    """Answer to `Tokenize`: the prompt's int32 bytes."""

    call: int
    ids: bytes


class Detokenized(Message, frozen=True):
    """Answer to `Detokenize`: what each id adds to a text."""

    call: int
    pieces: list[bytes]


class CallFailed(Message, frozen=True):
    """The answer to a call that cannot be done."""

    call: int
    error: ErrorInfo


# Upper bounds of the buckets that the scheduler counts its steps in.
STEP_TIMES_US = (
    *(500, 1_000, 2_000, 3_000, 5_000, 7_500, 10_000, 15_000, 20_000, 25_000, 30_000, 40_000, 50_000, 75_000),
    *(100_000, 150_000, 200_000, 300_000, 500_000, 1_000_000, 2_500_000, 5_000_000, 10_000_000),
)
STEP_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096, 8_192, 16_384)


class SchedulerStats(Message, frozen=True):
    """Answer to `AskStats`. Pages are summed over cache groups.

    From `steps` on all are counters. `retractions` and `tokens_retracted` are requests that gave their
    pages up for others and their tokens that had been computed, `losses` and `tokens_lost` those that
    ran when the executor was lost. `step_us` sums the time of all steps; `step_times` counts them by
    `STEP_TIMES_US` and `step_tokens` by `STEP_TOKENS`, those above all bounds last.
    """

    call: int
    requests_waiting: int
    requests_running: int
    pages_total: int
    pages_free: int
    pages_owned: int
    pages_cached_idle: int
    pages_cached_leased: int
    pages_zombie: int
    steps: int
    retractions: int
    tokens_prefilled: int = 0
    tokens_decoded: int = 0
    step_us: int = 0
    tokens_retracted: int = 0
    losses: int = 0
    tokens_lost: int = 0
    step_times: tuple[int, ...] = (0,) * (len(STEP_TIMES_US) + 1)
    step_tokens: tuple[int, ...] = (0,) * (len(STEP_TOKENS) + 1)

    @classmethod
    def nothing(cls) -> SchedulerStats:
        """Return what a scheduler tells that has not begun."""
        return cls(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)


Answer = CacheFlushed | SchedulerStats | Tokenized | Detokenized | CallFailed
EngineMessage = Accepted | Refused | ModelEnds | OutputDelta | StreamsFenced | Answer
