"""A step's life, put together from the points of scheduler and executor.

Owns the records of steps and the times at which an actor was busy. It does not know why a step took long
(`critical`) nor whose request it served beyond the numbers that its points name. A scheduler that restarts
counts its steps from 1 again: each planning of a number begins a new record.

Invariant: steps come in the order in which they were planned; a time that was not noted is missing, not guessed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Literal, NamedTuple

import msgspec

from tokenspeed.points import Kind, Point, Stage, rows_and_tokens

Points = Mapping[str, Sequence[Point]]
StepKind = Literal["decode", "mixed", "prefill"]

OF_STEPS = frozenset((Kind.CHUNK, Kind.RESULT, *(kind for kind in Kind if Kind.PLAN_BEGIN <= kind <= Kind.BATCH_SENT)))


class Span(NamedTuple):
    """From when to when, in ns of the monotonic clock."""

    begin_ns: int
    end_ns: int

    def overlap_ns(self, other: Span) -> int:
        """Return how long both lasted at once."""
        return max(0, min(self.end_ns, other.end_ns) - max(self.begin_ns, other.begin_ns))


class Step(msgspec.Struct, eq=False):
    """One step: when what happened to it, and whose rows it had.

    `stages` are the parts of its computation with their begin; `chunks` the prompt tokens and `results` the
    ids of each request in it.
    """

    number: int
    times: dict[Kind, int] = {}
    stages: list[tuple[int, Stage]] = []
    rows: int = 0
    prompt_tokens: int = 0
    chunks: dict[int, int] = {}
    results: dict[int, int] = {}

    @property
    def kind(self) -> StepKind:
        """Return whether it had rows that decode, chunks of prompts, or both."""
        if not self.prompt_tokens:
            return "decode"
        return "mixed" if self.rows > len(self.chunks) else "prefill"

    def first(self, *kinds: Kind) -> int | None:
        """Return the time of the first of `kinds` that was noted."""
        return next((self.times[kind] for kind in kinds if kind in self.times), None)

    @property
    def begin_ns(self) -> int | None:
        """Return when its device began; if that is not among the points, when a step that has ended was queued."""
        begin = self.first(Kind.COMPUTE_BEGIN)
        if begin is None and self.end_ns is not None:
            return self.first(Kind.LAUNCHED, Kind.PLANNED, Kind.CHUNK)
        return begin

    @property
    def end_ns(self) -> int | None:
        """Return when its device had the ids, else when the scheduler had them."""
        return self.first(Kind.COMPUTE_END, Kind.RESULT_RECEIVED, Kind.RESULT)

    def take(self, point: Point) -> None:
        """Add what `point`, one of this step, tells."""
        self.times.setdefault(point.kind, point.time_ns)
        match point.kind:
            case Kind.STAGE:
                self.stages.append((point.time_ns, Stage(point.value)))
            case Kind.PLANNED:
                self.rows, self.prompt_tokens = rows_and_tokens(point.value)
            case Kind.CHUNK:
                self.chunks[point.request] = point.value
            case Kind.RESULT:
                self.results[point.request] = point.value


def steps_of(points: Points) -> list[Step]:
    """Return the steps that `points`, by actor, tell of. Several ranks run the same steps: the first one counts."""
    newest: dict[int, Step] = {}
    steps: list[Step] = []
    for point in sorted(_of_steps(points), key=_in_time):
        step = newest.get(point.step)
        if step is None or (point.kind is Kind.PLAN_BEGIN and Kind.PLAN_BEGIN in step.times):
            step = newest[point.step] = Step(point.step)
            steps.append(step)
        step.take(point)
    return steps


def _of_steps(points: Points) -> Iterator[Point]:
    wanted = chain(points.get("scheduler", ()), points.get("executor", ()))
    return (point for point in wanted if point.step and point.kind in OF_STEPS)


def _in_time(point: Point) -> tuple[int, bool]:
    # Chunks have the time of their plan's begin, whose point is written behind them.
    return point.time_ns, point.kind is not Kind.PLAN_BEGIN


class Busy:
    """When an actor had its hands full: spans that do not overlap, in order."""

    def __init__(self, spans: Iterable[Span]) -> None:
        self.spans: list[Span] = []
        for span in sorted(spans):
            if self.spans and span.begin_ns <= self.spans[-1].end_ns:
                span = Span(self.spans[-1].begin_ns, max(self.spans.pop().end_ns, span.end_ns))
            self.spans.append(span)

    def at(self, time_ns: int) -> Span | None:
        """Return the span that holds `time_ns`."""
        index = bisect_right(self.spans, time_ns, key=itemgetter(0)) - 1
        return self.spans[index] if index >= 0 and self.spans[index].end_ns >= time_ns else None

    def within(self, span: Span) -> Iterator[Span]:
        """Yield what lies inside `span`, cut at its ends."""
        for index in range(bisect_left(self.spans, span.begin_ns, key=itemgetter(1)), len(self.spans)):
            found = self.spans[index]
            if found.begin_ns >= span.end_ns:
                return
            yield Span(max(found.begin_ns, span.begin_ns), min(found.end_ns, span.end_ns))

    def overlap_ns(self, span: Span) -> int:
        """Return how much of `span` was busy."""
        return sum(each.end_ns - each.begin_ns for each in self.within(span))


def pairs(points: Sequence[Point], begin: Kind, end: Kind) -> Iterator[tuple[Point, Point]]:
    """Yield each point `begin` with the next point `end`, in the order of time."""
    begun: Point | None = None
    for point in points:
        if point.kind is begin:
            begun = point
        elif point.kind is end and begun is not None:
            yield begun, point
            begun = None


def between(points: Sequence[Point], begin: Kind, end: Kind) -> Iterator[Span]:
    """Yield the spans of `pairs`."""
    return (Span(first.time_ns, last.time_ns) for first, last in pairs(points, begin, end))


def turns(points: Sequence[Point]) -> Busy:
    """Return when the loop of an actor handled records, or handed on the results of steps."""
    handled = between(points, Kind.TURN_BEGIN, Kind.TURN_END)
    return Busy(chain(handled, between(points, Kind.IDS_DOWN, Kind.RESULT_SENT)))
