"""The status page."""

from __future__ import annotations

import os

import pytest

from tokenspeed.observe.page import LINE_BYTES, StatusPage, Word, now_us


def test_a_line_is_seen_through_another_mapping() -> None:
    page = StatusPage.create(3)
    reader = StatusPage(page.read_only_fd(), writable=False)
    mine, seen = page.line(1), reader.line(1)
    mine.begin(100, limit_us=7)
    mine.turned(200)
    mine.turned(300)
    mine.count(4, 5, 6)
    assert [seen[word] for word in Word] == [2, 300, 100, 7, 4, 5, 6]
    assert [reader.line(2)[word] for word in Word] == [0] * len(Word)
    mine.begin(400, limit_us=8)
    assert [seen[word] for word in Word] == [0, 400, 400, 8, 0, 0, 0]
    page.close()
    reader.close()


def test_an_actor_has_a_cache_line_of_its_own() -> None:
    page = StatusPage.create(5)
    assert LINE_BYTES == 64
    assert os.fstat(page.fileno()).st_size == 5 * LINE_BYTES
    assert len(page) == 5
    page.close()


@pytest.mark.parametrize("index", [-1, 2])
def test_lines_outside_the_page_are_refused(index: int) -> None:
    page = StatusPage.create(2)
    with pytest.raises(IndexError, match="2 lines"):
        page.line(index)
    page.close()


def test_closing_unmaps_and_ends_the_lines() -> None:
    page = StatusPage.create(1)
    line, descriptor = page.line(0), page.fileno()
    page.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    with pytest.raises(ValueError, match="released"):
        line.turned(1)


def test_the_clock_runs_in_microseconds() -> None:
    first, second = now_us(), now_us()
    assert 0 <= second - first < 1_000_000
