"""A supervised world of toys, for tests."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import uvloop

from tests.actors.toys import TOY, Item, Report, ToyConfig, ToyMessage
from tokenspeed.actors.supervisor import ActorSpec, EdgeSpec, State, Supervisor
from tokenspeed.messages.base import Message

RING_BYTES = 1 << 16
WAIT_S = 10.0


def run(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` as the engine's process does."""
    uvloop.run(main)


def edge(writer: str, *readers: str) -> EdgeSpec:
    """Return a small edge."""
    return EdgeSpec(writer, readers, RING_BYTES)


def to_and_from_home(*names: str) -> list[EdgeSpec]:
    """Return edges that join each of `names` with the home in both directions."""
    return [edge(*ends) for name in names for ends in (("home", name), (name, "home"))]


class World:
    """Toys under a supervisor, and what the home heard of them."""

    def __init__(
        self,
        toys: Mapping[str, ToyConfig],
        edges: Sequence[EdgeSpec],
        *,
        stall_limit_s: float = 5.0,
        start_limit_s: float = 20.0,
    ) -> None:
        self.heard: list[tuple[str, Message | tuple[str, int]]] = []
        self.events: list[str] = []
        self.on_restart: Callable[[str], None] = lambda actor: None
        self.fail_on = -1
        self._news = asyncio.Event()
        specs = [ActorSpec(name, TOY, config, start_limit_s) for name, config in toys.items()]
        receives = dict.fromkeys(toys, ToyMessage)
        self.supervisor = Supervisor(
            specs, edges, "home", stall_limit_s, self._hear, self._restarted, self._event, receives=receives
        )

    async def __aenter__(self) -> Self:
        """Start all toys."""
        await self.supervisor.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop all toys."""
        await self.supervisor.stop()

    def send(self, receiver: str, message: Message) -> None:
        """Send from the home."""
        self.supervisor.outbox.send(receiver, message)

    def items(self, sender: str) -> list[int]:
        """Return the numbers of the items that came from `sender`."""
        return [word.number for name, word in self.heard if name == sender and isinstance(word, Item)]

    def reports(self, sender: str) -> list[Report]:
        """Return the reports that came from `sender`."""
        return [word for name, word in self.heard if name == sender and isinstance(word, Report)]

    def restarts(self) -> list[tuple[str, int]]:
        """Return the restarts that the home was told of."""
        return [word for _, word in self.heard if isinstance(word, tuple)]

    async def until(self, condition: Callable[[], bool], timeout_s: float = WAIT_S) -> None:
        """Wait until `condition` holds."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def until_ready(self, name: str, restarts: int) -> None:
        """Wait until `name` is ready in the life after that many restarts."""
        await self.until(lambda: self._is_ready(name, restarts))

    def pid(self, name: str) -> int:
        """Return the process of `name`."""
        return self.supervisor.health()[name].pid

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to the process of `name`."""
        os.kill(self.pid(name), number)

    def _is_ready(self, name: str, restarts: int) -> bool:
        health = self.supervisor.health()[name]
        return health.state is State.READY and health.restarts == restarts

    def _hear(self, sender: str, message: Message) -> None:
        if isinstance(message, Item) and message.number == self.fail_on:
            raise ValueError("a bug of the home")
        self.heard.append((sender, message))
        self._news.set()

    def _restarted(self, actor: str, epoch: int) -> None:
        self.heard.append((actor, (actor, epoch)))
        self.on_restart(actor)
        self._news.set()

    def _event(self, text: str) -> None:
        self.events.append(text)
        self._news.set()


def gone(pid: int) -> bool:
    """Return whether process `pid` has ended, reaped or not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state in "ZX"


def wait_gone(pids: Sequence[int], timeout_s: float) -> float:
    """Wait until all `pids` have ended; return the seconds that it took."""
    began = time.monotonic()
    while not all(gone(pid) for pid in pids):
        assert time.monotonic() - began < timeout_s, [pid for pid in pids if not gone(pid)]
        time.sleep(0.01)
    return time.monotonic() - began
