"""Steps counted by their time and by their tokens.

Owns two lists of counts, one for each bucket of `messages/engine.py`; what lies above all bounds is
counted last. It knows no request.

Invariant: every step is counted once when it is planned and at most once when it is done.
"""

from __future__ import annotations

from bisect import bisect_left

from tokenspeed.messages.engine import STEP_TIMES_US, STEP_TOKENS


class StepCounts:
    """`times` counts steps that are done, `tokens` those that were planned."""

    def __init__(self) -> None:
        self.times = [0] * (len(STEP_TIMES_US) + 1)
        self.tokens = [0] * (len(STEP_TOKENS) + 1)

    def planned(self, tokens: int) -> None:
        """Count a step of so many tokens."""
        self.tokens[bisect_left(STEP_TOKENS, tokens)] += 1

    def done(self, step_us: int) -> None:
        """Count a step that took so long."""
        self.times[bisect_left(STEP_TIMES_US, step_us)] += 1
