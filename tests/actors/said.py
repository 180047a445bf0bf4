"""An outbox that keeps what an actor says, for tests of one actor without processes."""

from __future__ import annotations

import asyncio
from typing import TypeVar

from tokenspeed.actors.outbox import Outbox
from tokenspeed.messages.base import Message

M = TypeVar("M", bound=Message)


class Said(Outbox):
    """Keeps every message with its receiver, in order."""

    def __init__(self) -> None:
        super().__init__(None, lambda: None)
        self.all: list[tuple[str, Message]] = []
        self._news = asyncio.Event()

    def send(self, receiver: str, message: Message) -> None:
        """Keep `message`."""
        self.all.append((receiver, message))
        self._news.set()

    async def first(self) -> None:
        """Return when something was said and enough time has passed for more."""
        await asyncio.wait_for(self._news.wait(), 20)
        await asyncio.sleep(0.05)

    def of(self, kind: type[M]) -> list[M]:
        """Return the messages of one kind."""
        return [message for _, message in self.all if isinstance(message, kind)]


def quiet(text: str, limit_s: float) -> None:
    """Take an announcement."""
