"""Sends a plan: so many sessions at once, or each at its time.

Owns the clock of a run, the order of sending, and the sessions' histories, in which the server's real
replies stand. It does not know how a request is put, nor what becomes of the lines.

Invariant: every request of the plan that was begun ends as one line, also when the run is cut short;
turns behind a failed one end as lines that were not sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count

from tokenspeed_tools.bench.ask import Ask, Place, not_sent
from tokenspeed_tools.bench.asking import Asking
from tokenspeed_tools.bench.client import Client
from tokenspeed_tools.bench.http import now
from tokenspeed_tools.bench.lag import LoopWatch
from tokenspeed_tools.bench.plan import Message, Plan, Session, Turn
from tokenspeed_tools.bench.raw import INTERRUPTED, Request

Take = Callable[[Request], None]


class Driver:
    """Runs plans against one server; `take` gets each line, `limit_s` is the longest that a
    request may last, `begin_s` the second of `now` that times count from.
    """

    def __init__(
        self, client: Client, asking: Asking, watch: LoopWatch, take: Take, limit_s: float, begin_s: float
    ) -> None:
        self.running: set[Ask] = set()
        self._client = client
        self._asking = asking
        self._watch = watch
        self._take = take
        self._limit_s = limit_s
        self._begin_s = begin_s
        self._indices = count()

    async def run(self, plan: Plan, *, warmup: bool) -> None:
        """Send all of `plan`; return when everything has ended."""
        start_s = now()
        if plan.at_once is None:
            jobs = [self._at_its_time(session, start_s, warmup) for session in plan.sessions]
        else:
            waiting = iter(plan.sessions)
            jobs = [self._one_after_another(waiting, warmup) for _ in range(min(plan.at_once, len(plan.sessions)))]
        async with asyncio.TaskGroup() as group:
            for job in jobs:
                group.create_task(job)

    async def _one_after_another(self, waiting: Iterator[Session], warmup: bool) -> None:
        for session in waiting:
            await self._session(session, now(), warmup)

    async def _at_its_time(self, session: Session, start_s: float, warmup: bool) -> None:
        await self._session(session, start_s + (session.at_s or 0.0), warmup)

    async def _session(self, session: Session, due_s: float, warmup: bool) -> None:
        """Send the turns of `session`, the first one at `due_s` or later."""
        history: list[Message] = []
        before: Request | None = None
        for number, turn in enumerate(session.turns):
            due_s += turn.wait_s
            await asyncio.sleep(due_s - now())
            place = Place(next(self._indices), session.index, number, warmup, due_s)
            if before is not None and before.error is not None:
                self._take(not_sent(place, self._begin_s))
                continue
            history += turn.messages
            before, reply = await self._turn(place, turn, history, _asked(turn, before))
            history.append({"role": "assistant", "content": reply})
            due_s = self._begin_s + before.end_s

    async def _turn(self, place: Place, turn: Turn, history: list[Message], asked: int | None) -> tuple[Request, str]:
        ask = Ask(place, self._begin_s, self._watch)
        self.running.add(ask)
        error: str | None = INTERRUPTED
        try:
            error = await ask.run(self._client, self._asking, history, turn.output_tokens, self._limit_s)
        finally:
            self.running.discard(ask)
            line = ask.record(error, asked, turn.output_tokens)
            self._take(line)
        return line, ask.reply.text


def _asked(turn: Turn, before: Request | None) -> int | None:
    """Return how many tokens the prompt should have: what was seen before, the reply, and what is new."""
    if before is None:
        return turn.prompt_tokens
    if turn.prompt_tokens is None or before.prompt_tokens is None:
        return None
    return before.prompt_tokens + before.output_tokens + turn.prompt_tokens
