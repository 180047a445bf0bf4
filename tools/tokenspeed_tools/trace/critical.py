"""Where the time between two steps' ends went: the way of the later step, cut into named rows.

Owns the rows and the rule that assigns time to them. It does not know statistics. A step's budget begins
when the device had the ids of the step before it, or, if the engine had nothing to do then, when the
scheduler began the turn in which it planned the step: idle time is nobody's. It ends when the device has
the step's own ids. While the device stood still, time goes to whatever held the missing plan: the result
that made planning possible, on its way up, or the plan, on its way down. Time that points do not explain,
since some are missing, is `OTHER`.

Invariant: the parts of a budget follow each other without a gap and fill it exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import msgspec

from tokenspeed.points import Kind, Stage
from tokenspeed_tools.trace.steps import Busy, Points, Span, Step, steps_of, turns

OTHER = "other"
WAKES = "result: the executor's loop wakes"
RESULT_SENT = "result: encoded and sent"
RESULT_RING = "result: ring to the scheduler"
APPLY = "scheduler: applies the result"
BATCH = "scheduler: sends ids on"
RECORDS = "scheduler: other records"
PLAN = "plan: decided"
PLAN_SENT = "plan: encoded and sent"
PLAN_RING = "plan: ring to the executor"
EXECUTOR_BUSY = "executor: its loop is busy"
BUFFER = "executor: the plan waits for a buffer"
UPLOAD = "launch: checked and uploaded"
LAUNCH = "launch: queued"
HAND_OVER = "hand-over to the device"
HAND_OVER_BUSY = "hand-over, while the executor's loop works"
COMPUTE = "compute"
COMPUTE_QUEUED = "compute: while it is still being queued"
COMPUTE_BEGINS = "compute: begins"
STAGES = {
    Stage.APPLY: "compute: apply",
    Stage.FORWARD: "compute: forward",
    Stage.LOGITS: "compute: logits",
    Stage.SAMPLE: "compute: sample",
    Stage.SCORE: "compute: score",
}
COMPUTE_ROWS = (COMPUTE_QUEUED, COMPUTE_BEGINS, *STAGES.values(), COMPUTE)
ROWS = (
    *(WAKES, RESULT_SENT, RESULT_RING, APPLY, BATCH, RECORDS, PLAN, PLAN_SENT, PLAN_RING),
    *(EXECUTOR_BUSY, BUFFER, UPLOAD, LAUNCH, HAND_OVER, HAND_OVER_BUSY, *COMPUTE_ROWS, OTHER),
)


class Mark(NamedTuple):
    """Up to `time_ns` it was `row`, from the mark before on."""

    time_ns: int
    row: str


class Leg(NamedTuple):
    """A leg of a way, up to a point of `kind`: time is `row`, or `while_busy` while the actor `by` had other work."""

    kind: Kind
    row: str
    by: str = ""
    while_busy: str = ""


UP = (  # a result, from the device to the scheduler
    Leg(Kind.IDS_DOWN, WAKES, "executor", EXECUTOR_BUSY),
    Leg(Kind.RESULT_SENT, RESULT_SENT),
    Leg(Kind.RESULT_RECEIVED, RESULT_RING, "scheduler", RECORDS),
    Leg(Kind.APPLIED, APPLY),
    Leg(Kind.BATCH_SENT, BATCH),
)
DOWN = (  # a plan, from the scheduler to the device
    Leg(Kind.PLAN_BEGIN, RECORDS),
    Leg(Kind.PLANNED, PLAN),
    Leg(Kind.PLAN_SENT, PLAN_SENT),
    Leg(Kind.PLAN_RECEIVED, PLAN_RING, "executor", EXECUTOR_BUSY),
    Leg(Kind.LAUNCH_BEGIN, BUFFER),
    Leg(Kind.UPLOADED, UPLOAD),
    Leg(Kind.LAUNCHED, LAUNCH),
    # On a CPU both are threads of one Python process: who computes next may wait for its lock.
    Leg(Kind.COMPUTE_BEGIN, HAND_OVER, "executor", HAND_OVER_BUSY),
)
OPTIONAL = (Kind.BATCH_SENT, Kind.UPLOADED)  # not every step, not every device has them


class Part(NamedTuple):
    """A piece of a budget."""

    row: str
    begin_ns: int
    end_ns: int


class Budget(msgspec.Struct, frozen=True):
    """The time that a decoding user waited for `step`, in parts."""

    step: Step
    span: Span
    parts: tuple[Part, ...]

    @property
    def total_ns(self) -> int:
        """Return the whole."""
        return self.span.end_ns - self.span.begin_ns

    def rows(self) -> dict[str, int]:
        """Return the ns of each row that has any."""
        sums: dict[str, int] = {}
        for row, begin, end in self.parts:
            sums[row] = sums.get(row, 0) + end - begin
        return sums


def budgets(points: Points) -> list[Budget]:
    """Return the budget of each step that has ended, but for the first and those of which nothing is left.

    `points` are those of each actor, by name, in the order of time.
    """
    horizon = horizon_ns(points)
    busy = {name: turns(points.get(name, ())) for name in ("scheduler", "executor")}
    ended = [step for step in steps_of(points) if Kind.COMPUTE_END in step.times]
    ended.sort(key=lambda step: step.times[Kind.COMPUTE_END])
    ways = _Ways(ended, busy)
    found = (ways.budget(before, step) for before, step in pairwise(ended))
    return [budget for budget in found if budget.span.begin_ns >= horizon]


def horizon_ns(points: Points) -> int:
    """Return since when scheduler and executor are both known."""
    return max((each[0].time_ns for name in ("scheduler", "executor") if (each := points.get(name))), default=0)


class _Ways:
    """The ways of results up to the scheduler and of plans down to the device."""

    def __init__(self, steps: Sequence[Step], busy: Mapping[str, Busy]) -> None:
        received = ((step.first(Kind.RESULT_RECEIVED), step) for step in steps)
        self._results = [(time_ns, step) for time_ns, step in received if time_ns is not None]
        self._busy = busy
        self._next = 0

    def budget(self, before: Step, step: Step) -> Budget:
        """Return the budget of `step`, which the device ended after `before`. Call it in the order of steps."""
        begin, end = before.times[Kind.COMPUTE_END], step.times[Kind.COMPUTE_END]
        planned = step.first(Kind.PLANNED)
        turn = None if planned is None else self._busy["scheduler"].at(planned)
        cause = None if turn is None or planned is None else self._last_result(turn, planned)
        if cause is None and turn is not None:
            begin = max(begin, turn.begin_ns)  # it had nothing to do before
        computes_ns = step.first(Kind.COMPUTE_BEGIN, Kind.LAUNCHED)
        device_ns = end if computes_ns is None else max(begin, min(computes_ns, end))
        idle = fill(Span(begin, device_ns), self._way(cause, turn, step))
        return Budget(step, Span(begin, end), (*idle, *fill(Span(device_ns, end), _computed(step, end))))

    def _way(self, cause: Step | None, turn: Span | None, step: Step) -> Iterator[Mark]:
        """Yield the marks of the way from what made planning possible to the device's work."""
        known = turn and turn.begin_ns
        if cause is not None:
            known = cause.times[Kind.COMPUTE_END]
            yield Mark(known, OTHER)
            yield from self._marks(cause, UP, known)
            known = cause.times[Kind.RESULT_RECEIVED]
        elif turn is not None:
            yield Mark(turn.begin_ns, OTHER)
        yield from self._marks(step, DOWN, known)

    def _marks(self, step: Step, legs: Iterable[Leg], known: int | None) -> Iterator[Mark]:
        """Yield the marks of `legs`; `known` is the time at which the first begins, if that is known."""
        for kind, row, by, while_busy in legs:
            time_ns = step.times.get(kind)
            if time_ns is None:
                known = known if kind in OPTIONAL else None
                continue
            if known is not None and by:
                yield from _shared(known, time_ns, self._busy[by], while_busy, row)
            yield Mark(time_ns, OTHER if known is None else row)
            known = time_ns

    def _last_result(self, turn: Span, planned: int) -> Step | None:
        """Return the step whose result was the last that the scheduler took in `turn` before it planned."""
        while self._next < len(self._results) and self._results[self._next][0] <= planned:
            self._next += 1
        if not self._next:
            return None
        time_ns, step = self._results[self._next - 1]
        return step if time_ns >= turn.begin_ns else None


def _shared(begin: int, end: int, busy: Busy, while_busy: str, else_row: str) -> Iterator[Mark]:
    """Yield marks from `begin` to `end`: `while_busy` where an actor was, `else_row` where it was not."""
    for span in busy.within(Span(begin, end)):
        yield Mark(span.begin_ns, else_row)
        yield Mark(span.end_ns, while_busy)


def _computed(step: Step, end: int) -> Iterator[Mark]:
    """Yield the marks of the device's own work. A GPU begins a step with what is queued of it so far."""
    if not step.stages and Kind.LAUNCHED in step.times:
        yield Mark(step.times[Kind.LAUNCHED], COMPUTE_QUEUED)
    row = COMPUTE if not step.stages else COMPUTE_BEGINS
    for time_ns, stage in step.stages:
        yield Mark(time_ns, row)
        row = STAGES[stage]
    yield Mark(end, row)


def fill(span: Span, marks: Iterable[Mark]) -> Iterator[Part]:
    """Cut `span` at `marks`; what is before or after it is left out, what no mark covers is `OTHER`."""
    at = span.begin_ns
    for time_ns, row in (*marks, Mark(span.end_ns, OTHER)):
        until = min(time_ns, span.end_ns)
        if until > at:
            yield Part(row, at, until)
            at = until
