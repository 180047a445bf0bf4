from __future__ import annotations

import pytest

from tests.server.doors import Door, knock
from tests.server.fake_engine import FOREVER, FakeEngine
from tokenspeed import __version__
from tokenspeed.server.health import Probes


@pytest.mark.parametrize(
    ("state", "ok", "ready", "live_status", "ready_status"),
    [
        ("starting", True, False, 200, 503),
        ("ready", True, True, 200, 200),
        ("degraded", False, False, 503, 503),
        ("draining", True, True, 200, 503),
        ("lost", False, False, 503, 503),
        ("lost", True, True, 503, 503),
    ],
)
def test_live_and_ready(state: str, ok: bool, ready: bool, live_status: int, ready_status: int) -> None:
    async def test(door: Door) -> None:
        door.engine.state, door.engine.ok, door.engine.ready = state, ok, ready
        live, may = await door.client.get("/health"), await door.client.get("/ready")
        assert (live.status_code, may.status_code) == (live_status, ready_status)
        assert live.json()["status"] == may.json()["status"] == state
        assert live.json()["actors"] == {"executor": {"state": "ready", "restarts": 0, "pid": 1}}
        assert ("retry-after" in may.headers) == (ready_status == 503)
        assert live.headers["cache-control"] == "no-store"

    knock(test, FakeEngine)


def test_ready_goes_off_with_the_signal_before_the_engine_drains() -> None:
    asked_to_stop = False
    probes = Probes(FakeEngine().begin(), lambda: asked_to_stop)
    assert probes.ready()[0] == 200
    asked_to_stop = True
    assert probes.ready()[0] == 503
    assert probes.live()[0] == 200
    assert probes.live()[1].status == "draining"


def test_open_requests_are_counted_and_probes_cost_no_slot() -> None:
    async def test(door: Door) -> None:
        async with door.client.stream(
            "POST", "/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}], "stream": True}
        ):
            assert (await door.client.get("/health")).json()["requests_open"] == 1
            assert len(door.engine.asked) == 1

    knock(test, lambda: FakeEngine(script=[FOREVER]).begin())


def test_the_server_tells_its_version() -> None:
    async def test(door: Door) -> None:
        assert (await door.client.get("/version")).json() == {"version": __version__}

    knock(test, FakeEngine)
