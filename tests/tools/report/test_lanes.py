"""What a timeline leaves out is said, and never the longest wait."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from tokenspeed_tools.bench.raw import Request
from tokenspeed_tools.report.lanes import LANES, lanes, wait_s

from tests.tools.report.synthetic import a_request

TIMES = st.lists(st.tuples(st.floats(0, 10), st.floats(0.01, 3)), min_size=1, max_size=80)


def made(times: list[tuple[float, float]]) -> list[Request]:
    """Return requests of one turn each, sent and waiting as told."""
    return [a_request(index, sent_s, ttft_s=wait) for index, (sent_s, wait) in enumerate(times)]


@given(TIMES, st.integers(5, 100))
def test_places_never_overlap_and_the_longest_wait_is_shown(times: list[tuple[float, float]], most: int) -> None:
    requests = made(times)
    found = lanes(requests, most)
    shown = [request for _, row in found.rows for request in row]
    assert len(shown) == len({request.index for request in shown}) <= most
    assert max(map(wait_s, shown)) == max(map(wait_s, requests))
    assert (found.note == "") == (len(shown) == len(requests))
    assert len(found.rows) <= LANES
    assert all(one.end_s <= other.sent_s for _, row in found.rows for one, other in pairwise(row))


def test_sessions_have_a_lane_each() -> None:
    requests = [a_request(index, index * 1.0, session=index % 3) for index in range(9)]
    found = lanes(requests, 100)
    assert found.what == "session"
    assert [(name, [request.index for request in row]) for name, row in found.rows] == [
        ("0", [0, 3, 6]),
        ("1", [1, 4, 7]),
        ("2", [2, 5, 8]),
    ]


def test_what_is_left_out_is_said() -> None:
    found = lanes(made([(float(index), 9.0 if index == 70 else 0.1) for index in range(100)]), 10)
    assert "10 of 100 requests" in found.note
    assert 70 in {request.index for _, row in found.rows for request in row}
