"""When an actor counts as frozen, and how often it may come back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tokenspeed.actors.health import (
    BACKOFF_MAX_S,
    RESTARTS_PER_MINUTE_MAX,
    RestartBudget,
    start_overdue,
    turn_overdue,
)
from tokenspeed.observe.page import StatusLine, StatusPage

STALL_US = 5_000_000
BEGAN_US = 1_000_000_000


@pytest.fixture
def line() -> Iterator[StatusLine]:
    """Return the line of an actor that began at `BEGAN_US` with 30 s for its first phase."""
    page = StatusPage.create(1)
    line = page.line(0)
    line.begin(BEGAN_US, limit_us=30_000_000)
    yield line
    page.close()


def test_a_starting_actor_has_the_time_that_it_asked_for(line: StatusLine) -> None:
    line.turned(BEGAN_US + 29_000_000)  # the loop turns, which says nothing about the phase
    assert start_overdue(line, BEGAN_US + 30_000_000, 0, STALL_US) is None
    assert start_overdue(line, BEGAN_US + 30_000_001, 0, STALL_US) == pytest.approx(30)
    line.announce(BEGAN_US + 30_000_000, 60_000_000)
    assert start_overdue(line, BEGAN_US + 90_000_000, 0, STALL_US) is None
    assert start_overdue(line, BEGAN_US + 90_000_001, 0, STALL_US) == pytest.approx(60)


def test_a_short_phase_has_at_least_the_stall_limit(line: StatusLine) -> None:
    line.announce(BEGAN_US, 10)
    assert start_overdue(line, BEGAN_US + STALL_US, 0, STALL_US) is None
    assert start_overdue(line, BEGAN_US + STALL_US + 1, 0, STALL_US) == pytest.approx(5)


def test_a_ready_actor_has_to_turn_its_loop(line: StatusLine) -> None:
    line.announce(BEGAN_US, 0)
    line.turned(BEGAN_US + 1_000_000)
    assert turn_overdue(line, BEGAN_US + 1_000_000 + STALL_US, 0, STALL_US) is None
    assert turn_overdue(line, BEGAN_US + 1_000_001 + STALL_US, 0, STALL_US) == pytest.approx(5)


def test_leave_lengthens_the_limit(line: StatusLine) -> None:
    line.turned(BEGAN_US)
    line.announce(BEGAN_US, 8_000_000)
    assert turn_overdue(line, BEGAN_US + 8_000_000, 0, STALL_US) is None
    assert turn_overdue(line, BEGAN_US + 8_000_001, 0, STALL_US) == pytest.approx(8)


def test_silence_while_the_watcher_itself_was_stopped_does_not_count(line: StatusLine) -> None:
    line.announce(BEGAN_US, 0)
    awake_since_us = BEGAN_US + 600_000_000
    assert turn_overdue(line, awake_since_us + STALL_US, awake_since_us, STALL_US) is None
    assert turn_overdue(line, awake_since_us + STALL_US + 1, awake_since_us, STALL_US) == pytest.approx(5)


def test_restarts_come_slower_and_end() -> None:
    budget = RestartBudget()
    delays = [budget.take(float(second)) for second in range(RESTARTS_PER_MINUTE_MAX)]
    assert delays[0] == 0
    assert delays == sorted({delay for delay in delays if delay is not None})
    assert delays[-1] == BACKOFF_MAX_S
    assert budget.take(float(RESTARTS_PER_MINUTE_MAX)) is None


def test_old_restarts_are_forgiven() -> None:
    budget = RestartBudget()
    for _ in range(RESTARTS_PER_MINUTE_MAX):
        assert budget.take(100.0) is not None
    assert budget.take(159.9) is None
    assert budget.take(160.1) == 0
