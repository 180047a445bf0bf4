"""What tracing costs: how many points a step brings and how long one takes to write.

Owns the measurement. A point is timed here and now, on this machine, into a buffer of its own: in native
code, as the scheduler and the rings write theirs, and from Python, as the actors do.

Invariant: no running engine is touched.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from tokenspeed.capi import lib
from tokenspeed.ipc.trace import Trace, TraceFile
from tokenspeed.points import Kind
from tokenspeed_tools.trace.steps import Points, Span

NATIVE = frozenset(
    (
        *(Kind.SUBMITTED, Kind.WAITS, Kind.ADMITTED, Kind.CHUNK, Kind.RESULT, Kind.RETRACTED, Kind.ENDED),
        *(Kind.CANCELLED, Kind.PLAN_BEGIN, Kind.PLANNED, Kind.RING_SENT, Kind.RING_RECEIVED, Kind.RING_FULL),
    )
)
ROUNDS = 20
POINTS = 1000


class Cost(msgspec.Struct, frozen=True):
    """The mean number of points in a step, of all actors together, and the ns that one takes."""

    native_per_step: float
    python_per_step: float
    native_ns: float
    python_ns: float

    @property
    def step_ns(self) -> float:
        """Return what the points of a step cost, spread over the processes that write them."""
        return self.native_per_step * self.native_ns + self.python_per_step * self.python_ns


def cost_of(points: Points, span: Span, steps: int) -> Cost:
    """Count the points inside `span`, in which there were so many steps, and time one."""
    native = python = 0
    for each in points.values():
        for point in each:
            if span.begin_ns <= point.time_ns <= span.end_ns:
                native += point.kind in NATIVE
                python += point.kind not in NATIVE
    return Cost(native / steps, python / steps, *time_points())


def time_points() -> tuple[float, float]:
    """Return the ns that a point takes in native code and from Python: the fastest of several rounds."""
    with _scratch() as trace:
        native = min(lib.ts_trace_put_timed(trace.handle, Kind.STAGE, POINTS) for _ in range(ROUNDS))
        python = min(_time_python(trace) for _ in range(ROUNDS))
    return native / POINTS, python / POINTS


def _time_python(trace: Trace) -> int:
    kind = int(Kind.STAGE)
    begin = time.perf_counter_ns()
    for value in range(POINTS):
        trace.point(kind, 0, 1, value)
    return time.perf_counter_ns() - begin


@contextmanager
def _scratch() -> Iterator[Trace]:
    file = TraceFile()
    try:
        trace = Trace(file.fileno())
        yield trace
        trace.close()
    finally:
        file.close()
