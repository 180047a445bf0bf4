"""Ticks are round, rise and lie inside; a scale keeps the order."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenspeed_tools.report.scale import Scale, linear_ticks, log_range, log_ticks, nice_step, room_above

POSITIVE = st.floats(1e-6, 1e9)


@given(POSITIVE, st.floats(1.001, 1e6), st.integers(2, 12), st.booleans())
def test_ticks_rise_inside_and_are_about_as_many(low: float, factor: float, count: int, log: bool) -> None:
    high = low * factor
    ticks = (log_ticks if log else linear_ticks)(low, high, count)
    assert ticks == sorted(set(ticks))
    assert all(low * (1 - 1e-6) <= tick <= high * (1 + 1e-6) for tick in ticks)
    assert len(ticks) <= count + 1


@given(st.floats(1e-6, 1e9), st.integers(1, 20))
def test_a_step_is_round_and_no_larger_than_needed(span: float, count: int) -> None:
    step = nice_step(span, count)
    mantissa = step / 10 ** math.floor(math.log10(step) + 1e-9)
    assert min(abs(mantissa - nice) for nice in (1, 2, 2.5, 5, 10)) < 1e-6
    assert span / count <= step * (1 + 1e-6) <= 2.51 * span / count


def test_ticks_that_people_would_choose() -> None:
    assert linear_ticks(0, 100, 5) == [0, 20, 40, 60, 80, 100]
    assert linear_ticks(0, 0.31, 4) == [0, 0.1, 0.2, 0.3]
    assert log_ticks(3, 600, 8) == [5, 10, 20, 50, 100, 200, 500]
    assert log_ticks(3, 600, 5) == [3, 10, 30, 100, 300]
    assert log_ticks(1, 1e6, 4) == [1, 100, 1e4, 1e6]


@given(POSITIVE, st.floats(1.01, 1e6), st.tuples(st.floats(0, 1), st.floats(0, 1)), st.booleans())
def test_a_scale_keeps_the_order_and_the_ends(low: float, factor: float, at: tuple[float, float], log: bool) -> None:
    scale = Scale(low, low * factor, 400, 20, log)
    one, other = sorted(low + share * (low * factor - low) for share in at)
    assert scale(one) >= scale(other)
    assert scale(low) == pytest.approx(400)
    assert scale(low * factor * 2) == pytest.approx(20)


def test_a_scale_refuses_what_is_no_range() -> None:
    for low, high, log in ((1, 1, False), (2, 1, False), (0, 1, True)):
        with pytest.raises(ValueError, match="no range"):
            Scale(low, high, 0, 1, log)


@given(st.lists(st.floats(0, 1e9)))
def test_ends_hold_every_value(values: list[float]) -> None:
    assume(all(value == 0 or value > 1e-9 for value in values))
    assert room_above(values) > max(values, default=0)
    low, high = log_range(values)
    assert 0 < low < high
    assert all(low < value < high for value in values if value > 0)
