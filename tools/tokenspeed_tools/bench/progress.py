"""How a run is going, for the person who waits.

Owns the counts of a run so far and the line that tells them. It measures nothing that is recorded.

Invariant: a log gets a line now and then, a terminal one that is drawn over.
"""

from __future__ import annotations

import asyncio
from collections import deque
from statistics import median

from tokenspeed.cli.screen import Screen
from tokenspeed_tools.bench.ask import Ask
from tokenspeed_tools.bench.http import now
from tokenspeed_tools.bench.raw import Request

DRAW_S = 0.25
LOG_S = 10.0
RATE_OVER = 20  # drawings that tokens a second are counted over: five seconds on a terminal


class Progress:
    """Tells of one plan of `total` requests; `running` are those under way."""

    def __init__(self, screen: Screen, name: str, total: int, running: set[Ask], *, terminal: bool) -> None:
        self._screen = screen
        self._name = name
        self._total = total
        self._running = running
        self._period_s = DRAW_S if terminal else LOG_S
        self._done = 0
        self._failed = 0
        self._tokens = 0
        self._ttfts_s: list[float] = []
        self._seen: deque[tuple[float, int]] = deque([(now(), 0)], maxlen=RATE_OVER)

    def take(self, request: Request) -> None:
        """Count a request that ended."""
        self._done += 1
        self._failed += request.error is not None
        self._tokens += request.output_tokens
        if request.first_token_s is not None:
            self._ttfts_s.append(request.first_token_s - request.sent_s)

    async def tell(self) -> None:
        """Tell until cancelled."""
        while True:
            await asyncio.sleep(self._period_s)
            self._screen.progress(self.line())

    def line(self) -> str:
        """Return the present state in one line; pieces that have come count as tokens."""
        tokens = self._tokens + sum(ask.reply.pieces for ask in self._running)
        at_s, (since_s, before) = now(), self._seen[0]
        self._seen.append((at_s, tokens))
        parts = [f"{self._name} {self._done}/{self._total} requests", f"{len(self._running)} running"]
        if at_s > since_s:
            parts.append(f"{max(0, tokens - before) / (at_s - since_s):.0f} tokens/s")
        if self._ttfts_s:
            parts.append(f"TTFT {median(self._ttfts_s) * 1e3:.0f} ms")
        if self._failed:
            parts.append(f"{self._failed} FAILED")
        return ", ".join(parts)
