"""Who asks: what a door knows of a call, at hand wherever the engine works for it.

Owns the name of the call and the account of its replies, for the one line that the log gets of it.
A door sets `CALLER` in the task of a call; each reply opened there enters its account at its end.
The engine asks nothing else of it: without a caller, as from Python, nothing is counted.

Invariant: text of a user enters the account only where `keep_text` says so.
"""

from __future__ import annotations

from contextvars import ContextVar

import msgspec


class Account(msgspec.Struct, frozen=True):
    """What one reply took. `first_s` is from its request to its first token, None if none came."""

    finish: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    first_s: float | None
    duration_s: float
    prompt: str = ""
    text: str = ""


class Caller(msgspec.Struct):
    """One call: its id, the name of the key that it came with, and the replies made for it so far.

    `received_ns` is when it came, on the monotonic clock.
    """

    id: str
    key: str = ""
    keep_text: bool = False
    received_ns: int = 0
    replies: list[Account] = []

    def fields(self) -> dict[str, object]:
        """Return the call for the log: counts summed over its replies, times of the slowest one."""
        named: dict[str, object] = {"id": self.id, **({"key": self.key} if self.key else {})}
        replies = self.replies
        if not replies:
            return named
        named["prompt_tokens"] = sum(reply.prompt_tokens for reply in replies)
        named["cached_tokens"] = sum(reply.cached_tokens for reply in replies)
        named["completion_tokens"] = sum(reply.completion_tokens for reply in replies)
        firsts = [reply.first_s for reply in replies if reply.first_s is not None]
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
