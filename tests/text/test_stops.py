"""The stop automaton, against the plainest search."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenspeed.text.stops import StopMatcher

words = st.text("ab[^-]\\", min_size=1, max_size=4)


def first_complete(text: str, stops: list[str]) -> tuple[int, str] | None:
    """Return where the first complete stop string ends; the longest of those that end there."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            return end, max(found, key=len)
    return None


@settings(deadline=None, max_examples=200)
@given(st.lists(words, max_size=5), st.text("abc[^-]\\", max_size=30))
def test_finds_what_a_search_finds(stops: list[str], text: str) -> None:
    assert StopMatcher(stops).read(text) == first_complete(text, stops)


@settings(deadline=None, max_examples=100)
@given(st.lists(words, min_size=1, max_size=5), st.text("ab[^-]", max_size=20), st.integers(0, 20))
def test_reading_in_two_parts_changes_nothing(stops: list[str], text: str, cut: int) -> None:
    matcher = StopMatcher(stops)
    first = matcher.read(text[:cut])
    if first is not None:
        assert first == first_complete(text, stops)
        return
    second = matcher.read(text[cut:])
    found = None if second is None else (second[0] + len(text[:cut]), second[1])
    assert found == first_complete(text, stops)


@settings(deadline=None, max_examples=100)
@given(st.lists(words, min_size=1, max_size=5), st.text("ab[^-]", max_size=20))
def test_holds_back_no_more_than_the_longest_beginning(stops: list[str], text: str) -> None:
    matcher = StopMatcher(stops)
    if matcher.read(text) is None:
        beginnings = [stop[:size] for stop in stops for size in range(1, len(stop))]
        assert matcher.pending == max((len(part) for part in beginnings if text.endswith(part)), default=0)


@pytest.mark.parametrize(
    ("stops", "text", "expected"),
    [
        (["abcd", "bc"], "xabcd", (4, "bc")),  # complete first
        (["bc", "abc"], "xabcd", (4, "abc")),  # complete together: the longer one
        (["ab", "abc"], "abc", (2, "ab")),
        (["aab"], "aaab", (4, "aab")),
        ([], "abc", None),
    ],
)
def test_which_match_wins(stops: list[str], text: str, expected: tuple[int, str] | None) -> None:
    assert StopMatcher(stops).read(text) == expected
