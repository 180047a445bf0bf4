"""Reading a request's body, within limits of size and patience.

Owns the refusals that come before a body is looked at: too large, compressed, never finished. It
does not know what the bytes mean.

Invariant: no more than `bytes_max` bytes of one request are held.
"""

from __future__ import annotations

import asyncio

from starlette.requests import Request

from tokenspeed.errors import UserError
from tokenspeed.server.disconnect import ClientGone

SILENCE_S_MAX = 60.0
DISCARD_S_MAX = 2.0


async def read_body(request: Request, bytes_max: int) -> bytes:
    """Return the body; raise `UserError` with 408, 413 or 415, or `ClientGone`."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise UserError(
            f"The body is encoded as {encoding[:40]}; send it unencoded.", status=415, code="unsupported_media_type"
        )
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > bytes_max:
        if "expect" not in request.headers:
            await _discard(request)
        raise _too_large(f"{int(announced)} bytes", bytes_max)
    return await _read(request, bytes_max)


async def _read(request: Request, bytes_max: int) -> bytes:
    pieces, size = [], 0
    while True:
        piece, more = await _piece(request)
        size += len(piece)
        if size > bytes_max:
            await _discard(request)
            raise _too_large(f"more than {bytes_max} bytes", bytes_max)
        pieces.append(piece)
        if not more:
            return b"".join(pieces)


async def _piece(request: Request) -> tuple[bytes, bool]:
    try:
        async with asyncio.timeout(SILENCE_S_MAX):
            message = await request.receive()
    except TimeoutError:
        raise UserError(
            f"No byte of the body came for {SILENCE_S_MAX:.0f} s; send it without pauses.", status=408, code="timeout"
        ) from None
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


def _too_large(seen: str, bytes_max: int) -> UserError:
    return UserError(
        f"The body has {seen}; at most {bytes_max} are allowed (--max-request-bytes).",
        status=413,
        code="request_too_large",
    )
