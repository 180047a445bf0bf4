"""`trace top`: watch a running engine, a new picture each second.

Owns the rhythm and the choice of the screen. Buffers are read ten times a second, so that none is lost; the
engine itself is asked for one thing, its counters of pages, over its Unix socket.

Invariant: it ends with the engine, and leaves the terminal as it was.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from tokenspeed.cli.parser import Parser
from tokenspeed.client import Client
from tokenspeed.errors import TokenSpeedError
from tokenspeed.observe.attach import Attachment, attach
from tokenspeed.server.frames import socket_path
from tokenspeed_tools.trace.engines import add_engine, find_engine, name_of
from tokenspeed_tools.trace.live import Live, Snapshot
from tokenspeed_tools.trace.screens import Screen, Terminal, plain, timed
from tokenspeed_tools.trace.top_view import log_line

EACH_S = 1.0
POLL_S = 0.1
ASK_S_MAX = 0.5


def parser() -> Parser:
    """Return the parser of the options."""
    reader = Parser("tokenspeed trace top", "Watch a running engine; q or Ctrl-C ends it.")
    add_engine(reader)
    reader.add_argument("--once", action="store_true", help="look for a second, print what was seen, and end")
    reader.add_argument("--json", action="store_true", help="print a line of JSON each second")
    return reader


def main(argv: list[str]) -> int:
    """Show until `q`, Ctrl-C or the engine's end, and return the exit code."""
    options = parser().read(argv)
    path = find_engine(options.engine)
    attachment = attach(path)
    title = f"TokenSpeed {attachment.topology.version}   engine {name_of(path)}"
    try:
        with contextlib.suppress(KeyboardInterrupt), _screen(options, title) as screen:
            for snapshot in snapshots(attachment, screen.pause):
                screen.show(snapshot)
                if options.once:
                    break
    finally:
        attachment.close()
    return 0


def _screen(options: argparse.Namespace, title: str) -> Screen:
    if options.json:
        return Screen(sys.stdout, _as_json)
    if options.once:
        return Screen(sys.stdout, plain(title))
    return Terminal(sys.stdout, sys.stdin, title) if sys.stdout.isatty() else Screen(sys.stdout, timed(log_line))


def snapshots(attachment: Attachment, pause: Callable[[float], bool]) -> Iterator[Snapshot]:
    """Yield the engine's state each second until `pause(seconds)` returns that it is enough, or the engine ends."""
    traces = attachment.traces
    for trace in traces.values():
        trace.skip()
    lost_before = sum(trace.lost for trace in traces.values())
    live = Live(attachment.topology, time.monotonic_ns())
    process = Path("/proc", str(attachment.topology.pid))
    visible = process.exists()  # not if the engine is in another container
    while process.exists() == visible:
        for _ in range(round(EACH_S / POLL_S)):
            if pause(POLL_S):
                return
            live.feed({name: trace.read() for name, trace in traces.items()})
        lost = sum(trace.lost for trace in traces.values()) - lost_before
        stats = _stats(attachment.topology.pid)
        yield live.snapshot(time.monotonic_ns(), lost, stats)


def _as_json(now: Snapshot) -> str:
    return msgspec.json.encode(now).decode()


def _stats(pid: int) -> dict[str, int] | None:
    """Return the scheduler's counters, None from an engine without this socket, or one that is starting."""
    try:
        return Client(socket_path(pid), timeout_s=ASK_S_MAX).stats()
    except TokenSpeedError:
        return None
