"""Who asks: what a door knows of a call, at hand wherever the engine works for it.

Owns the name of the call and the account of its replies, for the one line that the log gets of it.
A door sets `CALLER` in the task of a call; each reply opened there enters its account at its end.
The engine asks nothing else of it: without a caller, as from Python, nothing is counted.

Invariant: text of a user enters the account only where `keep_text` says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextvars import ContextVar

import msgspec

from tokenspeed.messages.detokenizer import PromptTimes
from tokenspeed.sampling import SamplingParams


class Account(msgspec.Struct, frozen=True):
    """What one reply took. `first_s` is from its request to its first token, None if none came.

    `begun_s` is when it was asked for, of the machine's monotonic clock; `times` are the scheduler's.
    `request` is its number in the engine.
    """

    finish: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    first_s: float | None
    duration_s: float
    prompt: str = ""
    text: str = ""
    begun_s: float = 0.0
    times: PromptTimes | None = None
    sampling: SamplingParams | None = None
    request: int = 0


class Trail(msgspec.Struct):
    """The id of a call, the id that its answer tells ("" if it has none), the engine's numbers for its replies."""

    id: str
    answer: str = ""
    requests: list[int] = []


class TraceContext(msgspec.Struct, frozen=True):
    """The W3C trace context that a call came with: the headers as they were, "" if there was none."""

    parent: str = ""
    state: str = ""

    @property
    def id(self) -> str:
        """The trace's id, "" if there is none."""
        return self.parent.split("-")[1] if self.parent else ""


NO_CONTEXT = TraceContext()
STATE_CHARS_MAX = 512
_PARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def trace_context(parent: str | None, state: str | None) -> TraceContext:
    """Return what the headers traceparent and tracestate say; none if the first is missing or malformed.

    https://www.w3.org/TR/trace-context/
    """
    if not parent or not _PARENT.fullmatch(parent):
        return NO_CONTEXT
    return TraceContext(parent, state if state and len(state) <= STATE_CHARS_MAX else "")


class Caller:
    """One call: its id, the name of the key that it came with, and the replies made for it so far.

    `received_ns` is when it came, on the monotonic clock.
    """

    def __init__(
        self,
        ident: str,
        *,
        key: str = "",
        keep_text: bool = False,
        received_ns: int = 0,
        replies: Sequence[Account] = (),
        context: TraceContext = NO_CONTEXT,
    ) -> None:
        self.id = ident
        self.key = key
        self.keep_text = keep_text
        self.received_ns = received_ns
        self.replies = list(replies)
        self.context = context
        self.trail = Trail(ident)

    def fields(self) -> dict[str, object]:
        """Return the call for the log: counts summed over its replies, times of the slowest one."""
        named: dict[str, object] = {"id": self.id, **({"key": self.key} if self.key else {})}
        if self.context.parent:
            named["trace_id"] = self.context.id
        if self.trail.requests:
            named["request"] = ",".join(map(str, self.trail.requests))
        replies = self.replies
        if not replies:
            return named
        named["prompt_tokens"] = sum(reply.prompt_tokens for reply in replies)
        named["cached_tokens"] = sum(reply.cached_tokens for reply in replies)
        named["completion_tokens"] = sum(reply.completion_tokens for reply in replies)
        firsts = [reply.first_s for reply in replies if reply.first_s is not None]
        if queues := [(times.admitted_us - times.submitted_us) / 1e3 for reply in replies if (times := reply.times)]:
            named["queue_ms"] = round(max(queues), 1)
        if firsts:
            named["ttft_ms"] = round(max(firsts) * 1e3, 1)
        if pauses := [pause for reply in replies if (pause := _per_token_s(reply)) is not None]:
            named["tpot_ms"] = round(max(pauses) * 1e3, 2)
        named["finish"] = ",".join(reply.finish for reply in replies)
        if self.keep_text:
            named["prompt"] = [reply.prompt for reply in replies]
            named["reply"] = [reply.text for reply in replies]
        return named


CALLER: ContextVar[Caller | None] = ContextVar("caller", default=None)


def _per_token_s(reply: Account) -> float | None:
    """Return the time per output token after the first one."""
    if reply.first_s is None or reply.completion_tokens < 2:
        return None
    return (reply.duration_s - reply.first_s) / (reply.completion_tokens - 1)
