"""Two mailboxes joined by real rings, in one loop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.actors.toys import Item, Report, ToyMessage
from tests.actors.world import run
from tokenspeed.actors import mailbox as module
from tokenspeed.actors.edges import EdgeSpec, EdgeTable
from tokenspeed.actors.mailbox import Mailbox, MailboxForm, RecordError
from tokenspeed.errors import EngineError
from tokenspeed.ipc.ring import RingFiles
from tokenspeed.messages.base import Message
from tokenspeed.observe.page import StatusPage, Word

EDGES = [EdgeSpec("x", ("y",), 4096), EdgeSpec("y", ("x",), 4096), EdgeSpec("z", ("y",), 4096)]
OPEN = MailboxForm(backlog_bytes_max=None, in_place=False)


class Pair:
    """Mailboxes of x, y and z; y's failures and what it handled, in order, with "|" after each turn."""

    def __init__(self, page: StatusPage, table: EdgeTable, form: MailboxForm) -> None:
        self.table = table
        self.page = page
        self.handled: list[Any] = []
        self.failures: list[RecordError] = []
        receives = dict.fromkeys("xyz", ToyMessage)
        self.x, self.y, self.z = (Mailbox(receives, page.line(index), self.failures.append, form) for index in range(3))
        for name, box in (("x", self.x), ("y", self.y), ("z", self.z)):
            box.install(table.ends(name))

    def open(self, handler: Callable[[str, Message], None] | None = None) -> None:
        """Let y read."""
        self.y.open(handler or self._handle, lambda: self.handled.append("|"))

    def _handle(self, sender: str, message: Message) -> None:
        assert isinstance(message, Item)
        self.handled.append((sender, message.number))


@contextmanager
def pair(form: MailboxForm = OPEN) -> Iterator[Pair]:
    """Join mailboxes by `EDGES`, and close everything afterwards."""
    page, table = StatusPage.create(3), EdgeTable(EDGES)
    table.create(1)
    joined = Pair(page, table, form)
    try:
        yield joined
    finally:
        for box in (joined.x, joined.y, joined.z):
            box.close()
        table.close()
        page.close()


async def turns(count: int = 5) -> None:
    """Let the loop turn, with time for what the kernel reports."""
    for _ in range(count):
        await asyncio.sleep(0.002)


def numbers(handled: list[Any], sender: str) -> list[int]:
    """Return what came from `sender`."""
    return [entry[1] for entry in handled if entry[0] == sender]


def in_loop(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run an asynchronous test."""

    def wrapped() -> None:
        run(test())

    wrapped.__name__, wrapped.__doc__ = test.__name__, test.__doc__
    return wrapped


@in_loop
async def test_one_turn_takes_from_every_inbox_and_then_drains() -> None:
    with pair() as joined:
        joined.open()
        await turns()
        for number in range(3):
            joined.x.outbox.send("y", Item(number))
            joined.z.outbox.send("y", Item(number))
        await turns()
        assert joined.handled[-1] == "|"
        assert joined.handled.count("|") == 1
        assert numbers(joined.handled, "x") == numbers(joined.handled, "z") == [0, 1, 2]
        line = joined.page.line(1)
        assert (line[Word.RECORDS_IN], line[Word.TURNS]) == (6, 1)


@in_loop
async def test_a_sender_with_much_to_say_does_not_starve_another() -> None:
    with pair() as joined:
        count = module.RECORDS_PER_TURN + 10
        for number in range(count):
            joined.x.outbox.send("y", Item(number))
        joined.z.outbox.send("y", Item(0))
        assert joined.x.outbox.backlog("y") == 0
        joined.open()
        await turns()
        first_turn = joined.handled[: joined.handled.index("|")]
        assert numbers(first_turn, "x") == list(range(module.RECORDS_PER_TURN))
        assert numbers(first_turn, "z") == [0]
        assert numbers(joined.handled, "x") == list(range(count))


@in_loop
async def test_what_finds_the_ring_full_waits_in_order() -> None:
    with pair() as joined:
        for number in range(50):
            joined.x.outbox.send("y", Item(number, bytes(500)))
        joined.x.outbox.send("y", Item(50, bytes(50_000)))
        joined.x.outbox.send("y", Item(51))
        assert joined.x.outbox.backlog("y") > 60_000
        joined.open()
        await turns(20)
        assert numbers(joined.handled, "x") == list(range(52))
        assert joined.x.outbox.backlog("y") == joined.x.outbox.backlog_bytes == 0


@in_loop
async def test_nothing_is_read_while_a_receiver_lags() -> None:
    with pair(MailboxForm(backlog_bytes_max=10_000, in_place=False)) as joined:
        joined.open()
        for number in range(40):
            joined.y.outbox.send("x", Item(number, bytes(500)))
        assert joined.y.outbox.congested
        joined.z.outbox.send("y", Item(7))
        await turns()
        assert joined.handled == []
        joined.x.open(lambda sender, message: None, lambda: None)
        await turns()
        assert joined.handled == [("z", 7), "|"]


@in_loop
async def test_a_pause_holds_everything_back() -> None:
    with pair() as joined:
        joined.open()
        joined.y.pause()
        joined.x.outbox.send("y", Item(1))
        await turns()
        assert joined.handled == []
        joined.y.resume()
        await turns()
        assert joined.handled == [("x", 1), "|"]


@in_loop
async def test_what_a_dead_sender_had_said_is_handled_even_during_a_pause() -> None:
    def fail_on_one(sender: str, message: Message) -> None:
        assert isinstance(message, Item)
        if message.number == 1:
            raise ValueError("a bug")
        joined.handled.append((sender, message.number))

    with pair() as joined:
        joined.open(fail_on_one)
        joined.y.pause()
        for number in range(module.RECORDS_PER_TURN + 6):
            joined.x.outbox.send("y", Item(number))
        joined.z.outbox.send("y", Item(7))
        joined.y.drain("x")
        assert numbers(joined.handled, "x") == [0, *range(2, module.RECORDS_PER_TURN + 6)]
        assert [error.sender for error in joined.failures] == ["x"]
        assert numbers(joined.handled, "z") == []


@in_loop
async def test_a_fresh_edge_drops_what_was_on_the_old_one() -> None:
    with pair() as joined:
        for number in range(50):
            joined.x.outbox.send("y", Item(number, bytes(500)))
        touched = joined.table.renew("x", 2)
        joined.y.install(joined.table.ends("y", touched))
        joined.x.install(joined.table.ends("x", touched))
        assert joined.x.outbox.backlog("y") == 0
        joined.x.outbox.send("y", Item(99))
        joined.open()
        await turns()
        assert joined.handled == [("x", 99), "|"]


@in_loop
async def test_an_end_of_an_older_epoch_is_refused() -> None:
    with pair() as joined:
        [(grant, files)] = joined.table.ends("y", (EDGES[2],))
        stale = RingFiles.from_fds([os.dup(fd) for fd in files.fds()], files.capacity, grant.epoch + 1)
        with pytest.raises(EngineError, match="epoch"):
            joined.y.install([(grant, stale)])
        stale.close()


@in_loop
async def test_bytes_are_views_that_must_not_be_kept() -> None:
    kept: list[memoryview] = []

    def keep(sender: str, message: Message) -> None:
        assert isinstance(message, Item)
        assert isinstance(message.payload, memoryview)
        assert bytes(message.payload) == b"bytes"
        kept.append(message.payload)

    with pair(MailboxForm(backlog_bytes_max=None, in_place=True, poison=True)) as joined:
        joined.open(keep)
        joined.x.outbox.send("y", Item(1, b"bytes"))
        await turns()
        assert bytes(kept.pop()) != b"bytes"


@in_loop
async def test_bytes_are_copies_for_who_keeps_them() -> None:
    kept: list[Message] = []
    with pair(MailboxForm(backlog_bytes_max=None, in_place=False, poison=True)) as joined:
        joined.open(lambda sender, message: kept.append(message))
        joined.x.outbox.send("y", Item(1, b"bytes"))
        await turns()
        assert kept == [Item(1, b"bytes")]


@in_loop
async def test_a_failing_handler_costs_one_record_here() -> None:
    def fail_on_one(sender: str, message: Message) -> None:
        assert isinstance(message, Item)
        if message.number == 1:
            raise ValueError("no ones")
        handled.append(message.number)

    handled: list[int] = []
    with pair() as joined:
        joined.open(fail_on_one)
        for number in range(3):
            joined.x.outbox.send("y", Item(number))
        await turns()
        assert handled == [0, 2]
        [error] = joined.failures
        assert str(error) == "handling Item from x: ValueError: no ones"
        assert not error.unreadable


@in_loop
async def test_an_edge_with_a_record_that_cannot_be_decoded_is_not_read_on() -> None:
    with pair() as joined:
        joined.open()
        joined.x.outbox.send("y", Stranger("?"))
        joined.x.outbox.send("y", Item(1))
        joined.z.outbox.send("y", Item(2))
        await turns()
        [error] = joined.failures
        assert (error.sender, error.unreadable) == ("x", True)
        assert str(error).startswith("decoding Stranger from x: ValidationError")
        assert joined.handled == [("z", 2), "|"]


@in_loop
async def test_an_edge_from_an_unexpected_sender_is_refused() -> None:
    page, table = StatusPage.create(1), EdgeTable(EDGES)
    table.create(1)
    box = Mailbox({"x": ToyMessage}, page.line(0), lambda error: None, OPEN)
    with pytest.raises(EngineError, match="from z without a message type"):
        box.install(table.ends("y"))
    box.close()
    table.close()
    page.close()


class Stranger(Report, frozen=True):
    """A message that is not expected."""
