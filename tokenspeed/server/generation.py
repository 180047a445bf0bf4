"""The endpoints that generate, whole and streamed, over HTTP.

Owns the way from a body to an answer. Everything that can be the caller's fault is found before the
first header: every prompt has been accepted when a stream's headers go out.

Invariant: when the endpoint or its response returns, the engine no longer works for this request.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tokenspeed.config import RequestLimits
from tokenspeed.engine.batch import Batch
from tokenspeed.engine.reply import OutputLike, Reply
from tokenspeed.errors import TokenSpeedError
from tokenspeed.server.apis import Api
from tokenspeed.server.body import read_json
from tokenspeed.server.disconnect import unless_gone, until_gone
from tokenspeed.server.opened import open_ask
from tokenspeed.server.parse import decode_json
from tokenspeed.server.ports import EngineLike
from tokenspeed.server.sse import KEEP_ALIVE_S, EventStream
from tokenspeed.server.telling import Teller

SESSION_HEADERS = ("x-session-id", "x-session-affinity", "x-claude-code-session-id")


class GenerationDoor:
    """The endpoint of `api`. Bodies beyond `limits` are refused."""

    def __init__(self, api: Api, engine: EngineLike, limits: RequestLimits, keep_alive_s: float = KEEP_ALIVE_S) -> None:
        self._api = api
        self._engine = engine
        self._limits = limits
        self._keep_alive_s = keep_alive_s

    async def post(self, request: Request) -> Response:
        """Answer one request; raise `UserError`, `EngineError` or `ClientGone`."""
        body = decode_json(await read_json(request, self._limits), self._api.body)
        ask = self._api.ask(body, self._engine.model, _session(request))
        batch, known = await unless_gone(open_ask(self._engine, ask), until_gone(request.receive))
        teller = self._api.teller(ask, known, self._engine.model.served_name)
        if ask.stream:
            return EventStream(batch, teller, keep_alive_s=self._keep_alive_s)
        try:
            replies = await unless_gone(whole(batch, teller), until_gone(request.receive))
        finally:
            batch.cancel()
        return WholeAnswer(msgspec.json.encode(teller.whole(replies)), batch)


class WholeAnswer(Response):
    """The answer to a request that is not streamed."""

    media_type = "application/json"

    def __init__(self, body: bytes, batch: Batch[OutputLike]) -> None:
        super().__init__(body)
        self._batch = batch

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        await super().__call__(scope, receive, send)
        self._batch.written(size=len(self.body))


async def whole(batch: Batch[OutputLike], teller: Teller) -> list[Reply]:
    """Return the replies of `batch`, counted by the teller's tally."""
    try:
        replies = await batch.replies()
    except TokenSpeedError as error:
        raise teller.ask.renamed(error) from None
    for index, reply in enumerate(replies):
        teller.tally.note(index, reply)
    return replies


def _session(request: Request) -> str:
    """Return what the client calls its session, "" if it says nothing."""
    return next((value for name in SESSION_HEADERS if (value := request.headers.get(name))), "")
