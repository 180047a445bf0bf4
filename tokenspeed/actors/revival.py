"""Fresh edges for an actor that begins a new life, in an order that loses nothing said for it.

Owns the epoch. One actor at a time: a second one waits until the first has its edges. The home reads
first what the old life had still said to it: others may have acted on it and will not say it again.
What a survivor says in the new epoch is read by the home only after `on_restart`, since the home
reads nothing in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from tokenspeed.actors.charge import Charge
from tokenspeed.actors.control import Swap
from tokenspeed.actors.edges import EdgeSpec, EdgeTable, split_ends
from tokenspeed.actors.mailbox import Mailbox

FIRST_EPOCH = 1

OnRestart = Callable[[str, int], None]


class Revival:
    """Swaps edges among `charges` and the home, whose end is `mailbox`."""

    def __init__(
        self, edges: EdgeTable, charges: Iterable[Charge], home: str, mailbox: Mailbox, on_restart: OnRestart
    ) -> None:
        self._edges = edges
        self._charges = charges
        self._home = home
        self._mailbox = mailbox
        self._on_restart = on_restart
        self._epoch = FIRST_EPOCH
        self._serial = 0
        self._one_at_a_time = asyncio.Lock()

    async def renew_edges(self, restarted: str) -> None:
        """Replace every edge of `restarted`, whose process is gone, and tell everyone at their other ends."""
        async with self._one_at_a_time:
            self._epoch += 1
            touched = self._edges.renew(restarted, self._epoch)
            self._mailbox.pause()
            self._mailbox.drain(restarted)
            try:
                await self._swap_survivors(touched, restarted)
                self._mailbox.install(self._edges.ends(self._home, touched))
                self._on_restart(restarted, self._epoch)
            finally:
                self._mailbox.resume()

    async def _swap_survivors(self, touched: Sequence[EdgeSpec], restarted: str) -> None:
        """Hand out fresh ends.

        An actor that is starting takes them before it reads: no need to wait for it. One that has no
        process now gets them at its launch, and is told then.
        """
        waits = []
        for charge in self._charges:
            life = charge.running_life
            ends = self._edges.ends(charge.name, touched)
            if charge.name == restarted:
                charge.missed.clear()  # these ends are fresh for it too
                continue
            if not ends:
                continue
            if life is None:
                charge.missed.append((restarted, self._epoch))
                continue
            self._serial += 1
            grants, descriptors = split_ends(ends)
            done = life.swap(Swap(self._serial, restarted, self._epoch, grants), descriptors)
            if life.opened:
                waits.append(done)
        if waits:
            await asyncio.wait(waits)
