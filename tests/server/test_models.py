from __future__ import annotations

from tests.server.doors import Door, knock
from tests.server.fake_engine import FakeEngine
from tokenspeed.config import EngineConfig


def test_the_catalogue_tells_the_context_under_every_usual_name() -> None:
    async def test(door: Door) -> None:
        catalogue = (await door.client.get("/v1/models")).json()
        assert catalogue["object"] == "list"
        (card,) = catalogue["data"]
        assert (card["id"], card["object"]) == ("fake-model", "model")
        for name in ("max_model_len", "context_length", "context_window", "max_context_length", "max_input_tokens"):
            assert card[name] == 2048
        assert (await door.client.get("/v1/models/fake-model")).json() == card

    knock(test)


def test_a_name_may_have_slashes() -> None:
    async def test(door: Door) -> None:
        assert (await door.client.get("/v1/models/org/model")).json()["id"] == "org/model"
        reply = await door.client.get("/v1/models/org/other")
        assert reply.status_code == 404
        assert reply.json()["error"]["code"] == "model_not_found"
        assert "org/model" in reply.json()["error"]["message"]

    knock(test, lambda: FakeEngine(EngineConfig(served_model_name="org/model")).begin())


def test_the_catalogue_is_there_while_the_engine_loads() -> None:
    async def test(door: Door) -> None:
        assert (await door.client.get("/v1/models")).status_code == 200

    knock(test, FakeEngine)
