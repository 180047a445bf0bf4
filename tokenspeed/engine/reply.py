"""A whole reply, put together from its outputs."""

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


class Reply(msgspec.Struct, frozen=True):
    """A whole reply. `finish` is "stop" or "length"; the other fields are those of `Output`."""

    text: str
    ids: list[int]
    finish: str
    stop_reason: str | int | None
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    logprobs: Positions | None = None
    prompt_logprobs: list[PositionLogprobs | None] | None = None

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
