"""What the detokenizer receives."""

from __future__ import annotations

import msgspec

from tokenspeed.messages.base import Message
from tokenspeed.messages.scheduler import StreamSettings


class PromptTimes(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """When the scheduler had a prompt's tokens, first planned to compute them, and knew the first new id.

    Microseconds of the machine's monotonic clock, in the newest life of the scheduler.
    """

    submitted_us: int
    admitted_us: int
    first_us: int


class StreamOpening(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Comes with the first ids of a stream. `cached_tokens` of the prompt were found in the cache.

    `prompt_logprobs` are the packed entries of all prompt ids but the first (`messages/logprobs.py`),
    if asked for; empty after a restart that came behind the first output.
    """

    settings: StreamSettings
    cached_tokens: int
    prompt_logprobs: bytes = b""
    times: PromptTimes | None = None


class TokenEntry(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """New ids of one request: `first` is the output index of the first of `ids` (int32 bytes).

    An entry may repeat ids that were sent before (after a restart); `first` tells. `finish` is
    "length" or "stop" when the scheduler ended the request with the last id; on "stop" that id is
    an end id and not shown. `logprobs` has an entry for each of `ids` if they are asked for, zeros
    for those of an earlier scheduler life, which have been delivered.
    """

    request: int
    first: int
    ids: bytes
    finish: str = ""
    opening: StreamOpening | None = None
    logprobs: bytes = b""


class TokenBatch(Message, frozen=True):
    """The new ids of one step."""

    step: int
    entries: list[TokenEntry]


class DropStream(Message, frozen=True):
    """`request` was cancelled: forget its stream without a word."""

    request: int


DetokenizerMessage = TokenBatch | DropStream
