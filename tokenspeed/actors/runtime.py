"""An actor's life inside its process: start, read and be read, swap edges, stop.

Owns the loop side of one actor: its mailbox, its heartbeat and its end of the control channel. It
does not know what the actor does. An exception that leaves the actor ends the process, for the
state behind it can no longer be trusted; the supervisor starts a fresh one.

Invariant: the actor's methods are called from the loop's thread, one at a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import msgspec
import uvloop

from tokenspeed.actors.control import (
    Channel,
    EdgeGrant,
    Failed,
    Launch,
    Open,
    Phase,
    Profile,
    Profiled,
    Ready,
    Stop,
    Swap,
    Swapped,
    ToSupervisor,
)
from tokenspeed.actors.edges import adopt_ends
from tokenspeed.actors.mailbox import BACKLOG_BYTES_MAX, Mailbox, MailboxForm
from tokenspeed.actors.outbox import Outbox
from tokenspeed.errors import ErrorInfo, TokenSpeedError, UserError
from tokenspeed.ipc.trace import NOWHERE, Trace, trace_collections
from tokenspeed.messages.base import Message
from tokenspeed.observe.logs import describe, set_up_logging
from tokenspeed.observe.page import StatusLine, StatusPage, now_us
from tokenspeed.points import Kind

STARTED = int(Kind.STARTED)
HEARTBEAT_S = 0.25

__all__ = ["Actor", "Announce", "Mailbox", "Outbox", "Runtime"]

log = logging.getLogger(__name__)

Announce = Callable[[str, float], None]


class Actor:
    """Base of every actor: one asyncio process each.

    `receives` gives, for each sender, the type (or union) of its messages. With `in_place`, bytes in
    a message are memoryviews of the ring, which show other bytes once `receive` has returned; for an
    actor that keeps no message and hands none to a thread. Otherwise they are copies.
    """

    name: ClassVar[str]
    receives: ClassVar[Mapping[str, object]]
    in_place: ClassVar[bool] = False
    trace = NOWHERE  # until its runtime gives it one

    def __init__(self, config: Any, outbox: Outbox, phase: Announce) -> None:
        """Keep the parts; load nothing yet.

        `phase(text, limit_s)` announces what begins now. While starting, the next announcement must
        come within `limit_s`. Once ready, it is how long the loop may stay silent from now on, if
        that is longer than the stall limit. It is cheap and may be called from any thread.
        """

    async def start(self) -> None:
        """Load what is needed; the actor is ready when this returns. Block only in worker threads.

        Messages may be sent, none is received yet. An exception here is told to whoever starts the
        engine, by its text.
        """

    def receive(self, sender: str, message: Message) -> None:
        """Handle one message."""
        raise TypeError(f"{type(self).__name__} handles no messages; got {type(message).__name__} from {sender}")

    def drained(self) -> None:
        """Act on the batch: all messages that were there in one loop turn have been handled."""

    def peer_restarted(self, peer: str, epoch: int) -> None:
        """Note that `peer` begins a new life: the edges shared with it are fresh and empty.

        A new life hears before its first record of the peers that restarted while it had no process.
        On a broadcast edge the other readers are peers too. What was sent to the old life, or was
        waiting to be sent, is gone. What is sent from here on reaches the new life.
        """

    async def profile(self, seconds: float, path: Path) -> None:
        """Observe kernels for `seconds` and write them to `path` (`kernel_slices`); an actor that runs none refuses."""
        raise UserError(f"The {self.name} runs no kernels; profile the executor.", code="no_profile")

    async def stop(self) -> None:
        """Let go of what must be let go of in order; no message comes any more."""


def load(path: str) -> Any:
    """Return the object named by `package.module:Name`."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


class Announcer:
    """The `phase` that an actor is given."""

    def __init__(self, channel: Channel, line: StatusLine) -> None:
        self._channel = channel
        self._line = line
        self._text = ""

    def __call__(self, text: str, limit_s: float) -> None:
        """Announce phase `text`; see `Actor.__init__`."""
        self._line.announce(now_us(), int(limit_s * 1e6))
        if text == self._text:
            return
        self._text = text
        with contextlib.suppress(BlockingIOError):  # only a text for people is lost
            self._channel.send(Phase(text))


class Runtime:
    """Runs one actor from `Launch` to `Stop`."""

    def __init__(self, channel: Channel, launch: Launch, line: StatusLine, trace: Trace) -> None:
        self._trace = trace
        self._channel = channel
        self._launch = launch
        self._line = line
        self._open = False
        self._chores: set[asyncio.Task[None]] = set()
        self._restarted = launch.restarted
        self._loop = asyncio.get_running_loop()
        self._stopped: asyncio.Future[None] = self._loop.create_future()

    async def live(self, descriptors: list[int]) -> None:
        """Start the actor, serve until told to stop, and stop it. Does not return if the actor fails."""
        self._loop.set_exception_handler(self._on_loop_error)
        self._loop.add_reader(self._channel.fileno(), self._on_control)
        self._beat()
        try:
            await self._start(descriptors)
            await self._stopped
            await self._actor.stop()
        except Exception as error:
            self.crash(error)
        self._mailbox.close()

    async def _start(self, descriptors: list[int]) -> None:
        self._trace.point(STARTED)
        actor_type: type[Actor] = load(self._launch.factory)
        form = MailboxForm(BACKLOG_BYTES_MAX, in_place=actor_type.in_place, poison=log.isEnabledFor(logging.DEBUG))
        self._mailbox = Mailbox(actor_type.receives, self._line, self.crash, form, self._trace)
        self._install(self._launch.grants, descriptors)
        self._actor = actor_type(self._config(), self._mailbox.outbox, Announcer(self._channel, self._line))
        self._actor.trace = self._trace
        await self._actor.start()
        trace_collections(self._trace)
        gc.collect()
        gc.freeze()  # what start-up made lives as long as the process: no collection walks it again
        self._line.announce(now_us(), 0)  # the limit of the last start-up phase no longer holds
        self._tell(Ready())

    def crash(self, error: BaseException) -> NoReturn:
        """Report `error` and end the process at once."""
        log.error("%s fails", self._launch.actor, exc_info=error)
        self._tell(Failed(_info(error)))
        os._exit(1)

    def _install(self, grants: list[EdgeGrant], descriptors: list[int]) -> None:
        ends = adopt_ends(grants, descriptors)
        self._mailbox.install(ends)
        for _, files in ends:
            files.close()

    def _config(self) -> Any:
        return msgspec.msgpack.decode(self._launch.config, type=load(self._launch.config_type))

    def _beat(self) -> None:
        """Show that the loop turns even when nothing happens."""
        self._line.turned(now_us())
        self._loop.call_later(HEARTBEAT_S, self._beat)

    def _on_control(self) -> None:
        try:
            received = self._channel.receive()
        except EOFError:
            os._exit(1)  # the supervisor is gone: nobody is left to work for
        if received is None:
            return
        try:
            self._obey(*received)
        except Exception as error:
            self.crash(error)

    def _obey(self, message: object, descriptors: list[int]) -> None:
        match message:
            case Swap():
                self._swap(message, descriptors)
            case Open():
                self._begin()
            case Profile():
                self._chores.add(task := self._loop.create_task(self._profile(message)))
                task.add_done_callback(self._chores.discard)
            case Stop():
                self._mailbox.pause()
                if not self._stopped.done():
                    self._stopped.set_result(None)
            case _:
                raise TypeError(f"unexpected {type(message).__name__} on the control channel")

    def _swap(self, swap: Swap, descriptors: list[int]) -> None:
        """Take the fresh ends. The actor hears of it at once, or, while it starts, before its first record."""
        self._install(swap.grants, descriptors)
        if self._open:
            self._actor.peer_restarted(swap.restarted, swap.epoch)
            self._actor.drained()
        else:
            self._restarted.append((swap.restarted, swap.epoch))
        self._tell(Swapped(swap.serial))

    def _begin(self) -> None:
        self._open = True
        for peer, epoch in self._restarted:
            self._actor.peer_restarted(peer, epoch)
        self._mailbox.open(self._actor.receive, self._actor.drained)

    async def _profile(self, wanted: Profile) -> None:
        try:
            await self._actor.profile(wanted.seconds, Path(wanted.path))
        except Exception as error:
            self._tell(Profiled(wanted.serial, _info(error)))
        else:
            self._tell(Profiled(wanted.serial))

    def _tell(self, message: ToSupervisor) -> None:
        with contextlib.suppress(OSError):  # a supervisor that is gone shows as the channel's end
            self._channel.send(message, wait=True)

    def _on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """End the process on an exception that nobody caught: it means that some work stopped unseen."""
        if "exception" in context:
            self.crash(context["exception"])
        log.warning("%s", context["message"])


def _info(error: BaseException) -> ErrorInfo:
    if isinstance(error, TokenSpeedError):
        return error.info()
    return ErrorInfo(500, "actor_failed", describe(error))


def run(channel: Channel) -> None:
    """Become the actor that the channel's first message describes; return when it has stopped."""
    try:
        received = channel.receive(wait=True)
    except EOFError:
        return
    if received is None or not isinstance(received[0], Launch):
        raise TypeError("the first message on a control channel is Launch")
    launch, descriptors = received[0], received[1]
    uvloop.run(_serve(channel, launch, descriptors))


async def _serve(channel: Channel, launch: Launch, descriptors: list[int]) -> None:
    set_up_logging(launch.actor, launch.log_level, launch.log_form)
    page, trace = StatusPage(descriptors[0]), Trace(descriptors[1])
    os.close(descriptors[1])
    await Runtime(channel, launch, page.line(launch.line), trace).live(descriptors[2:])
