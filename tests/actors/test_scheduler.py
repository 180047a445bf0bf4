"""The scheduler actor between its neighbours' messages, without processes."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from tests.actors.said import Said, quiet
from tokenspeed.actors.scheduler import SchedulerActor
from tokenspeed.config import SchedulerConfig
from tokenspeed.errors import EngineError
from tokenspeed.messages.base import pack_ids, unpack_ids
from tokenspeed.messages.detokenizer import TokenBatch
from tokenspeed.messages.engine import Accepted, SchedulerStats
from tokenspeed.messages.executor import ROW_FLAGS, ROW_INTS, ROW_SAMPLE, StepPlan
from tokenspeed.messages.scheduler import (
    AskStats,
    Cancel,
    Dropped,
    ExecutorReady,
    StepResult,
    StreamSettings,
    Submit,
    Verdict,
)
from tokenspeed.sampling import SamplingParams

READY = ExecutorReady(page_tokens=16, pages_total=(64,), slots=8, vocab_tokens=100)


def submit(request: int, resume: bytes = b"", max_tokens: int = 5) -> Submit:
    """Return a request of ten tokens."""
    return Submit(
        request=request,
        attempt=0,
        ids=pack_ids(range(10)),
        resume=resume,
        max_tokens=max_tokens,
        min_tokens=0,
        end_ids=(),
        sampling=SamplingParams(seed=1),
        namespace="",
        session="",
        stream=StreamSettings((), 10),
    )


def compute(actor: SchedulerActor, said: Said, step: int = 1) -> int:
    """Answer every plan from `step` on, with the same id for each row; return the number of the next."""
    while True:
        actor.drained()
        plan = next((plan for plan in said.of(StepPlan) if plan.step == step), None)
        if plan is None:
            return step
        sampled = sum(bool(flags & ROW_SAMPLE) for flags in unpack_ids(plan.rows)[ROW_FLAGS::ROW_INTS])
        actor.receive("executor", StepResult(step, 10, pack_ids([1] * sampled), pack_ids([50] * sampled)))
        step += 1


@pytest.mark.parametrize("order", [(submit(1), Cancel(1)), (Cancel(1), submit(1)), (Cancel(1), Dropped(1))])
def test_a_cancel_that_comes_before_the_executor_is_obeyed(order: tuple[Submit | Cancel | Dropped, ...]) -> None:
    said = Said()
    actor = SchedulerActor(SchedulerConfig(max_model_len=256), said, quiet)
    for message in order:
        actor.receive("engine", message)
    actor.receive("tokenizer", submit(2))
    actor.receive("executor", READY)
    actor.drained()
    actor.receive("engine", AskStats(9))
    [stats] = said.of(SchedulerStats)
    assert (stats.requests_running, stats.requests_waiting) == (1, 0)
    assert [opening.request for plan in said.of(StepPlan) for opening in plan.openings] == [2]
    assert said.of(Accepted)[-1] == Accepted(2, 10)
    asyncio.run(actor.stop())


def test_an_executor_that_comes_back_smaller_ends_the_actor() -> None:
    """Its plans would name pages that are not there; more pages than planned with are no harm."""
    actor = SchedulerActor(SchedulerConfig(max_model_len=256), Said(), quiet)
    actor.receive("executor", READY)
    for pages in (64, 65):
        actor.peer_restarted("executor", pages)
        actor.receive("executor", msgspec.structs.replace(READY, pages_total=(pages,)))
    actor.peer_restarted("executor", 3)
    with pytest.raises(EngineError, match=r"came back with \(63,\) pages; \(64,\) were planned with"):
        actor.receive("executor", msgspec.structs.replace(READY, pages_total=(63,)))
    asyncio.run(actor.stop())


def test_requests_are_counted_while_there_is_no_executor() -> None:
    said = Said()
    actor = SchedulerActor(SchedulerConfig(max_model_len=256), said, quiet)
    for message in (submit(1), submit(2), Cancel(1), AskStats(9)):
        actor.receive("engine", message)
    [stats] = said.of(SchedulerStats)
    assert stats.requests_waiting == 2


def test_a_resumed_request_counts_no_more_cached_tokens_than_its_prompt_has() -> None:
    said = Said()
    actor = SchedulerActor(SchedulerConfig(max_model_len=256), said, quiet)
    actor.receive("executor", READY)
    actor.receive("tokenizer", submit(1, max_tokens=40))
    step = compute(actor, said)
    actor.receive("detokenizer", Verdict(1, 40, "length"))
    actor.receive("tokenizer", submit(2, resume=pack_ids([50] * 30), max_tokens=40))
    compute(actor, said, step)
    openings = [entry.opening for batch in said.of(TokenBatch) for entry in batch.entries if entry.opening]
    assert [opening.cached_tokens for opening in openings] == [0, 10]
    asyncio.run(actor.stop())
