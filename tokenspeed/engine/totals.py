"""What the scheduler counts, over all its lives.

Owns the counts of the lives that are over, as far as they were told. The numbers of the present life
are the scheduler's.

Invariant: a counter never goes back.
"""

from __future__ import annotations

from msgspec import structs

from tokenspeed.messages.engine import SchedulerStats

_FIELDS = SchedulerStats.__struct_fields__
COUNTERS = _FIELDS[_FIELDS.index("steps") :]


class Totals:
    """`last` is what was told last, with all earlier lives."""

    def __init__(self) -> None:
        self.last = self._base = SchedulerStats.nothing()

    def told(self, stats: SchedulerStats) -> SchedulerStats:
        """Take what the present life tells of itself, and return it with the earlier ones."""
        sums = {name: _sum(getattr(self._base, name), getattr(stats, name)) for name in COUNTERS}
        self.last = structs.replace(stats, **sums)
        return self.last

    def begin_life(self) -> None:
        """Note that a new scheduler counts from 0."""
        self._base = self.last


def _sum(earlier: int | tuple[int, ...], now: int | tuple[int, ...]) -> int | tuple[int, ...]:
    if isinstance(earlier, tuple) and isinstance(now, tuple):
        return tuple(map(int.__add__, earlier, now))
    assert isinstance(earlier, int)
    assert isinstance(now, int)
    return earlier + now
