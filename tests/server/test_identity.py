from __future__ import annotations

import logging
import re

import pytest

from tests.server.doors import CHAT, HI, Door, events, knock, until
from tests.server.fake_engine import FOREVER, FakeEngine, Output
from tokenspeed.config import Secret
from tokenspeed.errors import EngineError
from tokenspeed.server.identity import request_id


@pytest.mark.parametrize("good", ["a", "req-1", "0af7651916cd43dd:8448/eb@x=+", "x" * 128])
def test_a_plain_id_is_kept(good: str) -> None:
    assert request_id(good) == good


@pytest.mark.parametrize("bad", [None, "", "x" * 129, "two words", "new\nline", 'quo"te', "ünicode", "<b>"])
def test_any_other_is_replaced(bad: str | None) -> None:
    made = request_id(bad)
    assert made != bad
    assert request_id(made) == made
    assert request_id(bad) != made


@pytest.mark.parametrize("path", ["/health", "/ready", "/v1/models", "/nothing", CHAT])
def test_every_answer_carries_the_id(path: str) -> None:
    async def test(door: Door) -> None:
        reply = await door.client.get(path, headers={"X-Request-Id": "mine-1"})
        assert reply.headers["x-request-id"] == "mine-1"
        assert (await door.client.get(path)).headers["x-request-id"].startswith("req-")

    knock(test)


def test_work_is_logged_in_one_line_and_probes_are_not(caplog: pytest.LogCaptureFixture) -> None:
    async def test(door: Door) -> None:
        for path in ("/health", "/ready", "/metrics"):
            assert (await door.client.get(path)).status_code == 200
        for stream in (False, True):
            await door.client.post(CHAT, json={**HI, "stream": stream}, headers={"X-Request-Id": f"id-{stream}"})
        await door.client.get("/no%0Alines")

    caplog.set_level(logging.INFO, "tokenspeed.server")
    knock(test)
    records = [record for record in caplog.records if record.name == "tokenspeed.server"]
    assert [record.getMessage() for record in records] == [*2 * [f"POST {CHAT} 200"], "GET /no%0Alines 404"]
    for number, (record, ident) in enumerate(zip(records, ("id-False", "id-True"), strict=False), 1):
        fields: dict[str, object] = vars(record)["fields"]
        assert isinstance(fields.pop("duration_s"), float)
        counts = {"prompt_tokens": 7, "cached_tokens": 4, "completion_tokens": 3}
        times = {"queue_ms": 2.0, "ttft_ms": 10.0, "tpot_ms": 10.0}
        assert fields == {"id": ident, "request": str(number), **counts, **times, "finish": "stop"}


def test_a_client_that_left_is_logged_as_499(caplog: pytest.LogCaptureFixture) -> None:
    async def test(door: Door) -> None:
        _, writer = await door.connect()
        body = b'{"messages":[{"role":"user","content":"x"}]}'
        writer.write(
            b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (CHAT.encode(), len(body), body)
        )
        await until(lambda: door.engine.requests_open == 1)
        writer.close()
        await until(lambda: door.engine.cancelled == [1])
        await until(lambda: bool(caplog.records))

    caplog.set_level(logging.INFO, "tokenspeed.server")
    knock(test, lambda: FakeEngine(script=[FOREVER]).begin())
    assert f"POST {CHAT} 499" in caplog.text


def test_the_log_has_the_name_of_a_key_and_never_the_key(caplog: pytest.LogCaptureFixture) -> None:
    async def test(door: Door) -> None:
        for key in ("sesame-of-ann", "sesame-of-none", "wrong-sesame"):
            await door.client.post(CHAT, json=HI, headers={"authorization": f"Bearer {key}"})

    caplog.set_level(logging.INFO, "tokenspeed.server")
    knock(test, api_keys=(Secret("ann:sesame-of-ann"), Secret("sesame-of-none")))
    keys = [vars(record)["fields"].get("key", "") for record in caplog.records if record.name == "tokenspeed.server"]
    assert keys[0] == "ann"
    assert re.fullmatch("[0-9a-f]{8}", keys[1])
    assert keys[2] == ""
    assert "sesame" not in caplog.text + str([vars(record) for record in caplog.records])


def test_text_is_logged_by_wish_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def test(door: Door) -> None:
        await door.chat()

    caplog.set_level(logging.INFO, "tokenspeed.server")
    for log_prompts in (False, True):
        caplog.clear()
        knock(test, log_prompts=log_prompts)
        (record,) = (record for record in caplog.records if record.name == "tokenspeed.server")
        assert {"prompt", "reply"} <= vars(record)["fields"].keys() or not log_prompts
        assert not {"prompt", "reply"} & vars(record)["fields"].keys() or log_prompts


def test_a_trace_that_the_client_has_begun_is_named_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def test(door: Door) -> None:
        for parent in (f"00-{'a1' * 16}-{'b2' * 8}-01", f"00-{'0' * 32}-{'b2' * 8}-01", "nonsense"):
            await door.client.post(CHAT, json=HI, headers={"traceparent": parent})

    caplog.set_level(logging.INFO, "tokenspeed.server")
    knock(test)
    told = [vars(record)["fields"].get("trace_id") for record in caplog.records if record.name == "tokenspeed.server"]
    assert told == ["a1" * 16, None, None]


def test_an_error_tells_the_id_in_its_body_whoever_refuses() -> None:
    async def test(door: Door) -> None:
        mine = {"x-request-id": "mine-1"}
        for reply in (
            await door.client.post(CHAT, json={}, headers=mine),
            await door.client.get("/nothing", headers=mine),
            await door.client.get("/stats", headers=mine),
        ):
            assert reply.status_code >= 400
            assert reply.json()["request_id"] == reply.headers["x-request-id"] == "mine-1"
        raw = await door.send_raw(b"POST / HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: mine-2\r\nHost: other\r\n\r\n")
        assert raw.startswith(b"HTTP/1.1 400")
        assert raw.count(b"mine-2") == 2

    knock(test)


def test_an_error_in_a_stream_tells_the_id() -> None:
    async def test(door: Door) -> None:
        reply = await door.client.post(CHAT, json={**HI, "stream": True}, headers={"x-request-id": "mine-3"})
        assert events(reply.text)[-2]["request_id"] == "mine-3"

    knock(test, lambda: FakeEngine(script=[(Output("a"), EngineError("broken"))]).begin())


def test_who_has_the_admin_key_finds_the_requests_of_a_call() -> None:
    async def test(door: Door) -> None:
        reply = await door.client.post(CHAT, json={**HI, "n": 2}, headers={"x-request-id": "mine-4"})
        answer, key = reply.json()["id"], {"authorization": "Bearer open"}
        for ident in ("mine-4", answer):
            found = await door.client.get("/requests", params={"id": ident}, headers=key)
            assert found.json() == {"request_id": "mine-4", "answer_id": answer, "requests": [1, 2]}
        assert (await door.client.get("/requests?id=other", headers=key)).status_code == 404
        assert (await door.client.get("/requests?id=mine-4")).status_code == 401

    knock(test, admin_key=Secret("open"))
