"""Eventfds."""

from __future__ import annotations

import asyncio
import fcntl
import os

import pytest
import uvloop

from tests.ipc.helpers import readable
from tokenspeed.ipc.wakeup import clear_wakeup, create_wakeup, signal_wakeup, wait_readable


def test_signal_and_clear() -> None:
    fd = create_wakeup()
    assert fcntl.fcntl(fd, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
    assert not readable(fd)
    clear_wakeup(fd)
    signal_wakeup(fd)
    signal_wakeup(fd)
    assert readable(fd)
    clear_wakeup(fd)
    assert not readable(fd)
    os.eventfd_write(fd, (1 << 64) - 2)
    signal_wakeup(fd)  # a full counter is readable: no error
    assert readable(fd)
    os.close(fd)


def test_wait_readable() -> None:
    async def body() -> None:
        fd = create_wakeup()
        asyncio.get_running_loop().call_later(0.01, signal_wakeup, fd)
        await wait_readable(fd)
        await wait_readable(fd)
        clear_wakeup(fd)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(wait_readable(fd), 0.01)
        os.close(fd)

    uvloop.run(body())
