"""What a reply is told in: its outputs, and the whole that they make."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from tokenspeed.errors import EngineError
from tokenspeed.messages.engine import PositionLogprobs

Positions = list[PositionLogprobs]


class OutputLike(Protocol):
    """New text and ids of one reply; the engine's `Output` has this form.

    `finish` is "" while the reply goes on, else "stop" or "length".
    """

    @property
    def text(self) -> str: ...
    @property
    def ids(self) -> list[int]: ...
    @property
    def finish(self) -> str: ...
    @property
    def stop_reason(self) -> str | int | None: ...
    @property
    def prompt_tokens(self) -> int: ...
    @property
    def cached_tokens(self) -> int: ...
    @property
    def completion_tokens(self) -> int: ...
    @property
    def logprobs(self) -> Positions | None: ...
    @property
    def prompt_logprobs(self) -> list[PositionLogprobs | None] | None: ...


class Output(msgspec.Struct, frozen=True):
    """New text of a reply; `finish` is "" until the last one ("stop" or "length").

    The counts are totals so far. `stop_reason` is the stop string or the caller's stop id that ended
    it. `logprobs` has one entry for each of `ids`, if asked for: an id comes then with the first
    character that it shows, and never if a stop string cut all of it off. The first output brings
    `prompt_logprobs`, one for each prompt token, None for the first.
    """

    text: str
    ids: list[int]
    finish: str
    stop_reason: str | int | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    logprobs: list[PositionLogprobs] | None = None
    prompt_logprobs: list[PositionLogprobs | None] | None = None


class Reply(Output, frozen=True):
    """A whole reply: its last output, with the text, the ids and the log-probabilities of all of them."""

    @classmethod
    def of(cls, outputs: Sequence[OutputLike]) -> Reply:
        """Return the reply that `outputs` make; raise `EngineError` if they have no end."""
        if not outputs or not outputs[-1].finish:
            raise cut_short()
        last = outputs[-1]
        scored = any(output.logprobs is not None for output in outputs)
        return cls(
            text="".join(output.text for output in outputs),
            ids=[token for output in outputs for token in output.ids],
            finish=last.finish,
            stop_reason=last.stop_reason,
            prompt_tokens=last.prompt_tokens,
            cached_tokens=last.cached_tokens,
            completion_tokens=last.completion_tokens,
            logprobs=[entry for output in outputs for entry in output.logprobs or ()] if scored else None,
            prompt_logprobs=outputs[0].prompt_logprobs,
        )


def cut_short() -> EngineError:
    """Return what is told of a stream that ends without its finish."""
    return EngineError("The reply ended before it was finished; send the request again.")
