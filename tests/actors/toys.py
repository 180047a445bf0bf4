"""Toy actors, importable by the processes that the tests start."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

import msgspec

from tokenspeed.actors.outbox import Outbox
from tokenspeed.actors.runtime import Actor, Announce
from tokenspeed.errors import UserError
from tokenspeed.messages.base import Message

TOY = "tests.actors.toys:Toy"


class ToyConfig(msgspec.Struct, frozen=True):
    """What a toy does.

    It counts its lives in the file `lives`, and fails to start with `start_error` from life
    `fails_from` on. From the second on it starts only when the file `gate` exists. It passes items
    to `forward_to`, else back to their sender, each after `item_takes_s`.
    """

    start_error: str = ""
    fails_from: int = 1
    lives: str = ""
    gate: str = ""
    start_sleep_s: float = 0.0
    start_limit_s: float = 60.0
    forward_to: str = ""
    item_takes_s: float = 0.0


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


class Nonsense(Message, frozen=True):
    """Something that nobody expects."""

    number: float


ToyMessage = Item | Order | Report


class Toy(Actor):
    """Passes items on, obeys orders, and reports to the home what happens to its peers."""

    name: ClassVar[str] = "toy"
    in_place: ClassVar[bool] = True
    receives: ClassVar[Mapping[str, object]] = dict.fromkeys(("home", "a", "b", "c"), ToyMessage)

    def __init__(self, config: ToyConfig, outbox: Outbox, phase: Announce) -> None:
        self._config = config
        self._outbox = outbox
        self._phase = phase
        self._items = 0
        self._turns = 0

    async def start(self) -> None:
        """Start as the configuration says."""
        life = self._count_life()
        if self._config.start_error and life >= self._config.fails_from:
            raise UserError(self._config.start_error, code="toy_error")
        if self._config.gate and life > 1:
            self._phase("waits at the gate", self._config.start_limit_s)
            await asyncio.to_thread(_wait_for, Path(self._config.gate))
        if self._config.start_sleep_s:
            self._phase("loads toys", self._config.start_limit_s)
            await asyncio.sleep(self._config.start_sleep_s)

    def receive(self, sender: str, message: Message) -> None:
        """Pass items on and obey orders."""
        match message:
            case Item():
                self._items += 1
                time.sleep(self._config.item_takes_s)
                self._outbox.send(self._config.forward_to or sender, message)
            case Order():
                self._obey(message)

    def drained(self) -> None:
        """Count the turns that brought something."""
        self._turns += 1

    def peer_restarted(self, peer: str, epoch: int) -> None:
        """Tell the home."""
        self._outbox.send("home", Report(f"peer {peer}", epoch))

    async def profile(self, seconds: float, path: Path) -> None:
        """Play for a while; what is below nothing is refused."""
        if seconds < 0:
            raise UserError("toys play forward", code="no_profile")
        await asyncio.sleep(seconds)
        await asyncio.to_thread(path.write_text, "kernels")

    async def stop(self) -> None:
        """Say goodbye where the tests can see it."""
        if self._config.lives:
            Path(self._config.lives).with_suffix(".stopped").touch()

    def _count_life(self) -> int:
        if not self._config.lives:
            return 1
        with Path(self._config.lives).open("a") as file:
            file.write("*")
            return file.tell()

    def _obey(self, order: Order) -> None:
        match order.what:
            case "raise":
                raise ValueError("told to")
            case "fail later":
                asyncio.get_running_loop().call_soon(_fail)
            case "block":
                time.sleep(order.number)
                self._outbox.send("home", Report("blocked"))
            case "block with leave":
                self._phase("works hard", order.number + 1)
                time.sleep(order.number)
                self._outbox.send("home", Report("blocked"))
            case "count":
                self._outbox.send("home", Report("turns", self._turns))
                self._outbox.send("home", Report("items", self._items))
            case "descriptors":
                self._outbox.send("home", Report("descriptors", len(os.listdir("/proc/self/fd"))))
            case "flood":
                for number in range(int(order.number)):
                    self._outbox.send(self._config.forward_to, Item(number, bytes(1 << 16)))
            case "talk nonsense":
                self._outbox.send("home", Nonsense(order.number))
            case "interrupt":
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                    os.kill(os.getpid(), number)
                self._outbox.send("home", Report("interrupted"))


def _wait_for(gate: Path) -> None:
    while not gate.exists():
        time.sleep(0.01)


def _fail() -> None:
    raise RuntimeError("nobody caught this")
