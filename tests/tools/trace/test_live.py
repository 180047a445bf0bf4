"""The numbers of `top`, from points as they come."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenspeed_tools.trace.live import Live, Snapshot
from tokenspeed_tools.trace.recent import Recent
from tokenspeed_tools.trace.shares import IDLE, Shares

from tests.tools.trace.fake_engine import topology
from tests.tools.trace.histories import Chaos, Points, Tape, one_request
from tokenspeed.points import Finish, Kind, Point

MS = 1_000_000


def _seen(points: Points, now_ns: int) -> Snapshot:
    live = Live(topology(), 0)
    live.feed(points)
    return live.snapshot(now_ns, 0)


def _of(actor: str, *notes: tuple[int, Kind, int, int]) -> Points:
    """Points of one actor: time in ms, kind, request (or edge, or step), value."""
    return {
        actor: [
            Point(time_ms * MS, kind, 0 if kind >= Kind.PLAN_BEGIN else number, number, value)
            for time_ms, kind, number, value in notes
        ]
    }


def test_rates_are_those_of_the_last_seconds() -> None:
    points = _of(
        "scheduler",
        (1, Kind.APPLIED, 1, 0),
        *((time_ms, Kind.APPLIED, 2, 0) for time_ms in (9000, 9500)),
        (9000, Kind.RESULT, 1, 6),
        (9000, Kind.PLANNED, 2, (1 << 32) + 30),
    )
    now = _seen(points, 10_000 * MS)
    assert now.steps_per_s == pytest.approx(2 / 3)
    assert now.tokens_per_s == pytest.approx(2)
    assert now.prompt_tokens_per_s == pytest.approx(10)


def test_latencies_are_those_of_the_doors() -> None:
    points = _of(
        "engine",
        (1, Kind.RECEIVED, 1, 0),
        (2, Kind.OPENED, 1, 0),
        (41, Kind.WRITTEN, 1, 9),
        (51, Kind.WRITTEN, 1, 9),
        (60, Kind.FINISHED, 1, Finish.STOP),
        (71, Kind.WRITTEN, 1, 9),  # the end of its answer
        (72, Kind.WRITTEN, 2, 9),  # one that began before the looking did
        (82, Kind.WRITTEN, 2, 9),
    )
    now = _seen(points, 100 * MS)
    assert now.ttft_ms == (40,)
    assert now.itl_ms_p50 == pytest.approx(10)
    assert now.itl_ms_p99 == pytest.approx(19.8)


def test_a_request_that_is_not_streamed_has_a_ttft() -> None:
    points = _of("engine", (1, Kind.RECEIVED, 1, 0), (40, Kind.FINISHED, 1, Finish.STOP), (41, Kind.WRITTEN, 1, 9))
    assert _seen(points, 100 * MS).ttft_ms == (40,)


def test_what_has_ended_is_forgotten() -> None:
    live = Live(topology(), 0)
    live.feed(_of("engine", (1, Kind.OPENED, 1, 0), (2, Kind.FINISHED, 1, Finish.ABORT)))
    live.snapshot(11_000 * MS, 0)
    live.feed(_of("engine", (11_001, Kind.WRITTEN, 1, 9)))
    assert live.snapshot(11_002 * MS, 0).ttft_ms == ()


def test_the_queue_and_the_hits() -> None:
    points = _of(
        "scheduler",
        (1, Kind.SUBMITTED, 1, 100),
        (1, Kind.SUBMITTED, 2, 100),
        (1, Kind.SUBMITTED, 3, 100),
        (2, Kind.ADMITTED, 1, 64),
        (3, Kind.ADMITTED, 2, 0),
        (4, Kind.RETRACTED, 2, 100),
        (5, Kind.RESULT, 7, 1),  # it ran before the looking began
        (6, Kind.ENDED, 1, 1),
    )
    now = _seen(points, 10 * MS)
    assert (now.waiting, now.running) == (2, 1)
    assert now.hit_share == pytest.approx(0.32)
    counted = Live(topology(), 0).snapshot(1, 0, {"requests_running": 4, "requests_waiting": 5, "pages_free": 6})
    assert (counted.running, counted.waiting, counted.pages) == (4, 5, {"pages_free": 6})


def test_rings_fill_and_are_replaced() -> None:
    live = Live(topology(), 0)
    live.feed(_of("executor", (4, Kind.RING_RECEIVED, 0, 50), (9, Kind.RING_RECEIVED, 0, 10)))
    live.feed(_of("scheduler", (1, Kind.RING_SENT, 0, 10), (3, Kind.RING_SENT, 0, 50), (8, Kind.RING_SENT, 0, 10)))
    ring = live.snapshot(1000 * MS, 0).rings[0]
    assert (ring.writer, ring.reader, ring.fill_bytes, ring.messages_per_s) == ("scheduler", "executor", 60, 3)
    assert live.snapshot(1000 * MS, 0).rings[0].fill_bytes == 10
    live.feed(_of("executor", (1001, Kind.STARTED, 0, 0)))
    now = live.snapshot(1002 * MS, 0)
    assert now.rings[0].fill_bytes == 0
    assert now.restarts["executor"] == 1


def test_the_busy_share_of_a_loop() -> None:
    points = _of("detokenizer", (100, Kind.TURN_BEGIN, 0, 0), (350, Kind.TURN_END, 0, 3))
    assert _seen(points, 1000 * MS).busy["detokenizer"] == pytest.approx(0.25)


def test_shares_tell_where_time_went() -> None:
    tape = one_request(3, overlap=False)
    shares = Shares(0)
    shares.feed(tape.points)
    found = shares.shares(tape.now_ns, tape.now_ns / 1e9)
    assert {"plan", "compute: forward", IDLE} < found.keys()
    assert sum(found.values()) == pytest.approx(1)


def test_a_step_under_way_is_computing() -> None:
    shares = Shares(0)
    shares.feed(_of("executor", (100, Kind.COMPUTE_BEGIN, 1, 0)))
    assert shares.shares(1000 * MS, 1.0) == {"compute: now": pytest.approx(0.9), IDLE: pytest.approx(0.1)}


@settings(max_examples=25)
@given(st.randoms(use_true_random=False))
def test_whatever_happens_the_shares_are_of_one_time(random: object) -> None:
    chaos = Chaos(random)  # type: ignore[arg-type]  # what Hypothesis gives is one
    points = chaos.run(40)
    live = Live(topology(), 0)
    live.feed(points)
    now = live.snapshot(chaos.tape.now_ns, 0)
    assert sum(now.shares.values()) == pytest.approx(1)
    assert all(share >= 0 for share in now.shares.values())
    requests = {point.request for own in points.values() for point in own if point.request}
    assert now.waiting + now.running <= len(requests)


def test_nothing_yet() -> None:
    now = _seen(Tape().points, 0)
    assert now.shares == {IDLE: 1.0}
    assert (now.itl_ms_p50, now.hit_share, now.ttft_ms, now.pages) == (None, None, (), None)


def test_recent_amounts_are_forgotten() -> None:
    recent = Recent(1.0)
    recent.add(0, 5)
    recent.add(10**9, 2)
    assert recent.amounts(10**9) == [5, 2]
    assert recent.total(10**9 + 1) == 2
    assert recent.per_s(10**9 + 1, 10**9 + 1) == 0
