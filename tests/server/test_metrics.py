from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from prometheus_client import Metric as Told
from prometheus_client.parser import text_string_to_metric_families

from tests.server.doors import CHAT, HI, Door, knock, until
from tests.server.fake_engine import FOREVER, Actor, FakeEngine, Health
from tests.server.sockets import knock_unix
from tokenspeed.client import AsyncClient
from tokenspeed.config import ServerConfig
from tokenspeed.engine.metrics import METRICS, ROUTES, Metric, common_with_vllm
from tokenspeed.errors import EngineError
from tokenspeed.messages.engine import SchedulerStats
from tokenspeed.server.app import build_app
from tokenspeed.server.doorman import Access
from tokenspeed.server.health import Probes
from tokenspeed.server.metrics import Metrics

SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def families(text: str) -> dict[str, Told]:
    """Return what Prometheus' own parser reads, by the name that is told."""
    return {
        f"{family.name}_total" if family.type == "counter" else family.name: family
        for family in text_string_to_metric_families(text)
    }


def check(metric: Metric, told: Told) -> None:
    """Hold one family against the table."""
    assert told.type == metric.kind
    assert told.documentation == metric.help
    for sample in told.samples:
        suffix = sample.name.removeprefix(told.name)  # the parser leaves the _total of a counter out
        assert suffix in SUFFIXES[told.type], sample.name
        names = {label.name for label in metric.labels} | {"model_name"} | ({"le"} if suffix == "_bucket" else set())
        assert set(sample.labels) == names
        for label in metric.labels:
            assert not label.values or sample.labels[label.name] in label.values


def values(text: str, name: str, *labels: str) -> dict[str | tuple[str, ...], float]:
    """Return the samples of the counter or gauge `name` by `labels`."""
    samples = families(text)[f"tokenspeed:{name}"].samples
    keys = [tuple(sample.labels[label] for label in labels) for sample in samples]
    return {key[0] if len(key) == 1 else key: sample.value for key, sample in zip(keys, samples, strict=True)}


def test_the_list_and_what_is_told_are_the_same_from_the_start() -> None:
    async def test(door: Door) -> None:
        reply = await door.client.get("/metrics")
        assert reply.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        told = families(reply.text)
        assert list(told) != []
        assert set(told) == {metric.full_name for metric in METRICS.values()}
        for metric in METRICS.values():
            check(metric, told[metric.full_name])
        count = sum(line.startswith("# TYPE") for line in reply.text.splitlines())
        assert count == len(METRICS)
        assert values(reply.text, "kv_cache_usage_perc") == {(): pytest.approx(91 / 4096)}
        assert values(reply.text, "retractions_total", "reason")["memory"] == 3
        assert values(reply.text, "actor_up", "actor") == {
            "executor": 1,
            "tokenizer": 0,
            "scheduler": 0,
            "detokenizer": 0,
        }

    knock(test)


def test_answers_are_counted_by_route_and_status_and_never_by_what_clients_send() -> None:
    async def test(door: Door) -> None:
        await door.chat()
        await door.chat(n=0)
        for path in ("/v1/models/fake-model", "/secret/path", "/v1/models/other"):
            await door.client.get(path, headers={"x-session-id": "secret"})
        text = (await door.client.get("/metrics")).text
        counted = {key for key, count in values(text, "http_responses_total", "route", "status").items() if count}
        assert "secret" not in text
        assert counted == {
            (CHAT, "200"),
            (CHAT, "400"),
            ("/v1/models/{model:path}", "200"),
            ("/v1/models/{model:path}", "404"),
            ("none", "404"),
        }
        assert values(text, "http_requests_open") == {(): 1}

    knock(test)


def test_a_client_that_left_before_its_answer_is_counted_as_499() -> None:
    async def test(door: Door) -> None:
        _, writer = await door.connect()
        body = b'{"messages":[{"role":"user","content":"x"}]}'
        head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await until(lambda: door.engine.requests_open == 1)
        text = (await door.client.get("/metrics")).text
        assert values(text, "http_requests_open") == {(): 2}
        assert values(text, "num_requests_running") == {(): 1}
        writer.close()
        await until(lambda: door.engine.cancelled == [1])
        text = (await door.client.get("/metrics")).text
        assert values(text, "http_responses_total", "route", "status")[CHAT, "499"] == 1

    knock(test, lambda: FakeEngine(script=[FOREVER]).begin())


def test_every_route_is_in_the_list() -> None:
    engine, config = FakeEngine(), ServerConfig()
    app = build_app(engine, config, Probes(engine), Access(config.access, config.host), Metrics(engine))
    paths = {getattr(route, "path", "") for route in app.routes}
    assert paths == set(ROUTES) - {"none"}


def test_there_are_none_without_the_setting() -> None:
    async def test(door: Door) -> None:
        assert (await door.client.get("/metrics")).status_code == 404

    knock(test, metrics=False)


class Hanging(FakeEngine):
    """An engine whose scheduler has told its numbers once and hangs since, with one request open."""

    asked_stats = 0

    async def stats(self) -> SchedulerStats:
        self.asked_stats += 1
        if self.asked_stats > 1:
            await asyncio.sleep(3600)
        return await super().stats()

    def health(self) -> Health:
        return Health(False, "degraded", {"scheduler": Actor("frozen", restarts=2)})


def test_a_scheduler_that_hangs_delays_no_scrape_and_hides_nothing() -> None:
    async def test(door: Door) -> None:
        await door.client.get("/metrics")
        asking = asyncio.ensure_future(door.client.post(CHAT, json=HI))
        await until(lambda: door.engine.requests_open == 1)
        begun_s = time.monotonic()
        text = (await door.client.get("/metrics")).text
        assert time.monotonic() - begun_s < 3.0
        assert values(text, "num_requests_running") == {(): 1}
        assert values(text, "steps_total") == {(): 17}
        assert values(text, "actor_up", "actor")["scheduler"] == 0
        assert values(text, "actor_restarts_total", "actor")["scheduler"] == 2
        asking.cancel()

    knock(test, lambda: Hanging(script=[FOREVER]).begin())


class Silent(FakeEngine):
    async def stats(self) -> SchedulerStats:
        raise EngineError("no answer", status=503)


def test_an_engine_that_still_loads_has_every_series() -> None:
    async def test(door: Door) -> None:
        text = (await door.client.get("/metrics")).text
        assert set(families(text)) == {metric.full_name for metric in METRICS.values()}
        assert values(text, "engine_ready") == {(): 0}

    knock(test, lambda: Silent())


def test_vllms_names_come_besides_by_wish() -> None:
    async def test(door: Door) -> None:
        told = families((await door.client.get("/metrics")).text)
        alike = {name for name, metric in METRICS.items() if common_with_vllm(metric.one(0))}
        assert {name.removeprefix("vllm:") for name in told if name.startswith("vllm:")} == alike
        assert {"num_requests_waiting", "kv_cache_usage_perc", "prompt_tokens_total"} <= alike
        assert "retractions_total" not in alike
        for name in alike:
            ours, theirs = told[f"tokenspeed:{name}"], told[f"vllm:{name}"]
            assert [(s.labels, s.value) for s in ours.samples] == [(s.labels, s.value) for s in theirs.samples]

    knock(test, vllm_metric_names=True)


def test_the_unix_socket_tells_the_same() -> None:
    async def test(_engine: FakeEngine, path: Path) -> None:
        _, text = await AsyncClient(path).call("/metrics")
        assert set(families(text)) == {metric.full_name for metric in METRICS.values()}

    knock_unix(test)
