"""Steps that block, run one after the other in a thread of their own.

Owns the thread, the outcomes that nobody has collected yet and the eventfd that tells of them. It
does not know what a step computes. A life ends with `forget`: its steps that have not begun are
skipped, its outcomes are dropped, also that of the step in hand.

Invariant: outcomes of the present life come in the order of `submit`, one for each step; the
eventfd is readable while some wait.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread
from typing import NamedTuple, TypeVar

from tokenspeed.executor.face import StepOutcome
from tokenspeed.ipc.trace import NOWHERE, Trace
from tokenspeed.ipc.wakeup import clear_wakeup, create_wakeup, signal_wakeup
from tokenspeed.points import Kind

COMPUTE_BEGIN, COMPUTE_END = int(Kind.COMPUTE_BEGIN), int(Kind.COMPUTE_END)
T = TypeVar("T")


class StepIds(NamedTuple):
    """What a step brings: the fields of `StepResult` that are named so."""

    counts: bytes
    ids: bytes
    logprobs: bytes = b""
    scores: bytes = b""


class StepThread:
    """The thread and its outcomes. All methods are for one other thread."""

    def __init__(self, trace: Trace = NOWHERE) -> None:
        """Note the begin and the end of each step in `trace`."""
        self._trace = trace
        self._wakeup = create_wakeup()
        # With the life of their submission: `forget` may come while a step is on its way in here.
        self._outcomes: deque[tuple[int, StepOutcome]] = deque()
        self._life = 0
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        # A daemon: a process that ends without `close` does not wait for plans that never come.
        self._thread = Thread(target=_run_all, args=(self._jobs,), name="step", daemon=True)
        self._thread.start()

    def call(self, work: Callable[[], T]) -> T:
        """Run `work` in the thread, behind what is there, and return its result; blocks."""
        done: Future[T] = Future()
        self._jobs.put(lambda: _settle(done, work))
        return done.result()

    def submit(self, step: int, work: Callable[[], StepIds]) -> None:
        """Run `work` behind what is there; an exception becomes a failure of `step`."""
        life = self._life
        self._jobs.put(lambda: self._run(step, work, life))

    def fileno(self) -> int:
        """Return the eventfd."""
        return self._wakeup

    def collect(self) -> list[StepOutcome]:
        """Return the outcomes that are there."""
        clear_wakeup(self._wakeup)  # first: what comes from here on signals again
        outcomes = []
        while self._outcomes:
            life, outcome = self._outcomes.popleft()
            if life == self._life:
                outcomes.append(outcome)
        return outcomes

    def forget(self) -> None:
        """Begin a new life."""
        self._life += 1

    def close(self) -> None:
        """Wait for the step in hand, skip the others, end the thread."""
        self.forget()
        self._jobs.put(None)
        self._thread.join()
        os.close(self._wakeup)

    def _run(self, step: int, work: Callable[[], StepIds], life: int) -> None:
        if life != self._life:
            return
        begin_us = _now_us()
        self._trace.point(COMPUTE_BEGIN, 0, step)
        try:
            found = work()
        except Exception as error:
            outcome = StepOutcome(step, _now_us() - begin_us, b"", b"", f"{type(error).__name__}: {error}")
        else:
            outcome = StepOutcome(step, _now_us() - begin_us, found.counts, found.ids, "", found.logprobs, found.scores)
        self._trace.point(COMPUTE_END, 0, step)
        self._outcomes.append((life, outcome))
        signal_wakeup(self._wakeup)


def _run_all(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()


def _settle(done: Future[T], work: Callable[[], T]) -> None:
    try:
        done.set_result(work())
    except BaseException as error:
        done.set_exception(error)


def _now_us() -> int:
    return time.monotonic_ns() // 1000
