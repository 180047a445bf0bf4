"""Toy actors, importable by the processes that the tests start."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping
from typing import ClassVar

import msgspec

from tokenspeed.actors.outbox import Outbox
from tokenspeed.actors.runtime import Actor, Announce
from tokenspeed.errors import UserError
from tokenspeed.messages.base import Message


class ToyConfig(msgspec.Struct, frozen=True):
    """What a toy does. `start_error` is raised while starting, from life number `fails_from` on."""

    start_error: str = ""
    start_sleep_s: float = 0.0
    start_limit_s: float = 60.0
    marker: str = ""
    forward_to: str = ""
    takes_s: float = 0.0


class Item(Message, frozen=True):
    """A numbered piece of traffic."""

    number: int
    payload: bytes = b""


class Order(Message, frozen=True):
    """Do `what`."""

    what: str
    number: float = 0


class Report(Message, frozen=True):
    """An answer in words."""

    text: str
    number: int = 0


ToyMessage = Item | Order | Report


class Echo(Actor):
    """Sends each item back, or on to `forward_to`; reports what happens to its peers to `home`."""

    name: ClassVar[str] = "echo"
    receives: ClassVar[Mapping[str, object]] = {
        name: ToyMessage for name in ("home", "a", "b", "c", "left", "right")
    }

    def __init__(self, config: ToyConfig, outbox: Outbox, phase: Announce) -> None:
        self.config = config
        self.outbox = outbox
        self.phase = phase
        self.items = 0
        self.batches = 0

    async def start(self) -> None:
        """Start as the configuration says."""
        if self.config.start_error and self._lives() > 1:
            raise UserError(self.config.start_error, code="toy_error")
        if self.config.start_sleep_s:
            self.phase("loads toys", self.config.start_limit_s)
            await asyncio.sleep(self.config.start_sleep_s)

    def _lives(self) -> int:
        """Count the lives that this actor began, in the marker file; 2 without one."""
        if not self.config.marker:
            return 2
        with open(self.config.marker, "a+b") as file:
            file.write(b".")
            return file.tell()

    def receive(self, sender: str, message: Message) -> None:
        """Echo items and obey orders."""
        match message:
            case Item():
                self.items += 1
                if self.config.takes_s:
                    time.sleep(self.config.takes_s)
                self.outbox.send(self.config.forward_to or sender, message)
            case Order():
                self._obey(sender, message)

    def drained(self) -> None:
        """Count the turns."""
        self.batches += 1

    def peer_restarted(self, peer: str, epoch: int) -> None:
        """Tell the home."""
        self.outbox.send("home", Report(f"peer {peer}", epoch))

    def _obey(self, sender: str, order: Order) -> None:
        match order.what:
            case "raise":
                raise ValueError("told to")
            case "task":
                asyncio.get_running_loop().call_soon(_fail)
            case "block":
                self.phase("works", order.number)
                time.sleep(order.number)
                self.outbox.send(sender, Report("done"))
            case "count":
                self.outbox.send(sender, Report(f"backlog {self.outbox.backlog_bytes}", self.items))
            case "stop yourself":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "flood":
                payload = bytes(1 << 16)
                for number in range(int(order.number)):
                    self.outbox.send(sender, Item(number, payload))
            case "to":
                self.outbox.send("nobody", order)


def _fail() -> None:
    raise RuntimeError("nobody caught this")
