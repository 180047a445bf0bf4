"""The HTTP application: which path is answered by what.

Owns the routes and the order of the layers around them. Admin routes are not here: they exist on
the Unix socket alone.

Invariant: no route of this application changes the engine's state except by generating.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from tokenspeed.config import ServerConfig
from tokenspeed.server.apis import APIS
from tokenspeed.server.errors import HANDLERS
from tokenspeed.server.generation import GenerationDoor
from tokenspeed.server.health import HealthDoor, Probes
from tokenspeed.server.identity import Identity
from tokenspeed.server.lookups import LOOKUPS, LookupDoor
from tokenspeed.server.metrics import Counted, Metrics, MetricsDoor
from tokenspeed.server.models import ModelsDoor
from tokenspeed.server.ports import EngineLike


def build_app(engine: EngineLike, config: ServerConfig, probes: Probes, metrics: Metrics) -> Starlette:
    """Return the application in front of `engine`."""
    work = {api.path: GenerationDoor(api, engine, config.request_bytes_max, config.keep_alive_s).post for api in APIS}
    work |= {path: LookupDoor(lookup, engine, config.request_bytes_max).post for path, lookup in LOOKUPS.items()}
    models = ModelsDoor(engine)
    health = HealthDoor(probes)
    routes = [
        *(Route(path, post, methods=["POST"]) for path, post in work.items()),
        Route("/v1/models", models.index, methods=["GET"]),
        Route("/v1/models/{model:path}", models.one, methods=["GET"]),
        Route("/health", health.live, methods=["GET"]),
        Route("/ready", health.ready, methods=["GET"]),
    ]
    if config.metrics:
        routes.append(Route("/metrics", MetricsDoor(metrics).get, methods=["GET"]))
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Counted, answers=metrics.answers, routes=_paths(routes)), Middleware(Identity)],
        exception_handlers=HANDLERS,
    )
    app.router.redirect_slashes = False
    return app


def _paths(routes: list[Route]) -> dict[Callable[..., Any], str]:
    """Return the path of each endpoint; of two paths of one endpoint the first."""
    return {route.endpoint: route.path for route in reversed(routes)}
