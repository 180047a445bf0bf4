"""`GET /health`, `GET /ready`, `GET /version`: is the engine alive, may it be sent work, and what is it.

Owns the answers. A probe costs no place in a queue: it reads what the supervisor knows already.

Invariant: `/ready` is 200 only while new requests are taken; it goes off before they are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tokenspeed import __version__
from tokenspeed.server.errors import RETRY_AFTER_S
from tokenspeed.server.ports import EngineLike


class ShortBody(msgspec.Struct, frozen=True):
    """What everybody may know."""

    status: str
    ready: bool


class HealthBody(msgspec.Struct, frozen=True):
    """`status` is the engine's state; `actors` tells state, phase and restarts of each by name."""

    status: str
    ready: bool
    requests_open: int
    actors: Mapping[str, Any]


class Probes:
    """What both doors answer; `draining` tells whether the server has been asked to stop."""

    def __init__(self, engine: EngineLike, draining: Callable[[], bool] = lambda: False) -> None:
        self._engine = engine
        self._draining = draining

    def live(self) -> tuple[int, HealthBody]:
        """Return 200 while every actor is alive and moving, else 503."""
        health = self._engine.health()
        return (200 if health.ok and health.state != "lost" else 503), self._body(health.state, health.actors)

    def ready(self) -> tuple[int, HealthBody]:
        """Return 200 if a request would be taken and answered, else 503."""
        health = self._engine.health()
        body = self._body(health.state, health.actors)
        return (200 if body.ready else 503), body

    def _body(self, state: str, actors: Mapping[str, Any]) -> HealthBody:
        if self._draining() and state != "lost":
            state = "draining"
        ready = self._engine.ready and state not in ("starting", "draining", "lost")
        return HealthBody(state, ready, self._engine.requests_open, actors)


class HealthDoor:
    """The endpoints."""

    def __init__(self, probes: Probes) -> None:
        self._probes = probes

    async def live(self, request: Request) -> Response:
        """Answer `/health`."""
        return _answer(request, *self._probes.live())

    async def ready(self, request: Request) -> Response:
        """Answer `/ready`."""
        return _answer(request, *self._probes.ready())


async def version(_request: Request) -> Response:
    """Answer `/version`."""
    return Response(msgspec.json.encode({"version": __version__}), media_type="application/json")


def _answer(request: Request, status: int, full: HealthBody) -> Response:
    # How many requests are open is a matter between the tenants.
    body = full if request.state.tells_all else ShortBody(full.status, full.ready)
    headers = {"cache-control": "no-store"}
    if status == 503:
        headers["retry-after"] = str(RETRY_AFTER_S)
    return Response(msgspec.json.encode(body), status, headers, media_type="application/json")
