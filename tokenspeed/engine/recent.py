"""Which requests of the engine belong to which caller, for the newest callers.

Owns a bounded list. A caller has an id of its own and one that its answer tells; the engine's actors,
their logs and traces know the numbers of requests alone. It keeps no text and no counts.

Invariant: at most `CALLERS_MAX` callers are remembered, whoever asked longest ago is forgotten first.
"""

from __future__ import annotations

from collections import deque

from tokenspeed.caller import CALLER, Trail

CALLERS_MAX = 4096


class RecentCallers:
    """The trails of callers, the newest last."""

    def __init__(self) -> None:
        self._trails: deque[Trail] = deque(maxlen=CALLERS_MAX)

    def note(self, request: int) -> None:
        """Note that `request` was opened for the present caller, if there is one."""
        caller = CALLER.get()
        if caller is None:
            return
        if not caller.trail.requests:
            self._trails.append(caller.trail)
        caller.trail.requests.append(request)

    def find(self, ident: str) -> Trail | None:
        """Return the newest caller with this id, or whose answer has it."""
        return next((trail for trail in reversed(self._trails) if ident in (trail.id, trail.answer)), None)
