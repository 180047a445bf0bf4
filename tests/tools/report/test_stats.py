"""Distributions, fronts and rates against their definitions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenspeed_tools.report.stats import TAIL, bin_width, ecdf, pareto_front, rates

# Few different values, so that equal ones are common.
COORDINATE = st.integers(0, 6).map(float)


@given(st.lists(st.floats(0, 1e6), max_size=60))
def test_a_distribution_says_how_many_are_at_most_this(values: list[float]) -> None:
    points = ecdf(values)
    assert len(points) == len(values)
    for at, share in dict(points).items():
        assert share == sum(value <= at for value in values) / len(values)


@pytest.mark.parametrize("total", [1000, 1001, 54_321])
def test_a_thinned_distribution_keeps_both_ends_and_lies_on_the_whole_one(total: int) -> None:
    points = ecdf(float(value) for value in range(total))
    assert len(points) <= 1000 + TAIL
    assert points[0] == (0, 1 / total)
    assert [value for value, _ in points[-TAIL:]] == [total - TAIL + index for index in range(TAIL)]
    assert all(share == (value + 1) / total for value, share in points)


@given(st.lists(st.tuples(COORDINATE, COORDINATE)))
def test_the_front_is_what_no_point_dominates(points: list[tuple[float, float]]) -> None:
    def dominated(one: tuple[float, float]) -> bool:
        return any(other != one and other[0] >= one[0] and other[1] >= one[1] for other in points)

    front = pareto_front(points)
    assert sorted(front) == [index for index, point in enumerate(points) if not dominated(point)]
    assert [points[index][0] for index in front] == sorted(points[index][0] for index in front)


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 5))), st.floats(0.01, 10))
def test_rates_lose_no_token(arrivals: list[tuple[float, int]], end_s: float) -> None:
    width_s = bin_width(end_s, 60)
    found = rates(arrivals, 0.0, end_s, width_s)
    lengths = [width_s] * (len(found) - 1) + [end_s - (len(found) - 1) * width_s]
    assert width_s <= lengths[-1] * (1 + 1e-6) or len(found) == 1
    total = sum(rate * length for (_, rate), length in zip(found, lengths, strict=True))
    assert total == pytest.approx(sum(tokens for _, tokens in arrivals))


def test_a_rate_by_hand() -> None:
    found = rates([(10.0, 4), (10.9, 2), (11.5, 6), (12.2, 3)], 10.0, 12.5, 1.0)
    assert found == [(10.0, 6.0), (11.0, 9 / 1.5)]
