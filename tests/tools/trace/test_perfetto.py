"""The encoding of Perfetto files, against Google's descriptors."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from tokenspeed_tools.trace.perfetto import Picture, Slice

from tests.tools.trace.perfetto_file import Found, read

TIMES = st.integers(0, 50)


def _file(picture: Picture) -> list[Found]:
    return read(b"".join(picture.encode(0, 1.5)))


def test_everything_that_can_be_drawn() -> None:
    picture = Picture()
    process = picture.process(42, "engine", 7)
    loop = picture.thread(42, 43, "loop")
    plain = picture.track("plain", process)
    counter = picture.counter("rows", "rows", process)
    inner = Slice("inner", 3, 4, {"text": "ä", "negative": -1, "large": 1 << 62}, flows=(9,))
    picture.slices(loop, [Slice("outer", 1, 5, inside=[inner]), Slice("next", 5, 6)])
    picture.instant(plain, 7, "instant", {}, 9)
    picture.count(counter, 2, 3)
    assert _file(picture) == [
        Found("loop 42", "outer", 1, 5, 0, {}, (), 0),
        Found("rows", "", 2, 2, 0, {}, (), 3),
        Found("loop 42", "inner", 3, 4, 1, {"text": "ä", "negative": -1, "large": 1 << 62}, (9,), 0),
        Found("loop 42", "next", 5, 6, 0, {}, (), 0),
        Found("plain", "instant", 7, 7, 0, {}, (9,), 0),
    ]


def _slices(depth: int) -> st.SearchStrategy[list[Slice]]:
    inside = _slices(depth - 1) if depth else st.just([])
    each = st.builds(Slice, st.sampled_from("abc"), TIMES, TIMES, st.just({}), inside, st.just(()))
    return st.lists(each, max_size=4)


@settings(max_examples=40)
@given(_slices(2))
def test_slices_nest_whatever_their_times(slices: list[Slice]) -> None:
    """What reaches out of its slice is cut; nothing is left out, and what was right stays as it was."""
    picture = Picture()
    picture.slices(picture.track("track"), slices)
    found = _file(picture) if slices else []
    assert len(found) == _count(slices)
    if len(slices) == 1 and slices[0].begin_ns <= slices[0].end_ns:
        assert (found[0].begin_ns, found[0].end_ns) == slices[0][1:3]


def _count(slices: list[Slice]) -> int:
    return len(slices) + sum(_count(list(each.inside)) for each in slices)


@given(st.lists(st.tuples(TIMES, st.sampled_from(["a", "b", "ü"]), st.integers(-(1 << 63), (1 << 63) - 1))))
def test_tracks_are_merged_in_the_order_of_time(events: list[tuple[int, str, int]]) -> None:
    picture = Picture()
    for name in sorted({name for _, name, _ in events}):
        track = picture.track(name)
        for time_ns, own, value in sorted(events):
            if own == name:
                picture.instant(track, time_ns, "x", {"value": value})
    found = [(each.begin_ns, each.track, each.arguments["value"]) for each in _file(picture)]
    assert sorted(found) == sorted(events)
