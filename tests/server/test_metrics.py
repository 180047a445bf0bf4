from __future__ import annotations

import re
from pathlib import Path

from tests.server.doors import Door, knock
from tests.server.fake_engine import FakeEngine
from tests.server.sockets import knock_unix
from tokenspeed.client import AsyncClient
from tokenspeed.errors import EngineError
from tokenspeed.messages.engine import SchedulerStats

# What dashboards are built on: these names stay.
NAMES = {
    "tokenspeed:num_requests_running",
    "tokenspeed:num_requests_waiting",
    "tokenspeed:kv_cache_usage_perc",
    "tokenspeed:prefix_cache_queries_total",
    "tokenspeed:prefix_cache_hits_total",
    "tokenspeed:prompt_tokens_total",
    "tokenspeed:generation_tokens_total",
    "tokenspeed:time_to_first_token_seconds",
    "tokenspeed:inter_token_latency_seconds",
    "tokenspeed:request_time_per_output_token_seconds",
    "tokenspeed:e2e_request_latency_seconds",
    "tokenspeed:request_success_total",
    "tokenspeed:retractions_total",
    "tokenspeed:steps_total",
    "tokenspeed:http_responses_total",
}


def test_every_name_is_there_from_the_start_in_the_text_format() -> None:
    async def test(door: Door) -> None:
        reply = await door.client.get("/metrics")
        assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert set(re.findall(r"^# TYPE (\S+) ", reply.text, re.MULTILINE)) == NAMES
        for line in reply.text.splitlines():
            assert re.fullmatch(r'# (HELP|TYPE) .+|tokenspeed:\w+\{model_name="fake-model".*\} [0-9.e+-]+', line), line
        assert 'kv_cache_usage_perc{model_name="fake-model"} 0.0219' in reply.text

    knock(test)


def test_answers_are_counted_by_route_and_status_and_never_by_what_clients_send() -> None:
    async def test(door: Door) -> None:
        await door.chat()
        await door.chat(n=0)
        for path in ("/v1/models/fake-model", "/secret/path", "/v1/models/other"):
            await door.client.get(path, headers={"x-session-id": "secret"})
        text = (await door.client.get("/metrics")).text
        counted = dict(re.findall(r'http_responses_total\{.*route="(\S+)",status="(\d+)"\} 1', text))
        assert "secret" not in text
        assert counted["none"] == "404"
        assert 'route="/v1/chat/completions",status="200"} 1' in text
        assert 'route="/v1/chat/completions",status="400"} 1' in text
        assert 'route="/v1/models/{model:path}",status="404"} 1' in text

    knock(test)


def test_there_are_none_without_the_setting() -> None:
    async def test(door: Door) -> None:
        assert (await door.client.get("/metrics")).status_code == 404

    knock(test, metrics=False)


class Silent(FakeEngine):
    async def stats(self) -> SchedulerStats:
        raise EngineError("no answer", status=503)


def test_a_scheduler_that_does_not_answer_hides_nothing_else() -> None:
    async def test(door: Door) -> None:
        assert "tokenspeed:prompt_tokens_total" in (await door.client.get("/metrics")).text

    knock(test, lambda: Silent().begin())


def test_the_unix_socket_tells_the_same() -> None:
    async def test(_engine: FakeEngine, path: Path) -> None:
        assert set(re.findall(r"# TYPE (\S+)", (await AsyncClient(path).call("/metrics"))[1])) == NAMES

    knock_unix(test)
