"""Request ids, who asks, and the last net under every endpoint.

Owns what surrounds an endpoint: the id goes into the request's state, the answer's headers, the bodies of
errors and the log's line, which counts what the call took; an exception that nobody planned becomes a 500 in
the usual shape.

Invariant: every answer carries `x-request-id`, the caller's if it is short and plain, else a new one.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tokenspeed.caller import CALLER, Caller, trace_context
from tokenspeed.server.disconnect import ClientGone
from tokenspeed.server.errors import error_response, internal_error, shown
from tokenspeed.server.record import QUIET_PATHS, STATUS_CLIENT_GONE, SpansLike, key_name, tell
from tokenspeed.server.tenants import tenant_of_request

_PLAIN = re.compile(r"[A-Za-z0-9._:/+=@-]{1,128}")

log = logging.getLogger("tokenspeed.server")


def request_id(asked: str | None) -> str:
    """Return `asked` if it has at most 128 plain characters, else a new id."""
    return asked if asked and _PLAIN.fullmatch(asked) else f"req-{secrets.token_hex(12)}"


class Identity:
    """The middleware."""

    def __init__(self, app: ASGIApp, log_prompts: bool = False, spans: SpansLike | None = None) -> None:
        self._app = app
        self._log_prompts = log_prompts
        self._spans = spans

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the application for one request."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = Headers(scope=scope)
        caller = Caller(
            request_id(headers.get("x-request-id")),
            keep_text=self._log_prompts,
            received_ns=time.monotonic_ns(),
            context=trace_context(headers.get("traceparent"), headers.get("tracestate")),
        )
        CALLER.set(caller)  # for this request's task alone
        return await _Call(scope, send, caller, self._spans).run(self._app, receive)


class _Call:
    """One request on its way."""

    def __init__(self, scope: Scope, send: Send, caller: Caller, spans: SpansLike | None) -> None:
        self._scope = scope
        self._send = send
        self._caller = caller
        self._spans = spans
        self._id = caller.id
        state: dict[str, Any] = scope.setdefault("state", {})
        state["request_id"] = caller.id
        self._status = 0
        self._begun_s = time.monotonic()

    async def run(self, app: ASGIApp, receive: Receive) -> None:
        try:
            await app(self._scope, receive, self._sending)
        except ClientGone:
            self._status = STATUS_CLIENT_GONE
        except Exception:
            log.exception("a request failed", extra={"fields": {"id": self._id}})
            if self._status:
                raise
            await error_response(internal_error(self._id))(self._scope, receive, self._sending)
        finally:
            self._tell()

    async def _sending(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            MutableHeaders(scope=message)["x-request-id"] = self._id
        await self._send(message)

    def _tell(self) -> None:
        if self._scope["path"] not in QUIET_PATHS:
            self._caller.key = key_name(tenant_of_request.get())
            path = shown(self._scope.get("raw_path", b"").decode("latin-1"))
            tell(f"{self._scope['method']} {path}", self._status, self._begun_s, self._caller, self._spans)
