"""A chat reply as server-sent events.

Owns what happens after the headers: chunks as the engine yields them, a sign of life when it yields
none, an error event when it fails, the end. A client that leaves cancels the reply at once, also
while its buffers are full.

Invariant: the stream is cancelled when the response returns, and a client that stays has read
`[DONE]`.
"""

from __future__ import annotations

import asyncio
import logging

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tokenspeed.errors import TokenSpeedError
from tokenspeed.server.disconnect import ClientGone, unless_gone
from tokenspeed.server.errors import error_body, internal_error
from tokenspeed.server.ports import StreamLike
from tokenspeed.server.replies import DONE, JsonChunks, ReplyHead, cut_short, event

KEEP_ALIVE_S = 15.0

log = logging.getLogger("tokenspeed.server")


class EventStream(Response):
    """Sends `stream` to the client; `keep_alive_s` is the longest silence in seconds."""

    media_type = "text/event-stream"

    def __init__(
        self, stream: StreamLike, head: ReplyHead, *, include_usage: bool, keep_alive_s: float = KEEP_ALIVE_S
    ) -> None:
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._stream = stream
        self._chunks = JsonChunks(head)
        self._include_usage = include_usage
        self._keep_alive_s = keep_alive_s
        self._alive = b": keep-alive\n\n" + self._chunks.text("")
        self._sent_s = asyncio.get_running_loop().time()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the reply; return when it has ended or the client has gone."""
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            tail = await unless_gone(self._pump(scope, send), self._watch(receive, send))
            await send({"type": "http.response.body", "body": tail, "more_body": False})
        except ClientGone:
            pass
        finally:
            self._stream.cancel()

    async def _pump(self, scope: Scope, send: Send) -> bytes:
        """Send the chunks and return the events that end the reply."""
        state = scope.setdefault("state", {})
        try:
            await self._send(send, self._chunks.role())
            async for output in self._stream:
                text = self._chunks.text(output.text) if output.text else b""
                if output.finish:
                    return text + self._chunks.end(output, self._include_usage)
                if text:
                    await self._send(send, text)
            raise cut_short()
        except TokenSpeedError as error:
            return event(error_body(error)) + DONE
        except Exception:
            request_id = str(state.get("request_id", ""))
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
                    await self._send(send, self._alive)

    async def _send(self, send: Send, body: bytes) -> None:
        self._sent_s = asyncio.get_running_loop().time()
        await send({"type": "http.response.body", "body": body, "more_body": True})
