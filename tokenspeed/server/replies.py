"""What a chat reply looks like, whole and in chunks.

Owns ids, objects and field order of the answers; both doors send these. A chunk of the HTTP stream
is glued from parts that are built once for each request, so that a token costs one string encoding.

Invariant: the chunks of `JsonChunks` decode to what `ChatChunk` encodes.
"""

from __future__ import annotations

import secrets
import time
from typing import Any

import msgspec

from tokenspeed.errors import EngineError
from tokenspeed.server.ports import OutputLike, StreamLike


class PromptDetails(msgspec.Struct, frozen=True):
    """`cached_tokens` of the prompt were found in the cache."""

    cached_tokens: int


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one reply; only kept tokens count."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails


class ReplyMessage(msgspec.Struct, frozen=True):
    """The reply of a whole answer."""

    role: str
    content: str


class Choice(msgspec.Struct, frozen=True):
    """The one choice of a whole answer; `stop_reason` is the stop string that matched."""

    index: int
    message: ReplyMessage
    logprobs: None
    finish_reason: str
    stop_reason: str | int | None


class ChatCompletion(msgspec.Struct, frozen=True):
    """A whole answer."""

    id: str
    object: str
    created: int
    model: str
    choices: list[Choice]
    usage: Usage


class ChunkChoice(msgspec.Struct, frozen=True):
    """The one choice of a chunk."""

    index: int
    delta: dict[str, str]
    logprobs: None
    finish_reason: str | None
    stop_reason: str | int | msgspec.UnsetType | None = msgspec.UNSET


class ChatChunk(msgspec.Struct, frozen=True):
    """A piece of a streamed answer; the usage, when asked for, comes with no choice."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChunkChoice]
    usage: Usage | msgspec.UnsetType = msgspec.UNSET


class ReplyHead(msgspec.Struct, frozen=True):
    """What every piece of one reply repeats."""

    id: str
    created: int
    model: str

    @classmethod
    def new(cls, model: str) -> ReplyHead:
        """Return the head of a new reply."""
        return cls(f"chatcmpl-{secrets.token_hex(12)}", int(time.time()), model)

    def chunk(self, choices: list[ChunkChoice], usage: Usage | msgspec.UnsetType = msgspec.UNSET) -> ChatChunk:
        """Return a chunk of this reply."""
        return ChatChunk(self.id, "chat.completion.chunk", self.created, self.model, choices, usage)

    def delta(self, **delta: str) -> ChatChunk:
        """Return a chunk that goes on with the reply."""
        return self.chunk([ChunkChoice(0, delta, None, None)])

    def finish(self, last: OutputLike) -> ChatChunk:
        """Return the chunk that says why the reply ends."""
        return self.chunk([ChunkChoice(0, {}, None, last.finish, last.stop_reason)])

    def usage(self, last: OutputLike) -> ChatChunk:
        """Return the extra chunk with the usage."""
        return self.chunk([], usage_of(last))

    def whole(self, text: str, last: OutputLike) -> ChatCompletion:
        """Return the whole answer; `last` is the reply's last output."""
        choice = Choice(0, ReplyMessage("assistant", text), None, last.finish, last.stop_reason)
        return ChatCompletion(self.id, "chat.completion", self.created, self.model, [choice], usage_of(last))


class JsonChunks:
    """The chunks of one reply as server-sent events."""

    def __init__(self, head: ReplyHead) -> None:
        self._head = head
        self._encode = msgspec.json.Encoder().encode
        mark = "-"
        before, after = event(head.delta(content=mark)).rsplit(self._encode(mark), 1)
        self._before, self._after = before, after

    def role(self) -> bytes:
        """Return the first event."""
        return event(self._head.delta(role="assistant", content=""))

    def text(self, text: str) -> bytes:
        """Return the event that brings `text`."""
        return b"".join((self._before, self._encode(text), self._after))

    def end(self, last: OutputLike, include_usage: bool) -> bytes:
        """Return the events that end the reply, `[DONE]` included."""
        usage = event(self._head.usage(last)) if include_usage else b""
        return event(self._head.finish(last)) + usage + DONE


DONE = b"data: [DONE]\n\n"


def event(data: Any) -> bytes:
    """Return `data` as one server-sent event."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


def usage_of(last: OutputLike) -> Usage:
    """Return the usage of a reply whose last output is `last`."""
    total = last.prompt_tokens + last.completion_tokens
    return Usage(last.prompt_tokens, last.completion_tokens, total, PromptDetails(last.cached_tokens))


async def collect(stream: StreamLike) -> tuple[str, OutputLike]:
    """Return the text of a whole reply and its last output."""
    parts = []
    async for output in stream:
        parts.append(output.text)
        if output.finish:
            return "".join(parts), output
    raise cut_short()


def cut_short() -> EngineError:
    """Return what is told of a stream that ends without its finish."""
    return EngineError("The reply ended before it was finished; send the request again.")
