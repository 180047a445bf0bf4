"""How an answer is told: the form that every API's answers come to, whole and in pieces.

Owns the form alone and what all of them do alike. A teller turns outputs into the bodies of an API;
both doors send these.

Invariant: the pieces of a streamed answer join to what the whole one has.
"""

from __future__ import annotations

import secrets
import time
from abc import ABC, abstractmethod
from typing import Any

import msgspec

from tokenspeed.caller import CALLER
from tokenspeed.engine.reply import OutputLike, Reply
from tokenspeed.server.ask import Ask
from tokenspeed.server.opened import Known
from tokenspeed.server.tally import Tally


class ReplyHead(msgspec.Struct, frozen=True):
    """What every piece of one answer repeats."""

    id: str
    created: int
    model: str

    @classmethod
    def new(cls, kind: str, model: str) -> ReplyHead:
        """Return the head of a new answer, whose id begins with `kind`, and tell the caller of the id."""
        ident = f"{kind}-{secrets.token_hex(12)}"
        if (caller := CALLER.get()) is not None:
            caller.trail.answer = ident
        return cls(ident, int(time.time()), model)


class Teller(ABC):
    """Tells the answer to `ask` for a prompt or several, of which `known` is known."""

    id_prefix: str

    def __init__(self, ask: Ask, known: list[Known], model: str) -> None:
        self.ask = ask
        self.known = known
        self.head = ReplyHead.new(self.id_prefix, model)
        self.tally = Tally(len(ask.parts), ask.n)

    @property
    def is_plain(self) -> bool:
        """Whether a piece that brings text brings nothing else."""
        ask = self.ask
        return ask.logprobs is None and not ask.token_ids and not ask.continuous_usage

    def known_of(self, index: int) -> Known:
        """Return what is known of the prompt of choice `index`."""
        return self.known[index // self.ask.n]

    @abstractmethod
    def opening(self) -> list[Any]:
        """Return what is told before the first output."""

    @abstractmethod
    def text(self, index: int, text: str) -> Any:
        """Return the piece that brings `text` alone."""

    @abstractmethod
    def pieces(self, index: int, output: OutputLike) -> list[Any]:
        """Return what is told of one output; the tally has it already."""

    @abstractmethod
    def closing(self) -> list[Any]:
        """Return what is told after the last output."""

    @abstractmethod
    def whole(self, replies: list[Reply]) -> Any:
        """Return the whole answer."""
