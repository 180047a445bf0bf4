"""One benchmark against one server: looked at, calibrated, warmed up, measured, written down.

Owns the order of these and the head of a run. It does not know how a plan is made: it is given the
maker.

Invariant: whatever ends a run, its file holds every request that was begun and a summary of them.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import platform
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from tokenspeed import __version__
from tokenspeed.cli.env import cpu_model
from tokenspeed.cli.screen import Screen
from tokenspeed_tools.bench.asking import Asking
from tokenspeed_tools.bench.client import Client
from tokenspeed_tools.bench.drive import Driver
from tokenspeed_tools.bench.http import now
from tokenspeed_tools.bench.lag import LoopWatch
from tokenspeed_tools.bench.plan import Plan, PlanError, Session, Turn, user
from tokenspeed_tools.bench.progress import Progress
from tokenspeed_tools.bench.raw import ClientInfo, Mode, Request, Run, Summary, Target, Warmup, Writer
from tokenspeed_tools.bench.summary import summarise
from tokenspeed_tools.bench.target import Probe, Server, look
from tokenspeed_tools.bench.words import Calibration, calibrate, draw
from tokenspeed_tools.bench_gpu.machine import said

Maker = Callable[[argparse.Namespace, Calibration], Plan]
WARMUP_TOKENS = 512  # of a warm-up prompt where the plan does not tell its own
NOT_WORKLOAD = {"api_key_env", "api_key_file", "base_url", "concurrencies", "gpus", "json", "label", "note", "output"}


class Bench:
    """A server that was looked at, and the screen and file that its runs go to."""

    def __init__(self, client: Client, mode: Mode, maker: Maker, writer: Writer, screen: Screen) -> None:
        self.interrupted = False
        self._client = client
        self._mode = mode
        self._maker = maker
        self._writer = writer
        self._screen = screen
        self._watch = LoopWatch()
        self._server: Server
        self._asking: Asking
        self._calibration = Calibration()
        self._notes: dict[str, str] = {}

    async def prepare(self, options: argparse.Namespace) -> None:
        """Look at the server and calibrate the text; raise `TargetError`."""
        self._screen.progress("looking at the server")
        self._server = await look(self._client, options.model)
        asking = Asking(
            api=options.api,
            model=self._server.model,
            temperature=options.temperature,
            ignore_eos=not options.no_ignore_eos,
            usage=options.usage,
            extra=options.extra_body or {},
        )
        probe = Probe(self._client, asking, self._watch)
        self._notes = await probe.fit()
        self._asking = probe.asking
        self._screen.progress("counting the tokens of a word")
        system = self._mode == "agentic" and options.system_tokens > 0 and options.trace is None
        self._calibration = await calibrate(probe.count, system=system, chat=options.api == "chat")
        if not self._calibration.seen:
            self._notes["client.prompt_tokens"] = "not told by the server: a word of the prompts counts as one token"

    async def measure(self, options: argparse.Namespace) -> tuple[Run, Summary]:
        """Run the plan of `options` and return its head and figures. Raise `PlanError`."""
        plan = self._maker(options, self._calibration)
        self._check_room(plan)
        warm = warm_plan(plan, options.warmup, options.seed, self._calibration)
        requests: list[Request] = []
        begin_ns, begun = int(now() * 1e9), datetime.now(UTC)
        run = self._head(options, plan, warm, begin_ns, begun)
        self._writer.write(run)

        def take(request: Request) -> None:
            requests.append(request)
            self._writer.write(request)
            progress.take(request)

        driver = Driver(self._client, self._asking, self._watch, take, options.timeout, begin_ns / 1e9)
        terminal = sys.stderr.isatty()
        for part, name, is_warmup in ((warm, "warm-up", True), (plan, self._mode, False)):
            progress = Progress(self._screen, name, part.requests, driver.running, terminal=terminal)
            if part.sessions and not self.interrupted:
                await self._drive(driver, part, progress, warmup=is_warmup)
        summary = summarise(run, requests)
        self._writer.write(summary)
        return run, summary

    async def _drive(self, driver: Driver, plan: Plan, progress: Progress, *, warmup: bool) -> None:
        """Send `plan`; Ctrl-C ends it, with what is there."""
        gc.collect()
        gc.freeze()  # the plan stays until the end: no pause of the collector shall look through it
        self._watch.start()
        teller = asyncio.ensure_future(progress.tell())
        work = asyncio.ensure_future(driver.run(plan, warmup=warmup))
        try:
            with _on_interrupt(work.cancel):
                await work
        except asyncio.CancelledError:
            self.interrupted = True
        finally:
            teller.cancel()
            self._watch.stop()
            gc.unfreeze()

    def _check_room(self, plan: Plan) -> None:
        room = self._server.context_tokens
        if room is not None and plan.tokens_most > room:
            raise PlanError(
                f"a conversation of this load grows to {plan.tokens_most} tokens, and the server takes {room}: "
                "ask for shorter prompts, fewer turns or shorter replies"
            )

    def _head(self, options: argparse.Namespace, plan: Plan, warm: Plan, begin_ns: int, begun: datetime) -> Run:
        server, asking = self._server, self._asking
        calibration = {
            f"calibration.{name}": value for name, value in msgspec.structs.asdict(self._calibration).items()
        }
        return Run(
            label=options.label or server.name,
            started_at=begun.isoformat(timespec="microseconds").replace("+00:00", "Z"),
            started_monotonic_ns=begin_ns,
            command=["tokenspeed", "bench", *options.argv],
            mode=self._mode,
            workload=workload(options) | calibration | {"requests_planned": plan.requests},
            warmup=Warmup(requests=warm.requests, how=how(warm)),
            target=Target(
                url=self._client.url, api=asking.api, model=server.model, server=server.name, server_info=server.info
            ),
            client=client_info(),
            gpus=options.gpus,
            notes=dict(options.note) | self._notes,
        )


def warm_plan(plan: Plan, number: int, seed: int, calibration: Calibration) -> Plan:
    """Return `number` requests as long as the plan's first turns, with prompts that it has nowhere."""
    sessions = []
    for index in range(number):
        first = plan.sessions[index % len(plan.sessions)].turns[0]
        tokens = max(1, (first.prompt_tokens or WARMUP_TOKENS) - calibration.first)
        text = draw(random.Random(f"{seed} {plan.at_once} warm-up {index}"), calibration.words(tokens))
        sessions.append(Session(index, [Turn([user(text)], None, first.output_tokens)]))
    return Plan(sessions, min(number, plan.at_once or number))


def how(warm: Plan) -> str:
    """Return in words how the warm-up was made."""
    if not warm.sessions:
        return "none"
    return (
        f"{warm.requests} with prompts of their own, as long as first turns, {warm.at_once} at once; "
        "all ended before the first measured one was sent"
    )


def workload(options: argparse.Namespace) -> dict[str, Any]:
    """Return every option that makes the load, defaults included."""
    plain = (int, float, str, bool, dict, type(None))
    return {
        name: value if isinstance(value, plain) else str(value)
        for name, value in sorted(vars(options).items())
        if name not in NOT_WORKLOAD and name != "argv"
    }


def client_info() -> ClientInfo:
    """Return what measured."""
    package = Path(__file__).resolve().parent
    installed = "site-packages" in package.parts
    return ClientInfo(
        version=__version__,
        python=platform.python_version(),
        machine=f"{_processor()}, {platform.system()} {platform.release()}",
        cores=len(os.sched_getaffinity(0)),
        commit=("" if installed else said("git", "-C", str(package), "rev-parse", "--short", "HEAD")) or "unknown",
    )


def _processor() -> str:
    try:
        return cpu_model()
    except OSError:
        return platform.machine()


@contextmanager
def _on_interrupt(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` on SIGINT and SIGTERM."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)
    for number in signals:
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in signals:
            loop.remove_signal_handler(number)
