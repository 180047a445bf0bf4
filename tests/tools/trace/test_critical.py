"""A step's budget is filled by named rows, whatever overlaps and whatever got lost."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenspeed_tools.trace import critical
from tokenspeed_tools.trace.critical import OTHER, ROWS, Budget, budgets
from tokenspeed_tools.trace.delivery import LEGS, Way, ways
from tokenspeed_tools.trace.steps import Busy, Span

from tests.tools.trace.histories import Chaos, Tape, one_request
from tokenspeed.points import Kind


@settings(max_examples=40, deadline=None)
@given(st.randoms(use_true_random=False), st.integers(1, 60), st.booleans())
def test_rows_fill_every_budget_and_legs_every_way(random: Random, actions: int, lossy: bool) -> None:
    chaos = Chaos(random)
    points = chaos.run(actions)
    points = chaos.lossy() if lossy else points
    wholes: list[Budget | Way] = [*budgets(points), *ways(points)]
    for whole in wholes:
        assert sum(end - begin for _, begin, end in whole.parts) == whole.total_ns >= 0
        assert all(before.end_ns == after.begin_ns for before, after in pairwise(whole.parts))
        rows = {part.row for part in whole.parts}
        assert rows <= {*ROWS, *LEGS}
        assert lossy or OTHER not in rows


def test_overlapped_plans_cost_the_device_only_the_hand_over() -> None:
    found = budgets(one_request(5).points)
    assert [budget.step.number for budget in found] == [2, 3, 4, 5]
    hand_over = {critical.HAND_OVER, critical.HAND_OVER_BUSY}
    assert set(found[0].rows()) == {*hand_over, *critical.COMPUTE_ROWS[1:6]}
    assert found[1].step.kind == "decode"


def test_without_overlap_the_whole_way_of_result_and_plan_is_named() -> None:
    tape = one_request(3, overlap=False)
    for budget in budgets(tape.points):
        assert OTHER not in budget.rows()
        assert {critical.WAKES, critical.RESULT_RING, critical.APPLY, critical.PLAN, critical.PLAN_RING} < set(
            budget.rows()
        )
        assert budget.rows()[critical.LAUNCH] == 1000


def test_a_gpu_that_begins_before_all_is_queued_is_told_so() -> None:
    tape = one_request(2, overlap=False)
    without = [p for p in tape.points["executor"] if p.kind is not Kind.STAGE]
    launched = next(p for p in without if p.kind is Kind.LAUNCHED and p.step == 2)
    begin = next(p for p in without if p.kind is Kind.COMPUTE_BEGIN and p.step == 2)
    without[without.index(begin)] = begin._replace(time_ns=launched.time_ns - 400)
    (budget,) = budgets({**tape.points, "executor": sorted(without)})
    assert budget.rows()[critical.COMPUTE_QUEUED] == 400
    assert critical.HAND_OVER not in budget.rows()
    assert budget.parts[-1].row == critical.COMPUTE


def test_idle_time_is_nobodys() -> None:
    tape = one_request(1)
    tape.now_ns += 10**9
    tape.open(2)
    tape.note("scheduler", Kind.ADMITTED, 2)
    tape.plan(2, {2: 100}, 1)
    tape.launch(2)
    tape.compute(2)
    (budget,) = budgets(tape.points)
    assert budget.total_ns < 10**6
    assert budget.rows()[critical.PLAN_SENT] == 1000


def test_what_points_do_not_explain_is_other() -> None:
    tape = one_request(3, overlap=False)
    points = {**tape.points, "executor": [p for p in tape.points["executor"] if p.kind is not Kind.IDS_DOWN]}
    rows = budgets(points)[0].rows()
    assert rows[OTHER] == 2000  # up to the result's sending
    assert critical.WAKES not in rows
    ends_only = [point for point in tape.points["executor"] if point.kind is Kind.COMPUTE_END]
    assert critical.COMPUTE not in budgets({**tape.points, "executor": ends_only})[0].rows()


def test_a_loop_that_is_busy_is_named_and_not_the_ring() -> None:
    tape = one_request(2, overlap=False)
    sent = next(p.time_ns for p in tape.points["scheduler"] if p.kind is Kind.PLAN_SENT and p.step == 2)
    busy = Busy([Span(sent + 200, sent + 500), Span(sent + 400, sent + 600)])
    marks = list(critical._shared(sent, sent + 1000, busy, critical.EXECUTOR_BUSY, critical.PLAN_RING))
    parts = critical.fill(Span(sent, sent + 1000), [*marks, critical.Mark(sent + 1000, critical.PLAN_RING)])
    rows = [(row, end - begin) for row, begin, end in parts]
    assert rows == [(critical.PLAN_RING, 200), (critical.EXECUTOR_BUSY, 400), (critical.PLAN_RING, 400)]


def test_a_scheduler_that_counts_from_one_again_begins_new_steps() -> None:
    tape = one_request(2)
    again = Tape()
    again.now_ns = tape.now_ns
    again.open(2)
    again.plan(1, {2: 64}, 1)
    again.launch(1)
    again.compute(1)
    points = {actor: [*tape.points[actor], *again.points[actor]] for actor in tape.points}
    last = budgets(points)[-1]
    assert (last.step.number, last.step.chunks) == (1, {2: 64})
