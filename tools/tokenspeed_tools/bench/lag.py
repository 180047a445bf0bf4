"""Whether the client itself keeps up: how late its event loop is, and how busy its one thread.

Owns a timer that notes by how much it fires too late, and the arithmetic on processor time. A client
that is late stamps late, and its figures would blame the server.

Invariant: a delay of the loop that is longer than a period is seen.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left

from tokenspeed_tools.bench.http import now

PERIOD_S = 0.01
NOTED_S = 0.001  # timers of uvloop count whole milliseconds; less than this is theirs


class LoopWatch:
    """Watches the running loop from `start` to `stop`."""

    def __init__(self) -> None:
        self._at_s: list[float] = []
        self._late_s: list[float] = []
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin."""
        loop = asyncio.get_running_loop()
        due_s = now() + PERIOD_S
        self._timer = loop.call_later(PERIOD_S, self._fired, loop, due_s)

    def stop(self) -> None:
        """End."""
        if self._timer is not None:
            self._timer.cancel()

    def marks(self) -> tuple[float, float]:
        """Return the time and this thread's processor time, in seconds."""
        return now(), time.thread_time()

    def worst_s(self, since_s: float) -> float:
        """Return the longest delay that was noted since `since_s`, 0 if none was."""
        return max(self._late_s[bisect_left(self._at_s, since_s) :], default=0.0)

    def busy(self, since: tuple[float, float]) -> float:
        """Return the share of the time since the marks `since` that this thread computed, 0 to 1."""
        at_s, computed_s = self.marks()
        passed_s = at_s - since[0]
        return round(min((computed_s - since[1]) / passed_s, 1.0), 3) if passed_s > 0 else 0.0

    def _fired(self, loop: asyncio.AbstractEventLoop, due_s: float) -> None:
        at_s = now()
        if at_s - due_s > NOTED_S:
            self._at_s.append(at_s)
            self._late_s.append(at_s - due_s)
        self._timer = loop.call_later(PERIOD_S, self._fired, loop, at_s + PERIOD_S)
