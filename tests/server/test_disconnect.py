from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tokenspeed.server.disconnect import ClientGone, unless_gone, until_gone


async def forever(ended: list[str]) -> None:
    try:
        await asyncio.sleep(3600)
    finally:
        ended.append("ended")


async def value() -> int:
    await asyncio.sleep(0)
    return 5


async def failing() -> None:
    raise ValueError("broken")


async def soon() -> None:
    await asyncio.sleep(0.001)


def test_work_that_ends_first_wins_and_the_watch_is_ended() -> None:
    ended: list[str] = []
    assert asyncio.run(unless_gone(value(), forever(ended))) == 5
    assert ended == ["ended"]


def test_a_client_that_leaves_ends_the_work() -> None:
    ended: list[str] = []
    with pytest.raises(ClientGone):
        asyncio.run(unless_gone(forever(ended), soon()))
    assert ended == ["ended"]


@pytest.mark.parametrize("work_fails", [True, False])
def test_an_error_of_either_side_comes_out(work_fails: bool) -> None:
    ended: list[str] = []
    pair: list[Coroutine[Any, Any, None]] = [failing(), forever(ended)]
    with pytest.raises(ValueError, match="broken"):
        asyncio.run(unless_gone(*(pair if work_fails else pair[::-1])))
    assert ended == ["ended"]


def test_cancelling_from_outside_ends_both() -> None:
    ended: list[str] = []

    async def main() -> None:
        task = asyncio.create_task(unless_gone(forever(ended), forever(ended)))
        await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(main())
    assert ended == ["ended", "ended"]


def test_until_gone_reads_over_what_is_left_of_the_body() -> None:
    messages = [{"type": "http.request"}, {"type": "http.disconnect"}]

    async def receive() -> dict[str, Any]:
        return messages.pop(0)

    asyncio.run(until_gone(receive))
    assert not messages
