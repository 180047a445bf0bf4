"""The life of a server process: doors open, engine loads, requests flow, signals end it.

Owns the order of these and the exit code. The doors are open from the first moment, so that probes
see the engine load. The first SIGTERM, SIGINT or SIGHUP drains: `/ready` goes off, new requests get 503,
open streams finish or meet the deadline. The second one stops at once. With a file of keys, SIGHUP
reads it again instead.

Invariant: `run` returns after doors and engine are closed, whatever happened before.
"""

from __future__ import annotations

import asyncio
import enum
import gc
import logging
import os
import signal
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import uvloop

from tokenspeed.config import ServerConfig, service_manager
from tokenspeed.server.app import build_app
from tokenspeed.server.calls import Calls
from tokenspeed.server.descriptors import connections_max, raise_file_limit
from tokenspeed.server.doorman import Access
from tokenspeed.server.duties import Notifier, adopts_orphans, reap
from tokenspeed.server.health import Probes
from tokenspeed.server.http import HttpServer
from tokenspeed.server.metrics import Metrics
from tokenspeed.server.ports import EngineLike
from tokenspeed.server.spans import open_spans
from tokenspeed.server.tenants import TenantEngine
from tokenspeed.server.unix import UnixDoor

LOOK_S = 0.25
CLOSE_S_MAX = 12.0  # the actors have 5 s to end by themselves, then they are killed
CLOSE_AT_ONCE_S_MAX = 2.0
STDIN = 0

log = logging.getLogger("tokenspeed.server")


class Exit(enum.IntEnum):
    """Exit codes; a second signal N gives 128 + N, as a shell does."""

    DRAINED = 0
    START_FAILED = 1
    USAGE = 2
    ENGINE_LOST = 3


class Door(Protocol):
    """A way in."""

    async def start(self) -> None: ...
    async def stop(self, *, at_once: bool = False) -> None: ...


class Sockets(NamedTuple):
    """The sockets that were bound before anything was loaded; `http` None leaves that door out."""

    http: socket.socket | None
    unix: socket.socket
    unix_path: Path


class Service:
    """Serves `engine` on `sockets`; `on_ready` is awaited once, when the engine takes requests.

    The constructor raises `StartError` if spans are wanted and cannot be made.
    """

    def __init__(
        self,
        engine: EngineLike,
        config: ServerConfig,
        sockets: Sockets,
        on_ready: Callable[[], Awaitable[None]],
    ) -> None:
        self._engine = engine
        self._config = config
        self._sockets = sockets
        self._on_ready = on_ready
        self._signal = 0
        self._stop = asyncio.Event()
        self._force = asyncio.Event()
        self._doors: list[Door] = []
        self._notifier = Notifier(service_manager())
        self._access = Access(config.access, config.host)
        endpoint = config.otlp_traces_endpoint
        self._spans = open_spans(endpoint, engine.model.served_name) if endpoint else None

    @property
    def draining(self) -> bool:
        """Tell whether the server has been asked to stop."""
        return self._stop.is_set()

    def ask_to_stop(self, signum: int = 0) -> None:
        """Begin to drain; stop at once when asked a second time."""
        self._signal = signum
        self._notifier.stopping()
        if self._stop.is_set():
            self._force.set()
        self._stop.set()

    async def run(self) -> int:
        """Serve until a signal or the loss of the engine; return the exit code or raise `StartError`."""
        self._listen_to_signals()
        chores = asyncio.create_task(self._do_chores())
        life = asyncio.create_task(self._life())
        try:
            if await _first(life, self._force):
                return life.result()
            log.warning("stopping at once; open requests are cut")
            return 128 + self._signal
        finally:
            life.cancel()
            await asyncio.gather(life, return_exceptions=True)
            await self._close()
            chores.cancel()
            await asyncio.gather(chores, return_exceptions=True)

    async def _life(self) -> int:
        self._doors = self._build_doors()
        for door in self._doors:
            await door.start()
        if not await self._started():
            return Exit.DRAINED
        gc.collect()
        gc.freeze()
        self._notifier.ready()
        await self._on_ready()
        if await self._lost():
            log.error("the engine is lost: %s; start the server again", self._engine.health().actors)
            return Exit.ENGINE_LOST
        log.info("draining: open requests have %g s", self._config.drain_timeout_s)
        await self._engine.drain(self._config.drain_timeout_s)
        return Exit.DRAINED

    async def _do_chores(self) -> None:
        """Tell the service manager how it goes, and bury orphans where nobody else does."""
        buries = adopts_orphans()
        while True:
            health = self._engine.health()
            if health.state == "starting":
                self._notifier.loading()
            elif health.state != "lost":
                self._notifier.serving(self._engine.requests_open)
            if buries:
                reap([actor.pid for actor in health.actors.values()])
            await asyncio.sleep(self._notifier.pause_s)

    async def _started(self) -> bool:
        """Start the engine; return False if a signal came first."""
        starting = asyncio.create_task(self._engine.start())
        try:
            if not await _first(starting, self._stop):
                return False
            starting.result()
            return True
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)

    async def _lost(self) -> bool:
        """Wait; return True when the engine is lost, False when the server is asked to stop."""
        while not self._stop.is_set():
            if self._engine.health().state == "lost":
                return True
            try:
                await asyncio.wait_for(self._stop.wait(), LOOK_S)
            except TimeoutError:
                continue
        return False

    def _build_doors(self) -> list[Door]:
        config, sockets = self._config, self._sockets
        probes = Probes(self._engine, lambda: self.draining)
        engine = TenantEngine(self._engine)
        metrics = Metrics(engine, vllm_names=config.vllm_metric_names)
        calls = Calls(
            engine,
            probes,
            metrics if config.metrics else None,
            trust_request_chat_template=config.trust_request_chat_template,
            log_prompts=config.log_prompts,
            spans=self._spans,
        )
        doors: list[Door] = [UnixDoor(calls, sockets.unix, sockets.unix_path, config.request_bytes_max)]
        if sockets.http is not None:
            app = build_app(engine, config, probes, self._access, metrics, self._spans)
            most = connections_max(config.connections_max, raise_file_limit())
            doors.append(HttpServer(app, [sockets.http], config.limits, most))
        return doors

    def _listen_to_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for signum in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(signum, self.ask_to_stop, signum)
        if self._config.api_key_file is not None:
            loop.add_signal_handler(signal.SIGHUP, self._access.keys.reload)
        elif signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # nohup
            loop.add_signal_handler(signal.SIGHUP, self.ask_to_stop, signal.SIGHUP)
        if self._config.stop_with_stdin:
            loop.add_reader(STDIN, self._read_stdin, loop)

    def _read_stdin(self, loop: asyncio.AbstractEventLoop) -> None:
        if not os.read(STDIN, 4096):
            loop.remove_reader(STDIN)
            self.ask_to_stop()

    async def _close(self) -> None:
        at_once = self._force.is_set()
        stops = (door.stop(at_once=at_once) for door in self._doors)
        for failed in await asyncio.gather(*stops, return_exceptions=True):
            if isinstance(failed, Exception):
                log.error("a door did not close well", exc_info=failed)
        limit_s = CLOSE_AT_ONCE_S_MAX if at_once else CLOSE_S_MAX
        try:
            async with asyncio.timeout(limit_s):
                await self._engine.close(at_once=at_once)
        except TimeoutError:
            log.error("the engine did not close well within %g s; its processes die with this one", limit_s)
        except Exception:
            log.exception("the engine did not close well")
        if self._spans is not None and not at_once:
            await self._spans.close()


async def _first(task: asyncio.Task[Any], event: asyncio.Event) -> bool:
    """Wait for either; tell whether `task` is done."""
    waiting = asyncio.create_task(event.wait())
    try:
        await asyncio.wait((task, waiting), return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
    return task.done()


def run_service(make: Callable[[], Service]) -> int:
    """Run the service that `make` returns on an event loop of its own; return the exit code."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:

        async def run() -> int:
            return await make().run()

        return runner.run(run())
