"""A Unix door in front of the scripted engine, in a short folder of its own."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import uvloop

from tests.server.fake_engine import FakeEngine
from tokenspeed.server.calls import Calls
from tokenspeed.server.health import Probes
from tokenspeed.server.metrics import Metrics
from tokenspeed.server.unix import UnixDoor, bind_unix

Knock = Callable[[FakeEngine, Path], Coroutine[Any, Any, None]]


@asynccontextmanager
async def unix_door(engine: FakeEngine, path: Path, bytes_max: int = 1 << 20) -> AsyncIterator[None]:
    """Keep a Unix door open in front of `engine`."""
    door = UnixDoor(Calls(engine, Probes(engine), Metrics(engine)), *bind_unix(str(path)), bytes_max)
    await door.start()
    try:
        yield
    finally:
        await door.stop(at_once=True)


@contextmanager
def short_folder() -> Iterator[Path]:
    """Yield a folder whose path leaves room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="ts-", dir="/tmp") as folder:
        yield Path(folder)


def knock_unix(test: Knock, make: Callable[[], FakeEngine] = lambda: FakeEngine().begin(), **settings: Any) -> None:
    """Run `test` against a Unix door in front of the engine that `make` returns."""

    async def main(path: Path) -> None:
        engine = make()
        async with unix_door(engine, path, **settings):
            await test(engine, path)

    with short_folder() as folder:
        uvloop.run(main(folder / "api.sock"))


@contextmanager
def background_door(
    make: Callable[[], FakeEngine] = lambda: FakeEngine().begin(), place: Path | None = None
) -> Iterator[tuple[FakeEngine, Path]]:
    """Keep a Unix door open on a loop in another thread, for clients that block."""
    loop = uvloop.new_event_loop()
    started: list[FakeEngine] = []
    opened, close = threading.Event(), asyncio.Event()

    async def main(path: Path) -> None:
        engine = make()
        async with unix_door(engine, path):
            started.append(engine)
            opened.set()
            await close.wait()

    with short_folder() as folder:
        path = place or folder / "api.sock"
        thread = threading.Thread(target=lambda: loop.run_until_complete(main(path)))
        thread.start()
        assert opened.wait(5.0)
        try:
            yield started[0], path
        finally:
            loop.call_soon_threadsafe(close.set)
            thread.join(5.0)
            loop.close()
