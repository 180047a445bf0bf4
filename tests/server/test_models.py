from __future__ import annotations

import msgspec

from tests.server.doors import Door, knock
from tests.server.fake_engine import FakeEngine
from tokenspeed.config import EngineConfig, ModelConfig
from tokenspeed.generation import GenerationDefaults
from tokenspeed.server.models import model_card


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


def test_the_catalogue_tells_what_a_request_gets_that_says_nothing() -> None:
    model = ModelConfig(path="/m", served_name="m", max_model_len=100)
    neutral = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
    assert model_card(model, 0).generation_defaults == {**neutral, "source": ""}
    defaults = GenerationDefaults(temperature=0.6, top_k=20, source="generation_config.json")
    card = model_card(msgspec.structs.replace(model, defaults=defaults), 0)
    told = {"temperature": 0.6, "top_k": 20, "source": "generation_config.json"}
    assert card.generation_defaults == {**neutral, **told}


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
