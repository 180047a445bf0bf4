"""Eventfds: how one process tells another that something is there.

Owns their flags. Who signals and who waits is the business of the ring. A ring signals and clears
its eventfds inside the native library; the functions here are for everyone else.

Invariant: none of these calls ever blocks, and none is inherited by accident.
"""

from __future__ import annotations

import asyncio
import contextlib
import os


def create_wakeup() -> int:
    """Return a new eventfd, not readable; the caller closes it."""
    return os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)


def signal_wakeup(fd: int) -> None:
    """Make `fd` readable."""
    with contextlib.suppress(BlockingIOError):  # the counter is full: it is readable already
        os.eventfd_write(fd, 1)


def clear_wakeup(fd: int) -> None:
    """Make `fd` unreadable until the next signal."""
    with contextlib.suppress(BlockingIOError):
        os.eventfd_read(fd)


async def wait_readable(fd: int) -> None:
    """Return when `fd` is readable; it stays so. One waiter at a time for a descriptor."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    loop.add_reader(fd, _resolve, future)
    try:
        await future
    finally:
        loop.remove_reader(fd)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
