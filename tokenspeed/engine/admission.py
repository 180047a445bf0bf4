"""How many requests may be open, and how many bytes of prompts they may hold.

Owns the two counts. A request counts from its opening to its end: until then its prompt is kept, to
be sent again should an actor die. It knows no streams and no actors.

Invariant: what is counted is within the limits, but that one request is always let in.
"""

from __future__ import annotations

from tokenspeed.errors import EngineError
from tokenspeed.messages.tokenizer import Chat, Ids, Prompt


class Admission:
    """Lets requests in: at most `requests_max` at once, with prompts of at most `bytes_max` bytes."""

    def __init__(self, requests_max: int, bytes_max: int) -> None:
        self.requests_max = requests_max
        self._bytes_max = bytes_max
        self.requests = 0
        self.bytes = 0

    def enter(self, prompt: Prompt) -> None:
        """Count a request, or raise `EngineError` (429, code "overloaded") if there are too many."""
        size = prompt_bytes(prompt)
        if self.requests >= self.requests_max:
            raise _overloaded(f"{self.requests} requests are open, as many as are taken (--max-queued-requests)")
        if self.requests and self.bytes + size > self._bytes_max:
            raise _overloaded(
                f"The open requests hold {self.bytes} bytes of prompts, and this one has {size}; "
                f"{self._bytes_max} are taken (--max-queued-bytes)"
            )
        self.requests += 1
        self.bytes += size

    def leave(self, prompt: Prompt) -> None:
        """Count a request no more."""
        self.requests -= 1
        self.bytes -= prompt_bytes(prompt)


def prompt_bytes(prompt: Prompt) -> int:
    """Return about how much memory `prompt` takes."""
    match prompt:
        case Chat():
            return len(prompt.messages)
        case Ids():
            return len(prompt.ids)
        case _:
            return len(prompt.text)


def _overloaded(seen: str) -> EngineError:
    return EngineError(f"{seen}; send the request again later.", status=429, code="overloaded")
