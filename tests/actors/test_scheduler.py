"""The scheduler actor between its neighbours' messages, without processes."""

from __future__ import annotations

import asyncio
import struct
from array import array
from typing import Any

import msgspec
import pytest

from tests.actors.said import Said, quiet
from tokenspeed.actors.scheduler import SchedulerActor
from tokenspeed.config import SchedulerConfig
from tokenspeed.errors import EngineError
from tokenspeed.messages.base import pack_ids, unpack_ids
from tokenspeed.messages.detokenizer import TokenBatch, TokenEntry
from tokenspeed.messages.engine import Accepted, Refused, SchedulerStats
from tokenspeed.messages.executor import ROW_FLAGS, ROW_INTS, ROW_SAMPLE, ROW_SCORE, StepPlan
from tokenspeed.messages.logprobs import entry_bytes
from tokenspeed.messages.scheduler import (
    ROW_FAILED,
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
from tokenspeed.scheduling.opening import slot_opening

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


def packed(token: int, top: int) -> bytes:
    """Return an entry whose numbers all come from `token`."""
    return struct.pack("iif", token, 1, -token / 8) + bytes(8 * top)


def asking(request: int, resume: bytes = b"", **changes: Any) -> Submit:
    """Return a request of 40 tokens that asks for all log-probabilities."""
    stream = StreamSettings((), 40, logprobs=1, prompt_logprobs=0)
    wide = submit(request, resume, max_tokens=9)
    return msgspec.structs.replace(wide, ids=pack_ids(range(40)), stream=stream, **changes)


def answer(plan: StepPlan, token: int, *, failed: int = -1) -> StepResult:
    """Answer a plan whose slots all ask: drawn ids with their entries, and the scores of its chunks."""
    rows = list(zip(*[iter(unpack_ids(plan.rows))] * ROW_INTS, strict=True))
    scores = [
        packed(position + 1, 0)
        for _, tokens, context, flags in rows
        if flags & ROW_SCORE
        for position in range(context, min(context + tokens, 39))
    ]
    sampled = [row for row in rows if row[ROW_FLAGS] & ROW_SAMPLE]
    good = [index for index in range(len(sampled)) if index != failed]
    counts = pack_ids(1 if index in good else ROW_FAILED for index in range(len(sampled)))
    ids = [token + index for index in good]
    entries = b"".join(packed(each, 1) for each in ids)
    return StepResult(plan.step, 10, counts, pack_ids(ids), entries, b"".join(scores))


def step(actor: SchedulerActor, said: Said, token: int, *, failed: int = -1) -> StepPlan:
    """Let the actor plan, and answer its newest plan."""
    actor.drained()
    plan = said.of(StepPlan)[-1]
    actor.receive("executor", answer(plan, token, failed=failed))
    return plan


def entries_of(said: Said) -> list[TokenEntry]:
    return [entry for batch in said.of(TokenBatch) for entry in batch.entries]


def test_log_probabilities_stay_with_their_request_until_it_ends() -> None:
    """They come once, survive a retract in mid-prompt, and are said again to a new detokenizer."""
    said = Said()
    actor = SchedulerActor(SchedulerConfig(max_model_len=256, chunked_prefill_size=16, overlap=0), said, quiet)
    actor.receive("executor", READY)
    actor.receive("tokenizer", asking(1))
    step(actor, said, 50)
    actor.peer_restarted("executor", 2)  # its first chunk was scored, and is scored again
    actor.receive("executor", READY)
    for token in (0, 0, 60, 61):
        step(actor, said, token)
    scores = b"".join(packed(position, 0) for position in range(1, 40))
    first, second = entries_of(said)
    assert first.opening is not None
    assert first.opening.prompt_logprobs == scores
    assert (first.logprobs, second.logprobs) == (packed(60, 1), packed(61, 1))
    actor.peer_restarted("detokenizer", 3)
    again = entries_of(said)[-1]
    assert again.opening == first.opening
    assert (unpack_ids(again.ids), again.logprobs) == ([60, 61], packed(60, 1) + packed(61, 1))
    asyncio.run(actor.stop())


def test_what_an_earlier_life_has_scored_is_not_scored_again() -> None:
    said = Said()
    actor = SchedulerActor(SchedulerConfig(max_model_len=256, overlap=0), said, quiet)
    actor.receive("executor", READY)
    actor.receive("tokenizer", asking(1, resume=pack_ids([50, 51])))
    plan = step(actor, said, 60)
    assert not any(flags & ROW_SCORE for flags in unpack_ids(plan.rows)[ROW_FLAGS::ROW_INTS])
    [entry] = entries_of(said)
    assert entry.opening is not None
    assert entry.opening.prompt_logprobs == b""
    assert entry.logprobs == bytes(2 * entry_bytes(1)) + packed(60, 1)
    asyncio.run(actor.stop())


def test_a_failed_row_ends_its_request_alone() -> None:
    said = Said()
    actor = SchedulerActor(SchedulerConfig(max_model_len=256, overlap=0), said, quiet)
    actor.receive("executor", READY)
    for request in (1, 2):
        actor.receive("tokenizer", asking(request, namespace=f"{request}"))
    step(actor, said, 50, failed=0)
    [refused] = said.of(Refused)
    [entry] = entries_of(said)
    assert (refused.request, refused.error.code) == (1, "row_failed")
    assert (entry.request, unpack_ids(entry.ids), entry.logprobs) == (2, [51], packed(51, 1))
    asyncio.run(actor.stop())


def test_an_opening_has_the_ids_that_its_settings_read() -> None:
    """Nothing for neutral settings, the reply for what counts in it, everything for what counts in all."""
    plain = submit(1)
    outputs = array("i", [50, 51])
    words = {"bad_word_ids": pack_ids([1, 2, 3]), "bad_word_ends": pack_ids([1, 3])}
    for changes, history in (
        ({}, (0, [])),
        ({"sampling": SamplingParams(seed=1, presence_penalty=0.5)}, (10, [50, 51])),
        (words, (10, [50, 51])),
        ({"bad_word_ids": pack_ids([1, 2]), "bad_word_ends": pack_ids([1, 2])}, (0, [])),
        ({"sampling": SamplingParams(seed=1, repetition_penalty=1.1)}, (0, [*range(10), 50, 51])),
    ):
        opening = slot_opening(3, msgspec.structs.replace(plain, **changes), outputs)
        assert (opening.history_first, unpack_ids(opening.history)) == history, changes


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"sampling": SamplingParams(seed=1, logit_bias=((100, 1.0),))}, "logit_bias"),
        ({"sampling": SamplingParams(seed=1, allowed_token_ids=(5, 100))}, "allowed_token_ids"),
        ({"bad_word_ids": pack_ids([100]), "bad_word_ends": pack_ids([1])}, "bad_words"),
    ],
)
def test_an_id_that_the_model_has_no_logit_for_is_refused(changes: dict[str, Any], param: str) -> None:
    """A tokenizer may know more ids than the model."""
    said = Said()
    actor = SchedulerActor(SchedulerConfig(max_model_len=256), said, quiet)
    actor.receive("executor", READY)
    actor.receive("tokenizer", msgspec.structs.replace(submit(1), **changes))
    [refused] = said.of(Refused)
    assert refused.error.param == param
    asyncio.run(actor.stop())
