"""Starts the actors, watches them, and gives a dead or frozen one a new life.

Owns the processes, the rings between them and the status page. It does not know what actors do or
what they say. The engine (`home`) is an actor too, one without a process of its own: its mailbox
lives here, in the parent's loop.

A new life, in this order, so that nothing said for it can be lost on the way to it:
    the old process is gone; the home reads what it had still said
    1. every ring that it touched is replaced, in a new epoch
    2. each other actor takes its fresh ends and is told (`peer_restarted`), one without a process when
       it gets one; what was on the old is gone
    3. the home takes its own and is told (`on_restart`); it read nothing else since step 1
    4. a fresh process gets the same rings, starts, and reads what waits there

Invariant: a record is read by the life that it was sent to, or by none.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from tokenspeed import __version__
from tokenspeed.actors.charge import ActorSpec, Charge
from tokenspeed.actors.control import Profile
from tokenspeed.actors.door import ControlDoor
from tokenspeed.actors.edges import EdgeSpec, EdgeTable, check_edges
from tokenspeed.actors.health import KILL_LIMIT_S, ActorHealth, State
from tokenspeed.actors.life import Life
from tokenspeed.actors.mailbox import Mailbox, MailboxForm, OnMessage, RecordError
from tokenspeed.actors.outbox import Outbox
from tokenspeed.actors.revival import FIRST_EPOCH, OnRestart, Revival
from tokenspeed.actors.rundir import RunFolder
from tokenspeed.actors.watch import Watch
from tokenspeed.config import runtime_dir
from tokenspeed.errors import EngineError, ErrorInfo, StartError
from tokenspeed.ipc.segment import sweep as sweep_segments
from tokenspeed.ipc.trace import Trace, TraceFile, trace_collections
from tokenspeed.observe.attach import PROTOCOL, STATUS_PAGE, TRACE, ActorEntry, EdgeEntry, Topology
from tokenspeed.observe.logs import describe
from tokenspeed.observe.page import StatusPage

__all__ = ["ActorHealth", "ActorSpec", "EdgeSpec", "OnEvent", "OnMessage", "OnRestart", "State", "Supervisor"]


HOME_FORM = MailboxForm(backlog_bytes_max=None, in_place=False)  # it always reads
NOT_ITS_WORDS = "actor_"  # codes of reasons that the actor's author did not foresee

log = logging.getLogger(__name__)

OnEvent = Callable[[str], None]


class Supervisor:
    """Runs `actors`, joined by `edges`, for the engine `home`. Use it from one thread's event loop.

    That thread must outlive the engine: the kernel ends the actors with the thread that started
    them. `receives` gives the type of the messages that each sender has for the home, `on_message`
    gets them. `on_restart(actor, epoch)` says that `actor` begins a new life; `on_event` gets lines
    for people. All are called in the loop.
    """

    def __init__(
        self,
        actors: Sequence[ActorSpec],
        edges: Sequence[EdgeSpec],
        home: str,
        stall_limit_s: float,
        on_message: OnMessage,
        on_restart: OnRestart,
        on_event: OnEvent,
        *,
        receives: Mapping[str, object],
    ) -> None:
        """Check the wiring (ValueError); nothing is started yet."""
        check_edges(edges, [home, *(actor.name for actor in actors)])
        self.lost: str | None = None
        self._home = home
        self._on_message = on_message
        self._on_restart = on_restart
        self._on_event = on_event
        self._receives = receives
        self._specs = tuple(actors)
        self._edges = EdgeTable(edges)
        self._charges: dict[str, Charge] = {}
        self._traces: dict[str, TraceFile] = {}
        self._restarts: set[asyncio.Task[None]] = set()
        self._stopping = False
        self._profiles = 0
        self._resources = ExitStack()
        self._watch = Watch(self._charges.values(), stall_limit_s, self._on_look, self._on_overdue)

    @property
    def outbox(self) -> Outbox:
        """Return the home's outbox; there is one from `start` on."""
        return self._mailbox.outbox

    @property
    def trace(self) -> Trace:
        """Return the home's trace; there is one from `start` on."""
        return self._trace

    @property
    def folder(self) -> RunFolder:
        """Return the engine's private folder, there from `start` to `stop`."""
        return self._folder

    async def start(self) -> None:
        """Start all actors and return when they are ready.

        Raises StartError with the reason of the first that fails; then nothing is left running.
        """
        self._loop = asyncio.get_running_loop()
        self._all_ready: asyncio.Future[None] = self._loop.create_future()
        try:
            self._set_up()
            for charge in self._charges.values():
                self._begin(charge)
            self._watch.begin()
            await self._all_ready
        except OSError as error:
            await self.stop(0.0)
            raise StartError(f"cannot start the actors: {describe(error)}") from error
        except BaseException:
            await self.stop(0.0)
            raise

    def health(self) -> dict[str, ActorHealth]:
        """Return how each actor is, by name."""
        return {name: charge.health() for name, charge in self._charges.items()}

    def ring_fill(self) -> dict[str, int]:
        """Return the bytes that wait in each ring, by "writer to reader"."""
        return self._edges.fill()

    async def profile(self, name: str, seconds: float) -> Path:
        """Observe the kernels of actor `name`; return the file with them, which is the caller's to remove.

        Raises `EngineError` if the actor is not there or dies meanwhile, `UserError` if it runs no kernels.
        """
        life = self._charges[name].running_life
        if life is None or not life.opened:
            raise EngineError(f"The {name} is not running.", status=503, code="not_ready")
        self._profiles += 1
        path = self._folder.path / f"profile.{self._profiles}"
        asked = life.profile(Profile(self._profiles, seconds, str(path)))
        try:
            await asyncio.shield(asked)
        except asyncio.CancelledError:
            asked.add_done_callback(lambda _: path.unlink(missing_ok=True))  # nobody is left to remove it
            raise
        return path

    async def stop(self, timeout_s: float = 5.0) -> None:
        """End all actors, by force after `timeout_s`, and leave nothing. May be called again to hurry."""
        self._stopping = True
        self._watch.end()
        for task in self._restarts:
            task.cancel()
        for charge in self._charges.values():
            charge.state = State.STOPPED
        lives = self._running()
        for life in lives:
            life.stop() if timeout_s > 0 else life.kill()
        await _ended(lives, timeout_s)
        for life in lives:
            life.kill()
        await _ended(lives, KILL_LIMIT_S)
        self._resources.close()

    # ---- what a life says (Keeper) ----

    def on_phase(self, life: Life, text: str) -> None:
        """Keep the phase, and pass it on while the actor starts."""
        self._charges[life.name].phase = text
        if not life.opened:
            self._on_event(f"{life.name}: {text}")

    def on_ready(self, life: Life) -> None:
        """Let the actor read. From here on swaps wait for it."""
        charge = self._charges[life.name]
        charge.state = State.READY
        charge.phase = ""
        life.open()
        self._on_event(f"{life.name}: ready")
        if not self._all_ready.done() and all(each.state is State.READY for each in self._charges.values()):
            self._all_ready.set_result(None)

    def on_exit(self, life: Life) -> None:
        """Begin a new life, or, if the engine is still starting, give up."""
        charge = self._charges[life.name]
        charge.error = life.why().message
        if self._stopping:
            return
        if self.lost:
            charge.state = State.DEAD
            return
        if not self._all_ready.done():
            self._all_ready.set_exception(_start_error(life))
            return
        task = self._loop.create_task(self._restart(charge))
        self._restarts.add(task)
        task.add_done_callback(self._restarts.discard)

    # ---- starting ----

    def _set_up(self) -> None:
        keep = self._resources
        self._folder = RunFolder.create(runtime_dir())
        keep.callback(self._folder.remove)
        self._page = StatusPage.create(len(self._specs) + 1)
        keep.callback(self._page.close)
        for name in (*(spec.name for spec in self._specs), self._home):
            self._traces[name] = TraceFile()
            keep.callback(self._traces[name].close)
        self._trace = Trace(self._traces[self._home].fileno())
        keep.callback(self._trace.close)
        keep.callback(trace_collections(self._trace))
        for index, spec in enumerate(self._specs):
            self._charges[spec.name] = Charge(spec, index, self._page.line(index))
        keep.callback(self._edges.close)
        sweep_segments()
        self._edges.create(FIRST_EPOCH)
        line = self._page.line(len(self._specs))
        self._mailbox = Mailbox(self._receives, line, self._on_bad_record, HOME_FORM, self._trace)
        keep.callback(self._mailbox.close)
        self._mailbox.install(self._edges.ends(self._home))
        self._mailbox.open(self._on_message, _nothing)
        self._revival = Revival(self._edges, self._charges.values(), self._home, self._mailbox, self._on_restart)
        door = ControlDoor(self._folder.socket_path, self._describe)
        keep.callback(door.close)

    def _on_look(self) -> None:
        self._mailbox.publish()

    def _begin(self, charge: Charge) -> None:
        ends = self._edges.ends(charge.name)
        trace_fd = self._traces[charge.name].fileno()
        charge.begin(self, self._page.fileno(), trace_fd, ends, log.getEffectiveLevel())

    def _running(self) -> list[Life]:
        return [life for charge in self._charges.values() if (life := charge.running_life)]

    # ---- what goes wrong ----

    def _on_overdue(self, charge: Charge, text: str) -> None:
        """Kill an actor that gives no sign of life; its exit begins a new one."""
        if charge.state is State.FROZEN:
            self._lose(charge, text)
        elif charge.life is not None:
            charge.freeze()
            self._on_event(f"{charge.name}: {text}")
            charge.life.kill(ErrorInfo(500, "actor_frozen", text))

    def _on_bad_record(self, error: RecordError) -> None:
        """Log a failure of the home's own handler; a sender that talks nonsense begins a new life."""
        log.error("%s: a record failed", self._home, exc_info=error)
        life = self._charges[error.sender].running_life
        if error.unreadable and life is not None:
            life.kill(error.info())

    async def _restart(self, charge: Charge) -> None:
        delay_s = charge.budget.take(time.monotonic())
        if delay_s is None:
            self._lose(charge, f"died too often, last because: {charge.error}")
            return
        charge.state = State.RESTARTING
        charge.restarts += 1
        self._on_event(f"{charge.name}: restarts ({charge.error})")
        try:
            await self._revival.renew_edges(charge.name)
            await asyncio.sleep(delay_s)
            self._begin(charge)
        except Exception as error:
            self._lose(charge, f"cannot be restarted: {describe(error)}")

    def _lose(self, charge: Charge, text: str) -> None:
        """Declare the engine lost: this actor is needed and cannot be had."""
        charge.state = State.DEAD
        charge.error = text
        if self.lost is None:
            self.lost = f"{charge.name}: {text}"
            self._on_event(f"the engine is lost: {self.lost}")

    # ---- being seen ----

    def _describe(self) -> tuple[Topology, list[int]]:
        """Return what a tool is told, with new descriptors."""
        names = [
            ActorEntry(c.name, life.pid if (life := c.running_life) else 0, c.index) for c in self._charges.values()
        ]
        names.append(ActorEntry(self._home, os.getpid(), len(self._specs)))
        edges = [EdgeEntry(e.writer, e.readers, e.capacity_bytes, self._edges.epoch(e)) for e in self._edges.edges]
        described = (STATUS_PAGE, *(TRACE + name for name in self._traces))
        topology = Topology(PROTOCOL, os.getpid(), __version__, tuple(names), tuple(edges), described)
        return topology, [self._page.read_only_fd(), *(trace.read_only_fd() for trace in self._traces.values())]


def _start_error(life: Life) -> StartError:
    """Return the actor's own words where it chose them, else say which actor it was."""
    reason = life.why()
    text = f"{life.name}: {reason.message}" if reason.code.startswith(NOT_ITS_WORDS) else reason.message
    return StartError(text, status=reason.status, code=reason.code)


async def _ended(lives: Sequence[Life], timeout_s: float) -> None:
    waits = [life.exited for life in lives if life.running]
    if waits:
        await asyncio.wait(waits, timeout=timeout_s)


def _nothing() -> None:
    return
