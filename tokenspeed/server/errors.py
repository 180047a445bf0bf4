"""Errors in the shape that OpenAI's clients read, with the right status.

Owns the mapping from exceptions to status, headers and body. What went wrong inside stays in the
log: an exception that nobody planned gives the request's id and nothing else.

Invariant: every answer with a status of 400 and above has the body
`{"error": {"message", "type", "param", "code"}, "request_id"}`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from tokenspeed.caller import CALLER
from tokenspeed.errors import EngineError, TokenSpeedError, UserError

RETRY_AFTER_S = 2
SHOWN_CHARS_MAX = 200
KINDS = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


class ErrorDetail(msgspec.Struct, frozen=True):
    """The inner object of an error body."""

    message: str
    type: str
    param: str | None
    code: str


class ErrorBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error body: `{"error": {...}, "request_id": "..."}`."""

    error: ErrorDetail
    request_id: str = ""


def error_body(error: TokenSpeedError, request_id: str = "") -> ErrorBody:
    """Return the body that tells of `error`, by default to the present caller."""
    kind = "server_error" if error.status >= 500 else KINDS.get(error.status, "invalid_request_error")
    caller = CALLER.get()
    ident = request_id or (caller.id if caller is not None else "")
    return ErrorBody(ErrorDetail(error.message, kind, error.param, error.code), ident)


def error_response(error: TokenSpeedError, headers: Mapping[str, str] | None = None) -> Response:
    """Return the whole answer; 503 and 429 say when to come back."""
    headers = dict(headers or {})
    if error.status in (429, 503):
        headers.setdefault("retry-after", str(RETRY_AFTER_S))
    body = msgspec.json.encode(error_body(error))
    return Response(body, error.status, headers, media_type="application/json")


def internal_error(request_id: str) -> EngineError:
    """Return what a caller is told of an exception that nobody planned."""
    return EngineError(f"An internal error ended the request; the server's log has it under request id {request_id}.")


def shown(text: str) -> str:
    """Return `text` short enough to be repeated in a message."""
    return text if len(text) <= SHOWN_CHARS_MAX else text[:SHOWN_CHARS_MAX] + "..."


def renamed(error: TokenSpeedError, names: Mapping[str, str]) -> TokenSpeedError:
    """Return `error` with the parameter under the name that `names` has for it, if it has one."""
    name = names.get(error.param or "")
    if name is None:
        return error
    message = re.sub(rf"\b{re.escape(error.param or '')}\b", name, error.message, count=1)
    return type(error)(message, status=error.status, code=error.code, param=name)


async def on_tokenspeed_error(_request: Request, error: Exception) -> Response:
    """Answer an error that this package raised on purpose."""
    assert isinstance(error, TokenSpeedError)
    return error_response(error)


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Answer what routing refused: no such path, or not with this method."""
    assert isinstance(error, HTTPException)
    headers: dict[str, str] = dict(error.headers or {})
    return error_response(_routing_error(request, error, headers), headers)


def _routing_error(request: Request, error: HTTPException, headers: Mapping[str, str]) -> UserError:
    path = shown(request.url.path)
    if error.status_code == 404:
        return UserError(f"There is no {path} here; /v1/models tells what is served.", status=404, code="not_found")
    if error.status_code == 405:
        message = f"{request.method} is not allowed on {path}; use {headers.get('Allow', 'another method')}."
        return UserError(message, status=405, code="method_not_allowed")
    return UserError(error.detail, status=error.status_code)


HANDLERS: dict[Any, Any] = {HTTPException: on_http_exception, TokenSpeedError: on_tokenspeed_error}
