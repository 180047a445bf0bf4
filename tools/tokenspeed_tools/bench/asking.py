"""How a request is put to the server: the API, and which optional fields it takes.

Owns the body. It does not know when it is sent, nor what the answer is like.

Invariant: every request of a run has the same fields; only conversation and length differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from tokenspeed_tools.bench.plan import Message
from tokenspeed_tools.bench.raw import Api

UsageWanted = Literal["each", "end", "none"]

PATHS: dict[Api, str] = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


class Asking(msgspec.Struct, frozen=True):
    """`usage`: counts with each piece, in the end, or not asked for; `extra` goes into the body as it is."""

    api: Api
    model: str
    temperature: float = 0.0
    ignore_eos: bool = True
    usage: UsageWanted = "end"
    extra: dict[str, Any] = {}

    @property
    def path(self) -> str:
        """Where it is sent."""
        return PATHS[self.api]

    def body(self, conversation: Sequence[Message], output_tokens: int | None) -> dict[str, Any]:
        """Return the body of a streamed request."""
        body: dict[str, Any] = {"model": self.model, "stream": True, "temperature": self.temperature}
        if self.api == "chat":
            body["messages"] = conversation
        else:
            body["prompt"] = as_text(conversation)
        if output_tokens is not None:
            body["max_tokens"] = output_tokens
        if self.ignore_eos:
            body["ignore_eos"] = True
        if self.usage != "none":
            options = {"include_usage": True}
            body["stream_options"] = options if self.usage == "end" else {**options, "continuous_usage_stats": True}
        return {**body, **self.extra}


def as_text(conversation: Sequence[Message]) -> str:
    """Return a conversation as one text: a reply follows its prompt at once, what a user says a space."""
    text = ""
    for message in conversation:
        text += message["content"] if not text or message["role"] == "assistant" else f" {message['content']}"
    return text


def simpler(asking: Asking) -> list[tuple[Asking, dict[str, str]]]:
    """Return what to try when a server refuses optional fields, with the note on each; the fewest losses first."""
    tries: list[tuple[Asking, dict[str, str]]] = [(asking, {})]
    no_each = {"client.usage": "only in the end: the server refuses continuous_usage_stats"}
    no_eos = {"client.ignore_eos": "not sent: the server refuses it; replies may end early"}
    no_usage = {"client.usage": "none: the server refuses stream_options"}
    ends = msgspec.structs.replace(asking, usage="end")
    if asking.usage == "each":
        tries.append((ends, no_each))
    if asking.ignore_eos:
        tries.append((msgspec.structs.replace(asking, ignore_eos=False), no_eos))
        if asking.usage == "each":
            tries.append((msgspec.structs.replace(ends, ignore_eos=False), no_each | no_eos))
    if asking.usage != "none":
        bare = msgspec.structs.replace(asking, usage="none")
        tries.append((bare, no_usage))
        if asking.ignore_eos:
            tries.append((msgspec.structs.replace(bare, ignore_eos=False), no_usage | no_eos))
    return tries
