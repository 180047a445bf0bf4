"""Pieces of an answer and the steps that they came with."""

from __future__ import annotations

import pytest
from tokenspeed_tools.trace.tokens import tokens_of

from tests.tools.trace.histories import one_request
from tokenspeed.points import Kind, Point


def _points(*notes: tuple[Kind, int, int]) -> list[Point]:
    """Points of one request, a nanosecond apart: kind, step, value."""
    return [Point(time_ns, kind, 1, step, value) for time_ns, (kind, step, value) in enumerate(notes)]


def _of_whole_request(begin: int = 0) -> list[Point]:
    points = [point for own in one_request(4).points.values() for point in own if point.request == 1]
    return sorted(points)[begin:]


def test_a_token_names_its_step() -> None:
    assert [(token.step, token.ids) for token in tokens_of(_of_whole_request())] == [(1, 1), (2, 1), (3, 1), (4, 1)]


def test_a_recording_that_begins_in_the_middle() -> None:
    points = _of_whole_request()
    begin = next(index for index, point in enumerate(points) if point.kind is Kind.RESULT and point.step == 3)
    assert [(token.step, token.ids) for token in tokens_of(points[begin:])] == [(3, 1), (4, 1)]


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        # Two outputs wait in the engine before the first is written.
        ([(Kind.DELTA, 0, 1), (Kind.DELTA, 0, 2), (Kind.WRITTEN, 0, 9), (Kind.WRITTEN, 0, 9)], [(1, 1), (2, 1)]),
        # The first brings no text, so nothing is written for it.
        ([(Kind.DELTA, 0, 1), (Kind.DELTA, 0, 3), (Kind.WRITTEN, 0, 9)], [(3, 3)]),
        # The end of the answer brings no ids.
        ([(Kind.DELTA, 0, 2), (Kind.WRITTEN, 0, 9), (Kind.WRITTEN, 0, 9)], [(0, 0), (2, 2)]),
    ],
)
def test_what_was_written_is_paired_with_what_was_delivered(
    notes: list[tuple[Kind, int, int]], expected: list[tuple[int, int]]
) -> None:
    opened = [(Kind.OPENED, 0, 1), (Kind.RESULT, 1, 1), (Kind.RESULT, 2, 1), (Kind.RESULT, 3, 1)]
    assert [(token.step, token.ids) for token in tokens_of(_points(*opened, *notes))] == expected


def test_nothing_written() -> None:
    assert list(tokens_of(_points((Kind.OPENED, 0, 1), (Kind.DELTA, 0, 1)))) == []
