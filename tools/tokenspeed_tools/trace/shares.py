"""Where the last seconds went: shares of the time in which the engine computed, or waited for what.

Owns the few groups of rows that fit on a screen; the rows and the rule are those of the budget. A step that
is under way counts as computing.

Invariant: shares are of one and the same time, so they sum to 1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from tokenspeed.points import Kind, Point
from tokenspeed_tools.trace import critical
from tokenspeed_tools.trace.critical import budgets

GROUPS = {
    critical.PLAN: "plan",
    critical.PLAN_SENT: "plan",
    critical.PLAN_RING: "plan travels",
    critical.EXECUTOR_BUSY: "executor busy",
    critical.BUFFER: "executor busy",
    critical.UPLOAD: "launch",
    critical.LAUNCH: "launch",
    critical.HAND_OVER: "launch",
    critical.HAND_OVER_BUSY: "launch",
    critical.WAKES: "result travels",
    critical.RESULT_SENT: "result travels",
    critical.RESULT_RING: "result travels",
    critical.APPLY: "apply",
    critical.BATCH: "apply",
    critical.RECORDS: "other records",
    **{row: row for row in critical.COMPUTE_ROWS},
    critical.OTHER: "other",
}
NOW = "compute: now"  # the step that the device is at
IDLE = "idle"
ORDER = (*dict.fromkeys(GROUPS.values()), NOW, IDLE)
# What the budget looks at; results and chunks of each request are many and not needed.
WANTED = frozenset(
    (*(kind for kind in Kind if Kind.PLAN_BEGIN <= kind <= Kind.BATCH_SENT), Kind.TURN_BEGIN, Kind.TURN_END)
)
ACTORS = ("scheduler", "executor")
POINTS_MAX = 20_000  # of an actor: some hundred steps, and not too much work each second
KEPT_S = 10.0


class Shares:
    """The points of steps in the last seconds."""

    def __init__(self, begin_ns: int) -> None:
        self._begin_ns = begin_ns
        self._points: dict[str, deque[Point]] = {actor: deque(maxlen=POINTS_MAX) for actor in ACTORS}

    def feed(self, points: Mapping[str, Sequence[Point]]) -> None:
        """Take new points of each actor."""
        for actor in ACTORS:
            self._points[actor].extend(point for point in points.get(actor, ()) if point.kind in WANTED)

    def shares(self, now_ns: int, seconds: float) -> dict[str, float]:
        """Return the share of each group in the last `seconds`, those without any left out, in a fixed order."""
        begin_ns = max(self._begin_ns, now_ns - int(seconds * 1e9))
        self._forget(now_ns - int(KEPT_S * 1e9))
        found = dict.fromkeys(ORDER, 0)
        points = {actor: sorted(kept, key=_time) for actor, kept in self._points.items()}
        for budget in budgets(points):
            for row, part_begin_ns, part_end_ns in budget.parts:
                found[GROUPS[row]] += max(0, min(part_end_ns, now_ns) - max(part_begin_ns, begin_ns))
        if (under_way_ns := _under_way(points["executor"])) is not None:
            found[NOW] += max(0, now_ns - max(under_way_ns, begin_ns))
        whole = max(1, now_ns - begin_ns, sum(found.values()))
        found[IDLE] = whole - sum(found.values())
        return {group: ns / whole for group, ns in found.items() if ns}

    def _forget(self, oldest_ns: int) -> None:
        for kept in self._points.values():
            while kept and kept[0].time_ns < oldest_ns:
                kept.popleft()


def _under_way(points: Sequence[Point]) -> int | None:
    """Return when the step began that the device computes now, if it does."""
    begun: Point | None = None
    for point in points:
        if point.kind is Kind.COMPUTE_BEGIN:
            begun = point
        elif point.kind is Kind.COMPUTE_END:
            begun = None
    return None if begun is None else begun.time_ns


def _time(point: Point) -> int:
    return point.time_ns
