"""`POST /flush_cache`, `GET /stats` and `GET /requests` over HTTP, for who has the admin key.

Owns the answers, which are those of the Unix socket. Who may ask is the doorman's business.

Invariant: nothing here is reached without `--admin-key`.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tokenspeed.errors import UserError
from tokenspeed.server.errors import shown
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

    async def requests(self, request: Request) -> Response:
        """Tell the engine's numbers of the requests of one caller."""
        return _json(found(self._engine, request.query_params.get("id", "")))


class RequestsQuery(msgspec.Struct, frozen=True):
    """Whose requests: the id of a call, or of its answer."""

    id: str = ""


def found(engine: EngineLike, ident: str) -> dict[str, Any]:
    """Return the trail of the caller `ident`; raise `UserError` (404) if none of the newest has that id."""
    trail = engine.find_caller(ident)
    if trail is None:
        raise UserError(
            f"No request with the id {shown(ident)!r} is remembered; send id=ID, an x-request-id or the id in an "
            "answer's body, of one of the newest requests.",
            status=404,
            code="request_not_found",
            param="id",
        )
    return {"request_id": trail.id, "answer_id": trail.answer, "requests": trail.requests}


async def flushed(engine: EngineLike) -> dict[str, int]:
    """Flush the cache of `engine`; return the answer's body."""
    return {"pages_freed": await engine.flush_cache()}


async def counters(engine: EngineLike) -> dict[str, int]:
    """Return the counters of `engine` by name."""
    stats = await engine.stats()
    told = {name: getattr(stats, name) for name in stats.__struct_fields__ if name != "call"}
    return {name: value for name, value in told.items() if isinstance(value, int)}


def _json(body: Any) -> Response:
    return Response(msgspec.json.encode(body), media_type="application/json")
