"""`POST /flush_cache` and `GET /stats` over HTTP, for who has the admin key.

Owns the two answers, which are those of the Unix socket. Who may ask is the doorman's business.

Invariant: nothing here is reached without `--admin-key`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tokenspeed.server.ports import EngineLike


class AdminDoor:
    """The endpoints."""

    def __init__(self, engine: EngineLike) -> None:
        self._engine = engine

    async def flush_cache(self, _request: Request) -> Response:
        """Forget every cached page that no request holds."""
        return _json(await flushed(self._engine))

    async def stats(self, _request: Request) -> Response:
        """Tell the scheduler's counters."""
        return _json(await counters(self._engine))


async def flushed(engine: EngineLike) -> dict[str, int]:
    """Flush the cache of `engine`; return the answer's body."""
    return {"pages_freed": await engine.flush_cache()}


async def counters(engine: EngineLike) -> dict[str, Any]:
    """Return the counters of `engine` by name."""
    stats = await engine.stats()
    return {name: getattr(stats, name) for name in stats.__struct_fields__ if name != "call"}


def _json(body: Any) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
