"""The HTTP application: which path is answered by what.

Owns the routes and the order of the layers around them: an id for whatever comes, then the doorman,
then answers to browsers that were let in, then the routes.

Invariant: no route is reached but through the doorman.
"""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import Route

from tokenspeed.config import ServerConfig
from tokenspeed.server.admin import AdminDoor
from tokenspeed.server.chat import ChatDoor
from tokenspeed.server.doorman import Access, Doorman
from tokenspeed.server.errors import HANDLERS
from tokenspeed.server.health import HealthDoor, Probes
from tokenspeed.server.identity import Identity
from tokenspeed.server.models import ModelsDoor
from tokenspeed.server.ports import EngineLike


def build_app(engine: EngineLike, config: ServerConfig, probes: Probes, access: Access) -> Starlette:
    """Return the application in front of `engine`."""
    chat = ChatDoor(
        engine,
        config.limits,
        config.keep_alive_s,
        trust_request_chat_template=config.trust_request_chat_template,
    )
    admin = AdminDoor(engine)
    models = ModelsDoor(engine)
    health = HealthDoor(probes)
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", chat.post, methods=["POST"]),
            Route("/v1/models", models.index, methods=["GET"]),
            Route("/v1/models/{model:path}", models.one, methods=["GET"]),
            Route("/health", health.live, methods=["GET"]),
            Route("/ready", health.ready, methods=["GET"]),
            Route("/flush_cache", admin.flush_cache, methods=["POST"]),
            Route("/stats", admin.stats, methods=["GET"]),
        ],
        middleware=_layers(config, access),
        exception_handlers=HANDLERS,
    )
    app.router.redirect_slashes = False
    return app


def _layers(config: ServerConfig, access: Access) -> list[Middleware]:
    """Return what a request goes through, the outermost first."""
    layers = [Middleware(Identity, log_prompts=config.log_prompts), Middleware(Doorman, access=access)]
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
