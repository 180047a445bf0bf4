"""The executor actor: plans in, ids out.

Owns an executor and the watch over its oldest step; its loop never waits for one. It does not know
requests beyond their slots, nor what an executor computes on. Several ranks read the same plans and
come to the same ids: the first rank speaks for all.

Invariant: each plan of the living scheduler is answered once, in order, by a result or a failure.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

from tokenspeed.actors.outbox import Outbox
from tokenspeed.actors.runtime import Actor, Announce
from tokenspeed.config import ExecutorConfig
from tokenspeed.errors import EngineError
from tokenspeed.executor.executor import load_executor
from tokenspeed.executor.face import Executor, StepOutcome
from tokenspeed.kernel_slices import write_slices
from tokenspeed.messages.base import Message
from tokenspeed.messages.executor import ExecutorMessage, StepPlan
from tokenspeed.messages.scheduler import ExecutorReady, StepFailed, StepResult
from tokenspeed.points import Kind

PLAN_RECEIVED, IDS_DOWN, RESULT_SENT = int(Kind.PLAN_RECEIVED), int(Kind.IDS_DOWN), int(Kind.RESULT_SENT)
LOAD_LIMIT_S = 120.0
PROFILER_LIMIT_S = 60.0
STEP_LIMIT_S = 30.0  # a step may take this long, or
STEP_LIMIT_TIMES = 4  # this many times the longest one so far; then it counts as hung


class ExecutorActor(Actor):
    """One mailbox around an `Executor`."""

    name: ClassVar[str] = "executor"
    receives: ClassVar[dict[str, object]] = {"scheduler": ExecutorMessage}
    in_place: ClassVar[bool] = True  # `submit` keeps nothing of a plan

    def __init__(self, config: ExecutorConfig, outbox: Outbox, phase: Announce) -> None:
        self._config = config
        self._outbox = outbox
        self._phase = phase
        self._executor: Executor
        self._outstanding = 0  # steps whose outcome is awaited
        self._forgotten = 0  # steps of a dead scheduler that may still run ahead of them
        self._step_s_max = 0.0
        self._is_profiled = False
        self._watch: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Load the weights, take the memory of the pages, and report for work."""
        loop = asyncio.get_running_loop()

        def progress(text: str, fraction: float) -> None:
            loop.call_soon_threadsafe(self._phase, f"{text} {fraction:.0%}", LOAD_LIMIT_S)

        self._phase("weights", LOAD_LIMIT_S)
        self._executor = await asyncio.to_thread(load_executor, self._config, progress, self.trace)
        loop.add_reader(self._executor.fileno(), self._collect)
        self._report()

    def receive(self, sender: str, message: Message) -> None:
        """Hand on one plan."""
        if isinstance(message, StepPlan):
            self.trace.point(PLAN_RECEIVED, 0, message.step)
            self._executor.submit(message)
            self._outstanding += 1
            if self._outstanding == 1:
                self._watch_oldest()

    def peer_restarted(self, peer: str, epoch: int) -> None:
        """Forget the old scheduler's plans and report to the new one."""
        self._executor.forget()
        self._forgotten += self._outstanding
        self._outstanding = 0
        self._watch_oldest()
        self._report()

    async def profile(self, seconds: float, path: Path) -> None:
        """Observe the executor's kernels; the loop stands still while the profiler begins and ends."""
        if self._is_profiled:
            raise EngineError("A profile is being made; wait for its end.", status=409, code="busy")
        self._is_profiled = True
        self._phase("profiler", seconds + PROFILER_LIMIT_S)
        try:
            self._executor.begin_profile()
            await asyncio.sleep(seconds)
            write_slices(path, self._executor.end_profile())
        finally:
            self._phase("", 0.0)
            self._is_profiled = False

    async def stop(self) -> None:
        """Wait for the step in hand; drop the others."""
        asyncio.get_running_loop().remove_reader(self._executor.fileno())
        self._executor.close()

    def _report(self) -> None:
        executor = self._executor
        ready = ExecutorReady(executor.page_tokens, executor.pages_total, executor.slots, executor.vocab_tokens)
        self._tell_scheduler(ready)

    def _collect(self) -> None:
        outcomes = self._executor.collect()
        for outcome in outcomes:
            self.trace.point(IDS_DOWN, 0, outcome.step)
            self._step_s_max = max(self._step_s_max, outcome.step_us / 1e6)
            self._tell_scheduler(_answer(outcome))
            self.trace.point(RESULT_SENT, 0, outcome.step)
        if outcomes:
            self._outstanding -= len(outcomes)
            self._forgotten = 0
            self._watch_oldest()

    def _watch_oldest(self) -> None:
        """Give the oldest awaited step its time, counted from now on."""
        if self._watch is not None:
            self._watch.cancel()
        self._watch = None
        if self._outstanding:
            limit_s = max(STEP_LIMIT_S, STEP_LIMIT_TIMES * self._step_s_max)
            loop = asyncio.get_running_loop()
            self._watch = loop.call_later(limit_s * (1 + self._forgotten), self._give_up)

    def _give_up(self) -> None:
        # Nothing can end a step that hangs in a kernel; ending the actor brings a fresh one.
        raise EngineError("A step has not come back in time.", code="step_hung")

    def _tell_scheduler(self, message: Message) -> None:
        if self._config.rank == 0:
            self._outbox.send("scheduler", message)


def _answer(outcome: StepOutcome) -> Message:
    if outcome.failure:
        return StepFailed(outcome.step, outcome.failure)
    return StepResult(outcome.step, outcome.step_us, outcome.counts, outcome.ids, outcome.logprobs, outcome.scores)
