"""The median and the 99th percentile of what consists of parts: steps, ways of tokens.

Owns the statistics. The median one is the mean over the middle fifth by total time, so that its rows add up
and no single one speaks for all; the 99th percentile is one of them, by nearest rank. It does not know what
the rows mean.

Invariant: the rows of both add up to their totals.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import ceil
from typing import Generic, Protocol, TypeVar

from tokenspeed_tools.trace.critical import OTHER, Part
from tokenspeed_tools.trace.steps import Step


class Whole(Protocol):
    """What has parts. `step` says of which step it is."""

    @property
    def step(self) -> Step: ...
    @property
    def parts(self) -> tuple[Part, ...]: ...
    @property
    def total_ns(self) -> int: ...


W = TypeVar("W", bound=Whole)
MIDDLE = 0.2
P99 = 0.99


class Typical(Generic[W]):
    """The statistics of `wholes`, at least one."""

    def __init__(self, wholes: Iterable[W]) -> None:
        self.wholes: Sequence[W] = sorted(wholes, key=_total)
        count = len(self.wholes)
        width = max(1, round(count * MIDDLE))
        begin = (count - width) // 2
        self.middle = self.wholes[begin : begin + width]
        self.p99: W = self.wholes[ceil(P99 * count) - 1]
        self.median_rows = _rows(self.middle)
        self.p99_rows = _rows([self.p99])
        self.median_ns = sum(map(_total, self.middle)) / width
        self.p99_ns = self.p99.total_ns

    @property
    def count(self) -> int:
        """Return how many there are."""
        return len(self.wholes)

    @property
    def accounted(self) -> float:
        """Return the share of all time, in all of them, that has a name."""
        rows = _rows(self.wholes)
        return 1.0 - rows.get(OTHER, 0.0) / (sum(rows.values()) or 1.0)

    def rows(self, order: Sequence[str]) -> list[str]:
        """Return the rows that the median one or the 99th percentile has, in that order."""
        return [row for row in order if row in self.median_rows or row in self.p99_rows]


def _total(whole: Whole) -> int:
    return whole.total_ns


def _rows(wholes: Sequence[Whole]) -> dict[str, float]:
    """Return the mean ns of each row."""
    sums: dict[str, float] = {}
    for whole in wholes:
        for row, begin, end in whole.parts:
            sums[row] = sums.get(row, 0.0) + (end - begin) / len(wholes)
    return sums
