"""The executor actor: plans in, ids out.

Owns the model side of one rank and the thread that computes steps, one at a time in the order in
which they came; the actor's loop never waits for one. It does not know requests beyond their slots.
Several ranks read the same plans and come to the same ids: the first rank speaks for all.

Invariant: each plan of the living scheduler is answered once, in order, by a result or a failure.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

from tokenspeed.actors.outbox import Outbox
from tokenspeed.actors.runtime import Actor, Announce
from tokenspeed.config import ExecutorConfig
from tokenspeed.errors import EngineError
from tokenspeed.executor.executor import Executor
from tokenspeed.messages.base import Message
from tokenspeed.messages.executor import ExecutorMessage, StepPlan
from tokenspeed.messages.scheduler import ExecutorReady, StepFailed, StepResult

LOAD_LIMIT_S = 120.0
STEP_LIMIT_S = 30.0  # a step may take this long, or
STEP_LIMIT_TIMES = 4  # this many times the longest one so far; then its thread counts as hung


class ExecutorActor(Actor):
    """One mailbox around an `Executor`."""

    name: ClassVar[str] = "executor"
    receives: ClassVar[dict[str, object]] = {"scheduler": ExecutorMessage}

    def __init__(self, config: ExecutorConfig, outbox: Outbox, phase: Announce) -> None:
        self._config = config
        self._outbox = outbox
        self._phase = phase
        self._executor: Executor
        self._steps = ThreadPoolExecutor(1, thread_name_prefix="step")
        self._scheduler_life = 0
        self._step_s_max = 0.0
        self._watch: asyncio.TimerHandle | None = None

    async def start(self) -> None:
        """Load the weights, take the memory of the pages, and report for work."""
        loop = asyncio.get_running_loop()

        def progress(text: str, fraction: float) -> None:
            loop.call_soon_threadsafe(self._phase, f"{text} {fraction:.0%}", LOAD_LIMIT_S)

        self._phase("weights", LOAD_LIMIT_S)
        self._executor = await loop.run_in_executor(self._steps, Executor.load, self._config, progress)
        self._report()

    def receive(self, sender: str, message: Message) -> None:
        """Queue one plan."""
        if isinstance(message, StepPlan):
            loop = asyncio.get_running_loop()
            self._steps.submit(self._run, message, self._scheduler_life, loop)

    def peer_restarted(self, peer: str, epoch: int) -> None:
        """Forget the old scheduler's plans and report to the new one."""
        self._scheduler_life += 1
        self._report()

    async def stop(self) -> None:
        """Wait for the step in hand; drop the others."""
        self._steps.shutdown(wait=False, cancel_futures=True)

    def _report(self) -> None:
        executor = self._executor
        ready = ExecutorReady(executor.page_tokens, executor.pages_total, executor.slots, executor.vocab_tokens)
        self._tell_scheduler(ready)

    def _run(self, plan: StepPlan, life: int, loop: asyncio.AbstractEventLoop) -> None:
        # In the step thread. A plan of a dead scheduler is skipped: its slots will be opened anew.
        if life != self._scheduler_life:
            return
        begin_us = time.monotonic_ns() // 1000
        loop.call_soon_threadsafe(self._expect)
        answer: Message
        try:
            out = self._executor.step(plan)
        except Exception as error:
            answer = StepFailed(plan.step, f"{type(error).__name__}: {error}")
        else:
            answer = StepResult(plan.step, time.monotonic_ns() // 1000 - begin_us, out.counts, out.ids)
        loop.call_soon_threadsafe(self._answer, answer, life)

    def _expect(self) -> None:
        loop = asyncio.get_running_loop()
        self._watch = loop.call_later(max(STEP_LIMIT_S, STEP_LIMIT_TIMES * self._step_s_max), self._give_up)

    def _give_up(self) -> None:
        # Nothing can end a thread that hangs in a kernel; ending the actor brings a fresh one.
        raise EngineError("A step has not come back in time.", code="step_hung")

    def _answer(self, answer: Message, life: int) -> None:
        if self._watch is not None:
            self._watch.cancel()
        if isinstance(answer, StepResult):
            self._step_s_max = max(self._step_s_max, answer.step_us / 1e6)
        if life == self._scheduler_life:
            self._tell_scheduler(answer)

    def _tell_scheduler(self, message: Message) -> None:
        if self._config.rank == 0:
            self._outbox.send("scheduler", message)
