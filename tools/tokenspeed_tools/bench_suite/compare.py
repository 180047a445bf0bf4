"""What changed between two lines of one part, the machine's own change taken out.

A figure goes with an anchor: on a machine that runs at half its speed a time doubles and a rate
halves. So each round's value is multiplied (a time) or divided (a rate) by the speed that the
machine had in that round, and the medians of these are compared. A change counts if it is larger
than the noise: the spreads of both runs, what anchors of one kind disagree by and half of what the
machine itself changed by, but at least `FLOOR_PERCENT`, which two runs of the same code part by
since memory lies elsewhere. Anchors disagree when others use memory and caches, or one core of two:
then none of them stands for all.

Invariant: pure; the same lines give the same verdict.
"""

from __future__ import annotations

import statistics
from typing import NamedTuple

from tokenspeed_tools.bench_suite.line import Line, spread_percent

FLOOR_PERCENT = 5.0
#: Anchors of one thread, and of all: those beside a figure's own tell how far it can be trusted.
GROUPS = (("hash", "objects"), ("copy", "gemm", "work"))
#: A figure follows its anchor, but not to the letter: so much of the machine's change is not believed.
CORRECTION_SHARE = 0.5

BETTER, WORSE, NOISE = "better", "worse", "within noise"


class Change(NamedTuple):
    """How a figure's value changed: `ratio` is above 1 if it grew. `noise_percent` is what does not count."""

    ratio: float
    noise_percent: float
    verdict: str

    @property
    def percent(self) -> float:
        """Return what was added to the value."""
        return (self.ratio - 1) * 100

    @property
    def size_percent(self) -> float:
        """Return how large the change is either way: half as fast and twice as fast are both 100."""
        return (max(self.ratio, 1 / self.ratio) - 1) * 100


def change(now: Line, then: Line, name: str) -> Change | None:
    """Return how the figure `name` changed from `then` to `now`; None if `then` does not have it as it is now."""
    figure, before = now.figures[name], then.figures.get(name)
    if before is None or (figure.unit, figure.better, figure.anchor) != (before.unit, before.better, before.anchor):
        return None
    values, values_then = adjusted(now, name), adjusted(then, name)
    ratio = statistics.median(values) / statistics.median(values_then)
    noise_percent = spread_percent(values) + spread_percent(values_then) + correction_percent(now, then, figure.anchor)
    noise_percent = max(FLOOR_PERCENT, noise_percent)
    found = Change(ratio, noise_percent, BETTER if (ratio > 1) == (figure.better == "higher") else WORSE)
    return found if found.size_percent > noise_percent else found._replace(verdict=NOISE)


def adjusted(line: Line, name: str) -> list[float]:
    """Return the values of a figure, each as on a machine whose anchor has the speed 1."""
    figure = line.figures[name]
    speeds = line.anchors.get(figure.anchor, [1.0] * len(figure.values))
    if figure.better == "lower":
        return [value * speed for value, speed in zip(figure.values, speeds, strict=True)]
    return [value / speed for value, speed in zip(figure.values, speeds, strict=True)]


def speeds_against(now: Line, then: Line) -> dict[str, float]:
    """Return how fast the machine was at each anchor, 1 for as fast as `then`."""
    return {
        name: statistics.median(speeds) / statistics.median(then.anchors[name])
        for name, speeds in now.anchors.items()
        if name in then.anchors
    }


def correction_percent(now: Line, then: Line, anchor: str) -> float:
    """Return how far the correction by `anchor` may be wrong.

    That is half the range of what it and its like say of the machine's change, and a part of the
    change itself.
    """
    speeds = speeds_against(now, then)
    if anchor not in speeds:
        return 0.0
    told = [speeds[name] for group in GROUPS if anchor in group for name in group if name in speeds]
    apart = (max(told) - min(told)) / 2 / statistics.median(told) if told else 0.0
    return (apart + CORRECTION_SHARE * (max(speeds[anchor], 1 / speeds[anchor]) - 1)) * 100
