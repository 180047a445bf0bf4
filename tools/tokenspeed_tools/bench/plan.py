"""What is to be sent: sessions of turns, and when.

Owns the vocabulary of a load. It knows no server and no clock: a plan is drawn from a seed before
anything is sent, and only a session's replies are filled in later.

Invariant: the same workload and seed give the same plan.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

Message = dict[str, str]
Arrival = Literal["poisson", "constant"]


class PlanError(ValueError):
    """Options or a file of which no plan can be made; the text says why and what to do."""


class Turn(msgspec.Struct, frozen=True):
    """What is added to the conversation, and how long the user waits before.

    `prompt_tokens` is how many tokens the prompt grows by, reply of the turn before aside; `wait_s` seconds
    from the end of that reply, or from the session's start.
    """

    messages: list[Message]
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    wait_s: float = 0.0


class Session(msgspec.Struct, frozen=True):
    """Turns one after the other. `at_s`: the run's second of its start; None where it follows another one."""

    index: int
    turns: Sequence[Turn]
    at_s: float | None = None


class Plan(msgspec.Struct, frozen=True):
    """`at_once` sessions are kept open until all are done; None where each has its own start."""

    sessions: Sequence[Session]
    at_once: int | None

    @property
    def requests(self) -> int:
        """How many requests it means."""
        return sum(len(session.turns) for session in self.sessions)

    @property
    def tokens_most(self) -> int:
        """The longest conversation, replies included, as far as its tokens are planned."""
        lengths = [
            sum((turn.prompt_tokens or 0) + (turn.output_tokens or 0) for turn in session.turns)
            for session in self.sessions
        ]
        return max(lengths, default=0)


def user(text: str) -> Message:
    """Return a message of the user."""
    return {"role": "user", "content": text}


def arrivals(rng: random.Random, rate: float, kind: Arrival, count: int) -> list[float]:
    """Return `count` seconds at which requests come, `rate` a second on average, the first one at 0."""
    gaps = [rng.expovariate(rate) if kind == "poisson" else 1 / rate for _ in range(count - 1)]
    return running_sums(gaps)


def running_sums(gaps: Iterable[float]) -> list[float]:
    """Return 0 and the sums of ever more of `gaps`."""
    sums = [0.0]
    for gap in gaps:
        sums.append(sums[-1] + gap)
    return sums
