"""When an actor counts as frozen, and how often it may be started again.

Pure rules over numbers: no clock, no process. An actor that starts must announce its next phase
in time; its loop may be silent meanwhile. A ready one must turn its loop in time. In time means
within the stall limit, or within the longer one that the actor announced for the work at hand.
"""

from __future__ import annotations

from collections import deque
from enum import StrEnum

import msgspec

from tokenspeed.observe.page import StatusLine, Word

RESTARTS_PER_MINUTE_MAX = 6
BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 1.0
WINDOW_S = 60.0
KILL_LIMIT_S = 10.0  # a process that is still there so long after SIGKILL will not go


class State(StrEnum):
    """What an actor is doing, seen from outside."""

    STARTING = "starting"
    READY = "ready"
    FROZEN = "frozen"
    RESTARTING = "restarting"
    DEAD = "dead"
    STOPPED = "stopped"


class ActorHealth(msgspec.Struct, frozen=True):
    """One actor at this moment. `turn_age_s` is the time since its loop last turned (0 without a process)."""

    state: State
    phase: str
    pid: int
    restarts: int
    turn_age_s: float
    error: str = ""


def start_overdue(line: StatusLine, now_us: int, awake_since_us: int, stall_limit_us: int) -> float | None:
    """Return for how many seconds a starting actor announced nothing, if that is over its limit.

    `awake_since_us` is when the caller itself last woke from a pause: silence before it proves nothing.
    """
    return _overdue(line, now_us - max(line[Word.PHASE_US], awake_since_us), stall_limit_us)


def turn_overdue(line: StatusLine, now_us: int, awake_since_us: int, stall_limit_us: int) -> float | None:
    """Return for how many seconds a ready actor's loop did not turn, if that is over its limit."""
    return _overdue(line, now_us - max(line[Word.TURNED_US], awake_since_us), stall_limit_us)


def _overdue(line: StatusLine, silent_us: int, stall_limit_us: int) -> float | None:
    return silent_us / 1e6 if silent_us > max(stall_limit_us, line[Word.LIMIT_US]) else None


class RestartBudget:
    """At most `RESTARTS_PER_MINUTE_MAX` restarts in any minute, each later than the one before."""

    def __init__(self) -> None:
        self._at_s: deque[float] = deque()

    def take(self, now_s: float) -> float | None:
        """Return the seconds to wait before the restart wanted at `now_s`, None if it is one too many."""
        while self._at_s and now_s - self._at_s[0] > WINDOW_S:
            self._at_s.popleft()
        recent = len(self._at_s)
        if recent >= RESTARTS_PER_MINUTE_MAX:
            return None
        self._at_s.append(now_s)
        return min(BACKOFF_FIRST_S * 2 ** (recent - 1), BACKOFF_MAX_S) if recent else 0.0
