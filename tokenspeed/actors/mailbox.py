"""An actor's ends of its rings: inboxes that are read in turns, and an outbox that never blocks.

Owns readers, writers and what waits for room. It does not know what messages mean, nor whether it
lives in an actor's process or in the engine's. In one loop turn each inbox yields at most
`RECORDS_PER_TURN` records, so that no sender starves another.

Back-pressure: while more than `backlog_bytes_max` wait for room towards some receiver, nothing new
is read. This cannot deadlock: the engine's own mailbox has no such bound and always reads, so what
leads to the engine drains; then the detokenizer reads, so the scheduler's batches drain; the edges
of plans, results and verdicts hold a bounded number of small records and never reach the bound.

Invariant: records of one edge and epoch are handled once, in order, or not at all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import cast

import msgspec

from tokenspeed.actors.control import EdgeGrant
from tokenspeed.actors.edges import WRITER, Ends
from tokenspeed.actors.outbox import Outbox
from tokenspeed.errors import EngineError
from tokenspeed.ipc.codec import Decoder
from tokenspeed.ipc.ring import RingFiles, RingReader, RingWriter
from tokenspeed.ipc.trace import NOWHERE, Trace
from tokenspeed.messages.base import Message
from tokenspeed.observe.logs import describe
from tokenspeed.observe.page import StatusLine, now_us
from tokenspeed.points import Kind

RECORDS_PER_TURN = 64

BACKLOG_BYTES_MAX = 8 << 20

TURN_BEGIN, TURN_END = int(Kind.TURN_BEGIN), int(Kind.TURN_END)

OnMessage = Callable[[str, Message], None]


class RecordError(EngineError):
    """A record from `sender` could not be read, decoded or handled; the cause is chained.

    `unreadable` means that the edge is of no more use: what was on it is unknown.
    """

    code = "record_failed"

    def __init__(self, sender: str, what: str, cause: Exception, *, unreadable: bool) -> None:
        super().__init__(f"{what} from {sender}: {describe(cause)}")
        self.sender = sender
        self.unreadable = unreadable


class MailboxForm(msgspec.Struct, frozen=True):
    """How a mailbox treats records.

    Nothing is read while a receiver's backlog is above `backlog_bytes_max`. With `in_place`, bytes in
    a message are views that end with its handler, else copies. `poison` overwrites records once they
    are released, so that a view kept too long shows at once.
    """

    backlog_bytes_max: int | None
    in_place: bool
    poison: bool = False


class Inbox:
    """The reading end of one edge."""

    def __init__(self, sender: str, reader: RingReader, decoder: Decoder[Message]) -> None:
        self.sender = sender
        self.reader = reader
        self._decoder = decoder

    def take(self, on_message: OnMessage) -> tuple[int, bool]:
        """Handle up to `RECORDS_PER_TURN` records; return their number and whether the inbox now sleeps."""
        for taken in range(RECORDS_PER_TURN):
            record = self._next()
            if record is None:
                return taken, True
            try:
                self._handle(record, on_message)
            finally:
                self.reader.release()
        return RECORDS_PER_TURN, False

    def _next(self) -> memoryview | None:
        try:
            while True:
                record = self.reader.receive()
                if record is not None or self.reader.prepare_sleep():
                    return record
        except EngineError as error:
            raise RecordError(self.sender, "reading a record", error, unreadable=True) from error

    def _handle(self, record: memoryview, on_message: OnMessage) -> None:
        try:
            message = self._decoder.decode(record)
        except msgspec.MsgspecError as error:
            raise RecordError(self.sender, f"decoding {_tag(record)}", error, unreadable=True) from error
        try:
            on_message(self.sender, message)
        except Exception as error:
            raise RecordError(self.sender, f"handling {type(message).__name__}", error, unreadable=False) from error


class Mailbox:
    """All edges of one actor. Use it from the loop's thread only."""

    def __init__(
        self,
        receives: Mapping[str, object],
        line: StatusLine,
        on_failure: Callable[[RecordError], None],
        form: MailboxForm,
        trace: Trace = NOWHERE,
    ) -> None:
        self.outbox = Outbox(form.backlog_bytes_max, self.wake)
        self._trace = trace
        self._form = form
        self._receives = receives
        self._line = line
        self._on_failure = on_failure
        self._on_message: OnMessage | None = None
        self._on_drained: Callable[[], None] = _nothing
        self._paused = False
        self._turn_due = False
        self._inboxes: dict[str, Inbox] = {}
        self._records_in = 0
        self._loop = asyncio.get_running_loop()

    def install(self, ends: Ends) -> None:
        """Take these ends in the place of older ones and of all that was on those.

        The files stay the caller's, who may close them afterwards.
        """
        for grant, files in ends:
            if grant.reader == WRITER:
                writer = RingWriter(files)
                writer.trace_to(self._trace, grant.edge)
                self.outbox.connect(grant.peer, writer)
            else:
                self._connect_inbox(grant, files)

    def open(self, on_message: OnMessage, on_drained: Callable[[], None]) -> None:
        """Begin to read. `on_drained` is called after each turn that handled something."""
        self._on_message = on_message
        self._on_drained = on_drained
        self.wake()

    def pause(self) -> None:
        """Read nothing until `resume`."""
        self._paused = True

    def resume(self) -> None:
        """Read again, beginning with what has come meanwhile."""
        self._paused = False
        self.wake()

    def drain(self, sender: str) -> None:
        """Handle all that `sender`, whose process is gone, had still said; even during a pause."""
        asleep = False
        while self._on_message is not None and not asleep and (inbox := self._inboxes.get(sender)) is not None:
            try:
                taken, asleep = inbox.take(self._on_message)
            except RecordError as error:
                self._fail(error)
            else:
                self._records_in += taken

    def wake(self) -> None:
        """Take a turn soon."""
        if not self._turn_due:
            self._turn_due = True
            self._loop.call_soon(self._due_turn)

    def publish(self) -> None:
        """Write this mailbox's numbers and the sign of life to the status page."""
        self._line.count(self._records_in, self.outbox.records, self.outbox.backlog_bytes)
        self._line.turned(now_us())

    def close(self) -> None:
        """Stop reading and writing and close all ends."""
        self._on_message = None
        for sender in tuple(self._inboxes):
            self._disconnect(sender)
        self.outbox.close()

    def _connect_inbox(self, grant: EdgeGrant, files: RingFiles) -> None:
        if grant.peer not in self._receives:
            raise EngineError(f"an edge from {grant.peer} without a message type for it in `receives`")
        self._disconnect(grant.peer)
        reader = RingReader(files, grant.reader, poison=self._form.poison)
        reader.trace_to(self._trace, grant.edge)
        kind = cast("type[Message]", self._receives[grant.peer])
        inbox = Inbox(grant.peer, reader, Decoder(kind, views=self._form.in_place))
        self._inboxes[grant.peer] = inbox
        self._loop.add_reader(inbox.reader.data_fd, self._woken, inbox)
        self.wake()

    def _disconnect(self, sender: str) -> None:
        inbox = self._inboxes.pop(sender, None)
        if inbox is not None:
            self._loop.remove_reader(inbox.reader.data_fd)
            inbox.reader.close()

    def _woken(self, inbox: Inbox) -> None:
        inbox.reader.clear_wakeup()
        self._turn()

    def _due_turn(self) -> None:
        self._turn_due = False
        self._turn()

    def _turn(self) -> None:
        """Take one batch from every inbox, whichever of them woke us, then let the owner act on it."""
        if self._on_message is None or self._paused or self.outbox.congested:
            return
        begin_ns = time.monotonic_ns()
        try:
            taken, awake = self._take_all(self._on_message)
        except RecordError as error:
            self._fail(error)
            self.wake()
            return
        if taken:
            self._records_in += taken
            self._on_drained()
            self.publish()
            self._trace.point_at(begin_ns, TURN_BEGIN)
            self._trace.point(TURN_END, 0, 0, taken)
        if awake:
            self.wake()

    def _fail(self, error: RecordError) -> None:
        if error.unreadable:
            self._disconnect(error.sender)
        self._on_failure(error)

    def _take_all(self, on_message: OnMessage) -> tuple[int, bool]:
        total = 0
        awake = False
        for inbox in tuple(self._inboxes.values()):
            taken, asleep = inbox.take(on_message)
            total += taken
            awake |= not asleep
        return total, awake


def _nothing() -> None:
    return


def _tag(record: memoryview) -> str:
    """Return the name of the message in a record that could not be decoded, as far as it can be read."""
    try:
        fields = msgspec.msgpack.decode(record)
    except msgspec.MsgspecError:
        return "a malformed record"
    return str(fields[0])[:40] if isinstance(fields, list) and fields else "a record without a tag"
