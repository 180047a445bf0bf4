"""The scheduler's promises one by one, on plans small enough to read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.scheduling.model import Model, quads
from tokenspeed.capi import ffi
from tokenspeed.errors import EngineError
from tokenspeed.ipc.trace import Trace, TraceFile, TraceReader
from tokenspeed.messages.base import pack_ids, unpack_ids
from tokenspeed.messages.executor import ROW_DECODE, ROW_SAMPLE, ROW_SCORE
from tokenspeed.points import Wait, rows_and_tokens
from tokenspeed.scheduling.scheduler import (
    OUTCOME,
    CoreConfig,
    DuplicateRequestError,
    NeverFitsError,
    Plan,
    Scheduler,
    replay,
    transitions,
)


def config(**changes: Any) -> CoreConfig:
    """Return a small configuration: pages of 4, 63 of them, 4 slots, 16 prefill tokens a step."""
    base: dict[str, Any] = {
        "page_tokens": 4,
        "pages_total": (64,),
        "windows": (0,),
        "slots": 4,
        "step_tokens": 16,
        "step_tokens_mixed": 8,
        "max_model_len": 128,
        "overlap": 0,
    }
    return CoreConfig(**{**base, **changes})


def prompt(tokens: int, first: int = 100) -> list[int]:
    return list(range(first, first + tokens))


def rows_of(plan: Plan | None) -> list[tuple[int, int, int, int]]:
    """Return the rows as (slot, tokens, context, flags)."""
    assert plan is not None
    return list(quads(plan.rows))


def step(model: Model) -> list[tuple[int, int, int, int]]:
    """Run one step to its end and return its rows."""
    rows = rows_of(model.plan())
    model.result()
    model.audit()
    return rows


def states(model: Model) -> Iterator[str]:
    return (model.core.state(request) for request, known in model.requests.items() if known.live)


# One request.


def test_a_prompt_is_cut_at_page_boundaries_except_its_last_chunk() -> None:
    model = Model(config(step_tokens=15))
    model.submit(1, prompt(30), 2)
    assert step(model) == [(1, 12, 0, 0)]
    assert step(model) == [(1, 12, 12, 0)]
    assert step(model) == [(1, 6, 24, ROW_SAMPLE)]
    assert step(model) == [(1, 1, 30, ROW_SAMPLE | ROW_DECODE)]
    assert model.plan() is None
    model.drain()


def test_a_request_ends_with_max_tokens_and_with_an_end_id() -> None:
    for end_ids, finish in ((), "length"), ((7,), "stop"):
        core = Scheduler(config())
        core.submit(0, 1, pack_ids(prompt(3)), max_tokens=2, end_ids=end_ids)
        plan = core.plan(1)
        assert plan is not None
        assert plan.sample_rows == 1
        (first,) = core.result(2, plan.step, 1, pack_ids([1]), pack_ids([5]))
        assert first == (1, 0, pack_ids([5]), "", 0)
        plan = core.plan(3)
        assert plan is not None
        (last,) = core.result(4, plan.step, 1, pack_ids([1]), pack_ids([7]))
        assert last == (1, 1, pack_ids([7]), finish, 0)
        assert core.plan(5) is None


def test_resumed_output_is_prefilled_and_counts() -> None:
    core = Scheduler(config())
    core.submit(0, 1, pack_ids(prompt(3)), resume=pack_ids([8, 9]), max_tokens=3)
    plan = core.plan(1)
    assert plan is not None
    assert unpack_ids(plan.ids) == [100, 101, 102, 8, 9]
    assert core.result(2, plan.step, 1, pack_ids([1]), pack_ids([4])) == [(1, 2, pack_ids([4]), "length", 0)]


def test_a_step_is_planned_before_the_result_of_the_last_one() -> None:
    model = Model(config(overlap=1))
    model.submit(1, prompt(5), 4)
    assert rows_of(model.plan()) == [(1, 5, 0, ROW_SAMPLE)]
    assert rows_of(model.plan()) == [(1, 1, 5, ROW_SAMPLE | ROW_DECODE)]
    assert model.plan() is None  # two in flight
    model.result()
    assert rows_of(model.plan()) == [(1, 1, 6, ROW_SAMPLE | ROW_DECODE)]
    model.drain()


def test_the_row_after_an_end_id_is_thrown_away_and_pins_until_then() -> None:
    core = Scheduler(config(overlap=1))
    core.submit(0, 1, pack_ids(prompt(5)), max_tokens=9, end_ids=(7,))
    first, second = core.plan(1), core.plan(1)
    assert first is not None
    assert second is not None
    assert core.result(2, first.step, 1, pack_ids([1]), pack_ids([7])) == [(1, 0, pack_ids([7]), "stop", 0)]
    assert core.state(1) == "Finished"
    stats = core.stats()
    assert (stats.pages_zombie, stats.slots_zombie, stats.pages_cached_leased) == (1, 1, 1)
    assert core.result(3, second.step, 1, pack_ids([1]), pack_ids([3])) == []
    stats = core.stats()
    assert (stats.pages_zombie, stats.slots_free, stats.pages_cached_idle) == (0, 4, 1)
    with pytest.raises(EngineError, match="there is none"):
        core.state(1)


def test_wide_rows_take_as_many_ids_as_were_accepted() -> None:
    core = Scheduler(config(overlap=1, width=4))
    core.submit(0, 1, pack_ids(prompt(5)), max_tokens=10)
    plan = core.plan(1)
    assert plan is not None
    core.result(2, plan.step, 1, pack_ids([1]), pack_ids([50]))
    first, second = core.plan(3), core.plan(3)
    assert first is not None
    assert second is not None
    assert rows_of(first) == [(1, 4, 5, ROW_SAMPLE | ROW_DECODE)]
    assert rows_of(second) == [(1, 4, 9, ROW_SAMPLE | ROW_DECODE)]  # an upper bound
    assert core.result(4, first.step, 1, pack_ids([3]), pack_ids([1, 2, 3])) == [(1, 1, pack_ids([1, 2, 3]), "", 0)]
    assert core.result(5, second.step, 1, pack_ids([1]), pack_ids([4])) == [(1, 4, pack_ids([4]), "", 0)]
    plan = core.plan(6)
    assert rows_of(plan) == [(1, 4, 9, ROW_SAMPLE | ROW_DECODE)]
    assert plan is not None
    with pytest.raises(EngineError, match="has 5 ids for a row; allowed are 1 to 4"):
        core.result(7, plan.step, 1, pack_ids([5]), pack_ids([1] * 5))
    assert core.result(7, plan.step, 1, pack_ids([4]), pack_ids([5, 6, 7, 8]))[0].finish == ""
    plan = core.plan(8)
    assert rows_of(plan) == [(1, 1, 13, ROW_SAMPLE | ROW_DECODE)]  # one token is left
    core.check()


def test_ids_after_an_end_id_in_one_row_are_dropped() -> None:
    core = Scheduler(config(width=4))
    core.submit(0, 1, pack_ids(prompt(5)), max_tokens=10, end_ids=(7,))
    plan = core.plan(1)
    assert plan is not None
    core.result(2, plan.step, 1, pack_ids([1]), pack_ids([1]))
    plan = core.plan(3)
    assert plan is not None
    outcomes = core.result(4, plan.step, 1, pack_ids([4]), pack_ids([2, 7, 3, 3]))
    assert outcomes == [(1, 1, pack_ids([2, 7]), "stop", 0)]


# The cache.


def test_a_second_request_finds_the_whole_pages_of_the_first() -> None:
    model = Model(config())
    model.submit(1, prompt(10), 1)
    model.drain()
    model.submit(2, [*prompt(10), 1, 2], 1)
    assert step(model) == [(1, 4, 8, ROW_SAMPLE)]
    assert model.core.cached_tokens(2) == 8


def test_the_page_of_the_last_token_is_never_leased() -> None:
    model = Model(config())
    model.submit(1, prompt(8), 1)
    model.drain()
    model.submit(2, prompt(8), 1)
    assert step(model) == [(1, 4, 4, ROW_SAMPLE)]
    model.drain()
    assert model.core.stats().pages_cached_idle == 2  # the page computed twice is kept once


def test_generated_tokens_are_found_by_the_next_turn() -> None:
    model = Model(config())
    model.submit(1, prompt(6), 8)
    model.drain()
    reply = model.requests[1].tokens
    assert len(reply) == 14
    model.submit(2, [*reply, 1, 2, 3], 1)
    assert rows_of(model.plan())[0][2] == 12  # 13 tokens have KV: three whole pages


def test_prefixes_are_shared_inside_a_namespace_only() -> None:
    model = Model(config())
    model.submit(1, prompt(10), 1, namespace=b"a" * 16)
    model.drain()
    model.submit(2, prompt(10), 1, namespace=b"b" * 16)
    assert step(model) == [(1, 10, 0, ROW_SAMPLE)]


def test_without_prefix_caching_nothing_is_found() -> None:
    model = Model(config(prefix_caching=False))
    for request in (1, 2):
        model.submit(request, prompt(10), 1)
        assert step(model) == [(1, 10, 0, ROW_SAMPLE)]
    assert model.core.stats().pages_free == 63


def test_simultaneous_requests_compute_a_common_head_once() -> None:
    model = Model(config(slots=64, pages_total=(1024,), step_tokens=64, step_tokens_mixed=64), ample=True)
    for request in range(1, 65):
        model.submit(request, [*prompt(64), request, request], 2, session=request)
    model.drain()
    assert model.computed_tokens == 64 + 64 * 2
    assert model.core.stats().tokens_cached == 63 * 64


def test_a_higher_priority_does_not_wait_for_a_lower_one() -> None:
    model = Model(config())
    model.submit(1, prompt(40), 1)
    step(model)
    model.submit(2, prompt(40), 1, priority=1)
    model.submit(3, prompt(40), 1)
    step(model)
    assert list(states(model)) == ["Prefilling", "Prefilling", "Submitted"]
    model.drain()


def test_the_first_waiter_takes_over_when_the_one_it_waits_for_ends() -> None:
    model = Model(config(overlap=1), ample=True)
    for request in (1, 2, 3):
        model.submit(request, prompt(40, 100), 1, session=request)
    model.plan()
    model.plan()
    assert list(states(model)) == ["Prefilling", "Submitted", "Submitted"]
    model.result()
    model.cancel(1)
    model.result()
    rows = rows_of(model.plan())
    assert list(states(model)) == ["Prefilling", "Submitted"]
    assert rows[0][2] == 16  # what came back before the cancel is found, the rest is dropped
    model.drain()


def test_a_flush_frees_what_is_idle_and_forgets_the_rest() -> None:
    model = Model(config())
    model.submit(1, prompt(8), 1)
    model.drain()
    model.submit(2, prompt(20, 500), 9)
    step(model)
    assert model.core.flush() == 2
    assert model.core.stats().pages_cached_leased == 4
    model.flush()
    model.drain()
    assert model.core.stats().pages_free == 63
    model.submit(3, prompt(20, 500), 1)
    assert rows_of(model.plan())[0][2] == 0


def test_two_groups_with_a_window() -> None:
    model = Model(config(pages_total=(64, 8), windows=(0, 8), step_tokens=8))
    model.submit(1, prompt(40), 12)
    model.drain()  # the window group holds 7 pages, the sequence has 13
    reply = model.requests[1].tokens
    model.submit(2, [*reply[:41], 7], 2)
    assert rows_of(model.plan())[0][2] in range(4, 41, 4)
    model.drain()


# Sharing a step.


def test_decode_rows_go_along_with_chunks() -> None:
    model = Model(config())
    model.submit(1, prompt(4), 8)
    step(model)
    model.submit(2, prompt(30, 500), 1)
    assert step(model) == [(1, 1, 4, 3), (2, 8, 0, 0)]
    assert step(model) == [(1, 1, 5, 3), (2, 8, 8, 0)]
    model.drain()


def test_a_short_prompt_overtakes_a_long_one_that_keeps_half() -> None:
    model = Model(config())
    model.submit(1, prompt(100, 1000), 1, session=1)
    step(model)
    model.submit(2, prompt(90, 3000), 1, session=2)
    model.submit(3, prompt(6, 5000), 1, session=3)
    assert step(model) == [(1, 8, 16, 0), (2, 6, 0, ROW_SAMPLE)]
    assert [model.core.state(request) for request in (1, 2)] == ["Prefilling", "Submitted"]
    model.drain()


def test_a_session_with_many_requests_does_not_starve_another() -> None:
    model = Model(config(slots=8, pages_total=(512,)))
    model.submit(99, prompt(64, 9000), 1, session=9)
    for request in range(1, 21):
        model.submit(request, prompt(12, request * 100), 1, session=1)
    ended = []
    while model.requests[99].live:
        step(model)
        ended = [request for request in range(1, 21) if not model.requests[request].live]
    assert 1 <= len(ended) <= 8  # about as many prompt tokens as the other session


def test_waiting_makes_shorter() -> None:
    core = Scheduler(config(slots=1, step_tokens=8))
    core.submit(0, 1, pack_ids(prompt(40, 500)), max_tokens=1, session=1)
    core.submit(200_000, 2, pack_ids(prompt(8, 900)), max_tokens=1, session=2)
    plan = core.plan(200_000)
    assert plan is not None
    assert plan.openings == [(1, 1)]


def test_priority_stands_above() -> None:
    core = Scheduler(config(slots=1))
    core.submit(0, 1, pack_ids(prompt(4, 500)), max_tokens=1)
    core.submit(0, 2, pack_ids(prompt(100, 900)), max_tokens=1, priority=1)
    plan = core.plan(0)
    assert plan is not None
    assert plan.openings == [(1, 2)]


def test_within_a_session_the_first_goes_first() -> None:
    core = Scheduler(config(slots=1))
    core.submit(0, 1, pack_ids(prompt(100, 500)), max_tokens=1, session=5)
    core.submit(0, 2, pack_ids(prompt(4, 900)), max_tokens=1, session=5)
    plan = core.plan(0)
    assert plan is not None
    assert plan.openings == [(1, 1)]


# Out of pages.


def test_admission_leaves_room_for_those_that_run() -> None:
    model = Model(config(pages_total=(14,), growth_tokens=16))
    model.submit(1, prompt(16), 30)
    step(model)
    model.submit(2, prompt(16, 500), 30)
    step(model)
    assert list(states(model)) == ["Decoding", "Submitted"]
    model.drain()
    assert model.core.stats().retractions == 0


def test_whoever_loses_least_is_retracted_and_keeps_its_ids() -> None:
    model = Model(config(pages_total=(18,), growth_tokens=0))
    model.submit(1, prompt(12, 100), 40, session=1)
    model.submit(2, prompt(14, 300), 20, session=2)
    model.submit(3, prompt(8, 600), 20, session=3)
    before: dict[int, list[int]] = {}
    while model.core.stats().retractions == 0:
        before = {number: list(request.tokens) for number, request in model.requests.items()}
        step(model)
    assert list(states(model)) == ["Decoding", "Decoding", "Retracted"]
    model.submit(4, prompt(3, 900), 1, session=4)
    step(model)
    assert model.core.state(4) == "Submitted"  # nothing new until something finished or resumed
    model.drain()
    tokens = model.requests[3].tokens
    assert tokens[: len(before[3])] == before[3]
    assert len(tokens) == 28


def test_many_retractions_end_with_the_same_tokens_as_none() -> None:
    replies = []
    for pages in (16, 400):
        model = Model(config(pages_total=(pages,), growth_tokens=0, slots=6, overlap=1))
        for request in range(1, 13):
            model.submit(request, prompt(5 + request, request * 50), 30, session=request)
        model.drain()
        replies.append([model.requests[request].tokens for request in range(1, 13)])
        assert (model.core.stats().retractions > 0) == (pages == 16)
    assert replies[0] == replies[1]


@pytest.mark.parametrize(
    ("prompt_tokens", "max_tokens", "message"),
    [
        (100, 29, "The prompt has 100 tokens and max_tokens is 29, 129 in all; the model's context has 128 tokens"),
        (50, 31, "81 in all: 21 pages of the KV cache; it has 20 pages of 4 tokens"),
    ],
)
def test_what_can_never_fit_is_refused_with_the_numbers(prompt_tokens: int, max_tokens: int, message: str) -> None:
    core = Scheduler(config(pages_total=(21,)))
    with pytest.raises(NeverFitsError, match=message) as caught:
        core.submit(0, 1, pack_ids(prompt(prompt_tokens)), max_tokens=max_tokens)
    assert (caught.value.status, caught.value.code) == (400, "context_length_exceeded")
    assert core.submit(0, 1, pack_ids(prompt(8)), max_tokens=8)


# Ends.


def test_a_cancel_that_comes_first_swallows_the_submit() -> None:
    core = Scheduler(config())
    assert not core.cancel(0, 1)
    assert core.stats().tombstones == 1
    assert not core.submit(0, 1, pack_ids(prompt(4)), max_tokens=1)
    assert core.stats().tombstones == 0
    core.cancel(0, 2)
    core.dropped(2)
    assert core.submit(0, 2, pack_ids(prompt(4)), max_tokens=1)
    assert core.plan(0) is not None


REACHED_BY = {  # prompt tokens, then plans and results, of a request alone
    ("Submitted", False): (9, ""),
    ("Prefilling", True): (30, "p"),
    ("Prefilling", False): (30, "pr"),
    ("PrefillDone", True): (9, "p"),
    ("PrefillDone", False): (9, "pr"),
    ("Decoding", True): (9, "pp"),
    ("Decoding", False): (9, "pprr"),
}


@pytest.mark.parametrize(("state", "in_flight"), REACHED_BY)
def test_cancel_in_every_state(state: str, in_flight: bool) -> None:
    prompt_tokens, moves = REACHED_BY[state, in_flight]
    model = Model(config(overlap=1))
    model.submit(3, prompt(prompt_tokens), 30)
    for move in moves:
        if move == "p":
            model.plan()
        else:
            model.result()
    cancel_in(model, state, in_flight)


@pytest.mark.parametrize("in_flight", [False, True])
def test_cancel_while_retracted(in_flight: bool) -> None:
    model = Model(config(overlap=1, pages_total=(18,), growth_tokens=0))
    for request in (1, 2, 3):
        model.submit(request, prompt(8 + request, request * 100), 40)
    while not (model.core.state(3) == "Retracted" and model._named(3) == in_flight):
        if model.plan() is None:
            model.result()
    cancel_in(model, "Retracted", in_flight)


def cancel_in(model: Model, state: str, in_flight: bool) -> None:
    """Cancel request 3, which is in `state`; everything it holds must come back."""
    assert model.core.state(3) == state
    model.cancel(3)
    model.audit()
    if in_flight:
        assert model.core.state(3) == "Aborting"
        model.cancel(3)
    else:
        with pytest.raises(EngineError, match="there is none"):
            model.core.state(3)
    model.drain()


def test_a_verdict_ends_a_request_and_keeps_its_pages() -> None:
    model = Model(config())
    model.submit(1, prompt(8), 20)
    for _ in range(6):
        step(model)
    with pytest.raises(EngineError, match="keeps 7 output tokens of 6"):
        model.core.verdict(0, 1, 7)
    assert model.core.verdict(0, 1, 3)
    assert not model.core.verdict(0, 1, 3)
    stats = model.core.stats()
    assert (stats.pages_cached_idle, stats.pages_owned, stats.slots_free) == (3, 0, 4)


def test_a_failed_step_ends_the_requests_it_names() -> None:
    model = Model(config(overlap=1))
    model.submit(1, prompt(4), 9)
    model.submit(2, prompt(4, 300), 9)
    model.plan()
    model.plan(fails=True)
    model.result()
    model.result()
    assert not any(request.live for request in model.requests.values())
    model.drain()


def test_a_prompt_to_be_scored_takes_nothing_from_the_cache_until_it_is_scored() -> None:
    model = Model(config(overlap=1, pages_total=(18,), growth_tokens=0), ample=False)
    model.submit(1, prompt(9), 1)
    model.drain()
    model.submit(2, prompt(9), 40, score=True)
    assert step(model) == [(1, 9, 0, ROW_SAMPLE | ROW_SCORE)]
    assert model.core.cached_tokens(2) == 0
    step(model)
    model.executor_lost()
    assert step(model)[0][1:] == (11, 0, ROW_SAMPLE)  # its scores were told with the first output
    model.drain()


def test_without_output_a_request_ends_with_its_prompt() -> None:
    model = Model(config(overlap=1))
    model.submit(1, prompt(20), 0)
    model.drain()
    assert model.requests[1].outputs == 0
    assert model.core.stats().pages_cached_idle == 5
    model.submit(2, prompt(20), 0)
    assert rows_of(model.plan()) == [(1, 4, 16, ROW_SAMPLE)]


def test_a_row_that_fails_ends_its_request_and_hides_what_begins_like_it() -> None:
    model = Model(config(overlap=1))
    for request in (1, 2):  # the second leases the pages of the first
        model.submit(request, [*prompt(12), request], 30)
        step(model)
    model.submit(3, prompt(8, 300), 30)
    model.plan(row_fails=True)  # that of request 3
    model.plan(row_fails=False)
    model.result()
    assert model.core.stats().pages_cached_leased == 3  # of another beginning
    model.submit(4, [*prompt(12), 4], 30)
    model.plan(row_fails=True)
    while model.flights:
        model.result()
        model.audit()
    assert not model.requests[4].live
    model.submit(5, [*prompt(12), 5], 1)
    while 5 not in {row.request for flight in model.flights for row in flight.rows}:
        model.plan()
    assert model.core.cached_tokens(5) == 0
    model.drain()


def test_a_lost_executor_makes_everything_that_ran_be_computed_again() -> None:
    model = Model(config(overlap=1))
    for request in (1, 2, 3):
        model.submit(request, prompt(10, request * 100), 12)
    for _ in range(9):
        if model.plan() is None:
            model.result()
    flight = model.flights[0].step
    delivered = {number: list(request.tokens) for number, request in model.requests.items()}
    model.executor_lost()
    assert set(states(model)) == {"Retracted"}
    assert model.core.stats().pages_free == 63
    with pytest.raises(EngineError, match=f"Step {flight} is not in flight"):
        model.core.result(0, flight, 0, b"", b"")
    model.drain()
    for number, known in model.requests.items():
        assert known.tokens[: len(delivered[number])] == delivered[number]
        assert known.outputs == 12


def test_a_thousand_requests_with_random_cancels_leave_nothing_behind() -> None:
    chance = random.Random(20)
    model = Model(config(overlap=1, pages_total=(80,), slots=8, growth_tokens=4))
    for request in range(1, 1001):
        head = prompt(chance.randrange(20), chance.choice([0, 0, 400]))
        model.submit(request, [*head, request], chance.randint(1, 12), session=request % 7)
        if chance.random() < 0.4:
            model.cancel(chance.randint(max(1, request - 9), request))
        for _ in range(2):
            if model.plan() is None and model.flights:
                model.result()
    model.drain()
    stats = model.core.stats()
    assert stats.pages_free + stats.pages_cached_idle == stats.pages_total == 79
    assert (stats.requests_waiting, stats.requests_running, stats.slots_free) == (0, 0, 8)


# The border.


def test_results_are_refused_out_of_order_or_wrong_and_nothing_changes() -> None:
    core = Scheduler(config(overlap=1))
    core.submit(0, 1, pack_ids(prompt(4)), max_tokens=9)
    first, second = core.plan(0), core.plan(0)
    assert first is not None
    assert second is not None
    before = core.stats()
    for number, counts, ids, message in [
        (second.step, [1], [1], "is not the oldest in flight, which is 1"),
        (9, [1], [1], "Step 9 is not in flight"),
        (first.step, [], [], "has 0 counts and 0 ids; its plan samples 1 rows"),
        (first.step, [1], [1, 2], "has 1 counts and 2 ids"),
        (first.step, [2], [1, 2], "has 2 ids for a row; allowed are 1 to 1, and -1 if it failed"),
        (first.step, [1], [-1], "has a negative id"),
    ]:
        with pytest.raises(EngineError, match=message):
            core.result(0, number, 0, pack_ids(counts), pack_ids(ids))
    with pytest.raises(EngineError, match="is not the oldest"):
        core.step_failed(0, second.step)
    with pytest.raises(DuplicateRequestError, match="Request 1: that id is in use"):
        core.submit(0, 1, pack_ids(prompt(4)), max_tokens=9)
    assert core.stats() == before
    core.check()


def test_a_wrong_configuration_is_refused() -> None:
    with pytest.raises(EngineError, match="slots is 0; allowed are 1 to 65536"):
        Scheduler(config(slots=0))
    with pytest.raises(EngineError, match="1 page totals and 2 windows"):
        Scheduler(config(windows=(0, 8)))


def test_the_same_events_give_the_same_plans() -> None:
    logs = []
    for _ in range(2):
        model = Model(config(overlap=1, pages_total=(20,), growth_tokens=0))
        for request in range(1, 20):
            model.submit(request, prompt(3 + request, request % 3 * 100), 10, session=request % 4)
        model.drain()
        logs.append(model.core.log())
    assert logs[0] == logs[1]
    replay(logs[0])


def test_outcomes_are_laid_out_as_in_c() -> None:
    assert ffi.sizeof("ts_outcome") == OUTCOME.size


def test_a_log_that_differs_is_refused() -> None:
    model = Model(config())
    model.submit(1, prompt(20), 3)
    model.drain()
    log = model.core.log()
    with pytest.raises(EngineError, match=r"The replay stops: event \d+ has another answer"):
        replay(log[:-1] + bytes([log[-1] ^ 1]))
    with pytest.raises(EngineError, match=r"event \d+ is cut short"):
        replay(log[:-3])
    with pytest.raises(EngineError, match="no log of a scheduler"):
        replay(b"something else")
    with pytest.raises(EngineError, match=r"of ABI version 999 and this library of \d+"):
        replay(log[:8] + (999).to_bytes(8, "little") + log[16:])
    with pytest.raises(EngineError, match="ends inside its configuration"):
        replay(log[:20])


def test_the_table_is_whole() -> None:
    table = transitions()
    assert list(table) == ["Submitted", "Prefilling", "PrefillDone", "Decoding", "Retracted", "Aborting", "Finished"]
    assert all(len(row) == 12 for row in table.values())
    for state, row in table.items():
        assert row["Verdict"] is not None, state  # an end is legal in every state
        assert row["Abort"] is not None, state
        if state != "Submitted":
            assert row["Result"] is not None, state  # a step may be in flight
    assert table["Retracted"]["Result"] == "Retracted"


def test_the_model_sees_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def confused(real: Any) -> Any:
        def plan(now_us: int) -> Plan | None:
            made = real(now_us)
            if made is None:
                return None
            pages = unpack_ids(made.pages)
            pages[3::4] = [1] * len(pages[3::4])
            return Plan(made.step, made.openings, made.rows, made.ids, pack_ids(pages), made.sample_rows, made.tokens)

        return plan

    model = Model(config())
    monkeypatch.setattr(model.core, "plan", confused(model.core.plan))
    model.submit(1, prompt(12), 4)
    with pytest.raises(AssertionError, match="reads"):
        model.drain()


# The trace.


def test_a_trace_tells_of_every_event_and_changes_nothing() -> None:
    buffer = TraceFile(1 << 12)
    trace, reader = Trace(buffer.fileno()), TraceReader(buffer.fileno())
    logs = []
    for traced in (False, True):
        model = Model(config(slots=1, step_tokens=8))
        if traced:
            model.core.trace_to(trace)
        model.submit(1, prompt(11), 2)
        model.submit(2, prompt(3, first=500), 3)
        while model.plan() is not None:
            model.result()
        logs.append(model.core.log())
    assert logs[0] == logs[1]
    told = [(each.kind.name, each.request, each.step, each.value) for each in reader.read()]
    assert [each for each in told if each[1]] == [
        ("SUBMITTED", 1, 0, 11),
        ("SUBMITTED", 2, 0, 3),
        ("ADMITTED", 1, 0, 0),
        ("CHUNK", 1, 1, 8),
        ("WAITS", 2, 0, Wait.SLOTS),
        ("CHUNK", 1, 2, 3),
        ("RESULT", 1, 2, 1),
        ("RESULT", 1, 3, 1),
        ("ENDED", 1, 0, 2),
        ("ADMITTED", 2, 0, 0),
        ("CHUNK", 2, 4, 3),
        ("RESULT", 2, 4, 1),
        ("RESULT", 2, 5, 1),
        ("RESULT", 2, 6, 1),
        ("ENDED", 2, 0, 3),
    ]
    planned = [each for each in told if each[0] == "PLANNED"]
    assert [(step, *rows_and_tokens(value)) for _, _, step, value in planned] == [
        (1, 1, 8),
        (2, 1, 3),
        (3, 1, 0),
        (4, 1, 3),
        (5, 1, 0),
        (6, 1, 0),
    ]
    buffer.close()
