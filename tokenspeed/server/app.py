"""The HTTP application: which path is answered by what.

Owns the routes and the order of the layers around them. Admin routes are not here: they exist on
the Unix socket alone.

Invariant: no route of this application changes the engine's state except by generating.
"""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route

from tokenspeed.config import ServerConfig
from tokenspeed.server.chat import ChatDoor
from tokenspeed.server.errors import HANDLERS
from tokenspeed.server.health import HealthDoor, Probes
from tokenspeed.server.identity import Identity
from tokenspeed.server.models import ModelsDoor
from tokenspeed.server.ports import EngineLike


def build_app(engine: EngineLike, config: ServerConfig, probes: Probes) -> Starlette:
    """Return the application in front of `engine`."""
    chat = ChatDoor(engine, config.request_bytes_max, config.keep_alive_s)
    models = ModelsDoor(engine)
    health = HealthDoor(probes)
    app = Starlette(
        routes=[
            Route("/v1/chat/completions", chat.post, methods=["POST"]),
            Route("/v1/models", models.index, methods=["GET"]),
            Route("/v1/models/{model:path}", models.one, methods=["GET"]),
            Route("/health", health.live, methods=["GET"]),
            Route("/ready", health.ready, methods=["GET"]),
        ],
        middleware=[Middleware(Identity, config.log_prompts)],
        exception_handlers=HANDLERS,
    )
    app.router.redirect_slashes = False
    return app
