from __future__ import annotations

from msgspec import structs

from tokenspeed.engine.totals import COUNTERS, Totals
from tokenspeed.messages.engine import SchedulerStats


def told(steps: int, waiting: int = 0) -> SchedulerStats:
    nothing = SchedulerStats.nothing()
    times = (steps, *nothing.step_times[1:])
    return structs.replace(nothing, steps=steps, requests_waiting=waiting, step_times=times)


def test_counters_go_on_over_lives_and_gauges_are_of_this_one() -> None:
    totals = Totals()
    assert totals.told(told(10, waiting=3)).steps == 10
    assert totals.told(told(12)).steps == 12
    totals.begin_life()
    assert totals.last.steps == 12
    first = totals.told(told(1, waiting=2))
    assert (first.steps, first.step_times[0], first.requests_waiting) == (13, 13, 2)
    totals.begin_life()
    assert totals.told(told(4)).steps == 17


def test_gauges_are_no_counters() -> None:
    assert {"steps", "retractions", "tokens_lost", "step_tokens"} <= set(COUNTERS)
    assert not [name for name in COUNTERS if name.startswith(("requests_", "pages_")) or name == "call"]
