"""The HTTP application: which path is answered by what.

Owns the routes and the order of the layers around them: an id for whatever comes, then the doorman,
then answers to browsers that were let in, then the routes.

Invariant: no route is reached but through the doorman.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route

from tokenspeed.config import ServerConfig
from tokenspeed.server.admin import AdminDoor
from tokenspeed.server.apis import apis
from tokenspeed.server.doorman import Access, Doorman
from tokenspeed.server.errors import HANDLERS
from tokenspeed.server.generation import GenerationDoor
from tokenspeed.server.health import HealthDoor, Probes, version
from tokenspeed.server.identity import Identity
from tokenspeed.server.lookups import LOOKUPS, LookupDoor
from tokenspeed.server.metrics import Counted, Metrics, MetricsDoor
from tokenspeed.server.models import ModelsDoor
from tokenspeed.server.ports import EngineLike
from tokenspeed.server.record import SpansLike


def build_app(
    engine: EngineLike,
    config: ServerConfig,
    probes: Probes,
    access: Access,
    metrics: Metrics,
    spans: SpansLike | None = None,
) -> Starlette:
    """Return the application in front of `engine`; `spans` is told of each call."""
    work = {
        api.path: GenerationDoor(api, engine, config.limits, config.keep_alive_s).post
        for api in apis(config.trust_request_chat_template)
    }
    work |= {path: LookupDoor(lookup, engine, config.limits).post for path, lookup in LOOKUPS.items()}
    admin = AdminDoor(engine)
    models = ModelsDoor(engine)
    health = HealthDoor(probes)
    routes = [
        *(Route(path, post, methods=["POST"]) for path, post in work.items()),
        Route("/v1/models", models.index, methods=["GET"]),
        Route("/v1/models/{model:path}", models.one, methods=["GET"]),
        Route("/health", health.live, methods=["GET"]),
        Route("/ready", health.ready, methods=["GET"]),
        Route("/version", version, methods=["GET"]),
        Route("/flush_cache", admin.flush_cache, methods=["POST"]),
        Route("/stats", admin.stats, methods=["GET"]),
        Route("/requests", admin.requests, methods=["GET"]),
    ]
    if config.metrics:
        routes.append(Route("/metrics", MetricsDoor(metrics).get, methods=["GET"]))
    counted = Middleware(Counted, answers=metrics.answers, routes=_paths(routes))
    app = Starlette(
        routes=routes,
        middleware=[counted, *_layers(config, access, spans)],
        exception_handlers=HANDLERS,
    )
    app.router.redirect_slashes = False
    return app


def _paths(routes: list[Route]) -> dict[Callable[..., Any], str]:
    """Return the path of each endpoint; of two paths of one endpoint the first."""
    return {route.endpoint: route.path for route in reversed(routes)}


def _layers(config: ServerConfig, access: Access, spans: SpansLike | None) -> list[Middleware]:
    """Return what a request goes through, the outermost first."""
    layers = [
        Middleware(Identity, log_prompts=config.log_prompts, spans=spans),
        Middleware(Doorman, access=access),
    ]
    if config.allowed_origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=list(config.allowed_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["*"],
            expose_headers=["x-request-id", "retry-after"],
        )
        layers.insert(1, cors)  # a browser's first question carries no key
    return layers
