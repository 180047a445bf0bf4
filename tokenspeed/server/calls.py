"""What can be called on the Unix socket.

Owns the routes: those of the HTTP API, with the same bodies and answers, and those that only the
owner of the process may use (`/flush_cache`, `/stats`, `/requests`, `/profile`). It sees calls and a
way to answer, never a connection.

Invariant: every call is answered by a `Reply`, by chunks and an `End`, or by a `Failure`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import msgspec

from tokenspeed.caller import CALLER, Caller, trace_context
from tokenspeed.engine.batch import Batch
from tokenspeed.engine.reply import OutputLike
from tokenspeed.errors import TokenSpeedError, UserError
from tokenspeed.server.admin import RequestsQuery, counters, flushed, found
from tokenspeed.server.apis import Api, apis
from tokenspeed.server.disconnect import ClientGone
from tokenspeed.server.errors import internal_error, shown
from tokenspeed.server.frames import Call, Chunk, End, Failure, Reply
from tokenspeed.server.generation import whole
from tokenspeed.server.health import Probes
from tokenspeed.server.identity import request_id
from tokenspeed.server.lookups import LOOKUPS, Lookup
from tokenspeed.server.metrics import Metrics
from tokenspeed.server.models import model_card, model_list
from tokenspeed.server.opened import open_ask
from tokenspeed.server.parse import decode_msgpack
from tokenspeed.server.ports import EngineLike
from tokenspeed.server.record import QUIET_PATHS, STATUS_CLIENT_GONE, SpansLike, tell
from tokenspeed.server.telling import Teller

Send = Callable[[Any], Awaitable[None]]

STATUS_OK = 200

log = logging.getLogger("tokenspeed.server")


class ProfileAsk(msgspec.Struct, frozen=True):
    """The body of `/profile`."""

    seconds: float


class Calls:
    """The routes onto `engine`."""

    def __init__(
        self,
        engine: EngineLike,
        probes: Probes,
        metrics: Metrics | None = None,
        *,
        trust_request_chat_template: bool = False,
        log_prompts: bool = False,
        spans: SpansLike | None = None,
    ) -> None:
        self._engine = engine
        self._spans = spans
        self._log_prompts = log_prompts
        self._probes = probes
        self._routes: dict[str, Callable[[Call, Send], Awaitable[None]]] = {
            **{api.path: partial(self._generate, api) for api in apis(trust_request_chat_template)},
            **{path: partial(self._look_up, lookup) for path, lookup in LOOKUPS.items()},
            "/v1/models": self._models,
            "/health": self._health,
            "/ready": self._ready,
            "/flush_cache": self._flush_cache,
            "/stats": self._stats,
            "/requests": self._requests,
            "/profile": self._profile,
        }
        if metrics is not None:
            self._routes["/metrics"] = partial(self._metrics, metrics)

    async def answer(self, call: Call, send: Send) -> None:
        """Answer `call` through `send`; cancelling this cancels what the call asked for."""
        caller = Caller(
            request_id(call.request_id),
            keep_text=self._log_prompts,
            received_ns=time.monotonic_ns(),
            context=trace_context(call.traceparent, call.tracestate),
        )
        CALLER.set(caller)  # for this call's task alone
        begun_s, status = time.monotonic(), STATUS_CLIENT_GONE
        try:
            status = await self._answer(call, send, caller.id)
        finally:
            if call.path not in QUIET_PATHS:
                tell(f"CALL {shown(call.path)}", status, begun_s, caller, self._spans)

    async def _answer(self, call: Call, send: Send, ident: str) -> int:
        """Answer and return the status that the log is told."""
        try:
            await self._route(call.path)(call, send)
            return STATUS_OK
        except TokenSpeedError as error:
            await send(failure(error))
            return error.status
        except (OSError, ClientGone):
            raise
        except Exception:
            log.exception("a call on the Unix socket failed", extra={"fields": {"id": ident, "path": shown(call.path)}})
            await send(failure(internal_error(ident)))
            return internal_error(ident).status

    def _route(self, path: str) -> Callable[[Call, Send], Awaitable[None]]:
        if path not in self._routes:
            raise UserError(f"There is no {shown(path)}; use {', '.join(self._routes)}.", status=404, code="not_found")
        return self._routes[path]

    async def _generate(self, api: Api, call: Call, send: Send) -> None:
        ask = api.ask(decode_msgpack(bytes(call.body), api.body), self._engine.model, "")
        batch, known = await open_ask(self._engine, ask)
        teller = api.teller(ask, known, self._engine.model.served_name)
        try:
            if ask.stream:
                await _stream(batch, teller, send)
            else:
                await send(Reply(200, teller.whole(await whole(batch, teller))))
                batch.written()
        finally:
            batch.cancel()

    async def _look_up(self, lookup: Lookup, call: Call, send: Send) -> None:
        await send(Reply(200, await lookup.answer(self._engine, decode_msgpack(bytes(call.body), lookup.body))))

    async def _models(self, _call: Call, send: Send) -> None:
        await send(Reply(200, model_list(model_card(self._engine.model, 0))))

    async def _health(self, _call: Call, send: Send) -> None:
        await send(Reply(*self._probes.live()))

    async def _ready(self, _call: Call, send: Send) -> None:
        await send(Reply(*self._probes.ready()))

    async def _metrics(self, metrics: Metrics, _call: Call, send: Send) -> None:
        await send(Reply(200, await metrics.text()))

    async def _flush_cache(self, _call: Call, send: Send) -> None:
        await send(Reply(200, await flushed(self._engine)))

    async def _stats(self, _call: Call, send: Send) -> None:
        await send(Reply(200, await counters(self._engine)))

    async def _requests(self, call: Call, send: Send) -> None:
        query = decode_msgpack(bytes(call.body), RequestsQuery)
        await send(Reply(200, found(self._engine, query.id)))

    async def _profile(self, call: Call, send: Send) -> None:
        asked = decode_msgpack(bytes(call.body), ProfileAsk)
        await send(Reply(200, {"path": str(await self._engine.profile(asked.seconds))}))


def failure(error: TokenSpeedError) -> Failure:
    """Return the frame that tells of `error`."""
    caller = CALLER.get()
    return Failure(error.status, error.code, error.message, error.param, caller.id if caller is not None else "")


async def _stream(batch: Batch[OutputLike], teller: Teller, send: Send) -> None:
    for piece in teller.opening():
        await send(Chunk(piece))
    try:
        async for index, output in batch:
            teller.tally.note(index, output)
            for piece in teller.pieces(index, output):
                await send(Chunk(piece))
            batch.written(index)
    except TokenSpeedError as error:
        raise teller.ask.renamed(error) from None
    for piece in teller.closing():
        await send(Chunk(piece))
    await send(End())
