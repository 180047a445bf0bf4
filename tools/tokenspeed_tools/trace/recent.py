"""What happened in the last few seconds: amounts with their times, and what they come to.

Owns the forgetting. It does not know what is counted.

Invariant: nothing older than the window counts, and memory is bounded by what comes in one window.
"""

from __future__ import annotations

from collections import deque


class Recent:
    """Amounts of the last `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._amounts: deque[tuple[int, int]] = deque()

    def add(self, time_ns: int, amount: int = 1) -> None:
        """Note `amount` at `time_ns`, which is about as late as what was noted before."""
        self._amounts.append((time_ns, amount))

    def amounts(self, now_ns: int) -> list[int]:
        """Return the amounts that still count at `now_ns`, and forget the others."""
        oldest_ns = now_ns - int(self.seconds * 1e9)
        while self._amounts and self._amounts[0][0] < oldest_ns:
            self._amounts.popleft()
        return [amount for _, amount in self._amounts]

    def total(self, now_ns: int) -> int:
        """Return their sum."""
        return sum(self.amounts(now_ns))

    def per_s(self, now_ns: int, since_ns: int) -> float:
        """Return their sum for each second; nothing was noted before `since_ns`."""
        seconds = min(self.seconds, (now_ns - since_ns) / 1e9)
        return self.total(now_ns) / seconds if seconds > 0 else 0.0
