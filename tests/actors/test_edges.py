"""Wiring, and what becomes of rings."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tokenspeed.actors.edges import (
    SEGMENT_BYTES_MAX,
    EdgeSpec,
    EdgeTable,
    adopt_ends,
    check_edges,
    split_ends,
)

NAMES = ["home", "a", "b"]
EDGES = [EdgeSpec("home", ("a", "b"), 4096, address="all"), EdgeSpec("a", ("home",), 8192), EdgeSpec("a", ("b",), 4096)]


@pytest.fixture
def table() -> Iterator[EdgeTable]:
    """Return the rings of `EDGES` in epoch 1."""
    table = EdgeTable(EDGES)
    table.create(1)
    yield table
    table.close()


def test_sound_wiring_passes() -> None:
    check_edges(EDGES, NAMES)


@pytest.mark.parametrize(
    ("edges", "text"),
    [
        ([EdgeSpec("home", ("c",), 4096)], "'c' is no actor"),
        ([EdgeSpec("a", ("b",), 4096), EdgeSpec("a", ("b",), 8192)], "two edges from 'a' to 'b'"),
        ([EdgeSpec("a", ("b",), 4096, "x"), EdgeSpec("a", ("home",), 4096, "x")], "two edges from 'a' to 'x'"),
        ([EdgeSpec("a", ("b",), 5000)], "a capacity is a power of two"),
        ([EdgeSpec("a", ("b",), 32 << 20), EdgeSpec("b", ("a",), 32 << 20)], f"at most {SEGMENT_BYTES_MAX}"),
    ],
)
def test_unsound_wiring_is_refused(edges: list[EdgeSpec], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        check_edges(edges, NAMES)


def test_each_actor_gets_its_ends(table: EdgeTable) -> None:
    ends = {name: [(grant.peer, grant.reader) for grant, _ in table.ends(name)] for name in NAMES}
    assert ends == {
        "home": [("all", -1), ("a", 0)],
        "a": [("home", 0), ("home", -1), ("b", -1)],
        "b": [("home", 1), ("a", 0)],
    }


def test_a_new_life_renews_the_rings_that_it_touches(table: EdgeTable) -> None:
    old = {fd: os.fstat(fd).st_ino for _, files in table.ends("home") for fd in [files.segment_fd]}
    assert table.renew("b", 5) == (EDGES[0], EDGES[2])
    assert [table.epoch(edge) for edge in EDGES] == [5, 1, 5]
    renewed = table.ends("home", (EDGES[0],))
    assert [(grant.peer, grant.epoch) for grant, _ in renewed] == [("all", 5)]
    assert os.fstat(renewed[0][1].segment_fd).st_ino not in old.values()


def test_ends_survive_the_way_to_another_process(table: EdgeTable) -> None:
    grants, descriptors = split_ends(table.ends("a"))
    copies = [os.dup(descriptor) for descriptor in descriptors]
    adopted = adopt_ends(grants, copies)
    assert [grant for grant, _ in adopted] == grants
    for (_, ours), (_, theirs) in zip(table.ends("a"), adopted, strict=True):
        assert [os.fstat(fd).st_ino for fd in ours.fds()] == [os.fstat(fd).st_ino for fd in theirs.fds()]
        assert (ours.capacity, ours.epoch) == (theirs.capacity, theirs.epoch)
        theirs.close()
