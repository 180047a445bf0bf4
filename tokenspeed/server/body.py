"""Reading a request's body, within limits of size, patience and shape.

Owns the refusals that come before a body is decoded: too large, compressed, too slow, nested too
deeply. It does not know what the bytes mean.

Invariant: no more than `request_bytes_max` bytes of one request are held, and those for a bounded time.
"""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from tokenspeed.config import RequestLimits
from tokenspeed.errors import UserError
from tokenspeed.server.disconnect import ClientGone
from tokenspeed.server.shape import check_shape

BYTES_PER_S_MIN = 8 << 10  # that a body has to keep up, the first `body_timeout_s` aside
DISCARD_S_MAX = 2.0


async def read_json(request: Request, limits: RequestLimits) -> bytes:
    """Return the body; raise `UserError` with 400, 408, 413 or 415, or `ClientGone`."""
    body = await read_body(request, limits)
    check_shape(body, limits.json_depth_max, limits.json_items_max)
    return body


async def read_body(request: Request, limits: RequestLimits) -> bytes:
    """Return the body; raise `UserError` with 408, 413 or 415, or `ClientGone`."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise UserError(
            f"The body is encoded as {encoding[:40]}; send it unencoded.", status=415, code="unsupported_media_type"
        )
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > limits.request_bytes_max:
        if "expect" not in request.headers:
            await _discard(request)
        raise _too_large(f"{int(announced)} bytes", limits.request_bytes_max)
    return await _read(request, limits)


async def _read(request: Request, limits: RequestLimits) -> bytes:
    loop = asyncio.get_running_loop()
    pieces, size, begun_s = [], 0, loop.time()
    while True:
        slow_s = begun_s + limits.body_timeout_s + size / BYTES_PER_S_MIN
        try:
            async with asyncio.timeout_at(min(slow_s, loop.time() + limits.body_timeout_s)):
                piece, more = await _piece(request)
        except TimeoutError:
            raise _too_slow(limits.body_timeout_s) from None
        size += len(piece)
        if size > limits.request_bytes_max:
            await _discard(request)
            raise _too_large(f"more than {limits.request_bytes_max} bytes", limits.request_bytes_max)
        pieces.append(piece)
        if not more:
            return b"".join(pieces)


async def _piece(request: Request) -> tuple[bytes, bool]:
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise ClientGone
    return message.get("body", b""), message.get("more_body", False)


async def _discard(request: Request) -> None:
    """Read on for a moment: a client that is still sending sees a reset instead of the answer."""
    try:
        async with asyncio.timeout(DISCARD_S_MAX):
            while (await _piece(request))[1]:
                pass
    except TimeoutError:
        pass


def _too_slow(limit_s: float) -> UserError:
    return UserError(
        f"The body stopped for {limit_s:g} s, or comes with less than {BYTES_PER_S_MIN} bytes a second "
        "(--body-timeout); send it without pauses.",
        status=408,
        code="timeout",
    )


def _too_large(seen: str, bytes_max: int) -> UserError:
    return UserError(
        f"The body has {seen}; at most {bytes_max} are allowed (--max-request-bytes).",
        status=413,
        code="request_too_large",
    )
