"""Plans in, ids out, on one GPU: the executor's face over the steps in flight.

Owns the steps between their launch and their outcome. A step is one copy up, one graph and its tail
if a row asks for it (or, with prompts in it, the same code launched piece by piece), and what is told
down. The caller's loop never waits: a native thread waits for each step's event.

Invariant: steps run in the order of their plans, and outcomes come in that order too.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

import torch
from tokenspeed_kernels import KernelError

from tokenspeed.config import ExecutorConfig
from tokenspeed.errors import EngineError, StartError
from tokenspeed.executor.batch import Plan, owned
from tokenspeed.executor.cuda.buffers import COPIES
from tokenspeed.executor.cuda.clock import Mark, StepClock
from tokenspeed.executor.cuda.profile import KernelProfile
from tokenspeed.executor.cuda.results import Launched, read
from tokenspeed.executor.cuda.runner import StepRunner
from tokenspeed.executor.face import StepOutcome
from tokenspeed.executor.waiter import EventWaiter
from tokenspeed.ipc.trace import NOWHERE, Trace
from tokenspeed.kernel_slices import KernelSlice
from tokenspeed.messages.executor import StepPlan
from tokenspeed.model.loader import Progress
from tokenspeed.points import Kind

LAUNCH_BEGIN = int(Kind.LAUNCH_BEGIN)
NO_COPY = -1
NO_EVENT = 0  # one that has come


@dataclass(slots=True)
class Flight:
    """A step under way, or one that failed before it began, and says why.

    `copy` is the host buffer that it holds, `work` what comes down and when the GPU did it.
    """

    step: int
    begin_us: int
    copy: int
    work: tuple[Launched, Mark] | None
    failure: str = ""
    dropped: bool = False


class CudaExecutor:
    """One rank on one GPU; every method but `load` is called from one thread."""

    def __init__(self, runner: StepRunner, trace: Trace = NOWHERE) -> None:
        """Launch on `runner`; see `load`."""
        self._trace = trace
        self.runner = runner
        with torch.cuda.stream(runner.stream):
            self._clock = StepClock(trace)
        self._waiter = EventWaiter(torch.cuda.current_device())
        self._free = deque(range(COPIES))
        self._flights: deque[Flight] = deque()
        self._waiting: deque[StepPlan] = deque()
        self._ended_us = 0
        self._profile: KernelProfile | None = None
        limits = runner.limits
        self.page_tokens = limits.page_tokens
        self.pages_total: tuple[int, ...] = (limits.pages_total,)
        self.slots = limits.slots
        self.vocab_tokens = limits.vocab

    @classmethod
    def load(cls, config: ExecutorConfig, progress: Progress, trace: Trace = NOWHERE) -> CudaExecutor:
        """Read the model, reserve everything and capture the graphs; `progress` hears (phase, share done).

        Raises `StartError` if the GPU is missing or too old, or the model does not fit.
        """
        try:
            return cls(StepRunner.load(config, progress), trace)
        except KernelError as error:
            raise StartError(str(error)) from error
        except torch.cuda.OutOfMemoryError as error:
            raise StartError(
                f"The GPU has too little memory for a step of this size: {error} "
                "Lower chunked_prefill_size, max_num_seqs or max_model_len, or free the GPU.",
                code="out_of_memory",
            ) from error

    def submit(self, plan: StepPlan) -> None:
        """Launch `plan`, or keep it until a buffer is free."""
        if self._waiting or not self._free:
            self._waiting.append(owned(plan))
        else:
            self._begin(plan)

    def fileno(self) -> int:
        """Return a descriptor that is readable while outcomes wait."""
        return self._waiter.fileno()

    def collect(self) -> list[StepOutcome]:
        """Return what has ended, in the order of `submit`.

        Raises `EngineError` if the GPU reports an error: nothing can be computed in this process then.
        """
        outcomes = []
        for end in self._waiter.collect():
            if end.status:
                raise EngineError(f"The GPU reports {self._waiter.explain(end.status)}.", code="gpu_lost")
            flight = self._flights.popleft()
            assert flight.step == end.token, "events end in the order of their steps"
            outcome = self._outcome(flight, end.done_us)
            if flight.copy != NO_COPY:
                self._free.append(flight.copy)
            if not flight.dropped:
                outcomes.append(outcome)
        self._launch_waiting()
        return outcomes

    def forget(self) -> None:
        """Drop the outcomes of all plans so far; those that wait for a buffer are not run."""
        self._waiting.clear()
        for flight in self._flights:
            flight.dropped = True

    def begin_profile(self) -> None:
        """Observe kernels from now on."""
        self._profile = KernelProfile()

    def end_profile(self) -> list[KernelSlice]:
        """Return the kernels since `begin_profile`; waits for the GPU."""
        profile, self._profile = self._profile, None
        return profile.stop() if profile is not None else []

    def close(self) -> None:
        """Wait for the GPU, unless it hangs, and let go of what lies on it."""
        if not self._waiter.close():
            return  # the GPU hangs: to wait for it, or to give an event back that it holds, would hang too
        torch.cuda.synchronize()
        del self.runner

    def _launch_waiting(self) -> None:
        while self._waiting and self._free:
            self._begin(self._waiting.popleft())

    def _begin(self, plan: StepPlan) -> None:
        try:
            self._launch(plan)
        except EngineError as error:
            self._fail(plan, error.message)
        except torch.cuda.OutOfMemoryError as error:
            # Half a step has harmed nobody, but its copy up may still be reading the host's buffer.
            self.runner.stream.synchronize()
            self._fail(plan, f"the GPU is out of memory: {error}")

    def _fail(self, plan: StepPlan, failure: str) -> None:
        self._flights.append(Flight(plan.step, 0, NO_COPY, None, failure))
        self._waiter.wait(NO_EVENT, plan.step)

    def _launch(self, plan: StepPlan) -> None:
        begin_us = time.monotonic_ns() // 1000
        self._trace.point(LAUNCH_BEGIN, 0, plan.step)
        checked = Plan(plan, self.runner.tables, self.runner.limits)
        copy = self._free[0]
        launched, mark = self.runner.launch(checked, copy, self._clock, plan.step)
        self._free.popleft()
        self._flights.append(Flight(plan.step, begin_us, copy, (launched, mark)))
        self._waiter.wait(mark.end.cuda_event, plan.step)

    def _outcome(self, flight: Flight, done_us: int) -> StepOutcome:
        if flight.work is None:
            return StepOutcome(flight.step, 0, b"", b"", flight.failure)
        step_us = done_us - max(flight.begin_us, self._ended_us)
        self._ended_us = done_us
        launched, mark = flight.work
        self._clock.read(mark, flight.step, done_us)
        brought = read(launched, self.runner.download, flight.copy)
        return StepOutcome(flight.step, step_us, failure="", **brought._asdict())
