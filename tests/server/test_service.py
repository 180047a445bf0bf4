from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop

from tests.server.doors import HI, until
from tests.server.fake_engine import FOREVER, HELLO, FakeEngine
from tests.server.sockets import short_folder
from tokenspeed.client import AsyncClient
from tokenspeed.config import ServerConfig
from tokenspeed.errors import EngineError, StartError
from tokenspeed.server import service as service_module
from tokenspeed.server.bind import bind
from tokenspeed.server.service import Exit, Service, Sockets, run_service
from tokenspeed.server.unix import bind_unix

Script = Callable[[Service, FakeEngine, AsyncClient], Awaitable[None]]


def live(make: Callable[[], FakeEngine], script: Script, *, drain_timeout_s: float = 5.0) -> tuple[int, FakeEngine]:
    """Run a service while `script` runs beside it; return its exit code and the engine."""
    kept: list[FakeEngine] = []

    async def main(folder: Path) -> int:
        engine = make()
        kept.append(engine)
        sockets = Sockets(bind("127.0.0.1", 0), *bind_unix(str(folder / "s")))
        ready = asyncio.Event()

        async def on_ready() -> None:
            ready.set()

        service = Service(engine, ServerConfig(drain_timeout_s=drain_timeout_s), sockets, on_ready)
        running = asyncio.create_task(service.run())
        if engine.start_steps:
            await asyncio.sleep(0.02)
        else:
            await asyncio.wait_for(ready.wait(), 5.0)
        await script(service, engine, AsyncClient(folder / "s"))
        return await asyncio.wait_for(running, 10.0)

    with short_folder() as folder:
        code = uvloop.run(main(folder))
        assert list(folder.iterdir()) == []
    return code, kept[0]


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_of_the_process_drains(signum: signal.Signals) -> None:
    async def script(service: Service, _engine: FakeEngine, client: AsyncClient) -> None:
        assert await client.ready()
        os.kill(os.getpid(), signum)
        await until(lambda: service.draining)

    code, engine = live(FakeEngine, script)
    assert code == Exit.DRAINED
    assert engine.state == "draining"
    assert engine.closed


def test_open_calls_on_the_unix_socket_finish_before_the_end() -> None:
    async def script(service: Service, engine: FakeEngine, client: AsyncClient) -> None:
        async def listen() -> None:
            heard.extend([text async for text in client.chat(HI["messages"])])

        listening = asyncio.create_task(listen())
        await until(lambda: engine.requests_open == 1)
        service.ask_to_stop()
        await listening

    heard: list[str] = []
    code, _ = live(lambda: FakeEngine(script=[[0.1, *HELLO]]), script)
    assert code == Exit.DRAINED
    assert "".join(heard) == "Hello wörld\n"


def test_a_second_request_to_stop_does_not_wait() -> None:
    async def script(service: Service, engine: FakeEngine, client: AsyncClient) -> None:
        async def listen() -> None:
            with pytest.raises(EngineError):
                await client.call("/v1/chat/completions", HI)

        listening = asyncio.create_task(listen())
        await until(lambda: engine.requests_open == 1)
        service.ask_to_stop(signal.SIGTERM)
        await asyncio.sleep(0)
        service.ask_to_stop(signal.SIGTERM)
        await listening

    code, engine = live(lambda: FakeEngine(script=[FOREVER]), script, drain_timeout_s=60.0)
    assert code == 128 + signal.SIGTERM
    assert engine.closed
    assert engine.cancelled == [1]


def test_stopping_while_loading_ends_the_start() -> None:
    async def script(service: Service, _engine: FakeEngine, client: AsyncClient) -> None:
        assert not await client.ready()
        service.ask_to_stop()

    code, engine = live(lambda: FakeEngine(start=[3600.0]), script)
    assert code == Exit.DRAINED
    assert not engine.ready
    assert engine.closed


def test_an_engine_that_is_lost_is_noticed_within_a_second() -> None:
    async def script(_service: Service, engine: FakeEngine, client: AsyncClient) -> None:
        engine.state = "lost"
        assert (await client.call("/health"))[0] == 503

    code, engine = live(FakeEngine, script)
    assert code == Exit.ENGINE_LOST
    assert engine.closed


@pytest.mark.parametrize("error", [StartError("no weights"), ValueError("bug")])
def test_a_failed_start_comes_out_after_everything_is_closed(error: Exception) -> None:
    async def script(_service: Service, _engine: FakeEngine, _client: AsyncClient) -> None:
        pass

    with pytest.raises(type(error), match=str(error)):
        live(lambda: FakeEngine(start=[0.001, error]), script)


@pytest.mark.parametrize("hangs", [True, False])
def test_an_engine_that_does_not_close_well_does_not_keep_the_process(
    hangs: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Stubborn(FakeEngine):
        async def close(self, *, at_once: bool = False) -> None:
            if hangs:
                await asyncio.sleep(3600)
            raise ValueError("stuck")

    async def script(service: Service, _engine: FakeEngine, _client: AsyncClient) -> None:
        service.ask_to_stop()

    monkeypatch.setattr(service_module, "CLOSE_S_MAX", 0.05)
    assert live(Stubborn, script)[0] == Exit.DRAINED
    assert "did not close well" in caplog.text


def test_run_service_gives_it_a_loop_of_its_own() -> None:
    class Told(Service):
        async def run(self) -> int:
            return int(isinstance(asyncio.get_running_loop(), uvloop.Loop))

    with short_folder() as folder:
        sock, path = bind_unix(str(folder / "s"))
        with sock:
            assert run_service(lambda: Told(FakeEngine(), ServerConfig(), Sockets(None, sock, path), None)) == 1  # type: ignore[arg-type]
