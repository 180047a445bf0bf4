"""The look at every actor, a few times in each stall limit.

Owns the timer. It does not decide what happens to an actor that gives no sign of life. Silence
counts only while this process itself was running: after a suspended machine or a stopped process
group everyone gets the full limit again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from tokenspeed.actors.charge import Charge
from tokenspeed.observe.page import now_us

LOOK_S = 0.25
LOOKS_PER_STALL = 4
OWN_PAUSE_US = 1_000_000  # a look that comes this late says that we were stopped ourselves


class Watch:
    """Looks from `begin` to `end`."""

    def __init__(
        self,
        charges: Collection[Charge],
        stall_limit_s: float,
        on_look: Callable[[], None],
        on_overdue: Callable[[Charge, str], None],
    ) -> None:
        """`on_look` is called at every look, `on_overdue` says what is wrong with an actor."""
        self._charges = charges
        self._stall_limit_us = int(stall_limit_s * 1e6)
        self._pause_s = min(LOOK_S, stall_limit_s / LOOKS_PER_STALL)
        self._on_look = on_look
        self._on_overdue = on_overdue
        self._looked_us = self._awake_since_us = now_us()
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Look now and from now on."""
        self._timer = asyncio.get_running_loop().call_later(self._pause_s, self.begin)
        now = now_us()
        if now - self._looked_us > self._pause_s * 1e6 + OWN_PAUSE_US:
            self._awake_since_us = now
        self._looked_us = now
        self._on_look()
        for charge in self._charges:
            text = charge.overdue(now, self._awake_since_us, self._stall_limit_us)
            if text is not None:
                self._on_overdue(charge, text)

    def end(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
