"""Noticing that the client has gone while a reply is being made.

Owns the race between work for a client and the news that nobody waits for it. It does not know
what the work is.

Invariant: whichever side ends first, the other is ended before `unless_gone` returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive

T = TypeVar("T")


class ClientGone(Exception):  # noqa: N818 - not an error of ours
    """The client has closed the connection; nobody reads an answer."""


async def until_gone(receive: Receive) -> None:
    """Return when the client has closed the connection; the body was read before."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def unless_gone(work: Coroutine[Any, Any, T], gone: Coroutine[Any, Any, Any]) -> T:
    """Return what `work` returns, or end it and raise `ClientGone` if `gone` returns first."""
    working, watching = asyncio.ensure_future(work), asyncio.ensure_future(gone)
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        watching.result()
        raise ClientGone
    finally:
        await _end(working, watching)


async def _end(*tasks: asyncio.Future[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
