"""`POST /v1/chat/completions`, whole and streamed.

Owns the way from a body to an answer over HTTP. Everything that can be the caller's fault is found
before the first header: the prompt has been accepted when a stream's headers go out.

Invariant: when the endpoint or its response returns, the engine no longer works for this request.
"""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from tokenspeed.config import RequestLimits
from tokenspeed.server.ask import chat_ask
from tokenspeed.server.body import read_json
from tokenspeed.server.disconnect import unless_gone, until_gone
from tokenspeed.server.parse import decode_json
from tokenspeed.server.ports import EngineLike, StreamLike
from tokenspeed.server.replies import ReplyHead, collect
from tokenspeed.server.schema import ChatRequest
from tokenspeed.server.sse import KEEP_ALIVE_S, EventStream

SESSION_HEADERS = ("x-session-id", "x-session-affinity", "x-claude-code-session-id")


class ChatDoor:
    """The endpoint. Bodies beyond `limits` are refused."""

    def __init__(
        self,
        engine: EngineLike,
        limits: RequestLimits,
        keep_alive_s: float = KEEP_ALIVE_S,
        *,
        trust_request_chat_template: bool = False,
    ) -> None:
        self._engine = engine
        self._trust = trust_request_chat_template
        self._limits = limits
        self._keep_alive_s = keep_alive_s

    async def post(self, request: Request) -> Response:
        """Answer one request; raise `UserError`, `EngineError` or `ClientGone`."""
        body = decode_json(await read_json(request, self._limits), ChatRequest)
        ask = chat_ask(body, self._engine.model, _session(request), trust_request_chat_template=self._trust)
        stream = self._engine.generate(ask.prompt, ask.sampling, namespace=ask.namespace, session=ask.session)
        head = ReplyHead.new(self._engine.model.served_name)
        if not ask.stream:
            return await _whole(request, stream, head)
        try:
            await unless_gone(stream.accepted(), until_gone(request.receive))
        except BaseException:
            stream.cancel()
            raise
        return EventStream(stream, head, include_usage=ask.include_usage, keep_alive_s=self._keep_alive_s)


async def _whole(request: Request, stream: StreamLike, head: ReplyHead) -> Response:
    try:
        text, last = await unless_gone(collect(stream), until_gone(request.receive))
    finally:
        stream.cancel()
    return Response(msgspec.json.encode(head.whole(text, last)), media_type="application/json")


def _session(request: Request) -> str:
    """Return what the client calls its session, "" if it says nothing."""
    return next((value for name in SESSION_HEADERS if (value := request.headers.get(name))), "")
