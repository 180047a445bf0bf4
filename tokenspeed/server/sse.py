"""An answer as server-sent events.

Owns what happens after the headers: pieces as the engine yields them, a sign of life when it yields
none, an error event when it fails, the end. A client that leaves cancels every reply at once, also
while its buffers are full. A piece that brings text alone is glued from parts that are built once, so
that a token costs one string encoding.

Invariant: every stream is cancelled when the response returns, and a client that stays has read
`[DONE]`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tokenspeed.engine.batch import Batch
from tokenspeed.engine.reply import OutputLike
from tokenspeed.errors import TokenSpeedError
from tokenspeed.server.disconnect import ClientGone, unless_gone
from tokenspeed.server.errors import error_body, internal_error
from tokenspeed.server.telling import Teller

KEEP_ALIVE_S = 15.0
DONE = b"data: [DONE]\n\n"
MARK = "-"

log = logging.getLogger("tokenspeed.server")


def event(data: Any) -> bytes:
    """Return `data` as one server-sent event."""
    return b"data: " + msgspec.json.encode(data) + b"\n\n"


class Events:
    """The pieces of one answer as events."""

    def __init__(self, teller: Teller) -> None:
        self._teller = teller
        self._encode = msgspec.json.Encoder().encode
        self._around: dict[int, tuple[bytes, bytes]] = {}  # the text of a choice

    def of(self, index: int, output: OutputLike) -> bytes:
        """Return the events that tell of `output`."""
        if self._teller.is_plain and not output.finish and output.text and output.prompt_logprobs is None:
            return self.text(index, output.text)
        return b"".join(map(event, self._teller.pieces(index, output)))

    def text(self, index: int, text: str) -> bytes:
        """Return the event that brings `text` alone."""
        around = self._around.get(index)
        if around is None:
            before, after = event(self._teller.text(index, MARK)).rsplit(self._encode(MARK), 1)
            around = self._around[index] = before, after
        return b"".join((around[0], self._encode(text), around[1]))


class EventStream(Response):
    """Sends `batch` to the client as `teller` tells it; `keep_alive_s` is the longest silence in seconds."""

    media_type = "text/event-stream"

    def __init__(self, batch: Batch[OutputLike], teller: Teller, *, keep_alive_s: float = KEEP_ALIVE_S) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._batch = batch
        self._teller = teller
        self._events = Events(teller)
        self._keep_alive_s = keep_alive_s
        self._sent_s = asyncio.get_running_loop().time()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer; return when it has ended or the client has gone."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            tail = await unless_gone(self._pump(scope, send), self._watch(receive, send))
            await send({"type": "http.response.body", "body": tail, "more_body": False})
            self._batch.written(size=len(tail))
        except ClientGone:
            pass
        finally:
            self._batch.cancel()

    async def _pump(self, scope: Scope, send: Send) -> bytes:
        """Send the pieces and return the events that end the answer."""
        teller, tail = self._teller, b""
        try:
            if opening := b"".join(map(event, teller.opening())):
                await self._send(send, opening)
            async for index, output in self._batch:
                teller.tally.note(index, output)
                body = self._events.of(index, output)
                if teller.tally.is_done:
                    tail = body
                elif body:
                    await self._send(send, body)
                    self._batch.written(index, len(body))
            return tail + b"".join(map(event, teller.closing())) + DONE
        except TokenSpeedError as error:
            return event(error_body(teller.ask.renamed(error))) + DONE
        except Exception:
            request_id = str(scope.get("state", {}).get("request_id", ""))
            log.exception("a request failed in its stream", extra={"fields": {"id": request_id}})
            return event(error_body(internal_error(request_id))) + DONE

    async def _watch(self, receive: Receive, send: Send) -> None:
        """Return when the client has gone; meanwhile send a sign of life after each silence."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with asyncio.timeout_at(self._sent_s + self._keep_alive_s):
                    if (await receive())["type"] == "http.disconnect":
                        return
            except TimeoutError:
                if loop.time() - self._sent_s >= self._keep_alive_s:
                    alive = self._events.text(self._teller.tally.going_on, "")
                    await self._send(send, b": keep-alive\n\n" + alive)

    async def _send(self, send: Send, body: bytes) -> None:
        self._sent_s = asyncio.get_running_loop().time()
        await send({"type": "http.response.body", "body": body, "more_body": True})
