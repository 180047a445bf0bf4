"""When the GPU worked on each step, told on the host's clock.

Owns pairs of timing events and the difference between the two clocks. A GPU's events tell spans, not
times: the end of a step is placed a span behind the end of the step before, and the host's own times
of learning of ends pull that chain back, for the clocks drift apart.

    host    | begin -> known         | known            | known
    GPU          [ step 1 ]   [ step 2 ]   [ step 3 ]
                          |----span----|----span----|       known - end >= wake, at times just that

How long a thread takes to wake is the machine's and not little (0.1 ms of an interrupt), so it is measured.

The times are good to 0.1 ms or so: a loaded thread wakes later than the best of the trials.

Invariant: an event is recorded again only after its step was read and the step after it, too.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any, NamedTuple

import torch

from tokenspeed.executor.cuda.buffers import COPIES
from tokenspeed.ipc.trace import Trace
from tokenspeed.points import Kind

# torch has no types for these.
_cuda: Any = torch.cuda

UPLOADED, LAUNCHED = int(Kind.UPLOADED), int(Kind.LAUNCHED)
COMPUTE_BEGIN, COMPUTE_END = int(Kind.COMPUTE_BEGIN), int(Kind.COMPUTE_END)
MARKS = 2 * COPIES + 2
WINDOW = 32  # steps whose least delay tells how far the chain has drifted
QUERY_NS = 5_000  # from an event on the GPU to a host that asks for it all the time; at best
TRIAL_CYCLES = 500_000  # of the GPU: about 0.3 ms
NS_OF_MS = 1e6


class Mark(NamedTuple):
    """The two events around one step's work; the second is also what its end is waited for by."""

    begin: Any
    end: Any


class StepClock:
    """Times steps on the present stream and notes them in `trace`. Of one thread."""

    def __init__(self, trace: Trace, wake_ns: float | None = None) -> None:
        """Make the events. The GPU must be idle; `wake_ns` is measured unless it is given."""
        self._trace = trace
        self._wake_ns = measured_wake_ns() if wake_ns is None else wake_ns
        self._marks = [Mark(_cuda.Event(enable_timing=True), _timed_end()) for _ in range(MARKS)]
        self._next = 0
        self._last: Any = _timed_end()
        self._last.record()
        self._last.synchronize()
        self._ended_ns = 0.0  # of `_last`, on the host's clock; 0: no step has told it yet
        self._delays_ns: deque[float] = deque(maxlen=WINDOW)

    def begin(self) -> Mark:
        """Record the begin of a step's work."""
        mark = self._marks[self._next]
        self._next = (self._next + 1) % MARKS
        mark.begin.record()
        return mark

    def uploaded(self, step: int) -> None:
        """Note that the copy up of `step` is queued."""
        self._trace.point(UPLOADED, 0, step)

    def end(self, mark: Mark, step: int) -> None:
        """Record the end of the step's work; all of it is queued now."""
        mark.end.record()
        self._trace.point(LAUNCHED, 0, step)

    def read(self, mark: Mark, step: int, known_us: int) -> None:
        """Note when the GPU began and ended `step`, of which the host knew at `known_us` (monotonic)."""
        known_ns = known_us * 1e3
        if self._ended_ns:
            self._ended_ns += self._last.elapsed_time(mark.end) * NS_OF_MS
        else:
            self._ended_ns = known_ns - self._wake_ns
        self._last = mark.end
        self._pull_back(known_ns)
        begun_ns = self._ended_ns - mark.begin.elapsed_time(mark.end) * NS_OF_MS
        self._trace.point_at(int(begun_ns), COMPUTE_BEGIN, 0, step)
        self._trace.point_at(int(self._ended_ns), COMPUTE_END, 0, step)

    def _pull_back(self, known_ns: float) -> None:
        """Move the chain so that the fastest of the last steps was known a wake-up after its end, and none before."""
        self._delays_ns.append(known_ns - self._ended_ns)
        least = min(self._delays_ns)
        shift = least - self._wake_ns
        if shift < 0 or len(self._delays_ns) == WINDOW:
            self._ended_ns += shift
            self._delays_ns = deque((delay - shift for delay in self._delays_ns), maxlen=WINDOW)


def measured_wake_ns() -> float:
    """Return how long after an event a thread that waits for it goes on, at the best of `WINDOW` trials."""
    anchor, end, delays_ns = _cuda.Event(enable_timing=True), _timed_end(), []
    anchor.record()
    while not anchor.query():
        pass
    anchor_ns = time.monotonic_ns() - QUERY_NS
    for _ in range(WINDOW):
        _cuda._sleep(TRIAL_CYCLES)
        end.record()
        end.synchronize()
        delays_ns.append(time.monotonic_ns() - anchor_ns - anchor.elapsed_time(end) * NS_OF_MS)
    return max(0.0, float(min(delays_ns)))


def _timed_end() -> Any:
    return _cuda.Event(enable_timing=True, blocking=True)
