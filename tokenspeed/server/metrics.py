"""`GET /metrics`: the engine's and the door's numbers for Prometheus.

Owns the counts of answers by route and status, and what is read of the scheduler at each scrape. The
names and labels are a contract: every family is there from the start, with zeros. No label tells a
caller, a key or a session.

Invariant: a route is counted under the path of its route, never under the text that a client sent.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenspeed.engine.exposition import CONTENT_TYPE, Family, Sample, exposition
from tokenspeed.errors import EngineError
from tokenspeed.messages.engine import SchedulerStats
from tokenspeed.server.ports import EngineLike

NO_ROUTE = "none"


class Answers:
    """Answers given over HTTP, by route and status."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, int]] = Counter()

    def note(self, route: str, status: int) -> None:
        """Count one answer."""
        self._counts[route, status] += 1

    def family(self) -> Family:
        """Return what was counted."""
        samples = [
            Sample(count, {"route": route, "status": str(status)})
            for (route, status), count in sorted(self._counts.items())
        ]
        return Family("tokenspeed:http_responses_total", "counter", "Answers over HTTP.", samples or [Sample(0)])


class Counted:
    """The middleware; `routes` gives for an endpoint the path of its route."""

    def __init__(self, app: ASGIApp, answers: Answers, routes: Mapping[Callable[..., Any], str]) -> None:
        self._app = app
        self._answers = answers
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application for one request and count its answer."""

        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = self._routes.get(scope.get("endpoint", NO_ROUTE), NO_ROUTE)
                self._answers.note(route, message["status"])
            await send(message)

        await self._app(scope, receive, counting if scope["type"] == "http" else send)


class Metrics:
    """What both doors answer."""

    def __init__(self, engine: EngineLike) -> None:
        self.answers = Answers()
        self._engine = engine
        self._stats = SchedulerStats(0, *[0] * (len(SchedulerStats.__struct_fields__) - 1))

    async def text(self) -> str:
        """Return the exposition. While the scheduler does not answer, its numbers are the last known."""
        with contextlib.suppress(EngineError):
            self._stats = await self._engine.stats()
        families = [*_scheduler(self._stats), *self._engine.meter.families(), self.answers.family()]
        return exposition(families, {"model_name": self._engine.model.served_name})


class MetricsDoor:
    """The endpoint."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def get(self, _request: Request) -> Response:
        """Answer `/metrics`."""
        return Response(await self._metrics.text(), headers={"content-type": CONTENT_TYPE})


def _scheduler(stats: SchedulerStats) -> list[Family]:
    used = stats.pages_owned + stats.pages_cached_leased + stats.pages_zombie
    share = used / stats.pages_total if stats.pages_total else 0.0
    return [
        _gauge("num_requests_running", "Requests that are being computed.", stats.requests_running),
        _gauge("num_requests_waiting", "Requests that wait for their turn.", stats.requests_waiting),
        _gauge("kv_cache_usage_perc", "Share of KV pages that requests hold; 1 is all.", share),
        Family(
            "tokenspeed:retractions_total",
            "counter",
            "Requests that gave their pages up and were computed again.",
            [Sample(stats.retractions)],
        ),
        Family("tokenspeed:steps_total", "counter", "Forward passes.", [Sample(stats.steps)]),
    ]


def _gauge(name: str, words: str, value: float) -> Family:
    return Family(f"tokenspeed:{name}", "gauge", words, [Sample(value)])
