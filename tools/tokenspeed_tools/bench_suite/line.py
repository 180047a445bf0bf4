"""A line of `benchmarks/suite.jsonl`: one run of one part.

Owns the format. Figures keep the value of every round, and the machine's speed in that round, so
that a reader can judge anew what changed.

Invariant: all series of a line are as long as it has rounds.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

SCHEMA = 1
DIGITS = 4
ROUNDS_FORGIVING = 5


class Figure(msgspec.Struct, frozen=True):
    """One figure: a value for each round; `spread_percent` as below."""

    unit: str
    better: str
    anchor: str
    median: float
    spread_percent: float
    values: list[float]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one part. `anchors` are the machine's speeds, a value for each round.

    `load` is how many threads wanted to run on average in the minute before the part began.
    """

    schema: int
    part: str
    date: str
    commit: str
    dirty: bool
    machine: str
    kind: str
    load: float
    versions: dict[str, str]
    sizes: dict[str, int]
    seconds: float
    anchors: dict[str, list[float]]
    figures: dict[str, Figure]

    def comparable(self, other: Line) -> bool:
        """Return whether `other` measured the same things, on the same kind of machine."""
        return all(getattr(self, name) == getattr(other, name) for name in ("schema", "part", "kind", "sizes"))


def spread_percent(values: Sequence[float]) -> float:
    """Return half the range of `values` in percent of their median.

    Of `ROUNDS_FORGIVING` or more the one farthest from the median is left out: a shared machine stops
    one round in a while.
    """
    median = statistics.median(values)
    kept = sorted(values, key=lambda value: abs(value - median))
    if len(kept) >= ROUNDS_FORGIVING:
        kept.pop()
    return (max(kept) - min(kept)) / 2 / median * 100


def rounded(value: float) -> float:
    """Return `value` with as many digits as a line keeps."""
    return float(f"{value:.{DIGITS}g}")
