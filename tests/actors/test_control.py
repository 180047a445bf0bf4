"""The channel between supervisor and actor."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tokenspeed.actors.control import Channel, EdgeGrant, Failed, Open, Phase, Ready, Stop, Swap, channel_pair
from tokenspeed.errors import ErrorInfo


@pytest.fixture
def ends() -> Iterator[tuple[Channel, Channel]]:
    """Return the supervisor's and the actor's end."""
    ours, descriptor = channel_pair()
    theirs = Channel.adopt(descriptor)
    yield ours, theirs
    ours.close()
    theirs.close()


def test_messages_keep_their_order_and_borders(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    for message in (Open(), Stop()):
        ours.send(message)
    for answer in (Phase("loads"), Ready(), Failed(ErrorInfo(500, "x", "y"))):
        theirs.send(answer)
    assert [theirs.receive(), theirs.receive(), theirs.receive()] == [(Open(), []), (Stop(), []), None]
    assert [ours.receive() for _ in range(4)] == [
        (Phase("loads"), []),
        (Ready(), []),
        (Failed(ErrorInfo(500, "x", "y")), []),
        None,
    ]


def test_descriptors_come_with_their_message(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    swap = Swap(1, "a", 2, [EdgeGrant("a", 0, 4096, 2, 3)])
    descriptors = [os.memfd_create(name) for name in ("one", "two", "three")]
    ours.send(swap, descriptors)
    received = theirs.receive()
    assert received is not None
    assert received[0] == swap
    assert [os.fstat(fd).st_ino for fd in received[1]] == [os.fstat(fd).st_ino for fd in descriptors]
    assert not any(os.get_inheritable(fd) for fd in received[1])
    for descriptor in descriptors + received[1]:
        os.close(descriptor)


def test_a_side_that_ends_shows(ends: tuple[Channel, Channel]) -> None:
    ours, theirs = ends
    theirs.send(Ready())
    theirs.close()
    assert ours.receive() == (Ready(), [])
    with pytest.raises(EOFError):
        ours.receive()
    with pytest.raises(OSError, match="Broken pipe"):
        ours.send(Open())


def test_a_side_that_does_not_read_does_not_hold_up_the_other(ends: tuple[Channel, Channel]) -> None:
    _, theirs = ends

    def fill() -> None:
        for _ in range(100_000):
            theirs.send(Phase("x" * 1_000))

    with pytest.raises(BlockingIOError):
        fill()
