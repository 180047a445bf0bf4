"""`tokenspeed serve [MODEL]`: serve a model until a signal ends it.

Owns the order of start (port, engine, banner, load) and the exit codes: 0 drained,
1 start failed, 2 wrong usage, 3 engine lost, 128 + N cut by a second signal N.

Invariant: the port is bound before a byte of weights is read, and no socket file stays behind.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tokenspeed.cli.arguments import hide_argument
from tokenspeed.cli.screen import LogScreen, Screen
from tokenspeed.cli.sources import Settings, read_settings
from tokenspeed.cli.told import as_toml
from tokenspeed.config import CommandConfig, EngineConfig, ServerConfig, seconds_since_make
from tokenspeed.demo import ABSENT, find_demo
from tokenspeed.errors import StartError

if TYPE_CHECKING:
    from tokenspeed.server.ports import EngineLike

START_FAILED = 1

# What makes an engine: `tokenspeed.engine.AsyncEngine` has this face.
MakeEngine = Callable[..., "EngineLike"]


def main(argv: list[str], make_engine: MakeEngine | None = None) -> int:
    """Run the command and return its exit code; `make_engine` stands in for `AsyncEngine`."""
    with _signals_end_it():
        return _main(argv, make_engine)


@contextlib.contextmanager
def _signals_end_it() -> Iterator[None]:
    """Let signals end the process until its loop takes them over.

    The kernel drops what the first process of a container has no handler for: `docker stop` would wait.
    """

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    here = threading.current_thread() is threading.main_thread()
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT) if here}
    for number in kept:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in kept.items():
            signal.signal(number, handler)


def _main(argv: list[str], make_engine: MakeEngine | None) -> int:
    begun_s = time.monotonic()
    settings = read_settings(argv)
    if settings.print_config:
        print(as_toml(settings), end="")
        return 0
    for secret in settings.secrets():
        hide_argument(secret)
    command = settings.config(CommandConfig)
    json = command.log_format == "json"
    screen = LogScreen(command.quiet) if json else Screen(sys.stderr, command.quiet)
    from tokenspeed.engine import set_up_logging

    set_up_logging("serve", logging.getLevelNamesMapping()[command.log_level.upper()], command.log_format)
    if settings.config(EngineConfig).model is None and make_engine is None and find_demo() is None:
        screen.complain(ABSENT)
        return START_FAILED
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    try:
        return _serve(settings, screen, begun_s, make_engine)
    except StartError as error:
        screen.complain(f"tokenspeed serve: {error}")
        return START_FAILED


def _serve(settings: Settings, screen: Screen, begun_s: float, make_engine: MakeEngine | None) -> int:
    config = settings.config(ServerConfig)
    with contextlib.ExitStack() as kept:
        http = None
        if config.http:
            from tokenspeed.server.bind import bind

            http = kept.enter_context(bind(config.host, config.port))
        return _serve_on(http, config, settings, screen, begun_s, make_engine)


def _serve_on(
    http: socket.socket | None,
    config: ServerConfig,
    settings: Settings,
    screen: Screen,
    begun_s: float,
    make_engine: MakeEngine | None,
) -> int:
    if make_engine is None:
        from tokenspeed.engine import AsyncEngine

        make_engine = AsyncEngine
    engine = make_engine(settings.config(EngineConfig), on_event=screen.progress)
    from tokenspeed.cli.banner import greet, tell_ready
    from tokenspeed.server.service import Service, Sockets, run_service
    from tokenspeed.server.unix import bind_unix

    sockets = Sockets(http, *bind_unix(config.socket))
    greet(screen, engine, config, sockets)

    async def on_ready() -> None:
        await tell_ready(screen, engine, config, sockets, time.monotonic() - begun_s)
        if (make_s := seconds_since_make()) is not None:
            screen.say(f"first token {make_s:.1f} s after make began")

    return run_service(lambda: Service(engine, config, sockets, on_ready))
