"""The scheduler's core and an executor in one process, without actors between them.

What a step costs by itself is seen here: plans come from the native core as in the engine, and
results go back to it. It owns no policy of its own.
"""

from __future__ import annotations

import select
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from tokenspeed.config import ExecutorConfig
from tokenspeed.errors import EngineError
from tokenspeed.executor.face import Executor
from tokenspeed.messages.executor import SlotOpening, StepPlan
from tokenspeed.scheduling.scheduler import CoreConfig, Plan, Scheduler

WAIT_S_MAX = 120.0


# Penalties of prompt and reply, and log-probabilities of five likeliest tokens.
FULL = {"repetition_penalty": 1.1, "frequency_penalty": 0.2, "presence_penalty": 0.1, "logprobs": 5}


class Loop:
    """Runs requests to their end; all are greedy."""

    def __init__(
        self, executor: Executor, config: ExecutorConfig, overlap: int = 1, asked: Mapping[str, Any] | None = None
    ) -> None:
        """Make a core for what `executor` has; `asked` are settings of every slot, which get its prompt with them."""
        self._executor = executor
        self._asked = asked
        self._prompts: dict[int, bytes] = {}
        self._core = Scheduler(
            CoreConfig(
                page_tokens=executor.page_tokens,
                pages_total=executor.pages_total,
                windows=(0,),
                slots=config.max_num_seqs,
                step_tokens=config.chunked_prefill_size,
                step_tokens_mixed=config.chunked_prefill_size,
                max_model_len=config.model.max_model_len,
                overlap=overlap,
                prefix_caching=False,
            )
        )
        self._poll = select.poll()
        self._poll.register(executor.fileno(), select.POLLIN)
        self._requests = 0
        self.steps = 0
        self.submit_s = 0.0

    def add(self, tokens: int, max_tokens: int, seed: int = 0) -> None:
        """Submit a prompt of `tokens` arbitrary ids."""
        self._requests += 1
        ids = np.random.default_rng((seed, self._requests)).integers(0, self._executor.vocab_tokens, tokens, np.int32)
        self._prompts[self._requests] = ids.tobytes()
        self._core.submit(_now_us(), self._requests, ids.tobytes(), max_tokens=max_tokens)

    def run(self, steps: int | None = None) -> None:
        """Run until nothing is left to do, or `steps` results more are back."""
        last = None if steps is None else self.steps + steps
        while last is None or self.steps < last:
            while (plan := self._core.plan(_now_us())) is not None:
                begin_s = time.perf_counter()
                self._executor.submit(self._step_plan(plan))
                self.submit_s += time.perf_counter() - begin_s
            if not self._core.stats().steps_in_flight:
                return
            if not self._poll.poll(WAIT_S_MAX * 1000):
                raise EngineError(f"No result within {WAIT_S_MAX} s.")
            for outcome in self._executor.collect():
                if outcome.failure:
                    raise EngineError(outcome.failure)
                self._core.result(_now_us(), outcome.step, outcome.step_us, outcome.counts, outcome.ids)
                self.steps += 1

    def _step_plan(self, plan: Plan) -> StepPlan:
        openings = [
            SlotOpening(
                slot=slot,
                request=request,
                seed=0,
                temperature=0.0,
                top_p=1.0,
                top_k=0,
                min_p=0.0,
                suppress_until=0,
                suppress=b"",
                **self._settings(request),
            )
            for slot, request in plan.openings
        ]
        return StepPlan(plan.step, openings, plan.pages, plan.rows, plan.ids)

    def _settings(self, request: int) -> dict[str, Any]:
        if self._asked is None:
            return {}
        prompt = self._prompts[request]
        return {**self._asked, "prompt_tokens": len(prompt) // 4, "history": prompt}


def _now_us() -> int:
    return time.monotonic_ns() // 1000
