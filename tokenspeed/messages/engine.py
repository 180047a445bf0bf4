"""What the engine (the process of the doors) receives."""

from __future__ import annotations

import msgspec

from tokenspeed.errors import ErrorInfo
from tokenspeed.messages.base import Message


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
    """One position: the token that stands there, its rank (1: the likeliest), and the likeliest ones in order."""

    token: TokenLogprob
    rank: int
    top: list[TokenLogprob]


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
    kept tokens. `logprobs` has one entry for each of `ids`, if asked for; the first delta brings
    `prompt_logprobs`, one for each prompt token, None for the first.
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


class StreamsFenced(Message, frozen=True):
    """From the detokenizer after a scheduler restart: every delta of the old life came before this."""

    scheduler_epoch: int


class CacheFlushed(Message, frozen=True):
    """Answer to `FlushCache`."""

    call: int
    pages_freed: int


class SchedulerStats(Message, frozen=True):
    """Answer to `AskStats`. Pages are summed over cache groups."""

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


EngineMessage = Accepted | Refused | ModelEnds | OutputDelta | StreamsFenced | CacheFlushed | SchedulerStats
