"""The catalogue of bad input: each gets its status in the usual shape, and a stream beside it hears nothing."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.server.doors import CHAT, HI, Door, knock, until
from tests.server.fake_engine import END, FakeEngine, Output, Step
from tests.server.hostile import EXCHANGES, HOSTILE, Hostile
from tests.server.test_limits import texts
from tokenspeed.config import ModelConfig
from tokenspeed.errors import UserError
from tokenspeed.server.ask import chat_ask
from tokenspeed.server.parse import decode_json
from tokenspeed.server.schema import ChatRequest

MODEL = ModelConfig(path="", served_name="m", max_model_len=2048)
FIELDS = {field.name: field for field in msgspec.structs.fields(ChatRequest)}


class Ticking:
    """The script of a reply that goes on until it is told to end."""

    def __init__(self) -> None:
        self.told = 0
        self.is_over = False

    def __iter__(self) -> Iterator[Step]:
        while not self.is_over:
            yield Output(f"{self.told} ")
            self.told += 1
            yield 0.005
        yield END


def test_each_gets_its_status_and_the_stream_beside_it_is_undisturbed() -> None:
    ticking = Ticking()

    async def test(door: Door) -> None:
        beside = asyncio.create_task(door.chat(stream=True))
        await until(lambda: ticking.told > 1)
        for hostile in HOSTILE:
            await check(door, hostile)
        await asyncio.gather(*[exchange(*await door.connect()) for exchange in EXCHANGES])
        assert not beside.done()
        ticking.is_over = True
        assert texts((await beside).text) == "".join(f"{index} " for index in range(ticking.told)) + END.text
        assert (await door.chat()).status_code == 200

    knock(
        test,
        lambda: FakeEngine(script=[ticking, [END]]).begin(),
        request_bytes_max=1 << 20,
        header_timeout_s=0.3,
        body_timeout_s=0.3,
    )


async def check(door: Door, hostile: Hostile) -> None:
    reply = await door.client.post(CHAT, content=hostile.body, headers=hostile.headers)
    assert reply.status_code == hostile.status, (hostile.name, reply.text[:300])
    assert len(reply.headers["x-request-id"]) <= 128
    if hostile.status >= 400:
        error = reply.json()["error"]
        assert set(error) == {"message", "type", "param", "code"}, hostile.name
        assert hostile.param in (None, error["param"]), (hostile.name, error)
        assert len(error["message"]) < 1000, hostile.name


@pytest.mark.parametrize("name", [name for name, field in FIELDS.items() if not field.required])
def test_null_is_the_same_as_absent(name: str) -> None:
    def ask(**more: Any) -> object:
        return chat_ask(decode_json(json.dumps({**HI, **more}).encode(), ChatRequest), MODEL)

    assert ask(**{name: None}) == ask()


@pytest.mark.parametrize("name", FIELDS)
def test_a_wrong_type_is_named(name: str) -> None:
    values: list[Any] = [True, 3, 1.5, "text", [{}], {"a": 1}, [[[0]]]]
    errors = [error for value in values if (error := complaint({**HI, name: value})) is not None]
    assert errors  # something is wrong for each field
    for error in errors:
        assert error.status in (400, 404)
        assert re.split(r"[.\[]", error.param or "")[0] in (name, "stream_options")


def complaint(body: dict[str, Any]) -> UserError | None:
    try:
        chat_ask(decode_json(json.dumps(body).encode(), ChatRequest), MODEL)
    except UserError as error:
        return error
    return None
