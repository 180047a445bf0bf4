"""What a server's stream says: pieces of output, usage, the end.

Owns the reading of one reply's events, each with the time at which it came. It does not know how
they came, nor what was asked.

Invariant: the tokens of all pieces add up to the tokens that the server counted.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal, NamedTuple

import msgspec

DONE = b"[DONE]"
Pieces = list[tuple[float, int]]
TokensFrom = Literal["usage", "chunks", "ids"]


class Details(msgspec.Struct):
    """Where prompt tokens came from."""

    cached_tokens: int | None = None


class Usage(msgspec.Struct):
    """The server's own count."""

    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: Details | None = None


class Delta(msgspec.Struct):
    """New text of a chat reply; reasoning has two names."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[Any] | None = None


class Choice(msgspec.Struct):
    """One choice of a chunk of either API."""

    delta: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    token_ids: list[int] | None = None


class Chunk(msgspec.Struct):
    """One event. What a server adds is skipped."""

    id: str | None = None
    choices: list[Choice] = []
    usage: Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(Chunk).decode


class Event(NamedTuple):
    """One event with a choice in it: did it bring output, the tokens counted up to it, the ids in it."""

    at_s: float
    output: bool
    counted: int | None
    ids: int | None


class Reply:
    """One reply, as far as it has come."""

    def __init__(self) -> None:
        self.id: str | None = None
        self.finish = ""
        self.error: str | None = None
        self.usage = Usage()
        self.done = False
        self.pieces = 0
        self._text: list[str] = []
        self._events: list[Event] = []

    @property
    def text(self) -> str:
        """What the assistant said, without its reasoning."""
        return "".join(self._text)

    def take(self, at_s: float, data: bytes) -> None:
        """Read the event `data`, which came at `at_s`."""
        if data == DONE:
            self.done = True
            return
        try:
            chunk = _decode(data)
        except msgspec.DecodeError as error:
            self.error = self.error or f"an event is not a chunk of OpenAI's API: {error}"
            return
        self.id = self.id or chunk.id
        self.usage = chunk.usage or self.usage
        if chunk.error is not None:
            self.error = self.error or message(chunk.error)
        if chunk.choices:
            self._take_choice(at_s, chunk.choices[0], chunk.usage or Usage())

    def _take_choice(self, at_s: float, choice: Choice, usage: Usage) -> None:
        self.finish = choice.finish_reason or self.finish
        delta = choice.delta or Delta()
        if said := delta.content or choice.text:
            self._text.append(said)
        output = bool(said or delta.reasoning_content or delta.reasoning or delta.tool_calls or choice.token_ids)
        self.pieces += output
        ids = None if choice.token_ids is None else len(choice.token_ids)
        self._events.append(Event(at_s, output, usage.completion_tokens, ids))

    def chunks(self) -> tuple[Pieces, TokensFrom]:
        """Return (seconds, tokens) of each piece, and who counted; exact where every piece told its tokens."""
        outputs = [event for event in self._events if event.output]
        total = self.usage.completion_tokens
        if outputs and all(event.ids is not None for event in outputs):
            pieces = [(event.at_s, event.ids or 0) for event in self._events if event.output or event.ids]
            return topped_up(pieces, total), "ids"
        if outputs and all(event.counted is not None for event in outputs):
            return topped_up(grown(self._events), total), "usage"
        if total is not None:
            return spread([event.at_s for event in outputs or self._events[-1:]], total), "usage"
        return [(event.at_s, 1) for event in outputs], "chunks"


def grown(events: list[Event]) -> Pieces:
    """Return the pieces of events that tell the tokens so far; tokens without text make a piece too."""
    counts = [0]
    for event in events:
        counts.append(max(counts[-1], event.counted or 0))
    steps = [after - before for before, after in pairwise(counts)]
    return [(event.at_s, step) for event, step in zip(events, steps, strict=True) if event.output or step]


def spread(times_s: list[float], total: int) -> Pieces:
    """Return pieces at `times_s` that share `total` tokens as evenly as whole numbers go."""
    ends = [total * number // len(times_s) for number in range(len(times_s) + 1)] if times_s else []
    return [(at_s, after - before) for at_s, (before, after) in zip(times_s, pairwise(ends), strict=True)]


def topped_up(pieces: Pieces, total: int | None) -> Pieces:
    """Return `pieces` with what the last count has more than they do in the last one: an end that has no text."""
    missing = (total or 0) - sum(tokens for _, tokens in pieces)
    if missing <= 0:
        return pieces
    at_s, tokens = pieces[-1]
    return [*pieces[:-1], (at_s, tokens + missing)]


def message(error: Any) -> str:
    """Return the text of an `error` object in whatever form."""
    text = error.get("message") if isinstance(error, dict) else error
    return str(text or error)[:500]
