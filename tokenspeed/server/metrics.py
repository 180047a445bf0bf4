"""`GET /metrics`: the engine's and the door's numbers for Prometheus.

Owns the counts of answers by route and status, those being made, and what is read of the scheduler at
each scrape. Names and labels are those of `engine/metrics.py`, a contract: every family is there from
the start, with zeros. No label tells a caller, a key or a session.

Invariant: a route is counted under the path of its route, never under the text that a client sent.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenspeed import __version__
from tokenspeed.engine.exposition import CONTENT_TYPE, Family, Histogram, exposition
from tokenspeed.engine.metrics import (
    CLASSES,
    METRICS,
    NO_ROUTE,
    OTHER,
    PREFIX,
    STATUSES,
    common_with_vllm,
)
from tokenspeed.errors import EngineError
from tokenspeed.messages.engine import STEP_TIMES_US, STEP_TOKENS, SchedulerStats
from tokenspeed.server.ports import EngineLike
from tokenspeed.server.record import STATUS_CLIENT_GONE

VLLM_PREFIX = "vllm:"
STATS_LIMIT_S = 0.5  # a scheduler that hangs is not waited for: whoever scrapes gives up after seconds


class Answers:
    """Answers given over HTTP, by route and status, and those being made."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], float] = {}
        self.open = 0

    def note(self, route: str, status: int) -> None:
        """Count one answer."""
        key = route, str(status) if str(status) in STATUSES else OTHER
        self._counts[key] = self._counts.get(key, 0) + 1

    def families(self) -> list[Family]:
        """Return what was counted."""
        return [METRICS["http_requests_open"].one(self.open), METRICS["http_responses_total"].each(self._counts)]


class Counted:
    """The middleware; `routes` gives for an endpoint the path of its route."""

    def __init__(self, app: ASGIApp, answers: Answers, routes: Mapping[Callable[..., Any], str]) -> None:
        self._app = app
        self._answers = answers
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application for one request and count its answer."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        status = STATUS_CLIENT_GONE

        async def counting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self._answers.open += 1
        try:
            await self._app(scope, receive, counting)
        finally:
            self._answers.open -= 1
            self._answers.note(self._routes.get(scope.get("endpoint", NO_ROUTE), NO_ROUTE), status)


class Metrics:
    """What both doors answer; `vllm_names` tells what vLLM has too under its names as well."""

    def __init__(self, engine: EngineLike, *, vllm_names: bool = False) -> None:
        self.answers = Answers()
        self._engine = engine
        self._vllm_names = vllm_names
        self._stats = SchedulerStats.nothing()

    async def text(self) -> str:
        """Return the exposition. While the scheduler does not answer, its numbers are the last known."""
        with contextlib.suppress(EngineError, TimeoutError):
            self._stats = await asyncio.wait_for(self._engine.stats(), STATS_LIMIT_S)
        families = list(self._families())
        if self._vllm_names:
            families += [
                family._replace(name=VLLM_PREFIX + family.name.removeprefix(PREFIX))
                for family in families
                if common_with_vllm(family)
            ]
        return exposition(families, {"model_name": self._engine.model.served_name})

    def _families(self) -> Iterable[Family]:
        yield from _load(self._engine)
        yield from self._engine.meter.families()
        yield from _cache(self._stats, self._engine)
        yield from _steps(self._stats, self._engine)
        yield from _actors(self._engine)
        yield from self.answers.families()


class MetricsDoor:
    """The endpoint."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def get(self, _request: Request) -> Response:
        """Answer `/metrics`."""
        return Response(await self._metrics.text(), headers={"content-type": CONTENT_TYPE})


def _load(engine: EngineLike) -> Iterable[Family]:
    load = engine.load()
    yield METRICS["num_requests_running"].one(load.running)
    yield METRICS["num_requests_waiting"].one(load.waiting)
    yield METRICS["num_requests_limit"].one(load.limit)


def _cache(stats: SchedulerStats, engine: EngineLike) -> Iterable[Family]:
    pages = {name: getattr(stats, f"pages_{name}") for name in CLASSES}
    used = pages["owned"] + pages["cached_leased"] + pages["zombie"]
    yield METRICS["kv_cache_usage_perc"].one(used / stats.pages_total if stats.pages_total else 0.0)
    yield METRICS["kv_pages"].each({(name,): count for name, count in pages.items()})
    made = (str(engine.device.page_tokens), str(stats.pages_total), str(engine.config.enable_prefix_caching))
    yield METRICS["cache_config_info"].each({made: 1})


def _steps(stats: SchedulerStats, engine: EngineLike) -> Iterable[Family]:
    meter = engine.meter
    again = {
        "memory": (stats.retractions, stats.tokens_retracted),
        "executor_restart": (stats.losses, stats.tokens_lost),
        "scheduler_restart": (meter.resumed, meter.resumed_tokens),
    }
    times = Histogram([us / 1e6 for us in STEP_TIMES_US], stats.step_times, stats.step_us / 1e6)
    tokens = Histogram(STEP_TOKENS, stats.step_tokens, stats.tokens_prefilled + stats.tokens_decoded)
    yield METRICS["steps_total"].one(stats.steps)
    yield METRICS["step_time_seconds"].observed(times)
    yield METRICS["iteration_tokens_total"].observed(tokens)
    yield METRICS["num_preemptions_total"].one(stats.retractions)
    yield METRICS["retractions_total"].each({(reason,): count for reason, (count, _) in again.items()})
    yield METRICS["retracted_tokens_total"].each({(reason,): count for reason, (_, count) in again.items()})


def _actors(engine: EngineLike) -> Iterable[Family]:
    actors = engine.health().actors
    yield METRICS["engine_ready"].one(engine.ready)
    yield METRICS["actor_up"].each({(name,): actor.state == "ready" for name, actor in actors.items()})
    yield METRICS["actor_restarts_total"].each({(name,): actor.restarts for name, actor in actors.items()})
    yield METRICS["ring_fill_bytes"].each({(ring,): fill for ring, fill in engine.ring_fill().items()})
    yield METRICS["build_info"].each({(__version__,): 1})
